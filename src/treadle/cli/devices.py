"""`treadle devices`: what can run here."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..api import devices as all_devices


def devices() -> None:
    """List the devices and what stands behind each here."""
    table = Table("device", "here")
    for name, text in all_devices().items():
        table.add_row(name, text)
    Console().print(table)
