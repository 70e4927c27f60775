"""Fourier transforms, windows and the mel filter bank."""

from __future__ import annotations

from ....errors import Declined
from ....ir.dims import Size
from ....ir.graph import Value
from ..context import Context
from ..reading import dtype_of
from ..registry import MICROSOFT, importer
from .shape import op


def _size(ctx: Context, x: Value | None, what: str) -> Size | None:
    return None if x is None else ctx.sizes(x, what)[0]


@importer("DFT", until=19)
def dft_17(ctx: Context, x: Value, dft_length: Value | None, *, axis: int = 1, inverse: int = 0,
           onesided: int = 0) -> Value:
    """The axis as an attribute."""
    return op("dft", x, axis=axis, length=_size(ctx, dft_length, "dft_length"),
              inverse=bool(inverse), onesided=bool(onesided))


@importer("DFT", since=20)
def dft(ctx: Context, x: Value, dft_length: Value | None, axis: Value | None, *,
        inverse: int = 0, onesided: int = 0) -> Value:
    """The axis as a tensor."""
    at = -2 if axis is None else ctx.ints(axis, "axis")[0]
    return op("dft", x, axis=at, length=_size(ctx, dft_length, "dft_length"),
              inverse=bool(inverse), onesided=bool(onesided))


@importer("STFT")
def stft(ctx: Context, signal: Value, frame_step: Value, window: Value | None,
         frame_length: Value | None, *, onesided: int = 1) -> Value:
    """Transforms of overlapping frames."""
    return op("stft", signal, window=window, step=_size(ctx, frame_step, "frame_step"),
              length=_size(ctx, frame_length, "frame_length"), onesided=bool(onesided))


def _window(name: str, ctx: Context, size: Value, periodic: int, code: int) -> Value:
    return op(name, size=_size(ctx, size, "size"), periodic=bool(periodic),
              dtype=dtype_of(code, ctx.node_name))


@importer("HannWindow")
def hann_window(ctx: Context, size: Value, *, output_datatype: int = 1, periodic: int = 1
                ) -> Value:
    """A raised cosine."""
    return _window("hann_window", ctx, size, periodic, output_datatype)


@importer("HammingWindow")
def hamming_window(ctx: Context, size: Value, *, output_datatype: int = 1, periodic: int = 1
                   ) -> Value:
    """A raised cosine on a pedestal."""
    return _window("hamming_window", ctx, size, periodic, output_datatype)


@importer("BlackmanWindow")
def blackman_window(ctx: Context, size: Value, *, output_datatype: int = 1, periodic: int = 1
                    ) -> Value:
    """Two cosines."""
    return _window("blackman_window", ctx, size, periodic, output_datatype)


@importer("MelWeightMatrix")
def mel_weight_matrix(ctx: Context, num_mel_bins: Value, dft_length: Value, sample_rate: Value,
                      lower_edge_hertz: Value, upper_edge_hertz: Value, *,
                      output_datatype: int = 1) -> Value:
    """Triangular filters; all sizes and frequencies must be known before the run."""
    bins, length, rate = (ctx.ints(v, what)[0] for v, what in (
        (num_mel_bins, "num_mel_bins"), (dft_length, "dft_length"), (sample_rate, "sample_rate")))
    low, high = (float(ctx.array(v, what).reshape(())) for v, what in (
        (lower_edge_hertz, "lower_edge_hertz"), (upper_edge_hertz, "upper_edge_hertz")))
    return op("mel_weight_matrix", bins=bins, dft_length=length, sample_rate=rate, low=low,
              high=high, dtype=dtype_of(output_datatype, ctx.node_name))


def _check_plan(x: Value, rank: int, normalized: int, onesided: int, signal_ndim: int) -> None:
    """ONNX Runtime takes these attributes and computes one-sided, unnormalised transforms."""
    if normalized or not onesided:
        raise Declined("Rfft and Irfft are one-sided and not normalised",
                       hint="export with normalized=0 and onesided=1")
    if not 1 <= signal_ndim <= rank:
        raise Declined(f"{signal_ndim} signal axes of {x.type}")


@importer("Rfft", domain=MICROSOFT)
def rfft(ctx: Context, x: Value, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
         ) -> Value:
    """The last axes of a real tensor, as pairs on a new last axis."""
    rank = x.type.rank
    _check_plan(x, rank, normalized, onesided, signal_ndim)
    pairs = op("dft", op("unsqueeze", x, axes=(rank,)), axis=rank - 1, onesided=True)
    for axis in range(rank - signal_ndim, rank - 1):
        pairs = op("dft", pairs, axis=axis)
    return pairs


@importer("Irfft", domain=MICROSOFT)
def irfft(ctx: Context, x: Value, *, normalized: int = 0, onesided: int = 1,
          signal_ndim: int = 1) -> Value:
    """Back to a real tensor, whose last axis has the odd length 2 n - 1 (ONNX Runtime)."""
    rank = x.type.rank - 1
    _check_plan(x, rank, normalized, onesided, signal_ndim)
    for axis in range(rank - signal_ndim, rank - 1):
        x = op("dft", x, axis=axis, inverse=True)
    back = op("dft", x, axis=rank - 1, length=2 * x.shape[rank - 1] - 1, inverse=True,
              onesided=True)
    return op("squeeze", back, axes=(rank,))
