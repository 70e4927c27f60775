"""Gated layers as one step: what opens into seven is one kernel where MLX compiles."""

from __future__ import annotations

import mlx.core as mx

from ...ir.types import DType
from ...ops.library import REGISTRY
from .arrays import OURS, wide
from .expressions import convert, evaluate, opened
from .lowering import Lowering, plain


def _swiglu(x: mx.array, *, dtype: DType | None) -> mx.array:
    """The halves of the last axis in f32, rounded once."""
    half = x.shape[-1] // 2
    up, gate = wide(x[..., :half]), wide(x[..., half:])
    silu = opened(REGISTRY["silu"].scalars({}, (OURS[gate.dtype],)))
    return convert(up * evaluate(silu, [gate])[0], dtype or OURS[x.dtype])


LOWERINGS: dict[str, Lowering] = {"swiglu": plain(_swiglu)}
