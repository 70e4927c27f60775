"""Group elementwise operators with folds, products and convolutions into single kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, cast

from ..declare.scalar import Scalar, substitute, var
from ..declare.scalar_text import text
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.types import Shape, broadcast
from ..ops.library import REGISTRY
from ..records import dataclass
from ..transforms.clone import Rebuild, keep_names
from ..transforms.inline import inline
from .base import Context, Pass
from .grouping import Fuser, Group, Groups, scalar_of
from .heads import Finisher, Heads


@dataclass(frozen=True, slots=True)
class Fuse(Pass):
    """Replaces groups of elementwise operators by `map` nodes, those with others by `fused` ones.

    Folds of a group reduce the same axes of the same shape. A group without folds may begin with a
    product or convolution of its shape whose result nothing else reads. `most` bounds operators,
    `leaves` operands and outputs. Without a backend that fuses nothing changes.
    """

    name: ClassVar[str] = "fuse"
    most: int = 64
    leaves: int = 16

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Form the groups, then copy the graph with each as one node."""
        if not isinstance(ctx.legaliser, Fuser):
            return graph
        groups = Groups(self.most, self.leaves, graph, ctx.legaliser)
        groups.form()
        did, stopped = Counter[str](), Counter[str]()
        if isinstance(ctx.legaliser, Finisher):
            heads = Heads(groups, ctx.legaliser)
            heads.attach()
            did, stopped = heads.did, heads.stopped
        out = graph
        if groups.several():
            work = _Emit(groups)
            out = work.graph(graph)
            did = work.did + did
        ctx.counts(did, stopped, self)
        return out


class _Emit(Rebuild):
    """The copy in which every group of several nodes is one."""

    __slots__ = ("did", "groups")

    def __init__(self, groups: Groups) -> None:
        super().__init__(lambda _: None)
        self.groups = groups
        self.did: Counter[str] = Counter()

    def graph(self, old: Graph) -> Graph:
        """The graph itself group by group; regions inside it as they are."""
        if old is not self.groups.graph:
            return super().graph(old)
        with Builder(old.name) as b:
            self.leaves(old, b)
            for group in self.groups.ordered():
                if len(group.nodes) == 1:
                    self._node(group.nodes[0], b)
                else:
                    self._several(group, b)
            return b.finish([self.env.get(v, v) for v in old.outputs], old.output_names)

    def _several(self, group: Group, b: Builder) -> None:
        nodes = group.nodes
        outs, ins = self.groups.stored(nodes), self.groups.external(nodes)
        if not outs:
            return
        b.loc = (group.head or nodes[-1]).loc
        simple = group.axes is None and group.head is None
        made = self._map(nodes, ins, outs, group.shape) if simple else None
        if made is None:
            made = self._fused(self.groups.body(group))
        keep_names(outs, made)
        self.env.update(zip(outs, made, strict=True))
        if group.head is None:
            self.did[f"{len(nodes)} operators as one {'map' if simple else 'row'}"] += 1

    def _map(self, nodes: Sequence[Node], ins: Sequence[Value], outs: Sequence[Value],
             shape: Shape) -> Sequence[Value] | None:
        """Elementwise operators composed; numbers become constants of the expression."""
        read = [v for v in ins if scalar_of(v) is None]
        if not read or broadcast([v.shape for v in read]) != shape:
            return None
        env: dict[Value, Scalar] = {v: var(i, v.dtype) for i, v in enumerate(read)}
        env.update({v: c for v in ins if (c := scalar_of(v)) is not None})
        for n in nodes:
            roots = REGISTRY[n.op].scalars(n.attrs, tuple([v.dtype for v in n.inputs]))
            args = [env[v] for v in n.inputs]
            env.update({v: substitute(r, args) for v, r in zip(n.outputs, roots, strict=True)})
        expr = text(*(env[v] for v in outs))
        out = REGISTRY["map"]([self.env.get(v, v) for v in read], expr=expr)
        return (out,) if isinstance(out, Value) else cast("Sequence[Value]", out)

    def _fused(self, inner: Graph) -> Sequence[Value]:
        given = [self.env.get(v, v) for v in inner.inputs]

        def body(*xs: Value) -> tuple[Value, ...]:
            return inline(inner, xs)

        out = REGISTRY["fused"](given, body=body)
        return (out,) if isinstance(out, Value) else cast("Sequence[Value]", out)
