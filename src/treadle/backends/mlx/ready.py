"""Steps that ask nothing of the run, as functions of arrays that are found once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

import mlx.core as mx

from ...declare.opdef import OpDef
from ...declare.scalar import walk
from ...ir.graph import Node
from .arrays import on_gpu
from .expressions import Code, code_of, expressions, full, run_code
from .gates import LOWERINGS as GATES
from .images import ALWAYS
from .lowering import Kernel, Lowering
from .norms import LOWERINGS as NORMS
from .recurrence import LOWERINGS as RECURRENCES

Body: TypeAlias = "Callable[[Sequence[mx.array]], list[mx.array]]"
WHOLE = frozenset({*NORMS, *RECURRENCES, *GATES})
"""Composites of several primitives, or kernels of ours."""
MANY = 3
"""Primitives of an expression from which it is worth a kernel of its own on a GPU."""


class Ready:
    """A step as a function of its operands.

    `whole` is the same compiled by MLX, where that saves launches or, for kernels of ours, the time
    that MLX takes to spell one out at every call. `nonempty` says that operands must have elements.
    """

    __slots__ = ("body", "nonempty", "whole")

    def __init__(self, body: Body, nonempty: bool, whole: bool) -> None:
        self.body, self.nonempty = body, nonempty
        self.whole = mx.compile(partial(_spread, body)) if whole else None

    def run(self, arrays: Sequence[mx.array], tracing: bool) -> list[mx.array]:
        """The outputs; what MLX traces is not compiled within."""
        if self.whole is None or tracing:
            return self.body(arrays)
        return cast("list[mx.array]", self.whole(*arrays))


def _spread(body: Body, *arrays: mx.array) -> list[mx.array]:
    return body(arrays)


def ready(node: Node, op: OpDef, low: Lowering, attrs: Mapping[str, object]) -> Ready | None:
    """The function of a step with fixed attributes; None for one that asks things of the run."""
    fixed = on_gpu() and all(isinstance(d, int) for v in node.inputs for d in v.shape)
    if op.kind == "elementwise":
        roots = expressions(node)
        code, read = code_of(roots), [{s.value for s in walk(r) if s.op == "var"} for r in roots]
        many = sum(places not in ((), (-1,)) for _, places in code[0]) >= MANY
        whole = all(len(found) == len(node.inputs) for found in read)  # so of the common shape
        body = partial(run_code, code) if whole else partial(_filled, code)
        return Ready(body, fixed and many, fixed and many)
    if low.bare is None or low.pack or low.join or node.op in ALWAYS:
        return None
    ours = node.op in WHOLE
    split = len(node.inputs) - len(node.keys)
    body = partial(_call, low.bare, op, attrs, split, node.keys)
    return Ready(body, not low.empty and op.kind != "view", fixed and ours)


def _filled(code: Code, arrays: Sequence[mx.array]) -> list[mx.array]:
    return full(run_code(code, arrays), arrays)


def _call(kernel: Kernel, op: OpDef, attrs: Mapping[str, object], split: int, keys: Sequence[str],
          arrays: Sequence[mx.array]) -> list[mx.array]:
    named = dict(zip(keys, arrays[split:], strict=True)) if keys else {}
    out = kernel(*op.group(arrays[:split]), **named, **attrs)
    return list(out) if isinstance(out, list | tuple) else [cast(mx.array, out)]
