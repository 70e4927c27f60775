"""Open the composites that the backend has no lowering for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, cast

from ..ir.graph import Graph, Node, Value
from ..ops.library import REGISTRY
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Legaliser, Pass


@dataclass(frozen=True, slots=True)
class Decompose(Pass):
    """Replaces a composite by its body where the backend declines it, node by node.

    The composites inside the body are put to the backend in turn. Without a backend nothing is
    opened.
    """

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Ask about every composite."""
        if ctx.legaliser is None:
            return graph
        work = _Open(ctx.legaliser)
        out = work.graph(graph)
        ctx.counts(work.opened, {}, self)
        return out if work.changed else graph


class _Open(Rebuild):
    __slots__ = ("legaliser", "opened")

    def __init__(self, legaliser: Legaliser) -> None:
        super().__init__(self.visit_composite, self.declined)
        self.legaliser = legaliser
        self.opened: Counter[str] = Counter()

    def declined(self, node: Node) -> bool:
        """Whether to open `node`; the reason goes to the report."""
        reason = self.legaliser.declines(node)
        if reason:
            self.opened[f"{node.op} opened: {reason}"] += 1
        return bool(reason)

    def visit_composite(self, node: Node) -> Sequence[Value] | None:
        """Record the operator again; the open builder asks `declined` and opens it."""
        if REGISTRY[node.op].kind != "composite":
            return None
        if not self.declined(node):
            return None
        op = REGISTRY[node.op]
        operands, named = node.operands()
        out = op.body(*op.group(operands), **named, **node.attrs)
        return (out,) if isinstance(out, Value) else cast("tuple[Value, ...]", out)
