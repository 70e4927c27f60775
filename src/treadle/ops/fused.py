"""Composites that models repeat and backends fuse: residual norms, gates, dense layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import DType
from .activations import gelu, gelu_tanh, relu, sigmoid, silu
from .contract import matmul
from .mathfn import rsqrt, tanh
from .movement import narrow
from .norm import fits, standardise, trailing
from .reduce import mean

ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x, "relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu,
    "sigmoid": sigmoid, "tanh": tanh}
"""What `activation=` may name in fused layers."""


def _residual(x: Value, r: Value, bias: Value | None) -> Value:
    if x.dtype is not r.dtype:
        raise OperatorError(f"x is {x.dtype}, the residual {r.dtype}", hint="cast one of them")
    total = wide(x) + wide(r)
    return total if bias is None else total + wide(bias)


@composite(samples=[
    known([[1.0, 2.0]], [[1.0, 4.0]], [1.0, 1.0], bias=[0.0, 0.0], beta=[0.5, 0.0], eps=0.0,
          expect=[[[-0.5, 1.0]], [[2.0, 6.0]]]),
    sample("f32[2,4]", "f32[2,4]", "f32[4]", beta="f32[4]"),
    known(arr([[60000.0, -60000.0]], "f16"), arr([[1000.0, -1000.0]], "f16"),
          arr([1.0, 1.0], "f16"), expect=[arr([[1.0, -1.0]], "f16"),
                                          arr([[60992.0, -60992.0]], "f16")])])
def residual_layer_norm(x: Value, r: Value, gamma: Value, *, bias: Value | None = None,
                        beta: Value | None = None, axis: int = -1, eps: float = 1e-5
                        ) -> tuple[Value, ...]:
    """Layer normalisation of x + r + bias, and that sum itself.

    The sum is normalised in f32, before it rounds to the dtype of x.
    """
    total = _residual(x, r, bias)
    y = standardise(total, trailing(total, axis), eps) * fits(total, gamma, "gamma")
    y = y if beta is None else y + fits(total, beta, "beta")
    return cast_value(y, x.dtype), cast_value(total, x.dtype)


@composite(samples=[
    known([[1.0, 2.0]], [[2.0, 2.0]], [1.0, 2.0], eps=0.0,
          expect=[[[0.84852814, 2.2627417]], [[3.0, 4.0]]]),
    sample("f32[2,4]", "f32[2,4]", "f32[4]", bias="f32[4]"),
    sample("f16[2,4]", "f16[2,4]", "f16[4]", low=1000, high=30000)])
def residual_rms_norm(x: Value, r: Value, gamma: Value, *, bias: Value | None = None,
                      axis: int = -1, eps: float = 1e-5) -> tuple[Value, ...]:
    """RMS normalisation of x + r + bias, and that sum itself, which is not rounded first."""
    total = _residual(x, r, bias)
    power = mean(total * total, axes=trailing(total, axis), keepdims=True)
    y = total * rsqrt(power + eps) * fits(total, gamma, "gamma")
    return cast_value(y, x.dtype), cast_value(total, x.dtype)


@composite(samples=[
    known([[2.0, 3.0, 0.0, 1.0]], expect=[[[0.0, 2.1931758]]]),
    sample("f32[2,6]", dtype="f16"), sample("f16[2,4]", low=5, high=20)])
def swiglu(x: Value, *, dtype: DType | None = None) -> Value:
    """The product up * silu(gate) of a packed last axis [up | gate], cast to `dtype` (2002.05202).

    The halves are multiplied in f32 and rounded once.
    """
    size = x.shape[-1] if x.type.rank else 1
    if isinstance(size, int) and size % 2:
        raise OperatorError(f"the last axis of {x.type} has no two halves")
    half = size // 2
    up = narrow(x, axis=-1, start=0, length=half)
    gate = narrow(x, axis=-1, start=half, length=half)
    return cast_value(wide(up) * silu(wide(gate)), dtype or x.dtype)


@composite(samples=[
    known([[1.0, -2.0]], [[1.0, 2.0], [1.0, 0.5]], bias=[0.5, 0.0], activation="relu",
          expect=[[[0.0, 1.0]]]),
    known([[1.0, -2.0]], [[1.0, 2.0], [1.0, 0.5]], residual=[[5.0, 6.0]],
          expect=[[[4.0, 7.0]]]),
    sample("f32[2,3,4]", "f32[4,5]", bias="f32[5]", activation="gelu"),
    sample("f16[2,64]", "f16[64,3]", bias="f16[3]", activation="silu", low=10, high=20)])
def matmul_bias_act(x: Value, w: Value, *, bias: Value | None = None,
                    residual: Value | None = None,
                    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid",
                                        "tanh"] = "none") -> Value:
    """activation(x w + bias) + residual: a dense layer; halves are rounded once, at the end."""
    y = matmul(wide(x), wide(w))
    y = ACTIVATIONS[activation](y if bias is None else y + wide(bias))
    return cast_value(y if residual is None else y + wide(residual), x.dtype)
