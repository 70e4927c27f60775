"""Window functions and the mel filter bank."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..declare.arrays import Array, compute_dtype, ints, np_dtype
from ..declare.kinds import leaf
from ..declare.schema import known
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.types import DType, TensorType

HANN = (0.5, -0.5)
HAMMING = (25 / 46, -21 / 46)
BLACKMAN = (0.42, -0.5, 0.08)
"""Coefficients of cos(2 pi j k / N), as ONNX states them (F. J. Harris, Proc. IEEE 66, 1978)."""


def _window_types(*, size: Size, periodic: bool, dtype: DType) -> TensorType:
    if dtype.sort not in ("float", "int", "uint"):
        raise OperatorError(f"a window of {dtype}", hint="use a number dtype")
    return TensorType((size,), dtype)


def _window(terms: Sequence[float], size: Size, periodic: bool, dtype: DType) -> Array:
    (n,) = ints((size,))
    phase = 2 * math.pi * np.arange(n) / max(n if periodic else n - 1, 1)
    total = np.zeros(n)
    for j, a in enumerate(terms):
        total += a * np.cos(j * phase)
    return total.astype(np_dtype(compute_dtype(dtype))).astype(np_dtype(dtype), copy=False)


@leaf(types=_window_types, samples=[
    known(size=6, periodic=True, dtype="f32", expect="tests.oracles.signal:hann", rtol=1e-5),
    known(size=7, periodic=False, dtype="f64", expect="tests.oracles.signal:hann")])
def hann_window(*, size: Size, periodic: bool = True, dtype: DType) -> Array:
    """0.5 - 0.5 cos(2 pi k / N); N is `size`, or size - 1 for a symmetric window."""
    return _window(HANN, size, periodic, dtype)


@leaf(types=_window_types, samples=[
    known(size=6, periodic=True, dtype="f32", expect="tests.oracles.signal:hamming", rtol=1e-5),
    known(size=7, periodic=False, dtype="f32", expect="tests.oracles.signal:hamming", rtol=1e-5)])
def hamming_window(*, size: Size, periodic: bool = True, dtype: DType) -> Array:
    """25/46 - 21/46 cos(2 pi k / N); N is `size`, or size - 1 for a symmetric window."""
    return _window(HAMMING, size, periodic, dtype)


@leaf(types=_window_types, samples=[
    known(size=6, periodic=True, dtype="f32", expect="tests.oracles.signal:blackman", rtol=1e-5),
    known(size=7, periodic=False, dtype="f64", expect="tests.oracles.signal:blackman")])
def blackman_window(*, size: Size, periodic: bool = True, dtype: DType) -> Array:
    """0.42 - 0.5 cos(2 pi k / N) + 0.08 cos(4 pi k / N), N as for the other windows."""
    return _window(BLACKMAN, size, periodic, dtype)


def _mel_types(*, bins: int, dft_length: int, sample_rate: int, low: float, high: float,
               dtype: DType) -> TensorType:
    if bins < 1 or dft_length < 1 or sample_rate < 1:
        raise OperatorError(f"{bins} bins of a transform of {dft_length} at {sample_rate} Hz")
    if not 0 <= low < high or (dft_length + 1) * high >= (dft_length // 2 + 1) * sample_rate:
        raise OperatorError(f"the band {low:g}..{high:g} Hz is not within 0..{sample_rate / 2:g}")
    return TensorType((dft_length // 2 + 1, bins), dtype)


@leaf(types=_mel_types, samples=[
    known(bins=8, dft_length=64, sample_rate=8192, low=0.0, high=4000.0, dtype="f32",
          expect="tests.oracles.signal:mel", rtol=1e-5),
    known(bins=40, dft_length=256, sample_rate=16000, low=125.0, high=7500.0, dtype="f32",
          expect="tests.oracles.signal:mel", rtol=1e-5)])
def mel_weight_matrix(*, bins: int, dft_length: int, sample_rate: int, low: float, high: float,
                      dtype: DType) -> Array:
    """Triangles of peak 1 on the mel scale: [dft_length // 2 + 1, bins].

    mel(f) = 2595 log10(1 + f / 700). The edges divide mel(low)..mel(high) in bins + 2 steps and
    are rounded down to spectrum bins (dft_length + 1) f / sample_rate, as ONNX MelWeightMatrix
    does. Frequencies in Hz.
    """
    first, last = (2595 * math.log10(1 + f / 700) for f in (low, high))
    mels = first + np.arange(bins + 2) * ((last - first) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((dft_length + 1) * hertz / sample_rate)
    k = np.arange(dft_length // 2 + 1)[:, None]
    left, peak, right = edges[:-2], edges[1:-1], edges[2:]
    up = np.where((k >= left) & (k <= peak), (k - left) / np.maximum(peak - left, 1), 0)
    up = np.where((peak == left) & (k == peak), 1, up)
    down = np.where((k >= peak) & (k < right), (right - k) / np.maximum(right - peak, 1), up)
    return down.astype(np_dtype(dtype))
