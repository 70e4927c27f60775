"""Reverse-mode gradients of every operator against central differences in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.conformance.harness import CASES, Array, Arrays, Case, execute, spread
from treadle.declare.arrays import type_of
from treadle.declare.opdef import infer
from treadle.errors import Declined, TreadleError
from treadle.ir.graph import Graph
from treadle.ir.types import F64
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.transforms.grad import vjp

CHOSEN = {"stop_gradient": "0 by its meaning", **dict.fromkeys(
    ("round", "round_to_grid", "fake_quantize", "lsq_quantize"), "straight-through")}
"""Operators whose gradient is no limit of differences."""
POINTS = 24  # coordinates that are checked, over all operands
STEP = 1e-6


def _floats(case: Case) -> list[int]:
    return [i for i, t in enumerate(case.types) if t.dtype.sort == "float"]


def _wide(case: Case) -> list[Array]:
    """The operands in f64; stated data is moved a little, off ties and kinks."""
    rng = np.random.default_rng(case.seed)
    stated = case.sample.data is not None
    return [x.astype(np.float64) + (rng.uniform(-0.05, 0.05, x.shape) if stated else 0.0)
            if i in _floats(case) else x for i, x in enumerate(case.arrays)]


def _graph(case: Case) -> Graph | None:
    """The operator on f64, when it maps floats to floats."""
    if not _floats(case) or any(not a.size or not np.isfinite(a.astype(np.float64)).all()
                                for a in (case.arrays[i] for i in _floats(case))):
        return None
    try:
        graph = case.trace([type_of(x) for x in _wide(case)])
        out = execute(graph, _wide(case))
    except TreadleError:
        return None  # it takes no f64, or no data next to the stated
    if case.sample.data is not None and any(
            v.dtype is F64 and not np.isfinite(y).all() for v, y in zip(
                graph.outputs, out, strict=True)):
        return None
    return graph if any(v.dtype is F64 for v in graph.outputs) else None


def _chosen() -> list[Case]:
    """Of each operator some random cases, or stated ones where there are no random ones."""
    out: list[Case] = []
    for op in REGISTRY.values():
        cases = [c for c in CASES if c.op is op and op.name not in CHOSEN]
        drawn = [c for c in cases if c.sample.data is None and _graph(c) is not None]
        out += drawn or [c for c in cases if _graph(c) is not None]
    return spread(out)


SMOOTH = _chosen()


def _weighted(graph: Graph, weights: Sequence[Array | None]) -> Callable[[Arrays], float]:
    def loss(xs: Arrays) -> float:
        out = execute(graph, xs)
        return sum(float((w * y)[np.isfinite(y)].sum())
                   for w, y in zip(weights, out, strict=True) if w is not None)

    return loss


def _difference(loss: Callable[[Arrays], float], xs: Sequence[Array], i: int, at: int) -> float:
    ends: list[float] = []
    for by in (STEP, -STEP):
        moved = [x.copy() for x in xs]
        moved[i].reshape(-1)[at] += by
        ends.append(loss(moved))
    return (ends[0] - ends[1]) / (2 * STEP)


@pytest.mark.parametrize("case", SMOOTH, ids=[c.id for c in SMOOTH])
def test_gradient(case: Case) -> None:
    graph, xs = _graph(case), [np.array(x, order="C") for x in _wide(case)]
    assert graph is not None
    try:
        back = vjp(graph)
    except Declined as e:
        assert case.op.kind not in ("elementwise", "linear", "view"), e
        pytest.skip(e.message)
    verify(back, infer)
    rng = np.random.default_rng(case.seed + 2)
    out = execute(graph, xs)
    weights = [rng.uniform(0.5, 1.5, y.shape) * np.isfinite(y) if v.dtype is F64 else None
               for v, y in zip(graph.outputs, out, strict=True)]
    seeds = [w if w is not None else np.zeros_like(y) for v, w, y in zip(
        graph.outputs, weights, out, strict=True) if v.dtype.sort == "float"]
    grads = execute(back, [*xs, *seeds])[len(graph.outputs):]
    loss, points = _weighted(graph, weights), max(3, POINTS // len(xs))
    for g, i in zip(grads, _floats(case), strict=True):
        assert g.shape == xs[i].shape and g.dtype == xs[i].dtype
        picked = rng.permutation(xs[i].size)[:points]
        want = [_difference(loss, xs, i, int(at)) for at in picked]
        np.testing.assert_allclose(g.reshape(-1)[picked], want, rtol=1e-4, atol=1e-6)


def test_most_operators_have_a_gradient(golden: Callable[[str, str], None]) -> None:
    """The operators without one, with the reason: a new name in the golden file is a decision."""
    without: dict[str, str] = {}
    for case in {c.op.name: c for c in SMOOTH if c.op.kind != "elementwise"}.values():
        try:
            graph = _graph(case)
            assert graph is not None
            vjp(graph)
        except Declined as e:
            without[case.op.name] = e.message
    golden("no_gradient.txt", "".join(f"{n}: {why}\n" for n, why in sorted(without.items())))
