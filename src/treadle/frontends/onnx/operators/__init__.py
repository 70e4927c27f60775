"""Importer entries, one operator family a file."""
