"""Caches and state spaces of the standard (opset 24 and 27) and of com.microsoft.

What a node may look like is said by `ops.state_rules`, which this module asks under ONNX's names.
"""

from __future__ import annotations

from typing import Any

from ....declare.opdef import cast_value, full_value, wide
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import I64, TensorType
from ....ops.activations import sigmoid
from ....ops.contract import matmul
from ....ops.movement import expand
from ....ops.positions import kv_append
from ....ops.state_rules import (
    DELTA,
    GATED,
    CausalConv,
    LinearAttention,
    Request,
    problem,
)
from ....ops.state_rules_beside import AttentionGate, CacheUpdate, GatedAdd, GatedNorm
from ....ops.state_space import linear_attention
from ....ops.state_space_conv import causal_conv_with_state
from ....ops.state_space_gates import gated_add, gated_rms_norm, linear_attention_gate
from ..context import Context
from ..registry import MICROSOFT, importer


def _type(x: Value | None) -> TensorType | None:
    return None if x is None else x.type


def _admit(op: str, request: Request) -> None:
    """Decline with the sentence of the first rule that the node breaks."""
    if why := problem(request):
        raise Declined(f"{op}: {why}")


@importer("TensorScatter", since=24)
def tensor_scatter(ctx: Context, cache: Value, update: Value, at: Value | None, *,
                   axis: int = -2, mode: str = "linear") -> Value:
    """A cache with an update written at each batch entry's own position, 0 without one."""
    _admit("TensorScatter", CacheUpdate(
        cache.type, update.type, _type(at), axis, mode, standard=True))
    if at is None:
        at = expand(full_value(0, I64), shape=cache.shape[:1])
    return kv_append(cache, update, at, axis=axis,
                     mode="linear" if mode == "linear" else "circular")


def _attend(q: Value, k: Value, v: Value, past: Value | None, gates: tuple[Value | None, ...],
            heads: tuple[int, int], rule: str, scale: float, window: int, standard: bool
            ) -> object:
    decay, beta = gates
    _admit("LinearAttention", LinearAttention(
        q.type, k.type, v.type, _type(past), _type(decay), _type(beta), rule, *heads, window,
        standard))
    attrs: dict[str, Any] = {"rule": rule, "q_heads": heads[0], "kv_heads": heads[1],
                             "scale": scale, "state_window": window}
    return linear_attention(q, k, v, past=past, decay=decay, beta=beta, **attrs)


@importer("LinearAttention", since=27)
def linear_attention_27(ctx: Context, q: Value, k: Value, v: Value, past: Value | None,
                        decay: Value | None, beta: Value | None, *, chunk_size: int = 64,
                        kv_num_heads: int, q_num_heads: int, scale: float = 0.0,
                        update_rule: str = "gated_delta") -> object:
    """`chunk_size` is a hint that no result depends on."""
    return _attend(q, k, v, past, (decay, beta), (q_num_heads, kv_num_heads), update_rule, scale,
                   0, True)


@importer("LinearAttention", domain=MICROSOFT)
def contrib_linear_attention(ctx: Context, q: Value, k: Value, v: Value, past: Value | None,
                             decay: Value | None, beta: Value | None, *, chunk_size: int = 64,
                             kv_num_heads: int, q_num_heads: int, scale: float = 0.0,
                             state_window: int = 0, update_rule: str = "gated_delta") -> object:
    """Gates that the rule does not read are dropped, as ONNX Runtime does."""
    gates = (decay if update_rule in GATED else None, beta if update_rule in DELTA else None)
    return _attend(q, k, v, past, gates, (q_num_heads, kv_num_heads), update_rule, scale,
                   state_window, False)


def _convolve(x: Value, weight: Value, bias: Value | None, past: Value | None, **attrs: Any  # noqa: ANN401 - the operator's attributes
              ) -> object:
    _admit("CausalConvWithState", CausalConv(
        x.type, weight.type, _type(bias), _type(past), attrs["activation"],
        attrs.get("dilation", 1), attrs.get("channels_last", False),
        attrs.get("state_window", 0)))
    return causal_conv_with_state(x, weight, bias=bias, past=past, **attrs)


