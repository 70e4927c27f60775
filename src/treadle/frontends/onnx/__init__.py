"""The ONNX front end: parsing, functions, versions and one small entry per operator."""
