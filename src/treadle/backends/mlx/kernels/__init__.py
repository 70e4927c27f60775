"""Kernels of our own, written once and rendered for CUDA and Metal."""