@importer("CausalConvWithState", since=27)
def causal_conv_27(ctx: Context, x: Value, weight: Value, bias: Value | None,
                   past: Value | None, *, activation: str = "none") -> object:
    """Channels first, without dilation."""
    return _convolve(x, weight, bias, past, activation=activation)


@importer("CausalConvWithState", domain=MICROSOFT)
def contrib_causal_conv(ctx: Context, x: Value, weight: Value, bias: Value | None,
                        past: Value | None, *, activation: str = "none", channels_last: int = 0,
                        dilation: int = 1, input_channel_offset: int = 0,
                        input_channels: int = 0, ndim: int = 1, state_channels_last: int = -1,
                        state_length: int = 0, state_update_capacity: int = 0,
                        state_window: int = 0) -> object:
    """One causal axis; what ONNX Runtime runs on CUDA alone is declined."""
    if ndim != 1:
        raise Declined(f"CausalConvWithState: ndim is {ndim}; 1 is needed")
    for name, given, usual in (
            ("input_channel_offset", input_channel_offset, (0,)),
            ("input_channels", input_channels, (0,)), ("state_length", state_length, (0,)),
            ("state_update_capacity", state_update_capacity, (0,)),
            ("state_channels_last", state_channels_last, (-1, int(bool(channels_last))))):
        if given not in usual:
            raise Declined(f"CausalConvWithState: {name} is {given}; {usual[0]} is needed")
    return _convolve(x, weight, bias, past, activation=activation, dilation=dilation,
                     channels_last=bool(channels_last), state_window=state_window)


@importer("LinearAttentionGate", domain=MICROSOFT)
def attention_gate(ctx: Context, a: Value, dt_bias: Value, decay_scale: Value,
                   b: Value | None) -> object:
    """The second output needs the operand b."""
    _admit("LinearAttentionGate", AttentionGate(a.type, dt_bias.type, decay_scale.type, _type(b)))
    if b is None and ctx.wants(1):
        raise Declined("LinearAttentionGate: the output beta needs the input b")
    return linear_attention_gate(a, dt_bias, decay_scale, b=b)


@importer("GatedAdd", domain=MICROSOFT)
def contrib_gated_add(ctx: Context, x: Value, y: Value, gate: Value,
                      gate_weight: Value | None) -> Value:
    """With a weight the gate is projected first, in bf16 alone."""
    if gate_weight is not None:
        if x.dtype.name != "bf16" or gate_weight.dtype is not x.dtype:
            raise Declined(f"GatedAdd: gate_weight is {gate_weight.type} and X is {x.type}; both "
                           "must be bf16")
        if gate.type.rank < 1 or gate_weight.shape != (gate.shape[-1], 1):
            raise Declined(f"GatedAdd: gate_weight is {gate_weight.type} and gate is "
                           f"{gate.type}; [K,1] and [..,K] are needed")
        projected = cast_value(matmul(wide(gate), wide(gate_weight)), x.dtype)
        gate = cast_value(sigmoid(wide(projected)), x.dtype)
    _admit("GatedAdd", GatedAdd(x.type, y.type, gate.type))
    return gated_add(x, y, gate)


@importer("GatedRMSNorm", domain=MICROSOFT)
def contrib_gated_rms_norm(ctx: Context, x: Value, scale: Value, gate: Value, *,
                           activation: str = "silu", epsilon: float = 1e-5) -> Value:
    """Norms of groups as long as the scale."""
    _admit("GatedRMSNorm", GatedNorm(x.type, scale.type, gate.type, activation))
    attrs: dict[str, Any] = {"activation": activation}
    return gated_rms_norm(x, scale, gate, eps=epsilon, **attrs)
