"""Tests of the ONNX front end against the standard's own cases and against ONNX Runtime."""
