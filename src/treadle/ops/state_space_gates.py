"""What stands around a recurrence: its gates, gated sums and gated norms. All computed in f32."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import arr, known, sample
from ..ir.graph import Value
from .activations import sigmoid, silu, softplus
from .mathfn import rsqrt
from .movement import reshape
from .reduce import mean
from .state_rules import refuse
from .state_rules_beside import AttentionGate, GatedAdd, GatedNorm

ORACLE = "tests.oracles.state_space:"


@composite(samples=[
    known([[[0.0, 1.0]]], [0.5, -1.0], [-1.0, -2.0], b=[[[0.0, 2.0]]],
          expect=[[[[-0.9740770, -1.3862944]]], [[[0.5, 0.8807971]]]]),
    known(arr([[[0.0, 1.0]]], "f16"), [0.5, -1.0], [-1.0, -2.0],
          expect=[arr([[[-0.9740770, -1.3862944]]], "f16")]),
    sample("bf16[2,3,4]", "f32[4]", "f32[4]", b="bf16[2,3,4]")])
def linear_attention_gate(a: Value, dt_bias: Value, decay_scale: Value, *,
                          b: Value | None = None) -> tuple[Value, ...]:
    """Decay = decay_scale * softplus(a + dt_bias), and beta = sigmoid(b) where b is given.

    a and b [N,T,H], dt_bias and decay_scale [H] in f32 (com.microsoft LinearAttentionGate).
    """
    refuse(AttentionGate(a.type, dt_bias.type, decay_scale.type, None if b is None else b.type))
    decay = cast_value(softplus(wide(a) + dt_bias) * decay_scale, a.dtype)
    return (decay,) if b is None else (decay, cast_value(sigmoid(wide(b)), b.dtype))


@composite(samples=[
    known([[1.0, 2.0], [3.0, 4.0]], [[1.0, 10.0], [1.0, 10.0]], [[0.5], [2.0]],
          expect=[[[1.5, 7.0], [5.0, 24.0]]]),
    known(arr([[1.0]], "f16"), arr([[1.001]], "f16"), arr([[1.001]], "f16"),
          expect=[arr([[2.002]], "f16")]),
    sample("bf16[2,3,4]", "bf16[2,3,4]", "bf16[2,3,1]")])
def gated_add(x: Value, y: Value, gate: Value) -> Value:
    """X + y * gate; halves round the product, then the sum. x and y [..,C], gate [..,1].

    com.microsoft GatedAdd without gate_weight.
    """
    refuse(GatedAdd(x.type, y.type, gate.type))
    return x + y * gate


@composite(samples=[
    sample("f32[2,3,8]", "f32[4]", "f32[2,3,8]", expect=ORACLE + "gated_rms_norm", rtol=1e-5),
    sample("f32[3,4]", "f32[4]", "f32[3,4]", activation="sigmoid", eps=0.1,
           expect=ORACLE + "gated_rms_norm", rtol=1e-5),
    sample("f16[2,6]", "f16[3]", "f16[2,6]", low=20, high=400)])
def gated_rms_norm(x: Value, scale: Value, gate: Value, *, eps: float = 1e-5,
                   activation: Literal["silu", "swish", "sigmoid"] = "silu") -> Value:
    """X / sqrt(mean(x^2) + eps) * scale * act(gate); the mean runs over groups of C.

    x and gate [..,groups * C], scale [C]; act is gate * sigmoid(gate), or sigmoid(gate)
    (com.microsoft GatedRMSNorm). Halves are rounded once.
    """
    refuse(GatedNorm(x.type, scale.type, gate.type, activation))
    c, width = scale.shape[0], x.shape[-1]
    grouped = (*x.shape[:-1], width // c, c)
    rows = reshape(wide(x), shape=grouped)
    y = rows * rsqrt(mean(rows * rows, axes=(-1,), keepdims=True) + eps) * wide(scale)
    z = wide(gate)
    act = sigmoid(z) if activation == "sigmoid" else silu(z)
    return cast_value(reshape(y, shape=x.shape) * act, x.dtype)
