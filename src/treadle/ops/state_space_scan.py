"""The selective scan: a diagonal state space whose step depends on the token."""

from __future__ import annotations

from collections.abc import Callable

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import sample
from ..ir.graph import Value
from .control import scan
from .leaves import full
from .mathfn import exp
from .movement import unsqueeze
from .reduce import sum_
from .state_rules import refuse
from .state_rules_beside import SelectiveScan

ORACLE = "tests.oracles.state_space:selective_scan"


def _token(a: Value) -> Callable[[Value, Value, Value, Value, Value], tuple[Value, Value]]:
    """(h[N,C,n], x and dt [N,C], b and c [N,n]) to the next state and y[N,C]."""

    def step(h: Value, x: Value, dt: Value, b: Value, c: Value) -> tuple[Value, Value]:
        decay = exp(unsqueeze(dt, axes=(2,)) * a)
        h = decay * h + unsqueeze(dt * x, axes=(2,)) * unsqueeze(b, axes=(1,))
        return h, sum_(h * unsqueeze(c, axes=(1,)), axes=(2,), keepdims=False)

    return step


@composite(samples=[
    sample("f32[2,4,3]", "f32[2,4,3]", "f32[3,5]", "f32[2,4,5]", "f32[2,4,5]", low=-1.0,
           high=1.0, state="f32[2,3,5]", expect=ORACLE, rtol=1e-5),
    sample("f32[1,3,2]", "f32[1,3,2]", "f32[2,2]", "f32[1,3,2]", "f32[1,3,2]", low=-1.0,
           high=1.0, expect=ORACLE, rtol=1e-5),
    sample("f16[1,3,2]", "f16[1,3,2]", "f32[2,2]", "f16[1,3,2]", "f16[1,3,2]", low=-1.0,
           high=1.0, expect=ORACLE),
    sample("f32[1,0,2]", "f32[1,0,2]", "f32[2,2]", "f32[1,0,2]", "f32[1,0,2]", expect=ORACLE)])
def selective_scan(x: Value, dt: Value, a: Value, b: Value, c: Value, *,
                   state: Value | None = None) -> tuple[Value, ...]:
    """h = exp(dt a) h + dt b x, y = sum over n of c h, token by token. Gives y and the last h.

    x and dt [N,T,C], a[C,n] (negative to forget), b and c [N,T,n], state[N,C,n]. The state is
    carried in f32 (f64 for f64 x) and rounded once to its own dtype, f32 or f64 without one
    (Mamba, 2312.00752).
    """
    refuse(SelectiveScan(x.type, dt.type, a.type, b.type, c.type,
                         None if state is None else state.type))
    dtype = wide(x).dtype
    xs = [cast_value(v, dtype) for v in (x, dt, b, c)]
    first = full(value=0.0, shape=(x.shape[0], *a.shape), dtype=dtype) if state is None else (
        cast_value(state, dtype))
    last, y = scan([first, *xs], body=_token(cast_value(a, dtype)), carried=1, axes=(1,) * 4,
                   out_axes=(1,))
    return cast_value(y, x.dtype), last if state is None else cast_value(last, state.dtype)
