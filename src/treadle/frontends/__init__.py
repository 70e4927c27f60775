"""Readers of model formats: each turns a file into a graph, its parameters and a signature."""
