"""Run a graph by its meaning: NumPy bodies, one node after another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np

from ..declare import evaluate
from ..declare.arrays import Array
from ..declare.evaluate import Binding, Watch
from ..ir.graph import Graph, Node
from ..ops.library import REGISTRY
from .base import Claim, Data, Grant, HostStorage, State


class ReferenceProgram:
    """A graph with its parameters."""

    def __init__(self, graph: Graph, params: Mapping[str, Data]) -> None:
        self.graph = graph
        self.storage = HostStorage()
        # bodies that take an encoded operand know it; the others never see one
        self._params = cast("list[Array]", [params[v.name] for v in graph.params])
        self._index = {v.name: i for i, v in enumerate(graph.params)}
        evaluate.plan(graph)

    def run(self, inputs: Sequence[Array], binding: Binding, watch: Watch | None = None,
            kept: Collection[int] = ()) -> Sequence[Array]:  # noqa: ARG002 - NumPy's are its own
        """Evaluate node by node; an output that is a parameter is a copy of it."""
        found = evaluate.run(self.graph, [*inputs, *self._params], {}, binding, watch)
        held = {id(a) for a in self._params}
        return [a.copy() if id(a) in held else a for a in found]

    def direct(self, binding: Binding) -> None:  # noqa: ARG002 - the protocol's
        """There is none."""
        return

    @property
    def params(self) -> Mapping[str, Data]:
        """Parameters by name."""
        return dict(zip(self._index, self._params, strict=True))

    def set_param(self, name: str, array: Data) -> None:
        """Replace a parameter between runs."""
        self._params[self._index[name]] = cast(Array, array)

    def clone(self) -> ReferenceProgram:
        """The same graph with the same parameters."""
        return ReferenceProgram(self.graph, self.params)

    def with_states(self, states: Sequence[State]) -> tuple[ReferenceProgram, Sequence[Grant]]:
        """The program itself: every operator makes new arrays."""
        return self, [Grant(reason="operators are interpreted") for _ in states]


class Reference:
    """The device that is always there and defines every other one's results."""

    name = "reference"

    def describe(self) -> str:
        """NumPy and its version."""
        return f"NumPy {np.__version__}, one operator after another"

    def unavailable(self) -> str:
        """Never."""
        return ""

    def claim(self, node: Node) -> Claim:
        """Composites run through their bodies, all else through its own."""
        op = REGISTRY[node.op]
        return Claim("decomposed", "runs its body of operators") if op.kind == "composite" else (
            Claim("native"))

    def declines(self, node: Node) -> str:  # noqa: ARG002 - the protocol's
        """Composites stay whole: their bodies are what is interpreted."""
        return ""

    def compile(self, graph: Graph, params: Mapping[str, Data]) -> ReferenceProgram:
        """A program that interprets the graph."""
        return ReferenceProgram(graph, params)
