"""Graph to graph passes, one a file, and the pipeline that runs them."""
