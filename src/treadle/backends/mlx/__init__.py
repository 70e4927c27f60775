"""The device "mlx": graphs on Apple's array library."""
