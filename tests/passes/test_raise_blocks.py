"""Rotary positions, gated layers and residual norms that exporters open come back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.raising import apply, close, ops, stopped
from tests.passes.running import run_both
from treadle.declare import evaluate
from treadle.declare.arrays import blob
from treadle.ir.graph import Builder, Value
from treadle.ir.types import parse_type
from treadle.ops import (
    concat,
    constant,
    cos,
    gather,
    layer_norm,
    matmul,
    mul,
    narrow,
    neg,
    rms_norm,
    silu,
    sin,
    slice_,
    split,
    transpose,
    unsqueeze,
)
from treadle.passes.base import Context
from treadle.passes.pipeline import Pipeline

Fn = Callable[..., Value]
X = "f32[n,3,s,8]"


def parts(x: Value) -> tuple[Value, Value]:
    return (narrow(x, axis=-1, start=0, length=4), narrow(x, axis=-1, start=4, length=4))


def sliced(x: Value) -> tuple[Value, Value]:
    return (slice_(x, starts=(0,), ends=(4,), steps=(1,), axes=(3,)),
            slice_(x, starts=(4,), ends=(2**62,), steps=(1,), axes=(3,)))


def turned(x: Value, cut: Callable[[Value], tuple[Value, Value]] = parts) -> Value:
    a, b = cut(x)
    return concat([neg(b), a], axis=-1)


def angles(f: Value) -> tuple[Value, Value]:
    """cos and sin of [f, f] for each head."""
    both = unsqueeze(concat([f, f], axis=-1), axes=(1,))
    return cos(both) * 1.5, sin(both) * 1.5


def hugging(x: Value, f: Value) -> Value:
    c, s = angles(f)
    return x * c + turned(x) * s


def other_order(x: Value, f: Value) -> Value:
    c, s = angles(f)
    return mul(s, turned(x, sliced)) + mul(c, x)


def by_halves(x: Value, f: Value) -> Value:
    c, s = (unsqueeze(g(f), axes=(1,)) for g in (cos, sin))
    a, b = split(x, axis=3, sizes=(4, 4))
    return concat([a * c - b * s, b * c + a * s], axis=-1)


def from_table(x: Value, f: Value) -> Value:  # noqa: ARG001 - one signature for all
    table = np.outer(np.arange(9), [1.0, 0.1, 0.01, 0.001, 1.0, 0.1, 0.01, 0.001])
    c, s = (narrow(constant(value=blob(g(table).astype("f4"))), axis=0, start=0, length=x.shape[2])
            for g in (np.cos, np.sin))
    return x * c + turned(x) * s


def positions_first(x: Value, f: Value) -> Value:
    y = transpose(x, perm=(0, 2, 1, 3))
    c, s = (unsqueeze(g(concat([f, f], axis=-1)), axes=(2,)) for g in (cos, sin))
    return y * c + turned(y) * s


ROPES: dict[str, Fn] = {f.__name__: f for f in (hugging, other_order, by_halves, from_table,
                                               positions_first)}


@pytest.mark.parametrize("table", ["f32[n,s,4]", "f32[1,s,4]"])
@pytest.mark.parametrize("name", ROPES)
def test_rope(name: str, table: str) -> None:
    before, after, _ = apply("raise_rope", ROPES[name], X, table)
    assert "rope" in ops(after) and not {"neg", "sub", "split"} & {*ops(after)}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 5, 8)).astype("f4")
    x[0, 0, 0, :2] = np.inf, np.nan
    f = rng.normal(size=(2 if table[4] == "n" else 1, 5, 4)).astype("f4") * 10
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, [x, f])
    np.testing.assert_array_equal(a, b)


def unlike_halves(x: Value, f: Value) -> Value:
    c, s = (unsqueeze(g(concat([f, f + 1.0], axis=-1)), axes=(1,)) for g in (cos, sin))
    return x * c + turned(x) * s


def other_sign(x: Value, f: Value) -> Value:
    c, s = angles(f)
    a, b = parts(x)
    return x * c + concat([b, neg(a)], axis=-1) * s


def minus_both(x: Value, f: Value) -> Value:
    c, s = (unsqueeze(g(f), axes=(1,)) for g in (cos, sin))
    a, b = parts(x)
    return concat([a * c - b * s, b * c - a * s], axis=-1)


def swapped_tables(x: Value, f: Value) -> Value:
    c, s = (unsqueeze(g(f), axes=(1,)) for g in (cos, sin))
    a, b = parts(x)
    return concat([a * c - b * s, b * s + a * c], axis=-1)


@pytest.mark.parametrize("fn", [unlike_halves, other_sign, minus_both, swapped_tables])
def test_what_only_looks_like_rope_stays(fn: Fn) -> None:
    before, after, ctx = apply("raise_rope", fn, X, "f32[n,s,4]")
    assert ops(after) == ops(before)
    assert (fn is unlike_halves) == ("both halves of cos" in stopped(ctx))


def test_tables_that_differ_by_head_stay() -> None:
    def fn(x: Value, c: Value, s: Value) -> Value:
        a, b = parts(x)
        return concat([a * c - b * s, b * c + a * s], axis=-1)

    _, after, ctx = apply("raise_rope", fn, X, "f32[n,3,s,4]", "f32[n,3,s,4]")
    assert "rope" not in ops(after) and "do not follow the positions" in stopped(ctx)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_residual_norm(norm: Fn) -> None:
    def fn(x: Value, r: Value, g: Value, w: Value) -> Value:
        total = x + r
        return total + matmul(norm(total, g), w)

    before, after, _ = apply("raise_residual_norm", fn, "f32[n,8]", "f32[n,8]", "f32[8]",
                             "f32[8,8]")
    assert ops(after) == [f"residual_{norm.name}", "matmul", "add"]  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("f4") for s in ((4, 8), (4, 8), (8,), (8, 8))]
    arrays[0][0, 0] = np.nan
    (a,), (b,) = run_both(before, after, arrays)
    np.testing.assert_array_equal(a, b)


def test_residual_norms_that_do_not_fit() -> None:
    _, after, ctx = apply("raise_residual_norm", lambda x, r, g: layer_norm(x + r, g), "f32[n,8]",
                          "f32[1,8]", "f32[8]")
    assert "layer_norm" in ops(after) and "broadcasts" in stopped(ctx)

    def late(x: Value, g: Value) -> Value:
        total = x + x
        return rms_norm(total, cos(g))

    _, after, ctx = apply("raise_residual_norm", late, "f32[n,8]", "f32[8]")
    assert "rms_norm" in ops(after) and "computed after the sum" in stopped(ctx)

    def twice(x: Value, r: Value, g: Value) -> tuple[Value, Value]:
        total = x + r
        return layer_norm(total, g), rms_norm(total, g)

    before, after, _ = apply("raise_residual_norm", twice, "f32[n,8]", "f32[n,8]", "f32[8]")
    assert sorted(ops(after)) == ["layer_norm", "residual_rms_norm"]


def gated(biases: bool, frozen: bool) -> tuple[list[str], Context]:
    rng = np.random.default_rng(2)
    data = {n: rng.normal(size=s).astype("f4") for n, s in (
        ("gate", (16, 24)), ("up", (16, 24)), ("gb", (24,)), ("ub", (24,)))}
    with Builder("mlp") as b:
        x = b.input("x", parse_type("f32[n,16]"))
        leaf = {n: b.input(n, parse_type(f"f32[{','.join(map(str, a.shape))}]"), param=True)
                for n, a in data.items()}
        g, u = matmul(x, leaf["gate"]), matmul(x, leaf["up"])
        if biases:
            g, u = g + leaf["gb"], u + leaf["ub"]
        graph = b.finish(silu(g) * u)
    ctx = Context(dict(data) if frozen else {})
    after = Pipeline(verify=True).run(graph, ctx).graph
    given = rng.normal(size=(3, 16)).astype("f4")
    old = evaluate.run(graph, [given, *data.values()], {}, {})[0]
    now = [ctx.params[v.name] if frozen else data[v.name] for v in after.params]
    new = evaluate.run(after, [given, *now], {}, {})[0]
    close(old, new, np.abs(old).max())
    return [r.what for r in ctx.report if r.by == "raise_swiglu"], ctx


@pytest.mark.parametrize("biases", [False, True])
def test_swiglu_packs_frozen_weights(biases: bool) -> None:
    did, ctx = gated(biases, True)
    assert did == ["swiglu"]
    assert max(np.shape(a)[-1] for a in ctx.params.values()) == 48


def test_swiglu_of_weights_that_may_change_stays() -> None:
    did, _ = gated(False, False)
    assert len(did) == 1 and "not frozen" in did[0]


def test_embedding_of_positions_is_followed_through_gather() -> None:
    def fn(x: Value, at: Value) -> Value:
        table = np.cos(np.outer(np.arange(9), np.tile([1.0, 0.1, 0.01, 0.001], 2))).astype("f4")
        c, s = (unsqueeze(gather(constant(value=blob(t)), at, axis=0), axes=(1,))
                for t in (table, table[::-1].copy()))
        return x * c + turned(x) * s

    before, after, _ = apply("raise_rope", fn, X, "i64[n,s]")
    assert "rope" in ops(after)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 8)).astype("f4")
    (a,), (b,) = run_both(before, after, [x, np.arange(10).reshape(2, 5) % 9])
    np.testing.assert_array_equal(a, b)
