"""Attention that exporters open comes back with the same results, masks and empty rows included."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.raising import apply, close, ops, stopped
from tests.passes.running import run_both
from treadle.declare import evaluate
from treadle.declare.arrays import Array, blob
from treadle.ir.graph import Builder, Value
from treadle.ir.types import DTYPES, parse_type
from treadle.ops import (
    constant,
    expand,
    gather,
    isnan,
    layer_norm,
    matmul,
    narrow,
    reshape,
    softcap,
    softmax,
    tanh,
    transpose,
    unsqueeze,
    where,
)
from treadle.ops.convert import cast_ as cast
from treadle.passes.base import Context
from treadle.passes.pipeline import Pipeline

Fn = Callable[..., Value]
LOW = float(np.finfo(np.float32).min)
QKV = ("f32[n,3,s,4]", "f32[n,3,l,4]", "f32[n,3,l,5]")
BIAS = "f32[n,1,s,l]"


def t(x: Value) -> Value:
    n = x.type.rank
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def sm(x: Value) -> Value:
    return softmax(x, axis=-1)


def repeated(x: Value, group: int) -> Value:
    n, h, length, d = x.shape
    wide = expand(unsqueeze(x, axes=(2,)), shape=(n, h, group, length, d))
    return reshape(wide, shape=(n, h * group, length, d))


SPELLINGS: dict[str, tuple[Fn, tuple[str, ...]]] = {
    "plain": (lambda q, k, v: matmul(sm(matmul(q, t(k))), v), QKV),
    "quotient": (lambda q, k, v: matmul(sm(matmul(q, t(k)) / 2.0), v), QKV),
    "scaled q": (lambda q, k, v: matmul(sm(matmul(q * 0.5, t(k))), v), QKV),
    "both scaled": (lambda q, k, v: matmul(sm(matmul(q * 0.7, t(k) * 0.7)), v), QKV),
    "k in [n,l,h,d]": (lambda q, k, v: matmul(sm(matmul(q, transpose(k, perm=(0, 2, 3, 1))) * 0.5),
                                              v), (QKV[0], "f32[n,l,3,4]", QKV[2])),
    "biased": (lambda q, k, v, b: matmul(sm(matmul(q, t(k)) * 0.5 + b), v), (*QKV, BIAS)),
    "bias first": (lambda q, k, v, b: matmul(sm(b + matmul(q, t(k)) / 2.0), v), (*QKV, "f32[l]")),
    "two biases": (lambda q, k, v, a, b: matmul(sm(matmul(q, t(k)) * 0.5 + a + b), v),
                   (*QKV, BIAS, "f32[3,s,l]")),
    "capped": (lambda q, k, v, b: matmul(sm(softcap(matmul(q, t(k)) * 0.5, cap=3.0) + b), v),
               (*QKV, BIAS)),
    "one matrix": (lambda q, k, v: matmul(sm(matmul(q, t(k)) * 0.5), v),
                   ("f32[s,4]", "f32[l,4]", "f32[l,5]")),
    "heads in the batch": (lambda q, k, v, b: matmul(sm(matmul(q, t(k)) * 0.5 + b), v),
                           ("f32[m,s,4]", "f32[m,l,4]", "f32[m,l,5]", "f32[s,l]")),
    "one key head": (lambda q, k, v: matmul(sm(matmul(q, t(k))), v),
                     ("f32[n,6,s,4]", "f32[n,1,l,4]", "f32[n,1,l,5]")),
    "shared key heads": (lambda q, k, v, b: matmul(sm(
        matmul(q, t(repeated(k, 2))) * 0.5 + b), repeated(v, 2)), ("f32[n,6,s,4]", *QKV[1:], BIAS))}


def arrays(types: tuple[str, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    sizes = {"n": 2, "s": 3, "l": 5, "m": 4}
    if seed:
        sizes = {k: int(rng.choice([0, 1, 2, 9])) for k in sizes}
    shapes = [tuple(int(sizes.get(str(d), d)) for d in parse_type(x).shape) for x in types]
    return [rng.normal(size=s).astype("f4") for s in shapes]


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    fn, types = SPELLINGS[name]
    before, after, _ = apply("raise_attention", fn, *types)
    left = [o for o in ops(after) if o not in ("transpose", "unsqueeze", "reshape", "add")]
    assert left == ["attention"]
    node = next(n for n in after.nodes if n.op == "attention")
    if name == "shared key heads":
        assert node.inputs[1].shape[1] == 3
    (a,), (b,) = run_both(before, after, given := arrays(types))
    close(a, b, 2.0)
    for hostile in (LOW, -math.inf, math.nan):  # a bias that hides a row, or part of it
        if len(types) > 3:
            given[3][..., :2] = hostile
            given[3].reshape(-1)[-5:] = hostile
            with np.errstate(all="ignore"):
                (a,), (b,) = run_both(before, after, given)
            close(a, b, 2.0)
    given = arrays(types)
    given[0].reshape(-1)[0], given[2].reshape(-1)[-1] = math.inf, math.nan
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, given)
    close(a, b, 2.0)


@pytest.mark.parametrize("name", SPELLINGS)
def test_sizes_from_nothing_up(name: str) -> None:
    fn, types = SPELLINGS[name]
    before, after, _ = apply("raise_attention", fn, *types)
    for seed in range(1, 9):
        (a,), (b,) = run_both(before, after, arrays(types, seed))
        close(a, b, 3.0)


def test_halves_with_a_softmax_in_f32() -> None:
    def fn(q: Value, k: Value, v: Value) -> Value:
        s = cast(matmul(q, t(k)) * 0.5, dtype=DTYPES["f32"])
        return matmul(cast(sm(s), dtype=DTYPES["f16"]), v)

    before, after, _ = apply("raise_attention", fn, *[x.replace("f32", "f16") for x in QKV])
    assert "attention" in ops(after)
    (a,), (b,) = run_both(before, after, [x.astype("f2") for x in arrays(QKV)])
    close(a, b, 2.0, "f16", ulps=2)


def test_a_mask_added_in_halves_stays() -> None:
    types = [x.replace("f32", "f16") for x in (*QKV, BIAS)]
    _, after, ctx = apply("raise_attention", SPELLINGS["biased"][0], *types)
    assert "attention" not in ops(after) and "half precision" in stopped(ctx)


@pytest.mark.parametrize(("fn", "why"), [
    (lambda q, k, v: matmul(sm(tanh(matmul(q, t(k)))), v), "no product of matrices"),
    (lambda q, k, v: matmul(sm((matmul(q, t(k)) + 1.0) * 2.0), v), "no product of matrices"),
    (lambda q, k, v: matmul(softmax(matmul(q, t(k)), axis=2), v), ""),
    (lambda q, k, v: matmul(where(isnan(p := sm(matmul(q, t(k)))), 0.0, p), v),
     "nothing bounds the scores"),
    (lambda q, k, v: matmul(where(isnan(p := sm(matmul(q, t(k)))), 1.0, p), v), "")])
def test_what_only_looks_alike_stays(fn: Fn, why: str) -> None:
    before, after, ctx = apply("raise_attention", fn, *QKV)
    assert ops(after) == ops(before)
    assert why in stopped(ctx)


def test_probabilities_that_are_returned_stop_it() -> None:
    def fn(q: Value, k: Value, v: Value) -> tuple[Value, Value]:
        p = sm(matmul(q, t(k)))
        return matmul(p, v), p

    _, after, ctx = apply("raise_attention", fn, *QKV)
    assert "attention" not in ops(after)
    assert "attention: the graph returns its softmax" in stopped(ctx)


def embedded(attend: Callable[[Value, Value], Value]) -> tuple[Builder, Context, list[Array]]:
    """Attention over embeddings of token ids, whose magnitudes are known."""
    rng = np.random.default_rng(1)
    data = {"table": rng.normal(size=(20, 64)).astype("f4"),
            "gamma": rng.normal(size=64).astype("f4"), "w": rng.normal(size=(64, 64)).astype("f4")}
    b = Builder("model")
    with b:
        ids, mask = (b.input(n, parse_type(x)) for n, x in (("ids", "i64[n,s]"),
                                                           ("mask", "bool[n,1,s,s]")))
        table, gamma, w = (b.input(n, parse_type(x), param=True) for n, x in (
            ("table", "f32[20,64]"), ("gamma", "f32[64]"), ("w", "f32[64,64]")))
        x = matmul(layer_norm(gather(table, ids, axis=0), gamma), w)
        heads = transpose(reshape(x, shape=(*x.shape[:2], 4, 16)), perm=(0, 2, 1, 3))
        b.finish([attend(heads, mask)])
    ids = rng.integers(0, 20, (2, 5))
    return b, Context(dict(data)), [ids, rng.random((2, 1, 5, 5)) < 0.5]


def both(attend: Callable[[Value, Value], Value]) -> tuple[list[str], Context]:
    """Operators after the standard passes; results agree, with rows that see nothing."""
    b, ctx, inputs = embedded(attend)
    inputs[1][0, 0, 1] = False
    params = dict(ctx.params)
    after = Pipeline(verify=True).run(b.graph, ctx).graph
    old = evaluate.run(b.graph, [*inputs, *params.values()], {}, {})[0]
    new = evaluate.run(after, [*inputs, *[ctx.params[v.name] for v in after.params]], {}, {})[0]
    close(old, new, 30.0, ulps=64)
    return ops(after), ctx


def guarded(p: Value) -> Value:
    return where(isnan(p), 0.0, p)


def test_a_guard_goes_where_no_score_can_be_nan() -> None:
    left, _ = both(lambda h, m: matmul(guarded(sm(
        matmul(h, t(h)) * 0.25 + where(m, 0.0, LOW))), h))
    assert "attention" in left and "isnan" not in left


def test_a_guard_and_an_infinite_bias_are_a_mask() -> None:
    left, _ = both(lambda h, m: matmul(guarded(sm(
        matmul(h, t(h)) * 0.25 + where(m, 0.0, -math.inf))), h))
    assert "attention" in left and "isnan" not in left and "where" not in left
    left, _ = both(lambda h, m: matmul(guarded(sm(
        where(m, matmul(h, t(h)) * 0.25, -math.inf))), h))
    assert "attention" in left and "isnan" not in left and "where" not in left


def test_a_fill_with_rows_that_may_see_nothing_stays() -> None:
    left, ctx = both(lambda h, m: matmul(sm(where(m, matmul(h, t(h)) * 0.25, LOW)), h))
    assert "attention" not in left and "a row may have no visible key" in stopped(ctx)
    left, ctx = both(lambda h, m: matmul(sm(where(m, matmul(h, t(h)) * 0.25, -1e3)), h))
    assert "attention" not in left and "-1000 that a mask fills in may have weight" in stopped(ctx)


def test_a_causal_fill_is_a_mask() -> None:
    def causal(h: Value, m: Value) -> Value:  # noqa: ARG001 - one signature for all
        tril = constant(value=blob(np.tril(np.ones((1, 1, 8, 8), bool))))
        s = h.shape[2]
        seen = narrow(narrow(tril, axis=2, start=0, length=s), axis=3, start=0, length=s)
        return matmul(sm(where(seen, matmul(h, t(h)) * 0.25, LOW)), h)

    left, _ = both(causal)
    assert "attention" in left and "where" not in left
