"""Products and convolutions that go on with the elementwise operators after them."""

from __future__ import annotations

from collections import Counter
from typing import Protocol, runtime_checkable

from ..ir.graph import Graph, Node, Value
from ..records import dataclass, field
from .grouping import Group, Groups

SAME_ORDER = frozenset({"reshape", "squeeze", "unsqueeze"})
"""Operators that may lie between a head and what follows: they leave every element in place."""


@runtime_checkable
class Finisher(Protocol):
    """A backend some of whose kernels take elementwise operators on their results."""

    def heads(self, node: Node) -> bool:
        """Whether a node's kernel can go on with elementwise operators."""
        ...

    def finishes(self, body: Graph) -> str:
        """Why a head and elementwise operators after it are no single kernel; empty if they are."""
        ...


@dataclass
class Heads:
    """Gives groups without folds the head whose result they work on."""

    groups: Groups
    backend: Finisher
    did: Counter[str] = field(default_factory=Counter[str])
    stopped: Counter[str] = field(default_factory=Counter[str])

    def attach(self) -> None:
        """Join each group with the latest head that is its operand, if that makes one kernel."""
        for group in list(dict.fromkeys(self.groups.group.values())):
            if group.axes is None and self.groups.fits(group.nodes[0]):
                self._group(group)

    def _group(self, group: Group) -> None:
        chains = [c for v in self.groups.external(group.nodes)
                  if v.shape == group.shape and (c := self._chain(v))]
        for chain in sorted(chains, key=lambda c: -self.groups.at[c[0]]):
            why = self._private(chain, group) or self._declined(chain, group)
            if not why:
                self._join(chain, group)
                return
            self.stopped[f"{chain[0].op} and what follows in one kernel: {why}"] += 1

    def _chain(self, v: Value) -> list[Node]:
        """The head that makes a value and the views of its result in between; empty if none."""
        out: list[Node] = []
        while (p := v.producer) is not None and p in self.groups.group:
            out.insert(0, p)
            if p.op not in SAME_ORDER:
                return out if self.backend.heads(p) and len(self._nodes(p)) == 1 else []
            v = p.inputs[0]
        return []

    def _nodes(self, n: Node) -> list[Node]:
        return self.groups.group[n].nodes

    def _private(self, chain: list[Node], group: Group) -> str:
        """Why results of the chain are needed by themselves."""
        inside = {*chain, *group.nodes}
        if any(self.groups.leaves(v, inside) for n in chain for v in n.outputs):
            return "its result is read elsewhere too"
        if len(self.groups.stored(group.nodes)) != 1:
            return "several results"
        apart = any(self.groups.part[n] != self.groups.part[group.nodes[0]] for n in chain)
        return "a size is computed in between" if apart else ""

    def _declined(self, chain: list[Node], group: Group) -> str:
        made = Group([*chain, *group.nodes], group.shape, None, group.last, chain[0])
        return self.backend.finishes(self.groups.body(made))

    def _join(self, chain: list[Node], group: Group) -> None:
        made = Group([*chain, *group.nodes], group.shape, None, group.last, chain[0])
        for n in made.nodes:
            self.groups.group[n] = made
        self.did[f"{chain[0].op} with {len(group.nodes)} operators"] += 1
