"""`treadle passes`: the optimisation pipeline."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..passes.pipeline import describe


def passes() -> None:
    """List the passes in the order in which they run, with their options."""
    table = Table("pass", "what it does", "options")
    for row in describe():
        options = ", ".join(f"{k}={v}" for k, v in row.options.items())
        table.add_row(row.name, row.summary, options)
    Console().print(table)
