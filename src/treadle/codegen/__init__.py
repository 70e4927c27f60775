"""Printers: loop IR and templates to text, and text to code; no operator knowledge."""
