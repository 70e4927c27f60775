"""Where every value lives: strided views, lifetimes, and an arena with offsets by binding."""
