"""Which operators one kernel can hold together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from ..declare.scalar import Scalar, const
from ..errors import OperatorError
from ..ir.graph import Graph, Node, Value
from ..ir.types import Shape, axes_of, broadcast
from ..ops.library import REGISTRY
from ..rewrite.constants import number_of

CHEAP = frozenset({"add", "sub", "mul", "neg", "cast", "where", "eq", "ne", "lt", "le", "gt", "ge",
                   "logical_and", "logical_or", "logical_not", "identity"})
"""Operators that may be computed again for every element of a larger shape."""


@runtime_checkable
class Fuser(Protocol):
    """A backend whose kernels hold several operators."""

    def fuses(self, node: Node) -> bool:
        """Whether an elementwise operator or a fold may be part of a larger kernel."""
        ...


class Group:
    """Nodes of one kernel over `shape`; `axes` are what its folds reduce, None without any.

    `head` is a product or convolution that comes first.
    """

    __slots__ = ("axes", "head", "last", "nodes", "shape")

    def __init__(self, nodes: list[Node], shape: Shape, axes: tuple[int, ...] | None, last: int,
                 head: Node | None = None) -> None:
        self.nodes, self.shape, self.axes, self.last = nodes, shape, axes, last
        self.head = head


class Groups:
    """The groups of a graph; every node is in exactly one, most are alone."""

    def __init__(self, most: int, leaves: int, graph: Graph, fuser: Fuser) -> None:
        self.most, self.most_leaves, self.graph, self.fuser = most, leaves, graph, fuser
        self.at = {n: i for i, n in enumerate(graph.nodes)}
        self.users: dict[Value, list[Node]] = {}
        for n in graph.nodes:
            for v in n.uses():
                self.users.setdefault(v, []).append(n)
        self.outputs = set(graph.outputs)
        self.group: dict[Node, Group] = {}
        self.part: dict[Node, int] = {}
        self._fits: dict[Node, bool] = {}
        self.across = [0] * len(graph.nodes)
        """By position, the groups with nodes both up to it and after it."""

    def form(self) -> None:
        """Join every node with its producers' groups where that is sound."""
        part = 0
        for i, n in enumerate(self.graph.nodes):
            self.part[n] = part
            part += bool(n.makes())
            fits = self.fits(n)
            shape, axes = self._space(n) if fits else ((), None)
            self.group[n] = Group([n], shape, axes, i)
            if not fits:
                continue
            for v in n.inputs:
                p = v.producer
                if p is not None and p in self.group and self.fits(p):
                    self._join(self.group[p], self.group[n])

    def several(self) -> bool:
        """Whether any group has two nodes."""
        return any(len(g.nodes) > 1 for g in self.group.values())

    def fits(self, n: Node) -> bool:
        """Whether a node may be part of a kernel of several."""
        if (known := self._fits.get(n)) is None:
            kind = REGISTRY[n.op].kind
            known = self._fits[n] = kind in ("elementwise", "reduction") and (
                n.op != "fused" and not n.reads() and self.fuser.fuses(n))
        return known

    @staticmethod
    def _space(n: Node) -> tuple[Shape, tuple[int, ...] | None]:
        if REGISTRY[n.op].kind == "elementwise":
            return n.outputs[0].shape, None
        x = n.inputs[0]
        return x.shape, axes_of(cast("tuple[int, ...]", n.attrs["axes"]), x.type.rank)

    def _join(self, a: Group, b: Group) -> None:
        """Merge a producer's group into a consumer's if both fit one kernel."""
        if a is b or len(a.nodes) + len(b.nodes) > self.most:
            return
        if self.part[a.nodes[0]] != self.part[b.nodes[0]]:
            return
        space = self._common(a, b)
        both = {*a.nodes, *b.nodes}
        if space is None or not self._stored_fit(both, *space) or self._cyclic(both):
            return
        nodes = sorted(both, key=self.at.__getitem__)
        made = Group(nodes, *space, max(a.last, b.last))
        self._cross(a, -1)
        self._cross(b, -1)
        self._cross(made, 1)
        for n in nodes:
            self.group[n] = made

    def _cross(self, group: Group, by: int) -> None:
        for i in range(self.at[group.nodes[0]], group.last):
            self.across[i] += by

    def _common(self, a: Group, b: Group) -> tuple[Shape, tuple[int, ...] | None] | None:
        if a.axes is not None and b.axes is not None and a.axes != b.axes:
            return None
        axes = a.axes if a.axes is not None else b.axes
        if a.shape == b.shape:
            return a.shape, axes
        if a.axes is not None and b.axes is None:
            return (a.shape, axes) if b.shape == _reduced(a.shape, a.axes) else None
        if a.axes is None and all(n.op in CHEAP for n in a.nodes) and len(a.nodes) <= 4:
            try:
                return (b.shape, axes) if broadcast([a.shape, b.shape]) == b.shape else None
            except OperatorError:
                return None
        return None

    def _stored_fit(self, nodes: set[Node], shape: Shape, axes: tuple[int, ...] | None) -> bool:
        """Whether results have a place in the iteration, and there are not too many of them."""
        stored = [v for n in nodes for v in n.outputs if self.leaves(v, nodes)]
        read = {v for n in nodes for v in n.inputs if v.producer not in nodes}
        if len(stored) + len(read) > self.most_leaves:
            return False
        for n in nodes:
            for v in n.inputs:
                p = v.producer
                if p is not None and p in nodes and _drops(p):
                    return False
        small = None if axes is None else _reduced(shape, axes)
        return all(v.shape in (shape, small) or _drops(cast(Node, v.producer)) for v in stored)

    def leaves(self, v: Value, nodes: set[Node]) -> bool:
        """Whether anything beside `nodes` reads a value."""
        return v in self.outputs or any(u not in nodes for u in self.users.get(v, ()))

    def _cyclic(self, nodes: set[Node]) -> bool:
        """Whether something outside depends on the group and the group on it."""
        cut = min(map(self.at.__getitem__, nodes)) - 1
        while cut >= 0 and self.across[cut]:
            cut -= 1
        todo = [p for p in self._producers(nodes) if p not in nodes]
        seen: set[Node] = set()
        while todo:
            p = todo.pop()
            group = self.group[p]
            if p in seen or group.last <= cut:  # nothing up to a cut depends on what follows it
                continue
            seen.update(group.nodes)
            for q in self._producers(group.nodes):
                if q in nodes:
                    return True
                todo.append(q)
        return False

    def _producers(self, nodes: set[Node] | list[Node]) -> Iterator[Node]:
        for n in nodes:
            for v in n.uses():
                if v.producer in self.at:
                    yield v.producer

    def external(self, nodes: Sequence[Node]) -> list[Value]:
        """The values that a group reads, in order of use."""
        own = set(nodes)
        return list(dict.fromkeys([v for n in nodes for v in n.inputs if v.producer not in own]))

    def stored(self, nodes: Sequence[Node]) -> list[Value]:
        """The values of a group that others read."""
        own = set(nodes)
        return [v for n in nodes for v in n.outputs if self.leaves(v, own)]

    def body(self, group: Group) -> Graph:
        """A group as a graph of its own; single numbers stay inside, but for those of the head."""
        kept = set(group.head.inputs) if group.head else set[Value]()
        outside = self.external(group.nodes)
        read = [v for v in outside if v in kept or scalar_of(v) is None]
        numbers = [v.producer for v in outside if v not in read and v.producer is not None]
        return Graph("body", inputs=read, nodes=[*dict.fromkeys(numbers), *group.nodes],
                     outputs=tuple(self.stored(group.nodes)))

    def ordered(self) -> Iterator[Group]:
        """Groups after what they read, otherwise in the order of their last nodes."""
        groups = list(dict.fromkeys(self.group[n] for n in self.graph.nodes))
        needs = {g: {self.group[p] for p in self._producers(g.nodes) if p in self.group} - {g}
                 for g in groups}
        after: dict[Group, list[Group]] = {}
        for g, before in needs.items():
            for p in before:
                after.setdefault(p, []).append(g)
        left = {g: len(before) for g, before in needs.items()}
        ready = [(g.last, i, g) for i, g in enumerate(groups) if not left[g]]
        heapq.heapify(ready)
        while ready:
            g = heapq.heappop(ready)[2]
            yield g
            for later in after.get(g, ()):
                left[later] -= 1
                if not left[later]:
                    heapq.heappush(ready, (later.last, groups.index(later), later))


def scalar_of(v: Value) -> Scalar | None:
    """A value that is one known number, as a constant."""
    if any(s != 1 for s in v.shape) or (found := number_of(v)) is None:
        return None
    whole = v.dtype.sort in ("int", "uint", "bool")
    return const(int(cast(float, found)) if whole else found, v.dtype)


def _drops(n: Node) -> bool:
    """Whether a fold removes its axes, so that its result lies otherwise than the iteration."""
    return REGISTRY[n.op].kind == "reduction" and not n.attrs["keepdims"] and n.attrs["axes"] != ()


def _reduced(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple([1 if i in axes else s for i, s in enumerate(shape)])
