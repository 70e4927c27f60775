"""Tests; the folders below mirror src/treadle."""
