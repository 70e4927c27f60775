"""What sizes alone decide, under a binding: shapes, places, leaves, and whether views fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...declare import evaluate as interpreter
from ...declare.arrays import Array, np_dtype
from ...declare.room import array_bytes
from ...errors import OperatorError, RunError
from ...ir.dims import evaluate
from ...ir.graph import Node, Value
from ...memory.views import View
from .addresses import Place
from .limits import reserve


def bound(value: Value, binding: Mapping[str, int]) -> tuple[int, ...]:
    """A value's shape as numbers."""
    return tuple([evaluate(d, binding) for d in value.shape])


def place(view: View, binding: Mapping[str, int]) -> Place:
    """A view as NumPy describes it."""
    item = view.base.dtype.bits // 8
    return (tuple([evaluate(d, binding) for d in view.shape]),
            tuple([evaluate(s, binding) * item for s in view.strides]),
            evaluate(view.offset, binding) * item)


def leaf(node: Node, binding: Mapping[str, int]) -> tuple[Array, ...]:
    """The outputs of a node that needs sizes alone. A `full` gives its one element."""
    attrs: dict[str, Any] = {k: interpreter.bind_attr(v, binding) for k, v in node.attrs.items()}
    if node.op == "full" and np_dtype(node.outputs[0].dtype).kind != "O":
        attrs["shape"] = ()
    else:
        reserve(sum([evaluate(array_bytes(v.type), binding) for v in node.outputs]), node.outputs,
                binding)
    out = _apply(node, attrs, binding)
    return tuple([np.ascontiguousarray(a).reshape(a.shape) for a in out])


def dry_run(node: Node, binding: Mapping[str, int]) -> None:
    """Run a view's body on shapes alone, for its error."""
    _apply(node, {k: interpreter.bind_attr(v, binding) for k, v in node.attrs.items()}, binding)


def _apply(node: Node, attrs: Mapping[str, Any], binding: Mapping[str, int]) -> tuple[Array, ...]:
    step = interpreter.Step(node)
    blank = [np.broadcast_to(np.zeros((), np_dtype(v.dtype)), bound(v, binding))
             for v in node.inputs]
    try:
        return interpreter.apply(node, step.op, blank, attrs, {}, dict(binding))
    except OperatorError as e:
        where = f" at {node.loc}" if node.loc else ""
        shown = ", ".join([f"{v.dtype}{list(a.shape)}" for v, a in zip(
            node.inputs, blank, strict=True)])
        raise RunError(f"{node.op}({shown}){where}: {e.message}", hint=e.hint) from None
