"""Transforms and windows by ONNX Runtime and SciPy."""

from __future__ import annotations

import numpy as np
import scipy.signal

from treadle.ir.types import DType

from . import ort


def dft(x: np.ndarray, *, axis: int = -2, length: int | None = None, inverse: bool = False,
        onesided: bool = False) -> list[np.ndarray]:
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    at = axis % x.ndim
    if inverse and onesided:
        return [np.fft.irfft(z, length, at)[..., None]]
    name = "ifft" if inverse else "rfft" if onesided else "fft"
    y = getattr(np.fft, name)(z, length, at)
    return [np.stack([y.real, y.imag], -1)]


def stft(x: np.ndarray, *, window: np.ndarray | None = None, step: int,
         length: int | None = None, onesided: bool = True) -> list[np.ndarray]:
    size = None if length is None else np.array(length, np.int64)
    return ort.run("STFT", [x, np.array(step, np.int64), window, size],
                   {"onesided": int(onesided)}, opset=17)


def _window(name: str, size: int, periodic: bool, dtype: DType) -> list[np.ndarray]:
    return [scipy.signal.get_window(name, size, periodic).astype(dtype.numpy)]


def hann(*, size: int, periodic: bool, dtype: DType) -> list[np.ndarray]:
    return _window("hann", size, periodic, dtype)


def hamming(*, size: int, periodic: bool, dtype: DType) -> list[np.ndarray]:
    cosine = scipy.signal.windows.general_hamming(size, 25 / 46, sym=not periodic)
    return [cosine.astype(dtype.numpy)]


def blackman(*, size: int, periodic: bool, dtype: DType) -> list[np.ndarray]:
    return _window("blackman", size, periodic, dtype)


def mel(*, bins: int, dft_length: int, sample_rate: int, low: float, high: float, dtype: DType
        ) -> list[np.ndarray]:
    counts = [np.array(n, np.int64) for n in (bins, dft_length, sample_rate)]
    edges = [np.array(f, np.float32) for f in (low, high)]
    return [ort.run("MelWeightMatrix", [*counts, *edges], opset=17)[0].astype(dtype.numpy)]
