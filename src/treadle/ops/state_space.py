"""Linear attention: a matrix of state for each head, updated token by token.

Shapes, with N sequences of T tokens, Hq query heads, Hk key heads and H states of [dk, dv]:
query[N,T,Hq*dk], key[N,T,Hk*dk], value[N,T,H*dv], state[N,H,dk,dv], heads packed in the last axis.
The state is carried in f32 (f64 for f64 operands) for the whole call and rounded once.

All are composites of a `scan` over the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import sample
from ..ir.graph import Value
from ..ir.types import DType, TensorType
from .contract import matmul
from .control import scan
from .leaves import full
from .mathfn import exp
from .movement import concat, expand, narrow, reshape, unsqueeze
from .state_rules import LinearAttention, key_width, refuse
from .state_rules_beside import GatedDeltaNet, Mamba2Scan

ORACLE = "tests.oracles.state_space:"
QKV = ("f32[2,5,12]", "f32[2,5,6]", "f32[2,5,8]")
"""Four query heads, two key heads of 3, two states of [3, 4]."""


def type_or_none(x: Value | None) -> TensorType | None:
    """The type of an optional operand."""
    return None if x is None else x.type


def _spread(x: Value, have: int, want: int) -> Value:
    """[N,T,have*D] as [N,T,want,D]; every head is repeated want / have times."""
    n, t, width = x.shape
    d = width // have
    y = reshape(x, shape=(n, t, have, 1, d))
    if want != have:
        y = expand(y, shape=(n, t, have, want // have, d))
    return reshape(y, shape=(n, t, want, d))


def _first_state(r: LinearAttention, past: Value | None, dtype: DType) -> Value:
    if past is None:
        dv = r.value.shape[2] // r.kv_heads
        return full(value=0.0, shape=(r.query.shape[0], r.kv_heads, key_width(r), dv), dtype=dtype)
    if r.window:
        past = reshape(narrow(past, axis=0, start=r.window - 1, length=1), shape=past.shape[1:])
    return cast_value(past, dtype)


def _scanned(r: LinearAttention, q: Value, k: Value, v: Value, decay: Value | None,
             beta: Value | None, scale: float) -> list[Value]:
    """What a token reads, time on axis 1: q[N,T,H,G,dk], k, v, exp(decay)[..,dk|1,1], beta."""
    (n, t), h, dk = q.shape[:2], r.kv_heads, key_width(r)
    queries = _spread(wide(q) * scale, r.q_heads, max(r.q_heads, h))
    out = [reshape(queries, shape=(n, t, h, max(r.q_heads // h, 1), dk)),
           unsqueeze(_spread(wide(k), int(str(k.shape[2] // dk)), h), axes=(3,)),
           unsqueeze(_spread(wide(v), h, h), axes=(3,))]
    if decay is not None:
        out.append(reshape(exp(wide(decay)), shape=(n, t, h, decay.shape[2] // h, 1)))
    if beta is not None:
        b = expand(wide(beta), shape=(n, t, h))
        out.append(reshape(b, shape=(n, t, h, 1, 1)))
    return out


def _token(r: LinearAttention) -> Callable[..., tuple[Value, ...]]:
    """One token: (state, window.., q, k, v, gates..) to (state, window.., y[N,H,G,dv])."""
    kept = r.window

    def step(state: Value, *rest: Value) -> tuple[Value, ...]:
        window, (q, k, v, *gates) = rest[:kept], rest[kept:]
        if r.decay is not None:
            state = state * gates.pop(0)
        if r.beta is not None:
            v = gates.pop(0) * (v - matmul(k, state))
        n, h, _, dk = k.shape
        state = state + reshape(k, shape=(n, h, dk, 1)) * v
        return (state, *[*window, state][1:], matmul(q, state)) if kept else (
            state, matmul(q, state))

    return step


def _present(last: Value, window: Sequence[Value], dtype: DType) -> Value:
    """The last state, behind those of the tokens before where a window asks for them."""
    if not window:
        return cast_value(last, dtype)
    slots = [unsqueeze(cast_value(s, dtype), axes=(0,)) for s in (*window[:-1], last)]
    return concat(slots, axis=0)


@composite(samples=[
    *(sample(*QKV, rule=rule, q_heads=4, kv_heads=2, **gates, low=-1.0, high=1.0,
             expect=ORACLE + "linear_attention", rtol=1e-5)
      for rule, gates in (
          ("linear", {}), ("gated", {"decay": "f32[2,5,2]"}), ("delta", {"beta": "f32[2,5,1]"}),
          ("gated_delta", {"decay": "f32[2,5,6]", "beta": "f32[2,5,2]",
                           "past": "f32[2,2,3,4]", "scale": 0.5}))),
    sample("f32[1,3,3]", "f32[1,3,6]", "f32[1,3,16]", rule="gated_delta", q_heads=1, kv_heads=4,
           decay="f32[1,3,4]", beta="f32[1,3,4]", past="f32[2,1,4,3,4]", state_window=2,
           low=-1.0, high=1.0, expect=ORACLE + "linear_attention", rtol=1e-5),
    sample("f16[1,4,4]", "f16[1,4,4]", "f16[1,4,6]", rule="gated", q_heads=2, kv_heads=2,
           decay="f16[1,4,2]", past="f32[1,2,2,3]", low=-1.0, high=1.0,
           expect=ORACLE + "linear_attention"),
    sample("f32[1,0,4]", "f32[1,0,4]", "f32[1,0,4]", rule="linear", q_heads=2, kv_heads=2,
           past="f32[1,2,2,2]", expect=ORACLE + "linear_attention")])
def linear_attention(query: Value, key: Value, value: Value, *, past: Value | None = None,
                     decay: Value | None = None, beta: Value | None = None,
                     rule: Literal["linear", "gated", "delta", "gated_delta"] = "gated_delta",
                     q_heads: int, kv_heads: int, scale: float = 0.0, state_window: int = 0
                     ) -> tuple[Value, ...]:
    """y = scale qT S after each token, with the state S updated by `rule`. Gives y and the state.

    linear: S += k vT; gated: S = exp(decay) S + k vT; delta: S += k (beta (v - kT S))T;
    gated_delta: first the decay, then delta. query[N,T,Hq*dk] with Hq = q_heads,
    key[N,T,Hk*dk], value[N,T,H*dv] with H = kv_heads, past[N,H,dk,dv], decay [N,T,H] or
    [N,T,H*dk], beta [N,T,H] or [N,T,1]; y[N,T,max(Hq,H)*dv]. Query head h reads state
    h // (Hq / H), or state h reads query head h // (H / Hq); Hk divides H. scale 0 is
    1 / sqrt(dk). The state has the dtype of past, else of query. With state_window W, past and
    state are [W,N,H,dk,dv]: the states after the last W tokens, zeros in front, the last one
    read (ONNX LinearAttention; 2406.06484, 2412.06464).
    """
    r = LinearAttention(query.type, key.type, value.type, type_or_none(past),
                        type_or_none(decay), type_or_none(beta), rule, q_heads, kv_heads,
                        state_window)
    refuse(r)
    by = scale or 1.0 / math.sqrt(key_width(r))
    xs = _scanned(r, query, key, value, decay, beta, by)
    first = _first_state(r, past, xs[0].dtype)
    blank = [full(value=0.0, shape=first.shape, dtype=first.dtype)] * state_window
    out = scan([first, *blank, *xs], body=_token(r), carried=1 + state_window,
               axes=(1,) * len(xs), out_axes=(1,))
    y = reshape(out[-1], shape=(*query.shape[:2], max(q_heads, kv_heads) * (
        value.shape[2] // kv_heads)))
    dtype = query.dtype if past is None else past.dtype
    return cast_value(y, query.dtype), _present(out[0], out[1:-1], dtype)


def _packed(x: Value) -> Value:
    """[N,T,H,D] as [N,T,H*D]."""
    return reshape(x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))


@composite(samples=[
    sample("f32[2,4,2,3]", "f32[2,4,2,3]", "f32[2,4,2,3]", "f32[2,4,2]", "f32[2,4,2]",
           state="f32[2,2,3,3]", low=-1.0, high=1.0, expect=ORACLE + "gated_delta_net",
           rtol=1e-5),
    sample("f16[1,3,1,2]", "f16[1,3,1,2]", "f16[1,3,1,2]", "f16[1,3,1]", "f16[1,3,1]",
           scale=1.0, low=-1.0, high=1.0)])
def gated_delta_net(q: Value, k: Value, v: Value, g: Value, beta: Value, *,
                    state: Value | None = None, scale: float = 0.0) -> tuple[Value, ...]:
    """`linear_attention` by the rule gated_delta with equally many heads; gives y and the state.

    q and k [N,T,H,dk], v[N,T,H,dv], g and beta [N,T,H], state[N,H,dk,dv], y[N,T,H,dv]
    (2412.06464).
    """
    refuse(GatedDeltaNet(q.type, k.type, v.type, g.type, beta.type, type_or_none(state)))
    assert isinstance(heads := q.shape[2], int)
    y, last = linear_attention(_packed(q), _packed(k), _packed(v), past=state, decay=g, beta=beta,
                               rule="gated_delta", q_heads=heads, kv_heads=heads, scale=scale)
    return reshape(y, shape=v.shape), last


@composite(samples=[
    sample("f32[2,4,4,3]", "f32[2,4,4]", "f32[4]", "f32[2,4,2,5]", "f32[2,4,2,5]", low=-1.0,
           high=1.0, state="f32[2,4,5,3]", expect=ORACLE + "mamba2_scan", rtol=1e-5),
    sample("f32[1,3,2,2]", "f32[1,3,2]", "f32[2]", "f32[1,3,2,3]", "f32[1,3,2,3]", low=-1.0,
           high=1.0, expect=ORACLE + "mamba2_scan", rtol=1e-5),
    sample("bf16[1,3,2,2]", "bf16[1,3,2]", "f32[2]", "bf16[1,3,1,3]", "bf16[1,3,1,3]")])
def mamba2_scan(x: Value, dt: Value, a: Value, b: Value, c: Value, *,
                state: Value | None = None) -> tuple[Value, ...]:
    """State spaces with one decay a head: h = exp(dt a) h + dt b xT, y = cT h. Gives y and h.

    x[N,T,H,P], dt[N,T,H], a[H] (negative to forget), b and c [N,T,G,n] with G a divisor of H:
    head i reads group i // (H / G). The state is [N,H,n,P] (Mamba-2, 2405.21060). It is
    `linear_attention` by the rule gated, computed in f32 (f64 for f64 x) throughout.
    """
    refuse(Mamba2Scan(x.type, dt.type, a.type, b.type, c.type, type_or_none(state)))
    dtype = wide(x).dtype
    step, rate, keys, queries = (cast_value(z, dtype) for z in (dt, a, b, c))
    values = wide(x) * unsqueeze(step, axes=(3,))
    assert isinstance(heads := x.shape[2], int) and isinstance(groups := b.shape[2], int)
    y, last = linear_attention(_packed(queries), _packed(keys), _packed(values), past=state,
                               decay=step * rate, rule="gated",
                               q_heads=groups, kv_heads=heads, scale=1.0)
    return cast_value(reshape(y, shape=x.shape), x.dtype), last
