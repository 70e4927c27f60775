"""The reference interpreter: liveness, sizes, and errors that say where."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from treadle.declare.arrays import Array
from treadle.declare.evaluate import plan, run
from treadle.errors import OperatorError, RunError
from treadle.ir.dims import sym
from treadle.ir.graph import Graph, Node, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import F32, parse_type
from treadle.ops.compare import gt
from treadle.ops.control import if_
from treadle.ops.convert import cast_
from treadle.ops.gather import gather
from treadle.ops.leaves import full, witness
from treadle.ops.movement import reshape
from treadle.ops.reduce import sum_

X = parse_type("f32[n,4]")


def evaluate(graph: Graph, *arrays: Array) -> tuple[Array, ...]:
    return run(graph, arrays, {}, {})


def test_symbolic_attributes_take_the_sizes_of_the_run() -> None:
    g = trace(lambda x: reshape(x, shape=(4 * X.shape[0],)), X)
    for n in (0, 1, 3):
        assert evaluate(g, np.ones((n, 4), "f4"))[0].shape == (4 * n,)


def test_values_are_freed_after_their_last_use() -> None:
    def chain(x: Value) -> Value:
        for _ in range(4):
            x = x + 1.0
        return x

    g = trace(chain, X)
    alive: list[weakref.ref[Array]] = []
    most = 0

    def watch(node: Node, outputs: object) -> None:
        nonlocal most
        if node.op == "add":
            alive.append(weakref.ref(cast("tuple[Array, ...]", outputs)[0]))
            most = max(most, sum(r() is not None for r in alive))

    run(g, [np.ones((2, 4), "f4")], {}, {}, watch)
    assert len(alive) == 4 and most <= 2
    assert [len(step.dead) for step in plan(g)].count(0) < len(g.nodes)


def test_an_output_that_is_an_input_survives() -> None:
    g = trace(lambda x: (x, x + 1.0, x), X)
    x = np.ones((1, 4), "f4")
    a, _, c = evaluate(g, x)
    assert a is x and c is x


def test_unused_outputs_and_values_are_dropped() -> None:
    g = trace(lambda x: [x + 1.0, x * 2.0][0], X)
    assert plan(g)[-1].dead
    np.testing.assert_array_equal(evaluate(g, np.zeros((1, 4), "f4"))[0], np.ones((1, 4)))


def test_regions_read_what_they_capture() -> None:
    def model(x: Value) -> Value:
        y = x * 3.0
        big = gt(sum_(x, axes=(0, 1)), 0.0)
        return cast(Value, if_(big, then=lambda: y + 1.0, orelse=lambda: y))

    g = trace(model, X)
    for sign, want in ((1.0, 4.0), (-1.0, -3.0)):
        out = evaluate(g, np.full((2, 4), sign, "f4"))[0]
        np.testing.assert_array_equal(out, np.full((2, 4), want))


def test_witnessed_sizes_are_bound_for_later_nodes() -> None:
    def model(k: Value) -> Value:
        witness(k, names=("u",))
        return full(value=1.0, shape=(sym("u"), 2), dtype=F32)

    assert evaluate(trace(model, parse_type("i64[1]")), np.array([3]))[0].shape == (3, 2)
    with pytest.raises(RunError, match="the computed size -1 is negative"):
        evaluate(trace(model, parse_type("i64[1]")), np.array([-1]))


def _gather(x: Value, i: Value) -> Value:
    return gather(x, i, axis=0)


def _nested(x: Value, i: Value) -> Value:
    some = gt(cast_(sum_(i, axes=(0,)), dtype=F32), 0.0)
    return cast(Value, if_(some, then=lambda: gather(x, i, axis=0), orelse=lambda: x))


@pytest.mark.parametrize("model", [_gather, _nested])
def test_errors_name_the_step_its_operands_and_the_line(model: Callable[..., Value]) -> None:
    g = trace(model, parse_type("f32[2,4]"), parse_type("i64[2]"))
    with pytest.raises(RunError, match=(
            r"^gather\(f32\[2,4\], i64\[2\]\) at test_evaluate.py:\d+: .*5")):
        evaluate(g, np.ones((2, 4), "f4"), np.array([1, 5]))


def test_a_body_that_fails_is_a_run_error() -> None:
    g = trace(lambda x: reshape(x, shape=(2, 4)), parse_type("f32[n]"))
    with pytest.raises(RunError, match=r"^reshape\(f32\[3\]\) at test_evaluate.py:\d+: "):
        evaluate(g, np.ones(3, "f4"))


def test_an_unknown_operator_is_named() -> None:
    g = parse_graph("graph g(%x: f32[4]) {\n %1: f32[4] = nag(%x)\n return %1\n}")
    with pytest.raises(OperatorError, match="there is no operator 'nag'"):
        evaluate(g, np.ones(4, "f4"))


def test_a_graph_that_grows_is_planned_again() -> None:
    g = trace(lambda x: x + 1.0, X)
    evaluate(g, np.ones((1, 4), "f4"))
    more = trace(lambda x: (x + 1.0) * 5.0, X)
    g.nodes, g.outputs, g.inputs = more.nodes, more.outputs, more.inputs
    np.testing.assert_array_equal(evaluate(g, np.ones((1, 4), "f4"))[0], np.full((1, 4), 10))
