"""Normalisation, alone and after residual sums, and dropout."""

from __future__ import annotations

import numpy as np

from ....declare.opdef import REGISTRY, cast_value, full_value
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import BOOL, F32, I32, DType
from ....ops.compare import ne
from ....ops.fused import residual_layer_norm, residual_rms_norm
from ....ops.gather import gather
from ....ops.movement import expand, narrow, reshape, unsqueeze
from ....ops.norm import (
    batch_norm,
    batch_norm_training,
    group_norm,
    instance_norm,
    layer_norm,
    layer_norm_stats,
    lp_norm,
    mean_variance_norm,
    rms_norm,
)
from ....ops.norm import lrn as local_response_norm
from ....ops.reduce import sum_
from ....ops.scan1d import softmax
from ..context import Context
from ..registry import MICROSOFT, importer
from .random import key_and_stream


def _batch_norm(ctx: Context, parts: tuple[Value, ...], eps: float, momentum: float,
                training: bool) -> object:
    if not training:
        x, gamma, beta, mu, var = parts
        return batch_norm(x, gamma, beta, mu, var, eps=eps)
    if any(ctx.wants(i) for i in (3, 4)):
        raise Declined("the saved statistics of BatchNormalization", hint="drop outputs 3 and 4")
    y, mu, var = batch_norm_training(*parts, eps=eps, momentum=momentum)
    return y, mu, var, None, None


@importer("BatchNormalization", until=6)
def batch_norm_1(ctx: Context, x: Value, gamma: Value, beta: Value, mu: Value, var: Value, *,
                 epsilon: float = 1e-5, is_test: int = 0, momentum: float = 0.9,
                 spatial: int = 1, consumed_inputs: tuple[int, ...] = ()) -> object:
    """`is_test` tells inference from training."""
    _spatial(spatial)
    return _batch_norm(ctx, (x, gamma, beta, mu, var), epsilon, momentum, not is_test)


@importer("BatchNormalization", since=7, until=13)
def batch_norm_7(ctx: Context, x: Value, gamma: Value, beta: Value, mu: Value, var: Value, *,
                 epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1) -> object:
    """Training is what asks for more than one output."""
    _spatial(spatial)
    training = any(ctx.wants(i) for i in range(1, 5))
    return _batch_norm(ctx, (x, gamma, beta, mu, var), epsilon, momentum, training)


@importer("BatchNormalization", since=14)
def batch_norm_14(ctx: Context, x: Value, gamma: Value, beta: Value, mu: Value, var: Value, *,
                  epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0) -> object:
    """Training is an attribute."""
    return _batch_norm(ctx, (x, gamma, beta, mu, var), epsilon, momentum, bool(training_mode))


def _spatial(spatial: int) -> None:
    if not spatial:
        raise Declined("BatchNormalization with spatial=0", hint="re-export at opset 9 or later")


def _stash(stash_type: int) -> None:
    if stash_type != 1:
        raise Declined(f"stash_type={stash_type}; the statistics are kept in f32 (1)")


