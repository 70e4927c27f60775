"""The causal depthwise convolution of state-space models, with its carry."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import sample
from ..ir.dims import Size, dmax
from ..ir.graph import Value
from ..ir.types import I64, count
from .activations import silu
from .compare import ge, where
from .conv import conv
from .extents import zeros
from .movement import concat, narrow, reshape, transpose, unsqueeze
from .state_rules import CausalConv, refuse

ORACLE = "tests.oracles.state_space:causal_conv_with_state"


def _by_channel(x: Value) -> Value:
    """[N,L,d1,..] as [N,C,L]."""
    flat = reshape(x, shape=(*x.shape[:2], count(x.shape[2:])))
    return transpose(flat, perm=(0, 2, 1))


def _line(r: CausalConv, x: Value, past: Value | None) -> tuple[Value, Value]:
    """The input and what stands before it, channels first."""
    if past is not None and r.window:
        past = reshape(narrow(past, axis=0, start=r.window - 1, length=1), shape=past.shape[1:])
    rows = _by_channel(x) if r.channels_last else x
    if past is None:
        return rows, zeros(x.type.with_(shape=(*rows.shape[:2], r.state_length)))
    return rows, _by_channel(past) if r.channels_last else past


def _slot(line: Value, end: Size, length: Size) -> Value:
    return narrow(line, axis=2, start=end, length=length)


def _window(line: Value, steps: Size, reach: int, window: int) -> list[Value]:
    """The states after the last tokens; zeros where there were fewer. The last is always there."""
    slots = list[Value]()
    for back in range(window - 1, 0, -1):
        state = _slot(line, dmax(steps - back, 0), reach)
        if not isinstance(steps, int):
            state = where(ge(full_value(steps, I64), back + 1), state, 0.0)
        elif steps <= back:
            state = zeros(state.type)
        slots.append(state)
    return [*slots, _slot(line, steps, reach)]


@composite(samples=[
    sample("f32[2,3,5]", "f32[3,1,4]", bias="f32[3]", past="f32[2,3,3]", activation="silu",
           expect=ORACLE, rtol=1e-5),
    sample("f32[2,3,2]", "f32[3,1,3]", dilation=2, expect=ORACLE, rtol=1e-5),
    sample("f32[2,4,2,3]", "f32[6,1,3]", past="f32[3,2,2,2,3]", state_window=3,
           channels_last=True, activation="swish", expect=ORACLE, rtol=1e-5),
    sample("f32[1,2,2]", "f32[2,1,3]", past="f32[4,1,2,2]", state_window=4, expect=ORACLE,
           rtol=1e-5),
    sample("f32[1,3,0]", "f32[3,1,2]", past="f32[1,3,1]", expect=ORACLE),
    sample("f32[2,3,4]", "f32[3,1,1]", bias="f32[3]", expect=ORACLE),
    sample("f16[1,2,4]", "f16[2,1,3]", bias="f16[2]", past="f16[1,2,2]", expect=ORACLE)])
def causal_conv_with_state(x: Value, weight: Value, *, bias: Value | None = None,
                           past: Value | None = None,
                           activation: Literal["none", "silu", "swish"] = "none",
                           dilation: int = 1, channels_last: bool = False,
                           state_window: int = 0) -> tuple[Value, ...]:
    """y[n,c,t] = act(bias[c] + sum over j of weight[c,0,j] z[n,c,t + j dilation]), z = past, x.

    x[N,C,L], or [N,L,d1,..] with channels_last, weight[C,1,k], bias[C], past and the second
    output [N,C,(k-1) dilation] in the layout of x: what stands before x, zeros without it, and
    the last positions of z. silu and swish are y * sigmoid(y). With state_window W, states are
    [W,..]: those after the last W positions, zeros in front, the last one read. Halves are
    rounded once (ONNX and com.microsoft CausalConvWithState).
    """
    r = CausalConv(x.type, weight.type, None if bias is None else bias.type,
                   None if past is None else past.type, activation, dilation, channels_last,
                   state_window)
    refuse(r)
    rows, before = _line(r, x, past)
    line, (n, _, steps) = concat([before, rows], axis=2), rows.shape
    assert isinstance(groups := weight.shape[0], int)
    y = conv(wide(line), wide(weight), bias=None if bias is None else wide(bias),
             dilations=(dilation,), pads=(0, 1), groups=groups)
    y = narrow(y, axis=2, start=0, length=steps)  # one more position, so that none is possible
    y = cast_value(y if activation == "none" else silu(y), x.dtype)

    def laid(v: Value) -> Value:
        if not channels_last:
            return v
        return reshape(transpose(v, perm=(0, 2, 1)), shape=(n, v.shape[2], *x.shape[2:]))

    states = [laid(s) for s in _window(line, steps, r.state_length, max(state_window, 1))]
    if not state_window:
        return laid(y), states[0]
    return laid(y), concat([unsqueeze(s, axes=(0,)) for s in states], axis=0)
