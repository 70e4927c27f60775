"""What the raising passes share: who reads a value, what a match is, and how matches are applied.

Exporters open composite operators into primitives. A raising pass finds such a group of nodes and
records the composite again. A group is replaced only when nothing outside reads what it computes
on the way; the report says what stopped the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias, TypeVar, cast

from ..declare.arrays import Array, Encoded
from ..errors import OperatorError
from ..ir.graph import Builder, Graph, Node, Value
from ..records import dataclass, field
from ..rewrite.constants import array_value
from ..transforms.clone import Rebuild
from .base import Context, Pass, at

T = TypeVar("T")
VIEWS = ("reshape", "unsqueeze", "squeeze")
"""Operators that only regroup axes."""


class View:
    """A graph as a matcher sees it: who reads each value, and where nodes stand."""

    __slots__ = ("ctx", "facts", "graph", "home", "nodes", "order", "readers")

    def __init__(self, graph: Graph, ctx: Context) -> None:
        self.graph, self.ctx = graph, ctx
        self.facts: dict[object, object] = {}
        self.nodes: list[Node] = []
        self.home: dict[Node, Graph] = {}
        self.readers: dict[Value, list[Node | None]] = {}
        self._enter(graph)
        self.order = {n: i for i, n in enumerate(self.nodes)}

    def _enter(self, graph: Graph) -> None:
        for node in graph.nodes:
            self.nodes.append(node)
            self.home[node] = graph
            for v in node.inputs:
                self.readers.setdefault(v, []).append(node)
            for region in node.regions.values():
                self._enter(region)
        for v in graph.outputs:
            self.readers.setdefault(v, []).append(None)

    def single(self, value: Value) -> bool:
        """Whether one node reads the value once, and no graph returns it."""
        found = self.readers.get(value, [])
        return len(found) == 1 and found[0] is not None

    def once(self, make: Callable[[View], T]) -> T:
        """What `make` finds out about this graph, computed when first asked for."""
        if make not in self.facts:
            self.facts[make] = make(self)
        return cast(T, self.facts[make])

    def data(self, value: Value) -> Array | None:
        """The elements of a constant or of a frozen parameter."""
        if value.producer is not None:
            return array_value(value)
        known = self.ctx.params.get(value.name)
        return None if isinstance(known, Encoded) or value not in self.graph.params else known


class Trail:
    """The nodes that a matcher has walked through, from `root` upwards."""

    __slots__ = ("nodes", "root", "view")

    def __init__(self, view: View, root: Node) -> None:
        self.view, self.root = view, root
        self.nodes: list[Node] = []

    def through(self, value: Value, *ops: str) -> Node | None:
        """The producer of `value` if it is one of `ops`; it becomes part of the trail."""
        node = value.producer
        if node is None or node.op not in ops:
            return None
        if node is not self.root:
            self.nodes.append(node)
        return node

    def alone(self, value: Value, *ops: str) -> Node | None:
        """As `through`, for a value that one node reads, and for the root's."""
        if value.producer is self.root or self.view.single(value):
            return self.through(value, *ops)
        return None

    def views(self, value: Value, *ops: str) -> Value:
        """`value` before the reshapes it went through, or those of `ops`."""
        while (node := self.through(value, *(ops or VIEWS))) is not None:
            value = node.inputs[0]
        return value

    def back(self, length: int) -> None:
        """Forget the nodes beyond the first `length`."""
        del self.nodes[length:]


@dataclass(frozen=True, slots=True)
class Found:
    """A match: `nodes`, of one output each, become what `build` records on `operands`.

    It is recorded where the first of them stands. `inner` disappears, and nothing else may read
    it; of `shared`, views mostly, disappears what nothing else reads.
    """

    what: str
    nodes: tuple[Node, ...]
    operands: tuple[Value, ...]
    build: Callable[..., tuple[Value, ...]]
    inner: Sequence[Node] = ()
    shared: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class Near:
    """What looks like the operator and is something else, and why; `inner` tells it apart."""

    why: str
    inner: Sequence[Node] = ()


Match: TypeAlias = "Found | Near | None"


