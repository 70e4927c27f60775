"""Vector functions against mpmath and f64 NumPy, over all kinds of f32."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from tests.loops.running import run
from treadle.declare.scalar import make, var
from treadle.ir.dims import sym
from treadle.ir.types import F32
from treadle.loops.build import Draft, Operand
from treadle.loops.functions import FUNCTIONS, open_functions
from treadle.loops.lower.pointwise import pointwise

BOUNDS = {"exp": 2.0, "expm1": 2.0, "log": 2.0, "log1p": 3.0, "tanh": 3.0, "erf": 6.0}
"""Most units in the last place, as the docstrings of `loops.functions` say."""
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 88.72283,
         88.8, -87.4, -103.9, -104.5, 0.70710677, 1.4142135, 9.01, 3.92, -3.93, 3.4e38]


def compute(name: str, x: np.ndarray) -> np.ndarray:
    draft, n = Draft(), sym("n")
    ins, outs = draft.buffer(F32), draft.buffer(F32, output=True)
    kernel = pointwise(draft, (n,), [Operand(ins, (1,))], [Operand(outs, (1,))],
                       open_functions([make(name, var(0, F32))]))
    y = np.empty_like(x)
    run(draft, kernel, [x, y], {"n": x.size})
    return y


def exact(name: str, x: float) -> float:
    function: Callable[[object], object] = getattr(mpmath, name)
    with mpmath.workprec(120):
        return float(function(mpmath.mpf(x)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound(name: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-100, 100, 300), rng.uniform(-2, 2, 500),
                        rng.uniform(-1e-3, 1e-3, 100), np.exp(rng.uniform(-87, 80, 200))])
    if name.startswith("log"):
        x = np.abs(x) - (0.5 if name == "log1p" else 0.0)
        x = x[x > (-1 if name == "log1p" else 0)]
    x = x.astype(np.float32)
    y = compute(name, x).astype(np.float64)
    with np.errstate(over="ignore"):
        want = np.array([exact(name, float(v)) for v in x])
        step = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    finite = np.isfinite(step)
    ulp = np.abs(y - want)[finite] / step[finite]
    assert ulp.max() <= BOUNDS[name], (x[finite][ulp.argmax()], ulp.max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str) -> None:
    from scipy.special import erf

    x = np.array(EDGES, np.float32)
    reference = {"erf": erf}.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64)).astype(np.float32)
    y = compute(name, x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(want[zero]))
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=3e-45)
