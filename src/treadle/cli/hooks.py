"""Pipelines that print what the user asked to see."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Graph
from ..ir.printer import print_graph
from ..passes.pipeline import Pipeline

BLOB_LIMIT = 256
"""Bytes of a constant that are printed."""


def pipeline_with(print_after: Sequence[str]) -> Pipeline:
    """The standard pipeline, printing the graph after each of these passes."""
    def show(name: str, graph: Graph) -> None:
        if name in print_after or "all" in print_after:
            print(f"-- after {name}\n{print_graph(graph, blob_limit=BLOB_LIMIT)}")

    return Pipeline.standard(after=show)
