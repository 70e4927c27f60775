"""Devices: each runs a graph natively, by decomposition, or by its NumPy bodies."""
