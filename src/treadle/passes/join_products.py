"""Join products of one left operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, cast, runtime_checkable

from ..ir.graph import Graph, Node, Value
from ..ops.contract import matmul
from ..ops.movement import concat, narrow
from .base import Context
from .raising import Found, Match, Raise, View


@runtime_checkable
class Joiner(Protocol):
    """A backend for which one wide product costs less than several."""

    def joins(self, node: Node) -> bool:
        """Whether a product may become part of a wider one."""
        ...


@dataclass(frozen=True, slots=True)
class JoinProducts(Raise):
    """Records one product with packed weights, and its parts, for products of one operand.

    The weights must be constants or frozen parameters of at most `most` elements, which folding
    packs once; beyond that a product costs more than its launch. Each column is the same sum as
    before. Holds for every operand. Without a backend that joins nothing changes.
    """

    name: ClassVar[str] = "join_products"
    anchors: ClassVar[frozenset[str]] = frozenset({"matmul"})
    most: int = 1 << 24

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Only where the backend joins."""
        if not isinstance(ctx.legaliser, Joiner):
            return graph
        return Raise.run(self, graph, ctx)

    def match(self, node: Node, view: View) -> Match:
        """The last one of several products of its left operand."""
        x = node.inputs[0]
        found = {n for n in view.readers.get(x, []) if n is not None and self._fits(n, x, view)}
        nodes = sorted(found, key=view.order.__getitem__)
        nodes = [n for n in nodes if view.home[n] is view.home[node] and _early(n, nodes[0], view)]
        if len(nodes) < 2 or nodes[-1] is not node:
            return None
        sizes = [cast(int, n.inputs[1].shape[1]) for n in nodes]

        def record(x: Value, *weights: Value) -> tuple[Value, ...]:
            whole, start, parts = matmul(x, concat(list(weights), axis=1)), 0, list[Value]()
            for size in sizes:
                parts.append(narrow(whole, axis=-1, start=start, length=size))
                start += size
            return tuple(parts)

        return Found("joined products", tuple(nodes), (x, *[n.inputs[1] for n in nodes]), record)

    def _fits(self, node: Node, x: Value, view: View) -> bool:
        joiner = cast(Joiner, view.ctx.legaliser)
        if node.op != "matmul" or node.inputs[0] is not x or x.type.rank < 2:
            return False
        w = node.inputs[1]
        data = view.data(w)
        return (data is not None and data.ndim == 2 and data.size <= self.most
                and view.single(w) and joiner.joins(node))


def _early(node: Node, first: Node, view: View) -> bool:
    """Whether its weight is there where the first product stands."""
    producer = node.inputs[1].producer
    return producer is None or view.order[producer] < view.order[first]
