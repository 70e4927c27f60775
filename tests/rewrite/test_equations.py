"""Every equation holds in its declared domain, on hostile values of every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.equations import applications, evaluate_all, same_bits
from treadle.declare.arrays import Array
from treadle.rewrite.equations import load
from treadle.rewrite.pattern import Equation

EQUATIONS = load()
ROUNDING = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 1e-5, "float64": 1e-12}


def _finite(a: Array) -> Array:
    return np.isfinite(a.astype(np.float64))


@pytest.mark.parametrize("equation", EQUATIONS.values(), ids=EQUATIONS.keys())
def test_equation(equation: Equation) -> None:
    count = 0
    for before, after, arrays in applications(equation):
        count += 1
        if equation.domain == "fast":
            rng = np.random.default_rng(0)
            arrays = [rng.uniform(0.5, 2.0, a.shape).astype(a.dtype) for a in arrays]
        old, steps = evaluate_all(before, arrays)
        new, others = evaluate_all(after, arrays)
        for a, b in zip(old, new, strict=True):
            if equation.domain == "exact":
                assert same_bits(a, b), f"{before}\n{after}"
            elif equation.domain == "finite":
                usable = np.logical_and.reduce(
                    [np.ones(a.shape, bool), *[_finite(x) for x in (*arrays, *steps, *others)
                                               if x.shape == a.shape]])
                assert np.array_equal(a[usable], b[usable]), f"{before}\n{after}"
            else:
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64),
                                           rtol=ROUNDING.get(str(a.dtype), 0))
    assert count, "the equation never applies to its examples"
