"""Activations that exporters open, in every spelling seen, come back with the same results."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.raising import HOSTILE, apply, close, ops, stopped
from tests.passes.running import run_both
from treadle.declare.arrays import np_dtype
from treadle.ir.graph import Value
from treadle.ir.types import DTYPES
from treadle.ops import (
    add,
    clip,
    div,
    erf,
    exp,
    hard_sigmoid,
    max_,
    min_,
    mul,
    neg,
    reciprocal,
    relu,
    relu6,
    sigmoid,
    softplus,
    sub,
    tanh,
)

Fn = Callable[[Value], Value]
R2 = math.sqrt(2)
C = math.sqrt(2 / math.pi)
INNER = {
    "pow": lambda x: (x + 0.044715 * x ** 3.0) * C,
    "flax": lambda x: mul(C, add(x, mul(0.044715, mul(x, mul(x, x))))),
    "factored": lambda x: x * 0.7978845608 * (1.0 + 0.044715 * x * x),
    "distributed": lambda x: 0.79788456 * x + (0.79788456 * 0.044715) * (x * x * x)}
SPELLINGS: dict[str, tuple[str, Fn]] = {
    "half first": ("gelu", lambda x: x * 0.5 * (1.0 + erf(x / R2))),
    "half inside": ("gelu", lambda x: x * (0.5 * (1.0 + erf(x * 0.70710678)))),
    "half last": ("gelu", lambda x: mul(mul(x, add(erf(div(x, 1.4142135)), 1.0)), 0.5)),
    "half spread": ("gelu", lambda x: x * (0.5 + 0.5 * erf(x * 0.70710677))),
    "over two": ("gelu", lambda x: x * (erf(x / R2) + 1.0) / 2.0),
    **{f"tanh {k}": ("gelu_tanh", lambda x, f=f: 0.5 * x * (1.0 + tanh(f(x))))
       for k, f in INNER.items()},
    "sigmoid": ("sigmoid", lambda x: 1.0 / (1.0 + exp(-x))),
    "sigmoid by reciprocal": ("sigmoid", lambda x: reciprocal(exp(x * -1.0) + 1.0)),
    "silu": ("silu", lambda x: x * sigmoid(x)),
    "silu by quotient": ("silu", lambda x: x / (1.0 + exp(neg(x)))),
    "silu opened": ("silu", lambda x: x * (1.0 / (1.0 + exp(-x)))),
    "swish": ("swish", lambda x: sigmoid(1.702 * x) * x),
    "mish": ("mish", lambda x: x * tanh(softplus(x))),
    "softcap": ("softcap", lambda x: tanh(x / 30.0) * 30.0),
    "paddle": ("hard_swish", lambda x: x * clip(x + 3.0, lo=0.0, hi=6.0) / 6.0),
    "sixth inside": ("hard_swish", lambda x: x * (clip(3.0 + x, lo=0.0, hi=6.0) / 6.0)),
    "sixth as a factor": ("hard_swish", lambda x: x * relu6(x + 3.0) * 0.16666667),
    "unit clip": ("hard_swish", lambda x: clip(x / 6.0 + 0.5, lo=0.0, hi=1.0) * x),
    "min max": ("hard_swish", lambda x: x * min_(max_(x + 3.0, 0.0), 6.0) / 6.0),
    "max min": ("hard_swish", lambda x: x * max_(0.0, min_(6.0, x + 3.0)) / 6.0),
    "min relu": ("hard_swish", lambda x: x * min_(relu(x + 3.0), 6.0) / 6.0),
    "hard sigmoid": ("hard_swish", lambda x: x * hard_sigmoid(x, alpha=1 / 6, beta=0.5))}
EIGHT_DIGITS = ("half inside", "half last", "half spread", "tanh factored", "tanh distributed",
                "sixth as a factor")
"""Spellings whose constants are other numbers in f64."""
OTHERS: dict[str, Fn] = {
    "other constant": lambda x: x * 0.5 * (1.0 + erf(x * 0.7072)),
    "other cubic": lambda x: 0.5 * x * (1.0 + tanh(C * (x + 0.0447 * x ** 3.0))),
    "two operands": lambda x: (x + 1.0) * 0.5 * (1.0 + erf(x / R2)),
    "minus": lambda x: x * 0.5 * (1.0 - erf(x / R2)),
    "gate of another": lambda x: (x + 1.0) * sigmoid(x),
    "clip to 5": lambda x: x * clip(x + 3.0, lo=0.0, hi=5.0) / 6.0,
    "clip from 1": lambda x: x * clip(x + 3.0, lo=1.0, hi=6.0) / 6.0,
    "fifth": lambda x: x * clip(x + 3.0, lo=0.0, hi=6.0) / 5.0,
    "exp of x": lambda x: 1.0 / (1.0 + exp(x)),
    "two plus": lambda x: 1.0 / (2.0 + exp(-x)),
    "tanh uncapped": lambda x: tanh(x / 30.0) * 20.0}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str, dtype: str) -> None:
    want, fn = SPELLINGS[name]
    before, after, _ = apply("raise_activation", fn, f"{dtype}[n]")
    if dtype == "f64" and name in EIGHT_DIGITS:
        assert ops(after) == ops(before)
        return
    assert ops(after) == [want]
    x = np.array([*HOSTILE, *([] if want == "hard_swish" else [-np.inf])])
    x = np.concatenate([x, np.random.default_rng(0).normal(size=500) * 3])
    if dtype == "f16":
        x = x[~(np.abs(x) > 1e3) | ~np.isfinite(x)]
    x = x.astype(np_dtype(DTYPES[dtype]))
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, [x])
    close(a, b, np.abs(x.astype(np.float64)) + 1.0, dtype)


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_alike_stays(name: str) -> None:
    before, after, _ = apply("raise_activation", OTHERS[name], "f32[n]")
    assert after is before or ops(after) == ops(before)


def test_a_shared_intermediate_stops_it_and_is_reported() -> None:
    def fn(x: Value) -> tuple[Value, Value]:
        e = erf(x / R2)
        return x * 0.5 * (1.0 + e), e

    before, after, ctx = apply("raise_activation", fn, "f32[n]")
    assert ops(after) == ops(before)
    assert "gelu: the graph returns its erf" in stopped(ctx)


def test_what_stands_before_an_activation_is_left_alone() -> None:
    _, after, _ = apply("raise_activation", lambda a, b: (h := a * b) * 0.5 * (1.0 + erf(h / R2)),
                        "f32[n]", "f32[n]")
    assert ops(after) == ["mul", "gelu"]


def test_a_constant_that_broadcasts_the_result_is_no_part_of_it() -> None:
    from treadle.ops import full

    def fn(x: Value) -> Value:
        half = full(value=0.5, shape=(4, 1), dtype=DTYPES["f32"])
        return x * half * (1.0 + erf(x / R2))

    before, after, ctx = apply("raise_activation", fn, "f32[3]")
    assert ops(after) == ops(before) and "the result would be f32[3]" in stopped(ctx)


def test_near_misses_are_reported() -> None:
    ctx = apply("raise_activation", OTHERS["other constant"], "f32[n]")[2]
    assert "erf(0.7072 x^1) is no gelu" in stopped(ctx)


def test_in_a_region() -> None:
    from treadle.ops import if_, reduce_max

    def fn(x: Value) -> Value:
        return if_(sub(reduce_max(x, axes=(0,)), 1.0) > 0.0,
                   then=lambda: (x * sigmoid(x),), orelse=lambda: (x,))

    _, after, _ = apply("raise_activation", fn, "f32[4]")
    assert "silu" in ops(after) and "sigmoid" not in ops(after)
