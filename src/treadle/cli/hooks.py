"""Pipelines that print what the user asked to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table

from ..ir.graph import Graph
from ..passes.pipeline import Pipeline, Record, from_config, seconds_by_pass


def watched(print_after: Sequence[str], stop_after: str = "",
            records: list[Record] | None = None, to: TextIO | None = None) -> Pipeline:
    """The standard pipeline; it prints the graph after these passes and keeps its records."""
    def observe(record: Record, _graph: Graph) -> None:
        if record.text:
            print(f"-- after {record.name}\n{record.text}", file=to)
        if records is not None:
            records.append(record)

    return from_config(print_after=print_after, stop_after=stop_after, observe=observe)


def print_times(records: Sequence[Record]) -> None:
    """Total time by pass, on standard error."""
    table = Table("pass", "ms", "runs")
    for name, seconds in seconds_by_pass(records).items():
        table.add_row(name, f"{1e3 * seconds:.2f}", str(sum(r.name == name for r in records)))
    Console(stderr=True).print(table)
