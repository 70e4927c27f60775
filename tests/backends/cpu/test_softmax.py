"""Softmax as one row: NaN, infinities, masks and shares that are nearly nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import treadle
from treadle import ops
from treadle.ir.graph import Value

INF, NAN = np.inf, np.nan
ROWS = {
    "plain": np.random.default_rng(0).normal(size=(5, 37)) * 4,
    "far apart": np.linspace(-300, 300, 40).reshape(1, 40),
    "masked": np.where(np.arange(24) % 3, -1e9, np.arange(24)).reshape(2, 12),
    "minus infinity": np.where(np.arange(20) < 7, -INF, 1.0).reshape(1, 20),
    "all minus infinity": np.full((1, 9), -INF), "infinity": np.array([[1.0, INF, 2.0]]),
    "NaN first": np.array([[NAN] + [1.0] * 40]), "NaN last": np.array([[1.0] * 40 + [NAN]]),
    "NaN before a larger one": np.array([[1.0] * 8 + [NAN] + [9.0] * 30]),
    "one": np.zeros((3, 1)),
}


@pytest.mark.parametrize("name", ROWS)
def test_softmax(name: str) -> None:
    x = ROWS[name].astype(np.float32)
    exe = treadle.trace(lambda a: ops.softmax(a, axis=-1), "f32[n,m]").compile("cpu")
    with np.errstate(invalid="ignore"):
        wanted = special.softmax(x.astype(np.float64), axis=-1)
    found, = exe(x).values()
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-37)


def test_parts_that_leave_are_exact() -> None:
    def parts(x: Value) -> tuple[Value, ...]:
        top = ops.reduce_max(x, axes=(-1,), keepdims=True)
        e = ops.exp(x - top)
        return top, e, e / ops.sum_(e, axes=(-1,), keepdims=True)

    x = np.array([[1.0] * 8 + [NAN] + [9.0] * 30, [0.0, -90.0, *[-100.0] * 37]], np.float32)
    found = treadle.trace(parts, "f32[n,m]").compile("cpu")(x)
    top, e, _ = found.values()
    assert np.isnan(top[0]) and top[1] == 0
    np.testing.assert_allclose(e[1], np.exp(x[1].astype(np.float64)), rtol=1e-5, atol=1.5e-45)
