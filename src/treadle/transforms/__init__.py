"""Graph to graph transforms, driven by the kinds of the operators and their rules."""
