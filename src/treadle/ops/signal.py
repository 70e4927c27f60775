"""Fourier transforms of complex tensors and of (real, imaginary) pairs, and framing."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np

from ..declare.arrays import Array, widen
from ..declare.kinds import composite, linear
from ..declare.opdef import cast_value, full_value
from ..declare.schema import sample
from ..errors import Declined, OperatorError
from ..ir.dims import Size, bounds
from ..ir.graph import Value
from ..ir.types import DTYPES, F32, I64, Shape, TensorType, axis_of
from .compare import eq
from .extents import surely_differ, with_axis
from .gather import gather
from .generate import range_
from .movement import narrow, reshape
from .pad import pad

Norm: TypeAlias = Literal["backward", "ortho", "forward"]
ORACLE = "tests.oracles.signal:"


def _complex(x: TensorType) -> TensorType:
    if x.dtype.sort == "complex":
        return x
    if x.dtype not in (F32, DTYPES["f64"]):
        raise OperatorError(f"{x.dtype} has no Fourier transform", hint="cast to f32")
    return x.with_(dtype=DTYPES["c64" if x.dtype is F32 else "c128"])


def _length(x: TensorType, axis: int, n: Size | None) -> Size:
    size = x.shape[axis_of(axis, x.rank)] if n is None else n
    if bounds(size)[1] < 1:
        raise OperatorError(f"a transform of length {size}")
    return size


def _points(x: Array, axis: int, n: Size | None) -> int:
    size = x.shape[axis] if n is None else cast(int, n)
    if size < 1:
        raise OperatorError(f"a transform of length {size}")
    return size


def _fft_types(x: TensorType, *, axis: int, n: Size | None, norm: str) -> TensorType:
    out = _complex(x)
    return out.with_(shape=with_axis(x.shape, axis, _length(x, axis, n)))


def _resize(x: Value, axis: int, size: Size) -> Value:
    """x with an axis cut off or zero-padded at its end."""
    at = axis_of(axis, x.type.rank)
    pads: list[Size] = [0] * (2 * x.type.rank)
    pads[x.type.rank + at] = size - x.shape[at]
    return x if x.shape[at] == size else pad(x, pads=tuple(pads))


def _fft_back(g: Value, x: Value, *, axis: int, n: Size | None, norm: Norm) -> Value:
    """The matrix is symmetric, so that it is its own transpose."""
    if x.dtype.sort != "complex":
        raise Declined("the transform of a real tensor has no transpose", hint="use dft")
    return _resize(fft(g, axis=axis, norm=norm), axis, x.shape[axis_of(axis, x.type.rank)])


def _ifft_back(g: Value, x: Value, *, axis: int, n: Size | None, norm: Norm) -> Value:
    if x.dtype.sort != "complex":
        raise Declined("the transform of a real tensor has no transpose", hint="use dft")
    return _resize(ifft(g, axis=axis, norm=norm), axis, x.shape[axis_of(axis, x.type.rank)])


FFT = [sample("c64[2,5]", expect="numpy.fft:fft", rtol=1e-5),
       sample("f32[6,2]", axis=0, norm="ortho", expect="numpy.fft:fft", rtol=1e-5),
       sample("c128[2,4]", n=7, norm="forward", expect="numpy.fft:fft"),
       sample("c64[2,7]", n=4, expect="numpy.fft:fft", rtol=1e-5)]


@linear(types=_fft_types, transpose=_fft_back, samples=FFT)
def fft(x: Array, *, axis: int = -1, n: Size | None = None,
        norm: Literal["backward", "ortho", "forward"] = "backward") -> Array:
    """Discrete Fourier transform of an axis, cut or zero-padded to `n`.

    X[k] = sum over j of x[j] exp(-2 pi i j k / n); `norm` scales by 1, 1/sqrt(n) or 1/n. Real
    tensors give complex ones. Source: numpy.fft.
    """
    return np.fft.fft(x, _points(x, axis, n), axis, norm)


IFFT = [sample("c64[2,5]", expect="numpy.fft:ifft", rtol=1e-5),
        sample("c128[4,3]", axis=0, n=6, norm="forward", expect="numpy.fft:ifft")]


@linear(types=_fft_types, transpose=_ifft_back, samples=IFFT)
def ifft(x: Array, *, axis: int = -1, n: Size | None = None,
         norm: Literal["backward", "ortho", "forward"] = "backward") -> Array:
    """The inverse of `fft` with the same attributes."""
    return np.fft.ifft(x, _points(x, axis, n), axis, norm)


def _rfft_types(x: TensorType, *, axis: int, n: Size | None, norm: str) -> TensorType:
    if x.dtype.sort == "complex":
        raise OperatorError(f"x is {x.dtype}, not real", hint="use fft")
    return _complex(x).with_(shape=with_axis(x.shape, axis, _length(x, axis, n) // 2 + 1))


@linear(types=_rfft_types, samples=[
    sample("f32[2,5]", expect="numpy.fft:rfft", rtol=1e-5),
    sample("f64[6,2]", axis=0, n=8, norm="ortho", expect="numpy.fft:rfft")])
def rfft(x: Array, *, axis: int = -1, n: Size | None = None,
         norm: Literal["backward", "ortho", "forward"] = "backward") -> Array:
    """The first n // 2 + 1 coefficients of `fft` of a real tensor; the others are conjugates."""
    return np.fft.rfft(x, _points(x, axis, n), axis, norm)


