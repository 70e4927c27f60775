"""Scales and shifts beside convolutions and products move into frozen weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.raising import close
from treadle.declare import evaluate
from treadle.ir.graph import Builder, Value
from treadle.ir.types import parse_type
from treadle.ops import batch_norm, conv, conv_transpose, matmul, relu
from treadle.passes.base import Context
from treadle.passes.pipeline import Pipeline

RNG = np.random.default_rng(4)
Fn = Callable[..., Value]


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2.0, shape).astype("f4")


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("f4")


W = {"w": normal(64, 3, 3, 3), "b": normal(64)}
NORM = {"gamma": normal(64), "beta": normal(64), "mu": normal(64), "var": positive(64)}
POINT = {"w": normal(64, 3, 1, 1), "b": normal(64)}
PADS = (1, 1, 1, 1)


def bn(y: Value, p: dict[str, Value]) -> Value:
    return batch_norm(y, p["gamma"], p["beta"], p["mu"], p["var"], eps=1e-3)


CASES: dict[str, tuple[dict[str, np.ndarray], Fn, list[str]]] = {
    "batch norm": ({**W, **NORM}, lambda x, p: bn(conv(x, p["w"], bias=p["b"], pads=PADS), p),
                   ["conv"]),
    "batch norm without bias": ({**W, **NORM}, lambda x, p: bn(conv(x, p["w"]), p), ["conv"]),
    "depthwise": ({**W, **NORM, "w": normal(64, 1, 3, 3)}, lambda x, p: bn(
        conv(conv(x, p["v"]), p["w"], groups=64), p), ["conv", "conv"]),
    "transposed": ({**NORM, "w": normal(3, 64, 2, 2)}, lambda x, p: bn(
        conv_transpose(x, p["w"], strides=(2, 2)), p), ["conv_transpose"]),
    "scalars behind": ({**W, "s": normal(1), "t": normal(1)}, lambda x, p: conv(
        x, p["w"], bias=p["b"], pads=PADS) * p["s"] + p["t"], ["conv"]),
    "scalars behind, no bias": ({**W, "s": normal(1), "t": normal(1)}, lambda x, p: p["t"] + p[
        "s"] * conv(x, p["w"], pads=PADS), ["conv"]),
    "channels behind": ({**W, "s": positive(64, 1, 1), "t": normal(1, 64, 1, 1)}, lambda x, p: (
        conv(x, p["w"]) - p["t"]) / p["s"], ["conv"]),
    "before, no padding": ({**POINT, "s": normal(1), "t": normal(1)}, lambda x, p: conv(
        x * p["s"] + p["t"], p["w"], bias=p["b"]), ["conv"]),
    "before, padded": ({**W, "s": normal(1)}, lambda x, p: conv(
        x * p["s"], p["w"], pads=PADS), ["conv"]),
    "both sides": ({**POINT, **NORM, "s": normal(1)}, lambda x, p: bn(
        conv(x / p["s"], p["w"]), p), ["conv"]),
    "matmul": ({"w": normal(6, 64), "b": normal(64), "s": normal(64)}, lambda x, p: (
        matmul(x, p["w"]) + p["b"]) * p["s"], ["matmul", "add"])}
STAY: dict[str, tuple[dict[str, np.ndarray], Fn]] = {
    "a shift that padding does not reach": ({**W, "t": normal(1)}, lambda x, p: conv(
        x + p["t"], p["w"], pads=PADS)),
    "one number for each column": ({**W, "s": normal(6)}, lambda x, p: conv(
        x, p["w"], pads=PADS) * p["s"]),
    "no layer": (NORM, lambda x, p: relu(bn(conv(x, p["w"]), p))),
    "a division by zero": ({**W, "s": np.zeros(1, "f4")}, lambda x, p: conv(x, p["w"]) / p["s"]),
    "a variance of zero": ({**W, **NORM, "var": np.full(64, -1e-3, "f4")}, lambda x, p: bn(
        conv(x, p["w"]), p))}


def run(data: dict[str, np.ndarray], fn: Fn, frozen: bool = True
        ) -> tuple[list[str], np.ndarray, np.ndarray]:
    data = {"v": normal(64, 3, 1, 1), **data}
    with Builder("model") as b:
        rank = data["w"].ndim
        x = b.input("x", parse_type("f32[n,3,6,6]" if rank == 4 else "f32[n,6]"))
        leaf = {n: b.input(n, parse_type(f"f32[{','.join(map(str, a.shape))}]"), param=True)
                for n, a in data.items()}
        graph = b.finish(fn(x, leaf))
    ctx = Context(dict(data) if frozen else {})
    after = Pipeline(verify=True).run(graph, ctx).graph
    shape = (2, 3, 6, 6) if rank == 4 else (5, 6)
    given = normal(*shape)
    with np.errstate(all="ignore"):
        old = evaluate.run(graph, [given, *data.values()], {}, {})[0]
        now = [ctx.params[v.name] if frozen else data[v.name] for v in after.params]
        new = evaluate.run(after, [given, *now], {}, {})[0]  # type: ignore[list-item]
    left = [n.op for n in after.walk() if n.op not in ("full", "constant", "map")]
    did = [e.what for e in ctx.report if e.by == "fold_affine" and not e.stopped]
    return [*left, *(["folded"] if did else [])], old, new


@pytest.mark.parametrize("name", CASES)
def test_fold(name: str) -> None:
    data, fn, want = CASES[name]
    left, old, new = run(data, fn)
    assert left == [*want, "folded"] or (name == "matmul" and left[0] == "matmul")
    close(old, new, 10 * np.abs(old).max(), ulps=8)


@pytest.mark.parametrize("name", STAY)
def test_what_cannot_fold_stays(name: str) -> None:
    data, fn = STAY[name]
    if "w" not in data:
        left, old, new = run({**data, "w": W["w"]}, lambda x, p: bn(relu(conv(x, p["w"])), p))
    else:
        left, old, new = run(data, fn)
    assert "folded" not in left
    np.testing.assert_array_equal(old, new)


def test_weights_that_may_change_stay() -> None:
    data, fn, _ = CASES["batch norm"]
    left, old, new = run(data, fn, frozen=False)
    assert "folded" not in left
    np.testing.assert_array_equal(old, new)


def test_shared_weights_stay() -> None:
    left, old, new = run({**W, **NORM}, lambda x, p: bn(conv(x, p["w"]), p) + conv(x, p["w"]))
    assert "folded" not in left
    np.testing.assert_array_equal(old, new)
