"""Remove nodes that no output needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Pass


@dataclass(frozen=True, slots=True)
class DeadCode(Pass):
    """Removes nodes whose values nothing reads, in regions too, and unused frozen parameters.

    A node that is the first to know a size which a live node mentions is live.
    """

    name: ClassVar[str] = "dce"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Mark what the outputs need, then copy that."""
        live: set[int] = set()
        _mark(graph, {}, live)
        gone = sum([id(n) not in live for n in graph.walk()])
        used = {v for n in graph.walk() if id(n) in live for v in n.uses()} | {*graph.outputs}
        params = [v for v in graph.params if v in used or v.name not in ctx.params]
        ctx.did(self, "nodes removed", gone)
        ctx.did(self, "parameters removed", len(graph.params) - len(params))
        if not gone and len(params) == len(graph.params):
            return graph
        for name in {v.name for v in graph.params} - {v.name for v in params}:
            del ctx.params[name]
        return _Sweep(live).graph(_part(graph, graph.nodes, params))


class _Sweep(Rebuild):
    """A copy of the live nodes alone."""

    __slots__ = ("live",)

    def __init__(self, live: set[int]) -> None:
        super().__init__(lambda _: None)
        self.live = live

    def graph(self, old: Graph) -> Graph:
        """The copy of `old`."""
        return super().graph(_part(old, [n for n in old.nodes if id(n) in self.live], old.params))


def _part(graph: Graph, nodes: Sequence[Node], params: Sequence[Value]) -> Graph:
    return Graph(graph.name, graph.inputs, [*params], [*nodes], graph.outputs, (),
                 graph.output_names)


def _mark(graph: Graph, outer: Mapping[str, Node], live: set[int]) -> set[str]:
    """Mark the live nodes of `graph` and its regions; gives the sizes that these read.

    `outer` has the nodes of enclosing graphs that are the first to know a size.
    """
    first: dict[str, int] = {}
    for i, node in enumerate(graph.nodes):
        for name in node.makes():
            first.setdefault(name, i)
    wanted: set[Value] = set(graph.outputs)
    needed: set[int] = set()
    sizes: set[str] = set()
    for i, node in reversed([*enumerate(graph.nodes)]):
        if i not in needed and wanted.isdisjoint(node.outputs):
            continue
        live.add(id(node))
        reads = node.reads()
        for region in node.regions.values():
            before = {s: graph.nodes[j] for s, j in first.items() if j < i}
            reads |= _mark(region, {**before, **outer}, live)
            kept = [n for n in region.nodes if id(n) in live]
            wanted.update(_part(region, kept, region.params).free_values())
        wanted.update(node.inputs)
        sizes |= reads
        needed |= {first[s] for s in reads if s in first and s not in outer}
    return sizes
