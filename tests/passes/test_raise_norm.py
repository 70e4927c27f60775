"""Norms and softmax that exporters open come back with the same results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.raising import apply, close, ops, stopped
from tests.passes.running import run_both
from treadle.declare.arrays import np_dtype
from treadle.ir.graph import Value
from treadle.ir.types import DTYPES
from treadle.ops import (
    div,
    exp,
    log,
    max_,
    mean,
    mul,
    reciprocal,
    reduce_max,
    reshape,
    rsqrt,
    sqrt,
    sub,
    sum_,
    unsqueeze,
)
from treadle.ops.convert import cast_ as cast

Fn = Callable[..., Value]
LAST = (-1,)


def stats(x: Value, axes: tuple[int, ...] = LAST) -> tuple[Value, Value]:
    d = x - mean(x, axes=axes, keepdims=True)
    return d, mean(d * d, axes=axes, keepdims=True)


def power_form(x: Value, g: Value, b: Value) -> Value:
    d = x - mean(x, axes=LAST, keepdims=True)
    return d / sqrt(mean(d ** 2.0, axes=LAST, keepdims=True) + 1e-5) * g + b


def rsqrt_form(x: Value, g: Value, b: Value) -> Value:
    d, v = stats(x)
    return b + d * (rsqrt(1e-5 + v) * g)


def reciprocal_form(x: Value, g: Value, b: Value) -> Value:
    d, v = stats(x)
    return g * (d * reciprocal(sqrt(v + 1e-5))) + b


def root_form(x: Value, g: Value, b: Value) -> Value:
    d, v = stats(x)
    return g * (d * (v + 1e-5) ** -0.5) + b


def one_over_form(x: Value, g: Value, b: Value) -> Value:
    d, v = stats(x)
    return d * div(1.0, sqrt(v + 1e-5)) * g + b


def sums_form(x: Value, g: Value, b: Value) -> Value:
    mu = reshape(sum_(x, axes=(1,)) * 0.125, shape=(x.shape[0], 1))
    d = x - mu
    v = unsqueeze(sum_(d * d, axes=(1,)), axes=(1,)) / 8.0
    return d * rsqrt(v + 1e-5) * g + b


LAYER: dict[str, Fn] = {f.__name__: f for f in (
    power_form, rsqrt_form, reciprocal_form, root_form, one_over_form, sums_form)}


def operands(dtype: str, size: int = 8) -> list[np.ndarray]:
    """Rows of plain, constant, large, tiny and far-off numbers, and NaN."""
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=size), np.ones(size), rng.normal(size=size) * 100,
            rng.normal(size=size) * 1e-4, rng.normal(size=size) + 50, np.zeros(size),
            np.full(size, np.nan), np.r_[np.inf, rng.normal(size=size - 1)]]
    return [a.astype(np_dtype(DTYPES[dtype])) for a in
            (np.array(rows), rng.normal(size=size), rng.normal(size=size))]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", LAYER)
def test_layer_norm(name: str, dtype: str) -> None:
    before, after, _ = apply("raise_layer_norm", LAYER[name], *[f"{dtype}[{s}]" for s in (
        "n,8", "8", "8")])
    assert ops(after) == ["layer_norm"]
    arrays = operands(dtype)
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, arrays)
    close(a, b, np.abs(arrays[1]) * 3 + np.abs(arrays[2]), dtype)


def test_layer_norm_without_parameters_over_two_axes_and_over_channels() -> None:
    def bare(x: Value) -> Value:
        d, v = stats(x, (1, 2))
        return d / sqrt(v + 0.5)

    before, after, _ = apply("raise_layer_norm", bare, "f32[n,3,4]")
    assert ops(after) == ["layer_norm"]
    assert after.nodes[-1].attrs["axis"] == -2 and after.nodes[-1].attrs["eps"] == 0.5
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("f4")
    (a,), (b,) = run_both(before, after, [x])
    close(a, b, 3.0)

    def pixels(x: Value, g: Value, b: Value) -> Value:
        d, v = stats(x, (1,))
        return d * rsqrt(v + 1e-6) * g + b

    types = ("f32[n,3,h,w]", "f32[3,1,1]", "f32[1,3,1,1]")
    before, after, _ = apply("raise_layer_norm", pixels, *types)
    assert [o for o in ops(after) if o != "reshape"] == ["layer_norm_2d"]
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=s).astype("f4") for s in ((2, 3, 4, 5), (3, 1, 1), (1, 3, 1, 1))]
    (a,), (b,) = run_both(before, after, arrays)
    close(a, b, 3.0)


def moments(x: Value, g: Value, b: Value) -> Value:
    mu, power = (sum_(v, axes=(1,)) * 0.125 for v in (x, x * x))
    var = max_(0.0, power - mu * mu)
    mu, var = (reshape(v, shape=(x.shape[0], 1)) for v in (mu, var))
    return (x - mu) * (reciprocal(sqrt(var + 1e-6)) * g) + b


def test_a_variance_of_moments_needs_the_option() -> None:
    types = ("f32[n,8]", "f32[1,8]", "f32[1,8]")
    before, after, ctx = apply("raise_layer_norm", moments, *types)
    assert after is before and "E[x^2] - E[x]^2" in stopped(ctx)
    before, after, _ = apply("raise_layer_norm", moments, *types, moments=True)
    assert [o for o in ops(after) if o != "reshape"] == ["layer_norm"]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("f4") for s in ((5, 8), (1, 8), (1, 8))]
    (a,), (b,) = run_both(before, after, arrays)
    close(a, b, 3.0)


def test_a_residual_is_no_shift_and_a_gate_no_scale() -> None:
    def fn(x: Value, g: Value) -> Value:
        d, v = stats(x)
        return d / sqrt(v + 1e-5) * g + x

    _, after, _ = apply("raise_layer_norm", fn, "f32[n,8]", "f32[8]")
    assert ops(after) == ["layer_norm", "add"]
    _, after, _ = apply("raise_layer_norm", fn, "f32[n,8]", "f32[n,8]")
    assert ops(after) == ["layer_norm", "mul", "add"]


@pytest.mark.parametrize("fn", [
    lambda x: (d := stats(x))[0] / (sqrt(d[1]) + 1e-5),
    lambda x: (d := stats(x))[0] / sqrt(d[1] * 2.0 + 1e-5),
    lambda x: stats(x)[0] / sqrt(stats(x, (0,))[1] + 1e-5),
    lambda x: (x - mean(x, axes=LAST, keepdims=True)) / sqrt(stats(x + 1.0)[1] + 1e-5),
    lambda x: (d := x - mean(x, axes=LAST, keepdims=True)) * rsqrt(
        sum_(d * d, axes=LAST, keepdims=True) * 0.1 + 1e-5)])
def test_what_only_looks_like_a_norm_stays(fn: Fn) -> None:
    before, after, _ = apply("raise_layer_norm", fn, "f32[n,8]")
    assert ops(after) == ops(before)


def test_a_shared_variance_stops_it_and_is_reported() -> None:
    def fn(x: Value) -> tuple[Value, Value]:
        d, v = stats(x)
        return d / sqrt(v + 1e-5), v

    before, after, ctx = apply("raise_layer_norm", fn, "f32[n,8]")
    assert ops(after) == ops(before)
    assert "layer_norm: the graph returns its mean" in stopped(ctx)


RMS: dict[str, Fn] = {
    "rsqrt": lambda x, g: g * (x * rsqrt(mean(x * x, axes=LAST, keepdims=True) + 1e-6)),
    "power": lambda x, g: x / sqrt(mean(x ** 2.0, axes=LAST, keepdims=True) + 1e-6) * g,
    "reciprocal": lambda x, g: mul(
        x, reciprocal(sqrt(mean(x ** 2.0, axes=LAST, keepdims=True) + 1e-6))) * g}


@pytest.mark.parametrize("name", RMS)
def test_rms_norm(name: str) -> None:
    before, after, _ = apply("raise_rms_norm", RMS[name], "f32[n,8]", "f32[8]")
    assert ops(after) == ["rms_norm"]
    arrays = operands("f32")[:2]
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, arrays)
    close(a, b, np.abs(arrays[1]) * 3)


def test_rms_norm_of_halves_computed_in_f32() -> None:
    def fn(x: Value, g: Value) -> Value:
        w = cast(x, dtype=DTYPES["f32"])
        w = w * rsqrt(mean(w * w, axes=LAST, keepdims=True) + 1e-6)
        return g * cast(w, dtype=DTYPES["f16"])

    before, after, _ = apply("raise_rms_norm", fn, "f16[n,8]", "f16[8]")
    assert ops(after) == ["rms_norm"]
    rng = np.random.default_rng(0)
    arrays = [(rng.normal(size=(4, 8)) * 1e4).astype("f2"), rng.normal(size=8).astype("f2")]
    (a,), (b,) = run_both(before, after, arrays)
    close(a, b, 0.01, "f16", ulps=2)


SOFT: dict[str, tuple[str, Fn]] = {
    "kept": ("softmax", lambda x: (e := exp(x - reduce_max(x, axes=LAST, keepdims=True))) / sum_(
        e, axes=LAST, keepdims=True)),
    "reshaped": ("softmax", lambda x: (
        e := exp(x - reshape(reduce_max(x, axes=(0,)), shape=(1, 8)))) / unsqueeze(
            sum_(e, axes=(0,)), axes=(0,))),
    "by reciprocal": ("softmax", lambda x: (
        e := exp(x - reduce_max(x, axes=LAST, keepdims=True))) * reciprocal(
            sum_(e, axes=LAST, keepdims=True))),
    "logarithm": ("log_softmax", lambda x: sub(
        d := x - reduce_max(x, axes=LAST, keepdims=True),
        log(sum_(exp(d), axes=LAST, keepdims=True))))}


@pytest.mark.parametrize("name", SOFT)
def test_softmax(name: str) -> None:
    want, fn = SOFT[name]
    before, after, _ = apply("raise_softmax", fn, "f32[n,8]")
    assert ops(after) == [want]
    x = operands("f32")[0]
    x[1, :] = -np.inf
    with np.errstate(all="ignore"):
        (a,), (b,) = run_both(before, after, [x])
    close(a, b, 1.0, ulps=2)


def test_a_softmax_that_may_overflow_or_spans_two_axes_stays() -> None:
    _, after, ctx = apply("raise_softmax", lambda x: exp(x) / sum_(
        exp(x), axes=LAST, keepdims=True), "f32[n,8]")
    assert "softmax" not in ops(after)
    both = (0, 1)
    _, after, ctx = apply("raise_softmax", lambda x: (
        e := exp(x - reduce_max(x, axes=both, keepdims=True))) / sum_(
            e, axes=both, keepdims=True), "f32[n,8]")
    assert "softmax" not in ops(after)
    _, after, ctx = apply("raise_softmax", lambda x: (e := exp(x)) / sum_(
        e, axes=LAST, keepdims=True), "f32[n,8]")
    assert "softmax" not in ops(after) and "overflows above 88" in stopped(ctx)
