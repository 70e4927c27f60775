"""Kernel families as loop IR; nothing here knows a target."""
