"""Random tensors.

ONNX leaves the generator open. Here a node with `seed` draws from the key of that seed; one
without draws from the model's key, on a stream of its own: streams count up from 1 through the
model. The key is a parameter, 0 unless it is replaced or `compile(random=...)` gives every run
another one. Every iteration of a loop draws the same numbers.
"""

from __future__ import annotations

import numpy as np

from ....ir.graph import Value
from ....ir.types import DType
from ....runtime.random import KEY_PARAM
from ..context import Context
from ..reading import dtype_of
from ..registry import importer
from .shape import op

_STREAM = "random stream"


def key_and_stream(ctx: Context, seed: float | None) -> tuple[Value, int]:
    """The key of a seed with stream 0, or the model's key with its next stream."""
    if seed is not None:
        bits = np.asarray(seed, np.float32).view(np.uint32)
        return ctx.constant(bits.astype(np.uint64)), 0
    stream = ctx.state.counts[_STREAM] = ctx.state.counts.get(_STREAM, 0) + 1
    return ctx.param(KEY_PARAM, np.zeros((), np.uint64)), stream


def _like(ctx: Context, x: Value, code: int | None) -> DType:
    return x.dtype if code is None else dtype_of(code, ctx.node_name)


@importer("RandomNormal")
def random_normal(ctx: Context, *, shape: tuple[int, ...], dtype: int = 1,
                  seed: float | None = None, mean: float = 0.0, scale: float = 1.0) -> Value:
    """Normal numbers of a shape."""
    key, stream = key_and_stream(ctx, seed)
    return op("normal", key, shape=shape, dtype=dtype_of(dtype, ctx.node_name), mean=mean,
              std=scale, stream=stream)


@importer("RandomNormalLike")
def random_normal_like(ctx: Context, x: Value, *, dtype: int | None = None,
                       seed: float | None = None, mean: float = 0.0, scale: float = 1.0) -> Value:
    """Normal numbers in the shape of x."""
    key, stream = key_and_stream(ctx, seed)
    return op("normal", key, shape=x.shape, dtype=_like(ctx, x, dtype), mean=mean, std=scale,
              stream=stream)


@importer("RandomUniform")
def random_uniform(ctx: Context, *, shape: tuple[int, ...], dtype: int = 1,
                   seed: float | None = None, low: float = 0.0, high: float = 1.0) -> Value:
    """Uniform numbers of a shape."""
    key, stream = key_and_stream(ctx, seed)
    return op("uniform", key, shape=shape, dtype=dtype_of(dtype, ctx.node_name), low=low,
              high=high, stream=stream)


@importer("RandomUniformLike")
def random_uniform_like(ctx: Context, x: Value, *, dtype: int | None = None,
                        seed: float | None = None, low: float = 0.0, high: float = 1.0) -> Value:
    """Uniform numbers in the shape of x."""
    key, stream = key_and_stream(ctx, seed)
    return op("uniform", key, shape=x.shape, dtype=_like(ctx, x, dtype), low=low, high=high,
              stream=stream)


@importer("Bernoulli", since=15)
def bernoulli(ctx: Context, p: Value, *, dtype: int | None = None, seed: float | None = None
              ) -> Value:
    """1 with probability p."""
    key, stream = key_and_stream(ctx, seed)
    return op("bernoulli", p, key, dtype=_like(ctx, p, dtype), stream=stream)


@importer("Multinomial", since=7)
def multinomial(ctx: Context, logits: Value, *, dtype: int = 6, sample_size: int = 1,
                seed: float | None = None) -> Value:
    """Draws from each row of log-probabilities."""
    key, stream = key_and_stream(ctx, seed)
    return op("multinomial", logits, key, samples=sample_size,
              dtype=dtype_of(dtype, ctx.node_name), stream=stream)
