"""The geometry of sliding windows, shared by convolution and pooling.

Pads are ONNX's: the amounts before each spatial axis, then the amounts after. A negative amount
crops. Sizes may be symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np

from ..declare.arrays import Array
from ..errors import OperatorError
from ..ir.dims import Dim, Size, bounds, cdiv, dmax, dmin
from ..ir.types import Shape

LARGEST = 2**31 - 1
"""Of strides, dilations and kernel sizes: index arithmetic stays within 64 bits."""
S = TypeVar("S", int, "Size")


def per_axis(name: str, values: Sequence[S], n: int, default: S) -> tuple[S, ...]:
    """One value for each of `n` axes; none given means `default` for all."""
    if not values:
        return (default,) * n
    if len(values) != n:
        raise OperatorError(f"{name} has {len(values)} entries, not {n}")
    return tuple(values)


def positive(name: str, values: Sequence[int], n: int) -> tuple[int, ...]:
    """`per_axis` of numbers from 1 to `LARGEST`."""
    full = per_axis(name, values, n, 1)
    if any(v < 1 for v in full):
        raise OperatorError(f"{name} {full} must be at least 1")
    if any(v > LARGEST for v in full):
        raise OperatorError(f"{name} {full} must be at most {LARGEST}")
    return full


def extent(kernel: Size, dilation: int) -> Size:
    """Input elements from the first to the last tap of a window."""
    return (kernel - 1) * dilation + 1


def windows(size: Size, kernel: Size, stride: int, dilation: int, pads: tuple[Size, Size],
            *, ceil: bool = False) -> Size:
    """The number of windows along one axis.

    With `ceil` a last partial window counts, unless it starts in the padding behind the input
    (ONNX and PyTorch agree on this).
    """
    before, after = pads
    if isinstance(size, Dim) and before + after == _same_total(size, kernel, stride, dilation):
        return (size - 1) // stride + 1
    room = size + before + after - extent(kernel, dilation)
    if bounds(room)[1] < 0:
        raise OperatorError(f"a window of {extent(kernel, dilation)} does not fit an axis of "
                            f"{size} with pads {before} and {after}")
    if not ceil:
        return room // stride + 1
    return dmin(cdiv(room, stride) + 1, (size + before - 1) // stride + 1)


def out_shape(shape: Shape, kernel: Sequence[Size], strides: Sequence[int],
              dilations: Sequence[int], pads: Sequence[Size], *, ceil: bool = False) -> Shape:
    """The number of windows along each spatial axis."""
    n = len(kernel)
    return tuple([windows(shape[i], kernel[i], strides[i], dilations[i], (pads[i], pads[n + i]),
                          ceil=ceil) for i in range(n)])


def _same_total(size: Size, kernel: Size, stride: int, dilation: int) -> Size:
    return dmax((cdiv(size, stride) - 1) * stride + extent(kernel, dilation) - size, 0)


def same_pads(shape: Shape, kernel: Sequence[Size], strides: Sequence[int],
              dilations: Sequence[int] = (), *, mode: Literal["upper", "lower"] = "upper") -> Shape:
    """The pads of ONNX's auto_pad SAME_UPPER or SAME_LOWER for spatial sizes `shape`.

    The output then has ceil(size / stride) elements; an odd amount is larger at the end
    ("upper") or at the start ("lower").
    """
    n = len(shape)
    if len(kernel) != n:
        raise OperatorError(f"a kernel of {len(kernel)} axes on {n} spatial axes")
    hops, gaps = positive("strides", strides, n), positive("dilations", dilations, n)
    total = [_same_total(s, k, t, d)
             for s, k, t, d in zip(shape, kernel, hops, gaps, strict=True)]
    small = [t // 2 for t in total]
    large = [t - h for t, h in zip(total, small, strict=True)]
    return (*small, *large) if mode == "upper" else (*large, *small)


def pad_space(x: Array, pads: Sequence[int], fill: float = 0) -> Array:
    """`x` with its trailing axes padded with `fill`, or cropped where an amount is negative."""
    n = len(pads) // 2
    lead = x.ndim - n
    crop = [slice(None)] * lead + [
        slice(max(-pads[i], 0), x.shape[lead + i] - max(-pads[n + i], 0)) for i in range(n)]
    x = x[tuple(crop)]
    if all(p <= 0 for p in pads):
        return x
    width = [(0, 0)] * lead + [(max(pads[i], 0), max(pads[n + i], 0)) for i in range(n)]
    return np.pad(x, width, constant_values=fill)


def window_view(x: Array, kernel: Sequence[int], strides: Sequence[int],
                dilations: Sequence[int], out: Sequence[int]) -> Array:
    """A read-only view `[lead.., *kernel, *out]` of every window of the trailing axes."""
    lead = x.ndim - len(kernel)
    steps = x.strides[lead:]
    taps = [s * d for s, d in zip(steps, dilations, strict=True)]
    hops = [s * t for s, t in zip(steps, strides, strict=True)]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:lead], *kernel, *out), (*x.strides[:lead], *taps, *hops), writeable=False)


def transposed_pads(shape: Shape, kernel: Sequence[Size], strides: Sequence[int],
                    dilations: Sequence[int], output_padding: Sequence[Size], output: Shape, *,
                    mode: Literal["upper", "lower"] = "upper") -> Shape:
    """The pads that give a transposed convolution the spatial sizes `output` (ONNX output_shape).

    An odd amount is larger at the end ("upper") or at the start ("lower").
    """
    total = [(s - 1) * t + extent(k, d) + extra - out for s, k, t, d, extra, out in zip(
        shape, kernel, strides, dilations, output_padding, output, strict=True)]
    small = [t // 2 for t in total]
    large = [t - h for t, h in zip(total, small, strict=True)]
    return (*small, *large) if mode == "upper" else (*large, *small)
