"""Bounds hold for what is computed, and exist only where nothing can be NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.passes.test_raise_attention import LOW, embedded, guarded, sm, t
from treadle.declare import evaluate
from treadle.declare.arrays import Array
from treadle.ir.graph import Node, Value, trace
from treadle.ir.types import parse_type
from treadle.ops import erf, exp, gelu, layer_norm, matmul, mean, softmax, sum_, where
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.base import Context
from treadle.passes.bounds import Bounds
from treadle.passes.raising import View


def test_bounds_hold_for_every_value() -> None:
    def attend(h: Value, m: Value) -> Value:
        y = matmul(guarded(sm(matmul(h, t(h)) * 0.25 + where(m, 0.0, LOW))), h)
        y = gelu(y / 3.0 - 1.0) * erf(h) + mean(h, axes=(-1,), keepdims=True)
        return layer_norm(y, erf(sum_(y, axes=(3,), keepdims=True)))

    b, ctx, inputs = embedded(attend)
    bounds = Bounds(View(b.graph, ctx))
    known = 0

    def watch(node: Node, outputs: Sequence[Array]) -> None:
        nonlocal known
        for v, a in zip(node.outputs, outputs, strict=True):
            if v.dtype.sort == "float" and (top := bounds.of(v)) is not None:
                known += 1
                assert float(np.abs(a).max()) <= top * (1 + 1e-6), node.op

    evaluate.run(b.graph, [*inputs, *ctx.params.values()], {}, {}, watch)  # type: ignore[list-item]
    assert known > 20


@pytest.mark.parametrize("fn", [
    lambda x: x * 2.0, lambda x: softmax(x), lambda x: erf(x), lambda x: exp(x * 0.0)])
def test_nothing_bounds_what_floating_inputs_reach(fn: object) -> None:
    graph = trace(fn, parse_type("f32[n,4]"))  # type: ignore[arg-type]
    assert Bounds(View(graph, Context())).of(graph.outputs[0]) is None


def test_overflow_and_data_that_is_not_finite_have_no_bound() -> None:
    def fn(i: Value) -> tuple[Value, ...]:
        x = OPS["cast"](i, dtype=parse_type("f32[]").dtype)  # i64: up to 2^63
        empty = OPS["narrow"](x, axis=0, start=0, length=0)
        return (x, x * 1e30, x + math.inf, where(i > 0, x, math.nan),  # type: ignore[operator,return-value]
                mean(empty, axes=(0,)))  # type: ignore[arg-type]

    graph = trace(fn, parse_type("i64[4]"))
    bounds = Bounds(View(graph, Context()))
    assert [bounds.of(v) is not None for v in graph.outputs] == [True, False, False, False, False]
