"""Join products of one left operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, cast, runtime_checkable

from ..ir.graph import Graph, Node, Value
from ..ops.contract import matmul
from ..ops.movement import concat, narrow
from ..ops.quantized_products import quantized_matmul
from ..records import dataclass
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

    The weights must be constants or frozen parameters of at most `most` elements, or `most_packed`
    of quantised ones, which folding packs once; beyond that a product costs more than its launch.
    Each column is the same sum as before. Holds for every operand. Without a backend that joins
    nothing changes.
    """

    name: ClassVar[str] = "join_products"
    anchors: ClassVar[frozenset[str]] = frozenset({"matmul", "quantized_matmul"})
    most: int = 1 << 24
    most_packed: int = 1 << 26

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Only where the backend joins."""
        if not isinstance(ctx.legaliser, Joiner):
            return graph
        return Raise.run(self, graph, ctx)

    def match(self, node: Node, view: View) -> Match:
        """The last one of several products of its left operand."""
        x = node.inputs[0]
        found = {n for n in view.readers.get(x, []) if n is not None and self._fits(n, node, view)}
        nodes = sorted(found, key=view.order.__getitem__)
        nodes = [n for n in nodes if view.home[n] is view.home[node] and _early(n, nodes[0], view)]
        if len(nodes) < 2 or nodes[-1] is not node:
            return None
        sizes = [cast(int, n.outputs[0].shape[-1]) for n in nodes]
        each = len(node.inputs) - 1

        def record(x: Value, *weights: Value) -> tuple[Value, ...]:
            columns = [list(weights[i::each]) for i in range(each)]
            whole, start, parts = _wide(node, x, columns), 0, list[Value]()
            for size in sizes:
                parts.append(narrow(whole, axis=-1, start=start, length=size))
                start += size
            return tuple(parts)

        operands = [v for n in nodes for v in n.inputs[1:]]
        return Found("joined products", tuple(nodes), (x, *operands), record)

    def _fits(self, node: Node, last: Node, view: View) -> bool:
        joiner, x = cast(Joiner, view.ctx.legaliser), last.inputs[0]
        if node.op != last.op or node.inputs[0] is not x or x.type.rank < 2:
            return False
        if node.attrs != last.attrs or not _alike(node, last):
            return False
        w = node.inputs[1]
        data = view.data(w)
        most = self.most if node.op == "matmul" else self.most_packed
        return (data is not None and data.ndim == 2 and data.size <= most
                and all([view.data(v) is not None for v in node.inputs[2:]])
                and view.single(w) and joiner.joins(node))


def _alike(node: Node, last: Node) -> bool:
    """Whether the parameters of two quantised weights can be joined."""
    if node.op == "matmul":
        return True
    pairs = list(zip(node.inputs[1:], last.inputs[1:], strict=False))
    return (node.keys == last.keys and all([a.dtype is b.dtype for a, b in pairs])
            and all([v.type.rank > 0 and v.shape != (1,) for v in node.inputs[2:]]))


def _wide(node: Node, x: Value, columns: Sequence[list[Value]]) -> Value:
    """The product of the joined weights; parameters of a vector lie along its columns."""
    if node.op == "matmul":
        return matmul(x, concat(columns[0], axis=1))
    axis = 0 if node.attrs["transposed"] else 1
    q, scale, *named = [concat(c, axis=axis if c[0].type.rank == 2 else 0) for c in columns]
    attrs = {**node.attrs, **dict(zip(node.keys, named, strict=True))}
    return quantized_matmul(x, q, scale, **attrs)  # type: ignore[arg-type]


def _early(node: Node, first: Node, view: View) -> bool:
    """Whether its weight is there where the first product stands."""
    made = [v.producer for v in node.inputs[1:]]
    return all([p is None or view.order[p] < view.order[first] for p in made])
