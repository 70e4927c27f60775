"""Views against NumPy: the same element at every index, or a copy where NumPy needs one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from treadle.ir.dims import evaluate, sym
from treadle.ir.graph import Value, trace
from treadle.ir.types import TensorType, parse_type
from treadle.memory.views import View, certain, follow, whole
from treadle.ops.movement import (
    expand,
    flip,
    narrow,
    reshape,
    slice_,
    split,
    squeeze,
    transpose,
    unsqueeze,
)

N = sym("n")
CASES: list[tuple[str, Callable[[Value], object]]] = [
    ("f32[4,n,6]", lambda x: transpose(x, perm=(2, 0, 1))),
    ("f32[4,n,6]", lambda x: reshape(x, shape=(4 * N, 6))),
    ("f32[4,n,6]", lambda x: reshape(transpose(x, perm=(2, 0, 1)), shape=(6, 4 * N))),
    ("f32[4,n,6]", lambda x: reshape(transpose(x, perm=(0, 2, 1)), shape=(2, 2, 3, 2, N))),
    ("f32[4,n,6]", lambda x: slice_(x, starts=(1, -1), ends=(2**31, -9), steps=(2, -2),
                                    axes=(1, 2))),
    ("f32[4,n,6]", lambda x: flip(x, axes=(1, 2))),
    ("f32[4,n,6]", lambda x: narrow(unsqueeze(x, axes=(0, 2)), axis=-1, start=2, length=3)),
    ("f32[1,n,1]", lambda x: expand(squeeze(x, axes=(0,)), shape=(2, N, 5))),
    ("f32[4,n,6]", lambda x: split(x, axis=2, sizes=(1, 3, 2))),
    ("f32[n,1,6]", lambda x: reshape(transpose(x, perm=(1, 2, 0)), shape=(1, 6, N, 1)))]


def array_of(view: View, flat: np.ndarray, n: int) -> np.ndarray:
    binding = {"n": n}
    shape = [evaluate(d, binding) for d in view.shape]
    strides = [evaluate(s, binding) * flat.itemsize for s in view.strides]
    start = evaluate(view.offset, binding)
    return np.lib.stride_tricks.as_strided(flat[start:], shape, strides)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_views_are_what_numpy_gives(case: int) -> None:
    from treadle.declare.evaluate import run

    type_: TensorType = parse_type(CASES[case][0])
    graph = trace(CASES[case][1], type_)  # type: ignore[arg-type]
    views = {graph.inputs[0]: (whole(graph.inputs[0]),)}
    for node in graph.nodes:
        found = follow(node, views[node.inputs[0]][0])
        assert found is not None and certain(node)
        views.update({v: (w,) for v, w in zip(node.outputs, found, strict=True)})
    for n in (3, 5):
        x = np.arange(4 * n * 6, dtype=np.float32)
        shape = tuple([n if d is N else int(str(d)) for d in type_.shape])
        x = x[:int(np.prod(shape))].reshape(shape)
        want = run(graph, [x], {}, {})
        for v, w in zip(graph.outputs, want, strict=True):
            np.testing.assert_array_equal(array_of(views[v][0], x.reshape(-1), n), w)


def test_a_reshape_across_a_gap_moves_elements() -> None:
    graph = trace(lambda x: reshape(transpose(x, perm=(1, 0)), shape=(N * 6,)),
                  parse_type("f32[6,n]"))
    first = follow(graph.nodes[0], whole(graph.inputs[0]))
    assert first is not None and follow(graph.nodes[1], first[0]) is None
