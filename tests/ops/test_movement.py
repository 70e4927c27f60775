"""Slices and shapes with symbolic sizes, index errors, and movement of sizes themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import ops
from treadle.declare import evaluate
from treadle.declare.content import content
from treadle.errors import OperatorError, RunError
from treadle.ir.dims import Size, sym
from treadle.ir.dims import evaluate as bind
from treadle.ir.graph import Value, trace
from treadle.ir.types import I64, parse_type
from treadle.ops.extents import first_of, resolve, sliced
from treadle.ops.leaves import full, shape_of

n, m = sym("n"), sym("m")
EDGES = st.one_of(st.integers(-9, 9), st.sampled_from(
    [2**63 - 1, -2**63, 2**31 - 1, n, m, n - m, n - 3, m - 2, 0 - n, n // 2, 1 - m]))
F = np.arange(6, dtype=np.float32).reshape(2, 3)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([n, n + m, n // 2, n + 1, 7]), EDGES, EDGES,
       st.sampled_from([-3, -2, -1, 1, 2, 3]), st.integers(0, 8), st.integers(0, 8))
def test_a_symbolic_slice_has_the_length_that_python_gives(
        size: Size, start: Size, end: Size, step: int, a: int, b: int) -> None:
    at = {"n": a, "m": b}
    picked = range(bind(size, at))[bind(start, at):bind(end, at):step]
    assert bind(sliced(size, start, end, step), at) == len(picked)
    if picked:
        assert bind(first_of(start, size, step), at) == picked[0]


@pytest.mark.parametrize(("size", "start", "end", "step", "text"), [
    (n, 0, 2**63 - 1, 1, "n"), (n + m, n, n + m, 1, "m"), (n, -1, -2**63, -1, "n"),
    (n, 0, -1, 1, "max(0,n-1)"), (n, 0, 5, 1, "min(5,n)")])
def test_common_slices_stay_readable(size: Size, start: Size, end: Size, step: int, text: str
                                     ) -> None:
    assert str(sliced(size, start, end, step)) == text


@pytest.mark.parametrize(("have", "shape", "want"), [
    ((n, 6), (-1, 3), (2 * n, 3)), ((n, m), (n, -1), (n, m)), ((0, 5), (0, -1), (0, 5)),
    ((0, 0), (0, -1), (0, 0)), ((2, 3), (3, 2), (3, 2))])
def test_a_missing_size_is_what_cancelling_leaves(have: tuple[Size, ...], shape: tuple[Size, ...],
                                                  want: tuple[Size, ...]) -> None:
    assert resolve(have, shape) == want


def test_sizes_move_through_every_movement_operator() -> None:
    def walk(x: Value) -> Value:
        v, one = shape_of(x), full(value=1, shape=(1,), dtype=I64)
        column = ops.reshape(v, shape=(3, 1))
        made = [
            (ops.gather(v, one, axis=0), [8]), (ops.transpose(column, perm=(1, 0)), [[n, 8, m]]),
            (ops.expand(column, shape=(3, 2)), [[n, n], [8, 8], [m, m]]),
            (ops.slice_(v, starts=(-1,), ends=(-9,), steps=(-2,), axes=(0,)), [m, n]),
            (ops.narrow(v, axis=0, start=1, length=2), [8, m]),
            (ops.concat([v, one], axis=0), [n, 8, m, 1]),
            (ops.split(v, axis=0, sizes=(1, 2))[1], [8, m]), (ops.flip(v, axes=(0,)), [m, 8, n]),
            (ops.squeeze(column, axes=(1,)), [n, 8, m]), (ops.unsqueeze(one, axes=(0,)), [[1]]),
            (ops.tile(v, repeats=(2,)), [n, 8, m, n, 8, m]),
            (ops.gather_elements(v, one, axis=0), [8]),
            (ops.gather_nd(v, ops.unsqueeze(one, axes=(0,))), [8]),
            (ops.scatter_nd(v, ops.unsqueeze(one, axes=(0,)), one), [n, 1, m]),
            (ops.scatter_elements(v, one, one, axis=0), [n, 1, m])]
        for value, want in made:
            found = content(value)
            assert found is not None and found.tolist() == want
        return v

    trace(walk, parse_type("f32[n,8,m]"))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ops.gather(F, np.array([5]), axis=0), "index 5 is out of range for axis 0 of size 2"),
    (lambda: ops.gather(F, np.array([-4], "i1"), axis=1), "index -4 .* axis 1 of size 3"),
    (lambda: ops.gather(F, np.array([2**64 - 1], "u8"), axis=1), "index 18446744073709551615"),
    (lambda: ops.gather(F, np.array([0.5]), axis=1), "no integer"),
    (lambda: ops.gather(F[:0], np.array([0]), axis=0), "index 0 .* size 0"),
    (lambda: ops.gather_elements(F, np.array([[0, 3]]), axis=1), "index 3 .* axis 1 of size 3"),
    (lambda: ops.gather_nd(F, np.array([[0, 9]])), "index 9 .* axis 1 of size 3"),
    (lambda: ops.scatter_nd(F, np.array([[2]]), F[:1]), "index 2 .* axis 0 of size 2"),
    (lambda: ops.scatter_elements(F, np.array([[7]]), F[:1, :1], axis=1), "index 7 .* size 3"),
    (lambda: ops.narrow(F, axis=0, start=1, length=2), "2 elements from 1 of axis 0 of size 2"),
    (lambda: ops.concat([F, F[:1]], axis=1), "differ off axis 1"),
    (lambda: ops.reshape(F, shape=(4, -1)), r"6 elements do not reshape to \[4,-1\]"),
    (lambda: ops.topk(F, k=4), "4 elements of axis -1 of size 3"),
    (lambda: ops.argmax(F[:, :0], axis=1), "no element"),
    (lambda: ops.pad(F[:0], pads=(1, 0, 0, 0), mode="edge"), "nothing to pad with")])
def test_what_does_not_fit_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        call()


def test_sizes_that_differ_only_at_run_time_are_an_error_then() -> None:
    graph = trace(lambda x: ops.reshape(x, shape=(2, -1)), parse_type("f32[n,3]"))
    assert evaluate.run(graph, [F], {}, {})[0].shape == (2, 3)
    with pytest.raises(RunError, match="3 elements do not reshape"):
        evaluate.run(graph, [F[:1]], {}, {})
