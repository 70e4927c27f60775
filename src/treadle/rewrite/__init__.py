"""Named equations between expressions, and the driver that applies them."""
