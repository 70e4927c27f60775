"""Compute the same thing once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from ..ir.graph import Attr, Attrs, Blob, Graph, Node, Value
from ..ir.printer import print_graph
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Pass

Key: TypeAlias = "tuple[object, ...]"
NAMING = ("names", "fresh")
"""Attributes that only choose the names of the sizes which a node makes."""
EITHER_ORDER = frozenset({"add", "mul", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor",
                          "logical_and", "logical_or", "logical_xor"})
"""Operators that give the same bits for swapped operands; max and min may not, on zeros."""


@dataclass(frozen=True, slots=True)
class CommonSubexpressions(Pass):
    """Replaces a node by an earlier one with the same operator, operands and attributes.

    A region reuses what enclosing graphs computed before it, but keeps its own constants. Of two
    nodes that make sizes from the same operands, the first one's names stay.
    """

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Copy the graph, looking every node up first."""
        work = _Merge()
        out = work.graph(graph)
        for op, n in work.merged.items():
            ctx.did(self, f"{op} merged", n)
        return out if work.changed else graph


class _Merge(Rebuild):
    __slots__ = ("merged", "scopes")

    def __init__(self) -> None:
        super().__init__(self.look_up)
        self.scopes: list[dict[Key, Node]] = []
        self.merged: Counter[str] = Counter()

    def graph(self, old: Graph) -> Graph:
        """The copy of `old`, a scope of its own."""
        self.scopes.append({})
        try:
            return super().graph(old)
        finally:
            self.scopes.pop()

    def look_up(self, node: Node) -> Sequence[Value] | None:
        """The outputs of an equal node that has run in this scope or around it."""
        key = _key(node)
        scopes = self.scopes if node.inputs else self.scopes[-1:]
        for scope in reversed(scopes):
            if (found := scope.get(key)) is not None:
                self.merged[node.op] += 1
                return found.outputs
        self.scopes[-1][key] = node
        return None


def _key(node: Node) -> Key:
    attrs: Attrs = node.attrs
    if not attrs.keys().isdisjoint(NAMING):
        drop = NAMING if node.makes() else ("fresh",)
        attrs = {k: v for k, v in attrs.items() if k not in drop}
    inputs = [id(v) for v in node.inputs]
    if node.op in EITHER_ORDER:
        inputs.sort()
    head = (node.op, tuple(inputs), node.keys, frozen(attrs))
    return (*head, *[_region_key(k, g) for k, g in node.regions.items()]) if node.regions else head


def _region_key(key: str, region: Graph) -> Key:
    """The text of a region, which starts with what it captures, and their identity."""
    free = region.captures
    alone = Graph(region.name, [*region.inputs], [*region.params, *free], region.nodes,
                  region.outputs, (), region.output_names)
    return (key, print_graph(alone, blob_limit=256), tuple([id(v) for v in free]))


def frozen(attrs: Attrs) -> Key:
    """Attributes as a key that tells 1, 1.0 and true, 0.0 and -0.0 apart, and finds NaN equal."""
    return tuple([(k, _freeze(v)) for k, v in attrs.items()])


def _freeze(value: Attr) -> object:
    if isinstance(value, tuple):
        return tuple([_freeze(v) for v in value])
    if isinstance(value, int | float | complex):
        return (type(value), repr(value))
    return value.digest if isinstance(value, Blob) else value
