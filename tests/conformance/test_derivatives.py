"""Derivatives of elementwise operators against central differences in f64, to second order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.conformance.harness import CASES, Array, Case
from treadle.declare import scalar
from treadle.declare.derive import derivative
from treadle.declare.opdef import OpDef
from treadle.declare.scalar import Scalar
from treadle.declare.schema import Sample
from treadle.ir.types import F64, DType
from treadle.ops.library import REGISTRY

DECLARED = {"round": "straight-through: 1", "stop_gradient": "0 by its meaning",
            "cast": "changes the dtype", "round_to_grid": "straight-through by choice",
            "bitcast": "changes the dtype"}
"""Derivatives that are no limit of differences in f64."""
INNER = (0.25, 0.9)  # inside the domain of nearly every function
DOMAINS = {"acosh": (1.5, 3.0)}


def _roots(case: Case, dtypes: tuple[DType, ...]) -> tuple[Scalar, ...]:
    return case.op.scalars(case.graph.nodes[-1].attrs, dtypes)


def _smooth(op: OpDef) -> bool:
    """Whether the operator maps floats to floats and its derivative is a limit."""
    if op.kind != "elementwise" or op.name in DECLARED:
        return False
    case = _case(op)
    return case is not None and any(r.dtype is F64 for r in _roots(case, _wide(case)))


def _wide(case: Case) -> tuple[DType, ...]:
    return tuple([F64 if t.dtype.sort == "float" else t.dtype for t in case.types])


def _all_floats(case: Case) -> bool:
    sorts = {t.dtype.sort for t in case.types}
    return "float" in sorts and sorts <= {"float", "bool"}


def _case(op: OpDef) -> Case | None:
    """The first random sample on floats, or one on inner points in place of a known one."""
    cases = [c for c in CASES if c.op is op and _all_floats(c)]
    if not cases or (drawn := [c for c in cases if c.sample.data is None]):
        return drawn[0] if cases else None
    low, high = DOMAINS.get(op.name, INNER)
    types = tuple([f"{t.dtype}[6]" for t in cases[0].types])
    return Case(op, Sample(types, cases[0].sample.attrs, low, high), 99)


SMOOTH = [op for op in REGISTRY.values() if _smooth(op)]


def _difference(root: Scalar, xs: Sequence[Array], i: int, h: float = 1e-6) -> Array:
    def at(by: float) -> Array:
        moved = [x + by if j == i else x for j, x in enumerate(xs)]
        return scalar.evaluate([root], moved)[0]

    return (at(h) - at(-h)) / (2 * h)


def _assert_derivative(d: Scalar, root: Scalar, xs: Sequence[Array], i: int) -> None:
    assert d.dtype is root.dtype
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    got = np.broadcast_to(scalar.evaluate([d], xs)[0], shape)
    want = np.broadcast_to(_difference(root, xs, i), shape)
    assert np.isfinite(want).any(), "the sample is outside the domain"
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("op", SMOOTH, ids=[op.name for op in SMOOTH])
def test_derivative(op: OpDef) -> None:
    case = _case(op)
    assert case is not None
    xs = [x.astype(np.float64) if t.dtype.sort == "float" else x
          for x, t in zip(case.arrays, case.types, strict=True)]
    for root in _roots(case, _wide(case)):
        for i, t in enumerate(case.types):
            if t.dtype.sort != "float":
                continue
            first = derivative(root, i)
            _assert_derivative(first, root, xs, i)
            for j, u in enumerate(case.types):
                if u.dtype.sort == "float":
                    _assert_derivative(derivative(first, j), first, xs, j)


def test_most_elementwise_operators_are_covered() -> None:
    """What is left out gives no floats, takes none, or is declared otherwise."""
    left = {op.name for op in REGISTRY.values() if op.kind == "elementwise"} - {
        op.name for op in SMOOTH} - DECLARED.keys()
    for case in CASES:
        if case.op.name in left and _all_floats(case):
            assert "float" not in {v.dtype.sort for v in case.graph.outputs}, case.id
