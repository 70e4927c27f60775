"""What the rules of state-space operators accept runs; what they refuse is refused with a reason.

Requests are drawn at random around valid ones. The judge of a refused request is the operator: it
must raise the very sentence. The judge of an accepted one is its value, on the devices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treadle
from tests.oracles import state_space as oracle
from treadle.declare.arrays import np_dtype
from treadle.errors import OperatorError
from treadle.ir.graph import trace
from treadle.ir.types import DTYPES, TensorType
from treadle.ops.state_rules import UPDATES, CausalConv, LinearAttention, problem
from treadle.ops.state_space import linear_attention
from treadle.ops.state_space_conv import causal_conv_with_state
from treadle.runtime.model import Built, Model

F32, F16, BF16, I64 = (DTYPES[n] for n in ("f32", "f16", "bf16", "i64"))
DEVICES = [name for name, what in treadle.devices().items() if not what.startswith("not ")]
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 4e-2}
Pick = np.random.Generator


def one_of(pick: Pick, *items: Any) -> Any:  # noqa: ANN401 - any of them
    """One of the items."""
    return items[int(pick.integers(len(items)))]


def attention(pick: Pick) -> LinearAttention:
    """A request that is valid, or wrong in one place."""
    heads = int(pick.choice([1, 2, 4]))
    q_heads = int(pick.choice([h for h in (1, 2, 4, 8) if h % heads == 0 or heads % h == 0]))
    k_heads = int(pick.choice([h for h in (1, 2, 4) if heads % h == 0]))
    n, t, dk, dv = (int(pick.integers(low, high)) for low, high in (
        (1, 3), (0, 7), (1, 6), (1, 9)))
    rule, dtype, window = str(pick.choice(UPDATES)), one_of(pick, F32, F32, F16), int(
        pick.choice([0, 0, 1, 3]))

    def floats(*shape: int) -> TensorType:
        return TensorType(shape, dtype)

    decay = floats(n, t, int(pick.choice([heads, heads * dk]))) if "gated" in rule else None
    beta = floats(n, t, int(pick.choice([heads, 1]))) if "delta" in rule else None
    past = TensorType((*[window] * (window > 0), n, heads, dk, dv), one_of(pick, F32, dtype))
    r = LinearAttention(floats(n, t, q_heads * dk), floats(n, t, k_heads * dk),
                        floats(n, t, heads * dv), past if pick.random() < 0.6 else None, decay,
                        beta, rule, q_heads, heads, window)
    return spoiled(r, pick, ("query", "key", "value", "past_state", "decay", "beta"), {
        "rule": (*UPDATES, "other"), "q_heads": (0, 1, 2, 3), "kv_heads": (-1, 1, 2, 3),
        "window": (-1, 0, 2, 9)})


def convolution(pick: Pick) -> CausalConv:
    """A request that is valid, or wrong in one place."""
    n, length, c, k, gap = (int(pick.integers(low, high)) for low, high in (
        (1, 3), (0, 6), (1, 5), (1, 5), (1, 4)))
    last, window = bool(pick.random() < 0.5), int(pick.choice([0, 0, 1, 3]))
    dtype, reach = one_of(pick, F32, F32, F16), (k - 1) * gap

    def floats(*shape: int) -> TensorType:
        return TensorType(shape, dtype)

    lead = [window] * (window > 0)
    past = floats(*lead, n, reach, c) if last else floats(*lead, n, c, reach)
    r = CausalConv(floats(n, length, c) if last else floats(n, c, length), floats(c, 1, k),
                   floats(c) if pick.random() < 0.5 else None,
                   past if pick.random() < 0.6 else None,
                   str(pick.choice(["none", "silu", "swish"])), gap, last, window)
    return spoiled(r, pick, ("input", "weight", "bias", "past_state"), {
        "activation": ("none", "tanh"), "dilation": (0, 1, 2, 2**31), "channels_last": (
            False, True), "window": (-1, 0, 2, 9)})


def spoiled(r: Any, pick: Pick, operands: tuple[str, ...],  # noqa: ANN401 - a request
            attrs: dict[str, tuple[object, ...]]) -> Any:  # noqa: ANN401
    """The request with one field changed, half of the time."""
    if pick.random() < 0.5:
        return r
    name = str(pick.choice([*operands, *attrs]))
    if name in attrs:
        return replace(r, **{name: attrs[name][int(pick.integers(len(attrs[name])))]})
    t = getattr(r, name)
    if t is None:
        return r
    shape = list(t.shape)
    how = int(pick.integers(4))
    if how == 0 and shape:
        shape[int(pick.integers(len(shape)))] += int(pick.choice([-1, 1, 2]))
    elif how == 1:
        shape = shape[1:]
    elif how == 2:
        shape = [1, *shape]
    dtype = t.dtype if how < 3 else one_of(pick, F16, BF16, I64)
    return replace(r, **{name: TensorType(tuple(max(int(s), 0) for s in shape), dtype)})


def call_of(r: Any) -> tuple[Any, dict[str, TensorType], dict[str, Any]]:  # noqa: ANN401
    """The operator, its operands' types by name, and its attributes."""
    if isinstance(r, LinearAttention):
        given = {"query": r.query, "key": r.key, "value": r.value, "past": r.past_state,
                 "decay": r.decay, "beta": r.beta}
        attrs = {"rule": r.rule, "q_heads": r.q_heads, "kv_heads": r.kv_heads,
                 "state_window": r.window}
        op = linear_attention
    else:
        given = {"x": r.input, "weight": r.weight, "bias": r.bias, "past": r.past_state}
        attrs = {"activation": r.activation, "dilation": r.dilation,
                 "channels_last": r.channels_last, "state_window": r.window}
        op = causal_conv_with_state
    return op, {n: t for n, t in given.items() if t is not None}, attrs


