"""Measures engines side by side: one process each, one at a time, alternating blocks."""
