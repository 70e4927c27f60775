"""Quantisation-aware training: values rounded to a grid, with a gradient of choice."""

from __future__ import annotations

from typing import Literal

from ..declare import m
from ..declare.kinds import composite, elementwise
from ..declare.opdef import cast_value, wide
from ..declare.scalar import Num, Scalar
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import axis_of, broadcast, shape_text
from .arithmetic import abs_, max_
from .convert import stop_gradient
from .norm import floating
from .reduce import reduce_max

SMALLEST = 1e-12
"""Scales are at least this, so that a tensor of zeros has one."""


def _top(bits: int) -> float:
    return float(2 ** (bits - 1) - 1)


def _slope(x: Scalar, scale: Scalar, top: float, ste: str) -> Num:
    if ste == "identity":
        return m.like(x, 1.0)
    if ste == "clipped":
        return m.where(m.abs_(x) <= top * scale, m.like(x, 1.0), 0.0)
    if ste == "tanh":
        t = m.tanh(x / scale)
        return 1.0 - t * t
    return m.max_(1.0 - m.abs_(x / (top * scale)), 0.0)


def _round_slopes(x: Scalar, scale: Scalar, *, bits: int, ste: str, learned: bool
                  ) -> tuple[Num, Num]:
    top, q = _top(bits), x / scale
    inner = m.abs_(q) <= top
    by_scale = m.where(inner, m.round_(q) - q, m.max_(m.min_(q, top), -top))
    return _slope(x, scale, top, ste), by_scale if learned else 0.0


@elementwise(derivative=_round_slopes, samples=[
    known([1.0, -0.3, 0.125, 9.0], [0.25], bits=4, expect=[[1.0, -0.25, 0.0, 1.75]]),
    sample("f16[4]", "f16[]", bits=8, ste="tanh", low=0.5),
    sample("f32[4]", "f32[]", bits=2, ste="hard_tanh", learned=True, low=0.5)])
def round_to_grid(x: Scalar, scale: Scalar, *, bits: Literal[8, 4, 2] = 8,
                  ste: Literal["identity", "clipped", "tanh", "hard_tanh"] = "clipped",
                  learned: bool = False) -> Scalar:
    """clip(round(x / scale), -q, q) * scale with q = 2^(bits-1) - 1.

    The slope in x is `ste`: 1; 1 where |x| <= q scale; 1 - tanh(x / scale)^2; max(0, 1 - |x / (q
    scale)|). The slope in scale is 0 or, when `learned`, that of LSQ (1902.08153, equation 3).
    """
    top = _top(bits)
    return m.max_(m.min_(m.round_(x / scale), top), -top) * scale


def _batch_scale(x: Value, axis: int | None, bits: int) -> Value:
    """max|x| / q of the tensor, or of each index of `axis` with the other axes as 1."""
    kept = None if axis is None else axis_of(axis, x.type.rank)
    axes = tuple([i for i in range(x.type.rank) if i != kept])
    top = reduce_max(abs_(x), axes=axes, keepdims=kept is not None)
    return max_(stop_gradient(top) / _top(bits), SMALLEST)


def _stored(state: Value | None, like: Value, mode: str) -> Value:
    if state is None:
        raise OperatorError(f"scale_mode={mode!r} needs the operand state")
    if state.shape != like.shape:
        raise OperatorError(f"state has shape {shape_text(state.shape)}, the scales have "
                            f"{shape_text(like.shape)}", hint="one scale, or one an index of axis "
                            "with the other axes as 1")
    return max_(stop_gradient(cast_value(state, like.dtype)), SMALLEST)


@composite(samples=[
    known([1.0, -7.0, 2.4], bits=4, expect=[[1.0, -7.0, 2.0], 1.0]),
    known([[2.0, 1.0], [0.5, -0.3]], axis=0, bits=2,
          expect=[[[2.0, 0.0], [0.5, -0.5]], [[2.0], [0.5]]]),
    known([1.0, 3.0], state=0.5, bits=2, scale_mode="fixed", expect=[[0.5, 0.5], 0.5]),
    known([1.0, 3.0], state=1.0, bits=2, scale_mode="ema", decay=0.5,
          expect=[[0.0, 2.0], 2.0]),
    known([0.0, 0.0], expect=[[0.0, 0.0], 1e-12]),
    known(arr([60000.0, 100.0], "f16"), expect=[arr([60000.0, 0.0], "f16"), 472.44094]),
    sample("f32[2,3]", axis=-1, ste="tanh")])
def fake_quantize(x: Value, *, state: Value | None = None, bits: Literal[8, 4, 2] = 8,
                  axis: int | None = None,
                  scale_mode: Literal["per_batch", "fixed", "ema"] = "per_batch",
                  decay: float = 0.99,
                  ste: Literal["identity", "clipped", "tanh", "hard_tanh"] = "clipped"
                  ) -> tuple[Value, ...]:
    """x rounded to a grid of its scale, and that scale (f32; the next `state`).

    The scale is max|x| / q, q = 2^(bits-1) - 1, of the tensor or of each index of `axis`, and at
    least 1e-12. fixed uses `state` instead; ema uses decay * state + (1 - decay) * that. The
    gradient reaches x alone, by `ste` as in round_to_grid.
    """
    floating(x)
    x32 = wide(x)
    scale = _batch_scale(x32, axis, bits)
    if scale_mode != "per_batch":
        stored = _stored(state, scale, scale_mode)
        scale = stored if scale_mode == "fixed" else stored * decay + scale * (1.0 - decay)
    elif state is not None:
        raise OperatorError("scale_mode='per_batch' takes no state")
    return cast_value(round_to_grid(x32, scale, bits=bits, ste=ste), x.dtype), scale


@composite(samples=[
    known([1.0, -0.3, 9.0], 0.25, bits=4, expect=[[1.0, -0.25, 1.75]]),
    sample("f32[2,3]", "f32[2,1]", low=0.5)])
def lsq_quantize(x: Value, scale: Value, *, bits: Literal[8, 4, 2] = 8) -> Value:
    """x rounded to the grid of a learned scale: gradients reach both (LSQ, 1902.08153).

    scale is positive and broadcasts to x; x gets the clipped straight-through gradient.
    """
    floating(x)
    if broadcast([x.shape, scale.shape]) != x.shape:
        raise OperatorError(f"scale {scale.type} does not broadcast to {x.type}")
    y = round_to_grid(wide(x), wide(scale), bits=bits, ste="clipped", learned=True)
    return cast_value(y, x.dtype)
