"""Independent answers for the samples of operators, one module a family."""
