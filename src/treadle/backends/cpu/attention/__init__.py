"""Attention without stored scores: blocks of queries meet blocks of keys in scratch memory."""

from .lowering import LOWERINGS

__all__ = ["LOWERINGS"]
