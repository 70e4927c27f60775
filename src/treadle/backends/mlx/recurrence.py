"""State spaces on a GPU: kernels that keep the state in registers; their bodies run elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx

from ...ir.graph import Node
from .arrays import on_gpu
from .kernels.causal_conv import causal_conv
from .kernels.linear_attention import MOST_KEYS, MOST_ROOM, room
from .kernels.linear_attention import linear_attention as attend
from .kernels.selective_scan import MOST_STATES
from .kernels.selective_scan import selective_scan as scan
from .lowering import Lowering, plain

_NO_GPU = "its kernel needs a GPU"


def _attention(query: mx.array, key: mx.array, value: mx.array, *, past: mx.array | None = None,
               decay: mx.array | None = None, beta: mx.array | None = None, rule: str,
               q_heads: int, kv_heads: int, scale: float, state_window: int) -> list[mx.array]:
    by = scale or 1.0 / math.sqrt(query.shape[2] // q_heads)
    return attend(query, key, value, past, decay, beta, q_heads=q_heads, kv_heads=kv_heads,
                  scale=by, window=state_window)


def _attends(node: Node) -> str:
    """Widths are known: the operator demands it."""
    heads, states = node.attrs["q_heads"], node.attrs["kv_heads"]
    width = node.inputs[0].shape[2]
    assert isinstance(width, int) and isinstance(heads, int) and isinstance(states, int)
    dk, group = width // heads, max(heads // states, 1)
    named = dict(zip(node.keys, node.inputs[3:], strict=True))
    by_key = "decay" in named and named["decay"].shape[2] != states
    if dk > MOST_KEYS:
        return f"heads of {dk}; its kernel holds {MOST_KEYS}"
    if room(dk, group, by_key) > MOST_ROOM:
        return f"{group} query heads of {dk} read one state; its kernel has no room for them"
    return ""


def _conv(x: mx.array, weight: mx.array, *, bias: mx.array | None = None,
          past: mx.array | None = None, activation: str, dilation: int, channels_last: bool,
          state_window: int) -> list[mx.array]:
    return causal_conv(x, weight, bias, past, silu=activation != "none", dilation=dilation,
                       last=channels_last, window=state_window)


def _convolves(node: Node) -> str:
    return "one tap keeps no state" if node.inputs[1].shape[2] == 1 else ""


def _selective(x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array, *,
               state: mx.array | None = None) -> list[mx.array]:
    return scan(x, dt, a, b, c, state)


def _selects(node: Node) -> str:
    x, dt, a, b, c = node.inputs[:5]
    if any(v.dtype is not x.dtype for v in (dt, b, c)):
        return "operands of several dtypes"
    if not isinstance(n := a.shape[1], int) or not isinstance(a.shape[0], int):
        return f"its kernel needs the size of a, which is {a.type}"
    if n > MOST_STATES:
        return f"{n} numbers a channel; its kernel holds {MOST_STATES}"
    return ""


def _on_gpu(refuse: Callable[[Node], str]) -> Callable[[Node], str]:
    return lambda node: refuse(node) if on_gpu() else _NO_GPU


LOWERINGS: dict[str, Lowering] = {
    "linear_attention": plain(_attention, _on_gpu(_attends)),
    "causal_conv_with_state": plain(_conv, _on_gpu(_convolves)),
    "selective_scan": plain(_selective, _on_gpu(_selects))}
