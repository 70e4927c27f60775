"""Gradients of movement, gather, scatter, reductions and scans against central differences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.arrays import type_of
from treadle.ir.graph import Builder, Graph, Value
from treadle.ops.library import REGISTRY
from treadle.transforms.grad import vjp

RNG = np.random.default_rng(1)
Array = np.ndarray


def _f(*shape: int) -> Array:
    """Distinct numbers away from 0, so that nothing ties."""
    n = int(np.prod(shape))
    return (RNG.permutation(n) * 0.37 + 0.2 - 0.1 * n).reshape(shape)


ZEROS = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])
CASES: list[tuple[str, list[Array], dict[str, object]]] = [
    ("reshape", [_f(2, 6)], {"shape": (3, -1)}),
    ("transpose", [_f(2, 3, 4)], {"perm": (2, 0, 1)}),
    ("expand", [_f(3, 1)], {"shape": (2, 3, 4)}),
    ("squeeze", [_f(1, 3)], {"axes": (0,)}), ("unsqueeze", [_f(3)], {"axes": (0,)}),
    ("flip", [_f(2, 3)], {"axes": (1,)}),
    ("slice", [_f(5, 6)], {"starts": (1, -1), "ends": (4, -7), "steps": (1, -2), "axes": (0, 1)}),
    ("slice", [_f(5, 6)], {"starts": (4,), "ends": (-9,), "steps": (-1,), "axes": (-1,)}),
    ("narrow", [_f(5)], {"axis": -1, "start": 1, "length": 3}),
    ("concat", [_f(2, 3), _f(2, 1)], {"axis": -1}),
    ("split", [_f(6)], {"axis": 0, "sizes": (2, 4)}), ("tile", [_f(2, 3)], {"repeats": (2, 3)}),
    ("pad", [_f(2, 3)], {"pads": (1, 0, -1, 2)}),
    ("pad", [_f(2, 3)], {"pads": (1, 0, 1, 2), "fill": np.array(0.5)}),
    ("pad", [_f(4, 3)], {"pads": (1, 2, 3, 1), "mode": "reflect"}),
    ("pad", [_f(4, 3)], {"pads": (1, 2, 3, 1), "mode": "edge"}),
    ("pad", [_f(4, 3)], {"pads": (1, -1, 3, 1), "mode": "wrap"}),
    ("roll", [_f(5)], {"shift": 2, "axis": 0}),
    ("trilu", [_f(2, 3, 4)], {"k": 1, "upper": False}),
    ("gather", [_f(4, 3), np.array([[0, -1], [2, 2]])], {"axis": 0}),
    ("gather", [_f(2, 4, 3), np.array([1, 3])], {"axis": -2}),
    ("gather", [_f(4, 3), np.array(2)], {"axis": 1}),
    ("gather_elements", [_f(4, 3), np.array([[0, 1, 2], [3, 3, -4]])], {"axis": 0}),
    ("gather_nd", [_f(3, 4, 2), np.array([[0, 1], [2, -1], [0, 1]])], {}),
    ("gather_nd", [_f(3, 4, 2), np.array([[[1]], [[0]], [[3]]])], {"batch_dims": 1}),
    ("scatter_elements", [_f(4, 3), np.array([[0, 1, 2], [3, 3, -1]]), _f(2, 3)], {"axis": 0}),
    ("scatter_elements", [_f(4, 3), np.array([[0, 1, 2], [0, 3, -1]]), _f(2, 3)],
     {"axis": 0, "reduction": "add"}),
    ("scatter_elements", [_f(4, 3), np.array([[0, 1, 2], [3, 3, -1]]), _f(2, 3) + 0.1],
     {"axis": 0, "reduction": "max"}),
    ("scatter_nd", [_f(4, 3), np.array([[0], [2]]), _f(2, 3)], {}),
    ("scatter_nd", [_f(4, 3), np.array([[0], [0]]), _f(2, 3)], {"reduction": "add"}),
    ("scatter_nd", [_f(4, 3), np.array([[0], [2]]), _f(2, 3) + 0.1], {"reduction": "min"}),
    ("sum", [_f(3, 4, 2)], {"axes": (0, -1)}),
    ("reduce_max", [_f(3, 4)], {"axes": (1,)}),
    ("reduce_min", [_f(3, 4)], {"axes": (0, 1), "keepdims": True}),
    ("prod", [_f(3, 4, 2)], {"axes": (0, 2)}), ("prod", [ZEROS], {"axes": (1,)}),
    ("logsumexp", [_f(3, 4)], {"axes": (1,)}), ("softmax", [_f(3, 4)], {"axis": 0}),
    ("log_softmax", [_f(3, 4)], {}),
    ("cumsum", [_f(3, 4)], {"axis": 1, "exclusive": True}),
    ("cumsum", [_f(3, 4)], {"axis": 0, "reverse": True}),
    ("cumprod", [_f(3, 4)], {"axis": 0}), ("cumprod", [ZEROS], {"axis": 1, "exclusive": True}),
    ("cumprod", [ZEROS], {"axis": 1, "reverse": True}),
    ("sort", [_f(3, 4)], {"axis": 0, "descending": True}),
    ("topk", [_f(3, 5)], {"k": 2, "axis": 1}),
    ("topk", [_f(5, 3)], {"k": 2, "axis": 0, "largest": False}),
    ("unique", [_f(3, 2)], {"names": ("n",)}),
    ("unique", [ZEROS[[0, 1, 0]] + [[0], [0], [1]]], {"axis": 0, "names": ("n",)}),
    ("compress", [_f(3, 2), np.array([True, False, True])], {"axis": 0, "names": ("n",)}),
    ("range_dynamic", [np.array(1.0), np.array(2.1), np.array(0.5)], {"names": ("n",)}),
    ("resize", [_f(1, 4, 5)], {"sizes": (7, 3), "axes": (1, 2), "mode": "linear"}),
    ("resize", [_f(4, 5)], {"sizes": (7, 3), "mode": "cubic", "antialias": True}),
    ("resize", [_f(4, 5)], {"sizes": (8, 3)}),
    ("resize", [_f(4, 5)], {"sizes": (8, 3), "mode": "linear", "roi": (0.1, -0.2, 0.9, 1.3),
                            "coordinates": "tf_crop_and_resize", "extrapolation": 3.0})]


def _graph(name: str, xs: list[Array], attrs: Mapping[str, object]) -> tuple[Graph, list[Array]]:
    op = REGISTRY[name]
    named = {k: v for k, v in attrs.items() if k in op.schema.optional}
    arrays = [*xs, *(np.asarray(v) for v in named.values())]
    with Builder(name) as b:
        values = [b.input(f"x{i}", type_of(a)) for i, a in enumerate(arrays)]
        optional = dict(zip(named, values[len(xs):], strict=True))
        rest = {k: v for k, v in attrs.items() if k not in named}
        out = op(*op.group(values[:len(xs)]), **optional, **rest)
        return b.finish((out,) if isinstance(out, Value) else out), arrays


@pytest.mark.parametrize(("name", "xs", "attrs"), CASES,
                         ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_gradient(name: str, xs: list[Array], attrs: Mapping[str, object]) -> None:
    graph, arrays = _graph(name, xs, attrs)
    out = evaluate.run(graph, arrays, {}, {})
    weights = [RNG.standard_normal(o.shape) for o in out if o.dtype.kind == "f"]
    found = evaluate.run(vjp(graph), [*arrays, *weights], {}, {})[len(out):]
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    for i, got in zip(floats, found, strict=True):
        want = np.zeros(arrays[i].shape)
        for at in np.ndindex(want.shape):
            ends = [_loss(graph, arrays, weights, i, at, step) for step in (1e-6, -1e-6)]
            want[at] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _loss(graph: Graph, arrays: list[Array], weights: list[Array], i: int, at: tuple[int, ...],
          step: float) -> float:
    moved = [np.array(a) for a in arrays]
    moved[i][at] += step
    out = [o for o in evaluate.run(graph, moved, {}, {}) if o.dtype.kind == "f"]
    return float(sum((w * o).sum() for w, o in zip(weights, out, strict=True)))
