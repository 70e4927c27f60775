"""The same elements under another shape, order or extent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import mlx.core as mx
import numpy as np

from ...errors import OperatorError
from ...ir.graph import Node
from ...ops.extents import first_of, resolve, sliced
from .arrays import number, to_mlx
from .lowering import Lowering, plain

Ints: TypeAlias = tuple[int, ...]


def reshape(x: mx.array, *, shape: Ints) -> mx.array:
    """Row-major order under another shape."""
    full = cast(Ints, resolve(x.shape, shape))
    if math.prod(full) != x.size:
        raise OperatorError(f"{x.size} elements do not reshape to {list(full)}")
    return mx.reshape(x, full)


def transpose(x: mx.array, *, perm: Ints) -> mx.array:
    """Axes in another order."""
    return mx.transpose(x, perm) if perm else x


def expand(x: mx.array, *, shape: Ints) -> mx.array:
    """Broadcast both ways."""
    return mx.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), shape))


def expect_broadcast(x: mx.array, *, shape: Ints) -> mx.array:
    """X itself, checked."""
    for have, want in zip(reversed(x.shape), reversed(shape), strict=False):
        if want not in (1, have):
            raise OperatorError(f"an axis of {have} does not expand to {want}")
    return x


def squeeze(x: mx.array, *, axes: Ints) -> mx.array:
    """Axes of size 1 dropped."""
    if wrong := [a for a in axes if x.shape[a] != 1]:
        raise OperatorError(f"axis {wrong[0]} has size {x.shape[wrong[0]]}, not 1")
    return mx.squeeze(x, axes) if axes else x


def unsqueeze(x: mx.array, *, axes: Ints) -> mx.array:
    """Axes of size 1 inserted."""
    return mx.expand_dims(x, axes) if axes else x


def flip(x: mx.array, *, axes: Ints) -> mx.array:
    """Axes reversed."""
    gone = {a % x.ndim for a in axes}
    return x[tuple([slice(None, None, -1 if i in gone else 1) for i in range(x.ndim)])] if (
        gone) else x


def cut(x: mx.array, *, starts: Ints, ends: Ints, steps: Ints, axes: Ints) -> mx.array:
    """start:end:step of axes, clamped."""
    take = [slice(None)] * x.ndim
    for start, end, step, axis in zip(starts, ends, steps, axes, strict=True):
        size = x.shape[axis]
        first, n = cast(Ints, (first_of(start, size, step), sliced(size, start, end, step)))
        last = first + n * step
        take[axis] = slice(first, last if last >= 0 else None, step)
    return x[tuple(take)] if take else x


def narrow(x: mx.array, *, axis: int, start: int, length: int) -> mx.array:
    """A stretch of an axis."""
    if start < 0 or length < 0 or start + length > x.shape[axis]:
        raise OperatorError(
            f"{length} elements from {start} of axis {axis} of size {x.shape[axis]}")
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, start + length),)]


def concat(xs: Sequence[mx.array], *, axis: int) -> mx.array:
    """Operands one after another; those without elements add nothing."""
    full = [x for x in xs if x.size] or list(xs)
    return mx.concatenate(full, axis=axis) if len(full) > 1 else full[0]


def split(x: mx.array, *, axis: int, sizes: Ints) -> list[mx.array]:
    """Consecutive parts."""
    if sum(sizes) != x.shape[axis]:
        raise OperatorError(f"axis {axis} of size {x.shape[axis]} does not split into "
                            f"{list(sizes)}")
    at = np.cumsum(sizes)[:-1].tolist()
    return list(mx.split(x, at, axis=axis))


def tile(x: mx.array, *, repeats: Ints) -> mx.array:
    """Repeated along every axis."""
    return mx.tile(x, repeats) if repeats else x


def roll(x: mx.array, *, shift: int, axis: int) -> mx.array:
    """An axis rotated."""
    return mx.roll(x, shift % max(x.shape[axis], 1), axis)


def trilu(x: mx.array, *, k: int, upper: bool) -> mx.array:
    """The part above or below a diagonal."""
    rows, cols = x.shape[-2:]
    at = max(-rows, min(k - 1 if upper else k, cols))
    below = mx.arange(cols).reshape(1, -1) <= mx.arange(rows).reshape(-1, 1) + at
    zero = number(0, x.dtype)
    return mx.where(below, zero, x) if upper else mx.where(below, x, zero)


def pad(x: mx.array, *, fill: mx.array | None = None, pads: Ints, mode: str, value: complex
        ) -> mx.array:
    """Margins, after cropping where counts are negative."""
    counts = np.array(pads, np.int64).reshape(2, -1)
    crop = [slice(max(-int(a), 0), n - max(-int(b), 0)) for n, (a, b) in zip(
        x.shape, counts.T, strict=True)]
    if any(s.stop < s.start for s in crop):
        raise OperatorError(f"pads {list(pads)} remove more than {list(x.shape)} holds")
    x = x[tuple(crop)] if crop else x
    grow = np.maximum(counts, 0).T.tolist()
    if mode != "constant":
        return _mirrored(x, grow, mode)
    return mx.pad(x, [(a, b) for a, b in grow], constant_values=number(
        value, x.dtype) if fill is None else fill) if any(map(any, grow)) else x


def _mirrored(x: mx.array, grow: Sequence[Sequence[int]], mode: str) -> mx.array:
    """Margins of the elements themselves: their places come from NumPy's own rule."""
    for axis, (before, after) in enumerate(grow):
        if not before and not after:
            continue
        if not x.shape[axis]:
            raise OperatorError(f"an axis of size 0 has nothing to pad with in mode {mode}")
        at = np.pad(np.arange(x.shape[axis]), (before, after), mode)  # type: ignore[call-overload]
        x = mx.take(x, to_mlx(at), axis=axis)
    return x


def _numbers(node: Node) -> str:
    return "padding of complex numbers" if node.inputs[0].dtype.sort == "complex" else ""


_FREE: dict[str, Callable[..., mx.array | list[mx.array]]] = {
    "reshape": reshape, "transpose": transpose, "expand": expand,
    "expect_broadcast": expect_broadcast, "squeeze": squeeze,
    "unsqueeze": unsqueeze, "flip": flip, "slice": cut, "narrow": narrow, "split": split,
    "tile": tile, "roll": roll, "trilu": trilu}
LOWERINGS: dict[str, Lowering] = {
    **{n: plain(f) for n, f in _FREE.items()}, "concat": plain(concat, empty=True),
    "pad": plain(pad, _numbers)}