def graph_of(r: Any) -> Any:  # noqa: ANN401
    op, types, attrs = call_of(r)
    first = 3 if isinstance(r, LinearAttention) else 2
    names = list(types)[first:]

    def call(*xs: Any) -> Any:  # noqa: ANN401
        return op(*xs[:first], **dict(zip(names, xs[first:], strict=True)), **attrs)

    return trace(call, *types.values(), name="one")


def check(r: Any, pick: Pick, devices: tuple[str, ...]) -> None:  # noqa: ANN401
    _, types, attrs = call_of(r)
    arrays = {}
    for name, t in types.items():
        shape = tuple([int(str(d)) for d in t.shape])
        x = pick.uniform(-1.0, 0.0 if name == "decay" else 1.0, shape)
        arrays[name] = x.astype(np_dtype(t.dtype))
    first = 3 if isinstance(r, LinearAttention) else 2
    values = list(arrays.values())
    ask = oracle.linear_attention if first == 3 else oracle.causal_conv_with_state
    want = ask(*values[:first], **dict(zip(list(arrays)[first:], values[first:], strict=True)),
               **attrs)
    for device in devices:
        got = Model("one", Built(graph_of(r), {})).compile(device).run(values).values()
        for g, w in zip(got, want, strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype), r
            bound = TOLERANCE[types[next(iter(types))].dtype.name]
            np.testing.assert_allclose(g.astype(float), w.astype(float), rtol=bound, atol=bound,
                                       err_msg=f"{device}: {r}")


@pytest.mark.parametrize("draw", [attention, convolution])
def test_accepted_requests_run_and_others_cannot(draw: Any) -> None:  # noqa: ANN401
    pick, accepted, refused = np.random.default_rng(11), 0, set[str]()
    for turn in range(240):
        r = draw(pick)
        why = problem(r)
        if not why:
            accepted += 1
            check(r, pick, tuple(DEVICES) if turn % 60 == 0 else ("reference",))
            continue
        refused.add(why.split(" ")[0] + why.split(";")[-1][-20:])
        with pytest.raises(OperatorError) as caught:
            graph_of(r)
        if "is not Literal" not in str(caught.value):
            assert why in str(caught.value), (why, r)
    assert accepted > 100 and len(refused) > 8