@importer("LayerNormalization")
def layer_normalization(ctx: Context, x: Value, scale: Value, bias: Value | None, *,
                        axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> object:
    """ONNX Runtime also writes it at opsets before 17."""
    _stash(stash_type)
    y = layer_norm(x, scale, beta=bias, axis=axis, eps=epsilon)
    if not any(ctx.wants(i) for i in (1, 2)):
        return y
    mu, inverse = layer_norm_stats(x, axis=axis, eps=epsilon)
    return y, cast_value(mu, F32), cast_value(inverse, F32)


@importer("SimplifiedLayerNormalization")
def simplified_layer_norm(ctx: Context, x: Value, scale: Value, *, axis: int = -1,
                          epsilon: float = 1e-5, stash_type: int = 1) -> object:
    """What ONNX Runtime called RMSNormalization, in the domain of the standard."""
    _stash(stash_type)
    _no_statistics(ctx, 1)
    return rms_norm(x, scale, axis=axis, eps=epsilon)


importer("SimplifiedLayerNormalization", domain=MICROSOFT)(simplified_layer_norm)


@importer("RMSNormalization", since=23)
def rms_normalization(ctx: Context, x: Value, scale: Value, *, axis: int = -1,
                      epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    """Division by the root mean square."""
    _stash(stash_type)
    return rms_norm(x, scale, axis=axis, eps=epsilon)


def _no_statistics(ctx: Context, *outputs: int) -> None:
    if any(ctx.wants(i) for i in outputs):
        raise Declined("the saved statistics of a normalisation", hint="they serve training alone")


@importer("InstanceNormalization")
def instance_normalization(ctx: Context, x: Value, scale: Value, bias: Value, *,
                           epsilon: float = 1e-5, consumed_inputs: tuple[int, ...] = ()) -> Value:
    """By instance and channel."""
    return instance_norm(x, scale, bias, eps=epsilon)


@importer("GroupNormalization", since=18, until=20)
def group_normalization_18(ctx: Context, x: Value, scale: Value, bias: Value, *,
                           num_groups: int, epsilon: float = 1e-5) -> Value:
    """One scale and bias for each group."""
    each = x.shape[1] // num_groups
    gamma, beta = (reshape(expand(unsqueeze(p, axes=(1,)), shape=(num_groups, each)),
                           shape=(x.shape[1],)) for p in (scale, bias))
    return group_norm(x, gamma, beta, num_groups=num_groups, eps=epsilon)


@importer("GroupNormalization", since=21)
def group_normalization(ctx: Context, x: Value, scale: Value, bias: Value, *, num_groups: int,
                        epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    """One scale and bias for each channel."""
    _stash(stash_type)
    return group_norm(x, scale, bias, num_groups=num_groups, eps=epsilon)


@importer("LpNormalization")
def lp_normalization(ctx: Context, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """Division by the L1 or L2 norm."""
    if p != 1 and p != 2:
        raise Declined(f"LpNormalization with p={p}; it is 1 or 2")
    return lp_norm(x, axis=axis, p=p)


@importer("LRN")
def lrn(ctx: Context, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
        bias: float = 1.0) -> Value:
    """Over neighbouring channels."""
    return local_response_norm(x, size=size, alpha=alpha, beta=beta, bias=bias)


@importer("MeanVarianceNormalization")
def mean_variance_normalization(ctx: Context, x: Value, *, axes: tuple[int, ...] = (0, 2, 3)
                                ) -> Value:
    """Mean 0 and variance 1 over axes."""
    return mean_variance_norm(x, axes=axes)


def _skip(ctx: Context, y: Value, total: Value) -> object:
    _no_statistics(ctx, 1, 2)
    return y, None, None, total


@importer("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(ctx: Context, x: Value, skip: Value, gamma: Value, beta: Value | None,
                    bias: Value | None, *, epsilon: float = 1e-12) -> object:
    """Of a residual sum; output 3 is the sum."""
    return _skip(ctx, *residual_layer_norm(x, skip, gamma, beta=beta, bias=bias, eps=epsilon))


@importer("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(ctx: Context, x: Value, skip: Value, gamma: Value, bias: Value | None, *,
                  epsilon: float = 1e-12) -> object:
    """Of a residual sum; output 3 is the sum."""
    return _skip(ctx, *residual_rms_norm(x, skip, gamma, bias=bias, eps=epsilon))


@importer("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(ctx: Context, ids: Value, segments: Value | None, words: Value,
                     positions: Value, segment_table: Value | None, gamma: Value, beta: Value,
                     mask: Value | None, position_ids: Value | None, *, epsilon: float = 1e-12,
                     mask_index_type: int = 0) -> object:
    """Sum of three embeddings, normalised; output 1 counts the mask's ones, output 2 is the sum.

    `mask_index_type` serves shape inference alone (ONNX Runtime's contrib schema).
    """
    if position_ids is None:
        places = narrow(positions, axis=0, start=0, length=ids.shape[1])
    else:
        places = gather(positions, position_ids, axis=0)
    total = gather(words, ids, axis=0) + places
    if segments is not None and segment_table is not None:
        total = total + gather(segment_table, segments, axis=0)
    y = layer_norm(total, gamma, beta=beta, eps=epsilon)
    if mask is None:
        counts = expand(full_value(0, I32), shape=(ids.shape[0],))
    else:
        counts = sum_(cast_value(ne(mask, 0), I32), axes=(1,))
    return y, counts, total


@importer("BiasAdd", domain=MICROSOFT)
def bias_add(ctx: Context, x: Value, bias: Value, skip: Value) -> Value:
    """A bias and a residual."""
    return x + bias + skip


@importer("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(ctx: Context, x: Value, bias: Value, *, axis: int = 1, is_inner_broadcast: int
                 ) -> Value:
    """Softmax, over all axes from `axis` on, of a sum."""
    if bias.type.rank != x.type.rank and is_inner_broadcast:
        raise Declined(f"BiasSoftmax with a bias of rank {bias.type.rank} broadcast inside")
    if axis % x.type.rank != x.type.rank - 1:
        raise Declined(f"BiasSoftmax over several axes from {axis}")
    return softmax(x + bias, axis=-1)


def _kept(ctx: Context, x: Value, mask: DType) -> object:
    """Nothing is dropped."""
    if not ctx.wants(1):
        return x
    return x, expand(full_value(1 if mask is BOOL else 1.0, mask), shape=x.shape)


@importer("Dropout", until=6)
def dropout_1(ctx: Context, x: Value, *, ratio: float = 0.5, is_test: int = 0,
              consumed_inputs: tuple[int, ...] = ()) -> object:
    """`is_test` tells inference from training."""
    if not is_test and ratio:
        raise Declined("Dropout in training at opset 6", hint="set is_test=1 or re-export")
    return _kept(ctx, x, x.dtype)


@importer("Dropout", since=7, until=9)
def dropout_7(ctx: Context, x: Value, *, ratio: float = 0.5) -> object:
    """Inference; the mask has the dtype of the data."""
    return _kept(ctx, x, x.dtype)


@importer("Dropout", since=10, until=11)
def dropout_10(ctx: Context, x: Value, *, ratio: float = 0.5) -> object:
    """Inference; the mask is bool."""
    return _kept(ctx, x, BOOL)


@importer("Dropout", since=12)
def dropout(ctx: Context, x: Value, ratio: Value | None, training: Value | None, *,
            seed: int | None = None) -> object:
    """Training is an input."""
    if training is None or not ctx.array(training, "training_mode").item():
        return _kept(ctx, x, BOOL)
    key, stream = key_and_stream(ctx, None)
    if seed is not None:
        key, stream = ctx.constant(np.asarray(seed % 2**64, np.uint64)), 0
    return REGISTRY["dropout"](x, full_value(0.5, F32) if ratio is None else ratio, key,
                               stream=stream)
