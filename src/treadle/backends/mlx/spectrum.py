"""Fourier transforms, resampling along axes, and linear algebra."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from ...declare.arrays import Array
from ...errors import OperatorError
from ...ir.graph import Node
from ...ops.resize import Coordinates, Kernel, Mode, Nearest, along, sampling
from .arrays import OURS, number, to_mlx, wide
from .expressions import convert
from .lowering import Call, Lowering, plain
from .owner import owner

Transform = Callable[..., mx.array]


def _points(size: int) -> int:
    if size < 1:
        raise OperatorError(f"a transform of length {size}")
    return size


def _scaled(out: mx.array, n: int, norm: str, forward: bool) -> mx.array:
    """MLX scales the inverse by 1 / n; the other norms from there."""
    power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[norm]
    by = n ** (-power if forward else power)
    return out if by == 1 else out * number(by, mx.float32).astype(out.dtype)


def _transform(fn: Transform, forward: bool, real: bool = False) -> Transform:
    def run(x: mx.array, *, axis: int, n: int | None, norm: str) -> mx.array:
        whole = 2 * (x.shape[axis] - 1) if real else x.shape[axis]
        size = _points(whole if n is None else n)
        return _scaled(fn(x, n=size, axis=axis), size, norm, forward)

    return run


def dft(x: mx.array, *, axis: int, length: int | None, inverse: bool, onesided: bool) -> mx.array:
    """The transform of (real, imaginary) pairs."""
    w, at = wide(x), axis % x.ndim
    back = inverse and onesided
    n = _points((2 * (x.shape[at] - 1) if back else x.shape[at]) if length is None else length)
    unit = number(1j, mx.complex64)
    z = w[..., 0] if w.shape[-1] == 1 else w[..., 0] + unit * w[..., 1]
    if back:
        return mx.expand_dims(mx.fft.irfft(z, n=n, axis=at), -1).astype(x.dtype)
    fn = mx.fft.rfft if onesided else mx.fft.ifft if inverse else mx.fft.fft
    out = fn(z, n=n, axis=at)
    return mx.stack([mx.real(out), mx.imag(out)], axis=-1).astype(x.dtype)


def resize(x: mx.array, *, sizes: tuple[int, ...], scales: tuple[float, ...],
           roi: tuple[float, ...], axes: tuple[int, ...] | None, mode: Mode,
           coordinates: Coordinates, nearest: Nearest, cubic: float, exclude_outside: bool,
           extrapolation: float, antialias: bool) -> mx.array:
    """Taps and weights of each axis by the operator's own rule, gathered and summed here."""
    kernel = Kernel(mode, coordinates, nearest, cubic, exclude_outside, antialias)
    whole = mode == "nearest"
    w, outside = x if whole else x.astype(mx.float32), list[mx.array]()
    for axis, index, weight, inside in sampling(tuple(x.shape), sizes, scales, roi, axes, kernel):
        w = _interpolate(w, axis, index, weight)
        if not inside.all():
            outside.append(to_mlx(along(axis, x.ndim, ~inside)))
    if not whole and not mx.issubdtype(x.dtype, mx.inexact):
        w = convert(mx.round(w) if antialias else w, OURS[x.dtype])
    out = w.astype(x.dtype)
    for mask in outside:
        out = mx.where(mask, number(extrapolation, x.dtype), out)
    return out


def _interpolate(x: mx.array, axis: int, index: Array, weight: Array | None) -> mx.array:
    if weight is None:
        return mx.take(x, to_mlx(index[0]), axis=axis)
    out: mx.array | None = None
    for i, w in zip(index, weight.astype(np.float32), strict=True):
        part = mx.take(x, to_mlx(i), axis=axis) * to_mlx(along(axis, x.ndim, w))
        out = part if out is None else out + part
    assert out is not None
    return out


def _resizes(node: Node) -> str:
    dtype = node.inputs[0].dtype
    if node.keys:
        return "scales and regions that only a run gives"
    wide_integer = dtype.sort in ("int", "uint") and dtype.bits > 16
    return f"weights of {dtype} are f64" if wide_integer and node.attrs["mode"] != "nearest" else ""


def _on_cpu(fn: Callable[..., mx.array], x: mx.array, *more: mx.array) -> mx.array:
    """Decompositions run on the CPU stream: MLX's GPUs have none."""
    return fn(wide(x), *more, stream=owner().cpu).astype(x.dtype)


def _regular(call: Call, a: mx.array, name: str) -> mx.array:
    """The matrices, singular ones replaced: MLX's solver would end the evaluation."""
    pivots = mx.linalg.lu_factor(wide(a), stream=owner().cpu)[0]
    diagonal = mx.diagonal(pivots, axis1=-2, axis2=-1)
    bad = mx.any(mx.equal(diagonal, number(0.0, mx.float32)), axis=-1, keepdims=True)
    flat = mx.reshape(bad, (-1,))
    call.fault(flat, mx.arange(flat.shape[0]), lambda v: (
        f"the matrix of batch entry {v} is singular, so {name} has no answer" if a.ndim > 2
        else f"the matrix is singular, so {name} has no answer"))
    return mx.where(mx.expand_dims(bad, -1), mx.eye(a.shape[-1]), wide(a))


def dense_solve(call: Call, a: mx.array, b: mx.array) -> mx.array:
    """The x with a x = b."""
    vectors = b.ndim == a.ndim - 1
    x = _on_cpu(mx.linalg.solve, _regular(call, a, "dense_solve"),
                mx.expand_dims(b, -1) if vectors else b)
    return mx.squeeze(x, -1) if vectors else x


def inverse(call: Call, x: mx.array) -> mx.array:
    """The inverse of each matrix."""
    eye = mx.broadcast_to(mx.eye(x.shape[-1]), x.shape)
    return _on_cpu(mx.linalg.solve, _regular(call, x, "inverse"), eye).astype(x.dtype)


def det(x: mx.array) -> mx.array:
    """The determinant of each matrix."""
    return _on_cpu(mx.linalg.det, x)


LOWERINGS: dict[str, Lowering] = {
    "fft": plain(_transform(mx.fft.fft, True)), "ifft": plain(_transform(mx.fft.ifft, False)),
    "rfft": plain(_transform(mx.fft.rfft, True)),
    "irfft": plain(_transform(mx.fft.irfft, False, real=True)), "dft": plain(dft),
    "resize": plain(resize, _resizes), "dense_solve": Lowering(dense_solve),
    "inverse": Lowering(inverse), "det": plain(det)}