@dataclass(frozen=True, slots=True)
class Raise(Pass):
    """Base of the raising passes: `match` is asked about every node of `anchors`, last ones first.

    Every pass keeps each result within the rounding of its dtype, and says for which operands.
    Where an intermediate result of the export overflows, the operator may give the number that
    the formula has.
    """

    anchors: ClassVar[frozenset[str]] = frozenset()
    sweeps: ClassVar[int] = 1

    def match(self, node: Node, view: View) -> Match:
        """What `node` is the last node of."""
        raise NotImplementedError

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Find the matches, then copy the graph with them in place."""
        for _ in range(self.sweeps):
            plan = _Plan(self, View(graph, ctx))
            plan.fill()
            ctx.counts(plan.did, plan.reasons(), self)
            if not plan.found:
                break
            graph = _Apply(plan).graph(graph)
        return graph


@dataclass(slots=True)
class _Plan:
    step: Raise
    view: View
    found: dict[Node, Found] = field(default_factory=dict[Node, Found])
    gone: set[Node] = field(default_factory=set[Node])
    taken: set[Node] = field(default_factory=set[Node])
    did: Counter[str] = field(default_factory=Counter[str])
    stopped: dict[Node, str] = field(default_factory=dict[Node, str])

    def fill(self) -> None:
        """Ask about every anchor."""
        for node in reversed(self.view.nodes):
            if node.op in self.step.anchors and node not in self.taken:
                found = self.step.match(node, self.view)
                if isinstance(found, Near):
                    self._stop(node, found.inner, found.why)
                elif found is not None:
                    self._add(node, found)

    def _stop(self, node: Node, inner: Sequence[Node], why: str) -> None:
        """Remember the first reason for each group, which is the one of its last node."""
        first = min(inner, key=self.view.order.__getitem__, default=node)
        self.stopped.setdefault(first, f"{at(node)}: {why}")

    def _add(self, node: Node, found: Found) -> None:
        if why := self._misfit(found):
            self._stop(node, found.inner, f"{found.what}: {why}")
            return
        self.found[found.nodes[0]] = found
        self.did[found.what] += 1
        inside = self._inside(found)
        self.taken |= inside
        self.gone |= inside.difference(found.nodes)

    def _inside(self, found: Found) -> set[Node]:
        """What disappears: of the shared nodes those that nothing else reads, operands apart."""
        inside = {*found.nodes, *found.inner}
        read = {v.producer for v in found.operands}
        for node in sorted({*found.shared}, key=self.view.order.__getitem__, reverse=True):
            if node not in read and all([r in inside for r in self._readers(node)]):
                inside.add(node)
        return inside

    def _readers(self, node: Node) -> list[Node | None]:
        return [r for v in node.outputs for r in self.view.readers.get(v, [])]

    def _misfit(self, found: Found) -> str:
        """Why the match cannot be used, or nothing."""
        inside = self._inside(found)
        if not inside.isdisjoint(self.taken) or any([v.producer in inside
                                                     for v in found.operands]):
            return "overlaps another match"
        for node in found.inner:
            for reader in self._readers(node):
                if reader not in inside:
                    name = f"the graph returns its {node.op}" if reader is None else (
                        f"{reader.op} also reads its {node.op}")
                    return name
        return self._trial(found)

    def _trial(self, found: Found) -> str:
        """Record the match in a scratch graph."""
        try:
            with Builder("trial"):
                values = found.build(*found.operands)
        except OperatorError as e:
            return e.message
        for node, value in zip(found.nodes, values, strict=True):
            if value.type != node.outputs[0].type:
                return f"the result would be {value.type}"
        return ""

    def reasons(self) -> Counter[str]:
        """What stopped matches of nodes that no other match took."""
        return Counter([why for n, why in self.stopped.items() if n not in self.taken])


class _Apply(Rebuild):
    """A copy without the nodes that go, and with the matches in place of their nodes."""

    __slots__ = ("original", "plan", "ready")

    def __init__(self, plan: _Plan) -> None:
        super().__init__(self.replace)
        self.plan = plan
        self.ready: dict[Node, Value] = {}
        self.original: Node | None = None

    def graph(self, old: Graph) -> Graph:
        """The copy of `old`."""
        kept = [n for n in old.nodes if n not in self.plan.gone]
        return super().graph(Graph(old.name, old.inputs, old.params, kept, old.outputs, (),
                                   old.output_names))

    def _copy(self, node: Node) -> Node:
        copy = super()._copy(node)
        self.original = node
        return copy

    def replace(self, _: Node) -> Sequence[Value] | None:
        """The values of a match, recorded at its first node."""
        node = self.original
        assert node is not None
        if (found := self.plan.found.get(node)) is None:
            return (self.ready[node],) if node in self.ready else None
        values = found.build(*[self.env.get(v, v) for v in found.operands])
        self.ready.update(zip(found.nodes[1:], values[1:], strict=True))
        return (values[0],)
