"""Models, executables and what a user asks of them."""
