"""Compute in a wider type what the backend has no kernel for in the operands' own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Protocol, cast, runtime_checkable

from ..declare.opdef import cast_value
from ..ir.graph import Graph, Node, Value
from ..ir.types import DType
from ..ops.library import REGISTRY
from ..records import dataclass
from ..transforms.clone import rebuild
from .base import Context, Pass


@runtime_checkable
class Widener(Protocol):
    """A backend that computes some operators in a wider type with the same results."""

    def widens(self, node: Node) -> DType | None:
        """The type in which a node is to be computed; None to leave it."""
        ...


@dataclass(frozen=True, slots=True)
class Widen(Pass):
    """Casts the operands of a node, computes, and casts the result back, rounding once."""

    name: ClassVar[str] = "widen"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Ask about every node."""
        backend, did = ctx.legaliser, Counter[str]()
        if not isinstance(backend, Widener):
            return graph

        def visit(node: Node) -> Sequence[Value] | None:
            if (dtype := backend.widens(node)) is None:
                return None
            did[f"{node.op} computed in {dtype}"] += 1
            return _widened(node, dtype)

        out = rebuild(graph, visit)
        ctx.counts(did, {}, self)
        return out


def _widened(node: Node, dtype: DType) -> list[Value]:
    """The same operator on cast operands; those of another type than the first stay."""
    narrow = node.inputs[0].dtype
    operands, named = node.operands()
    args = [cast_value(v, dtype) if v.dtype is narrow else v for v in operands]
    more = {k: cast_value(v, dtype) if v.dtype is narrow else v for k, v in named.items()}
    out = REGISTRY[node.op](*args, **more, **node.attrs)
    found = [out] if isinstance(out, Value) else list(cast("tuple[Value, ...]", out))
    return [cast_value(v, old.dtype) for v, old in zip(found, node.outputs, strict=True)]
