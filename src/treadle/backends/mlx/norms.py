"""Norms over the last axis: MLX's fused kernels in f32, one of our own in half precision."""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from ...ir.graph import Node
from .arrays import on_gpu, wide
from .kernels.row_norm import MOST, row_norm
from .lowering import Lowering, plain


def _norm(x: mx.array, gamma: mx.array, *, beta: mx.array | None = None, axis: int, eps: float,
          centred: bool) -> mx.array:
    """Computed in f32 and rounded once."""
    if _ours(x):
        return row_norm(x, gamma, beta, eps, centred=centred)[0]
    return _wide_norm(wide(x), gamma, beta, eps, centred).astype(x.dtype)


def _ours(x: mx.array) -> bool:
    return on_gpu() and x.dtype != mx.float32 and x.shape[-1] <= MOST


def _wide_norm(x: mx.array, gamma: mx.array, beta: mx.array | None, eps: float, centred: bool
               ) -> mx.array:
    if not centred:
        return mx.fast.rms_norm(x, wide(gamma), eps)
    return mx.fast.layer_norm(x, wide(gamma), None if beta is None else wide(beta), eps)


def _residual(x: mx.array, r: mx.array, gamma: mx.array, *, bias: mx.array | None = None,
              beta: mx.array | None = None, axis: int, eps: float, centred: bool
              ) -> list[mx.array]:
    """The norm of a sum that is not rounded before, and the sum."""
    if _ours(x):
        return row_norm(x, gamma, beta, eps, centred=centred, residual=r, bias=bias)
    total = wide(x) + wide(r)
    total = total if bias is None else total + wide(bias)
    y = _wide_norm(total, gamma, beta, eps, centred)
    return [y.astype(x.dtype), total.astype(x.dtype)]


def _refuse(node: Node) -> str:
    x, axis = node.inputs[0], node.attrs["axis"]
    if not isinstance(axis, int) or axis % x.type.rank != x.type.rank - 1:
        return "MLX normalises the last axis alone"
    full = 2 if node.op.startswith("residual") else 1
    if any(v.shape != x.shape for v in node.inputs[:full]):
        return "operands that broadcast"
    if any(v.shape != x.shape[-1:] for v in node.inputs[full:]):
        return "MLX's norms take one gain for each element of the last axis"
    return ""


def _lowering(kernel: partial[mx.array] | partial[list[mx.array]]) -> Lowering:
    return plain(kernel, _refuse)


LOWERINGS: dict[str, Lowering] = {
    "layer_norm": _lowering(partial(_norm, centred=True)),
    "rms_norm": _lowering(partial(_norm, centred=False)),
    "residual_layer_norm": _lowering(partial(_residual, centred=True)),
    "residual_rms_norm": _lowering(partial(_residual, centred=False))}