def _irfft_types(x: TensorType, *, axis: int, n: Size | None, norm: str) -> TensorType:
    if x.dtype.sort != "complex":
        raise OperatorError(f"x is {x.dtype}, not complex")
    size = (x.shape[axis_of(axis, x.rank)] - 1) * 2 if n is None else n
    real = F32 if x.dtype is DTYPES["c64"] else DTYPES["f64"]
    return x.with_(shape=with_axis(x.shape, axis, size), dtype=real)


@linear(types=_irfft_types, samples=[
    sample("c64[2,5]", expect="numpy.fft:irfft", rtol=1e-5),
    sample("c128[4,2]", axis=0, n=7, norm="forward", expect="numpy.fft:irfft")])
def irfft(x: Array, *, axis: int = -1, n: Size | None = None,
          norm: Literal["backward", "ortho", "forward"] = "backward") -> Array:
    """The inverse of `rfft`: a real axis of length `n`, or 2 (size - 1) when not given."""
    return np.fft.irfft(x, _points(x, axis, 2 * (x.shape[axis] - 1) if n is None else n), axis,
                        norm)


def _dft_types(x: TensorType, *, axis: int, length: Size | None, inverse: bool, onesided: bool
               ) -> TensorType:
    at = axis_of(axis, x.rank)
    if x.rank < 2 or x.shape[-1] not in (1, 2) or at == x.rank - 1:
        raise OperatorError(f"x[.., 1 or 2] and another axis than the last are needed, got {x} "
                            f"and axis {axis}")
    if x.dtype.sort != "float":
        raise OperatorError(f"x is {x.dtype}, not a float")
    back = inverse and onesided
    if onesided and x.shape[-1] != (2 if inverse else 1):
        raise OperatorError("a one-sided transform goes from real to complex, its inverse back, "
                            f"got {x}")
    size = _dft_length(x.shape, at, length, back)
    out = size // 2 + 1 if onesided and not inverse else size
    return x.with_(shape=(*with_axis(x.shape, at, out)[:-1], 1 if back else 2))


def _dft_length(shape: Shape, at: int, length: Size | None, back: bool) -> Size:
    if length is not None:
        return length
    return (shape[at] - 1) * 2 if back else shape[at]


def _dft_back(g: Value, x: Value, *, axis: int, length: Size | None, inverse: bool,
              onesided: bool) -> Value:
    """The conjugate transform, which is the transpose of a map of (real, imaginary) pairs."""
    at = axis_of(axis, x.type.rank)
    n = _dft_length(x.shape, at, length, inverse and onesided)
    scale = full_value(n, g.dtype)
    if inverse and onesided:  # every coefficient stands for its conjugate, but the ends
        out = dft(g, axis=at, length=n, onesided=True)
        k = range_(start=0, step=1, length=n // 2 + 1, dtype=I64)
        ends = cast_value(eq(k, 0), g.dtype) + cast_value(eq(k * 2, full_value(n, I64)), g.dtype)
        weight = reshape(2.0 - ends, shape=(n // 2 + 1, *(1,) * (x.type.rank - 1 - at)))
        return _resize(out * weight / scale, at, x.shape[at])
    out = dft(_resize(g, at, n), axis=at, length=n, inverse=not inverse)
    out = out / scale if inverse else out * scale
    if x.shape[-1] == 1:
        out = narrow(out, axis=-1, start=0, length=1)
    return _resize(out, at, x.shape[at])


@linear(types=_dft_types, transpose=_dft_back, samples=[
    sample("f32[2,6,1]", axis=1, onesided=True, expect=ORACLE + "dft", rtol=1e-5),
    sample("f32[2,5,3,2]", axis=1, length=7, expect=ORACLE + "dft", rtol=1e-5),
    sample("f32[2,5,1]", length=4, expect=ORACLE + "dft", rtol=1e-5),
    sample("f32[2,5,2]", inverse=True, expect=ORACLE + "dft", rtol=1e-5),
    sample("f32[2,4,2]", inverse=True, onesided=True, expect=ORACLE + "dft", rtol=1e-5),
    sample("f32[4,3,2]", axis=0, length=7, inverse=True, onesided=True, expect=ORACLE + "dft",
           rtol=1e-5),
    sample("f16[1,8,1]", axis=1)])
def dft(x: Array, *, axis: int = -2, length: Size | None = None, inverse: bool = False,
        onesided: bool = False) -> Array:
    """Discrete Fourier transform of pairs: x[.., 1] is real, x[.., 2] real and imaginary.

    `length` cuts or zero-pads the axis; the inverse divides by it. `onesided` keeps the first
    length // 2 + 1 coefficients of a real x; with `inverse` it takes these back to x[.., 1], of
    length 2 (size - 1) unless given. Halves run in f32. Source: ONNX DFT.
    """
    w, at = widen(x), axis_of(axis, x.ndim)
    n = _points(x, at, _dft_length(x.shape, at, length, inverse and onesided))
    z = w[..., 0] if w.shape[-1] == 1 else w[..., 0] + 1j * w[..., 1]
    if inverse and onesided:
        return np.fft.irfft(z, n, at)[..., None].astype(x.dtype, copy=False)
    out = np.fft.rfft(z, n, at) if onesided else (np.fft.ifft if inverse else np.fft.fft)(z, n, at)
    return np.stack([out.real, out.imag], -1).astype(x.dtype, copy=False)


@composite(samples=[
    sample("f32[2,16,1]", window="f32[6]", step=3, expect=ORACLE + "stft", rtol=1e-5),
    sample("f32[1,9,1]", step=2, length=4, onesided=False, expect=ORACLE + "stft", rtol=1e-5),
    sample("f32[2,8,2]", window="f32[5]", step=1, onesided=False, expect=ORACLE + "stft",
           rtol=1e-5)])
def stft(x: Value, *, window: Value | None = None, step: Size, length: Size | None = None,
         onesided: bool = True) -> Value:
    """Transforms of frames of x[N, S, 1 or 2]: [N, frames, bins, 2].

    Frame f is x[f * step : f * step + length] times `window`; length is the window's when not
    given, else S. `onesided` keeps length // 2 + 1 bins of a real x. Source: ONNX STFT.
    """
    if x.type.rank != 3 or x.shape[2] not in (1, 2):
        raise OperatorError(f"x[N, S, 1 or 2] is needed, got {x.type}")
    size = length if length is not None else x.shape[1] if window is None else window.shape[0]
    if window is not None and (window.type.rank != 1 or surely_differ(window.shape[0], size)):
        raise OperatorError(f"the window must be [{size}], got {window.type}")
    frames = (x.shape[1] - size) // step + 1
    if bounds(frames)[1] < 1 or bounds(size)[1] < 1:
        raise OperatorError(f"frames of {size} do not fit a signal of {x.shape[1]}")
    starts = range_(start=0, step=step, length=frames, dtype=I64)
    inside = range_(start=0, step=1, length=size, dtype=I64)
    cut = gather(x, reshape(starts, shape=(frames, 1)) + inside, axis=1)
    if window is not None:
        cut = cut * reshape(window, shape=(size, 1))
    return dft(cut, axis=2, length=size, onesided=onesided)
