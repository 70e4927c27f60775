"""Rows computed side by side: whatever their number, length and neighbours, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import treadle
from treadle import ops
from treadle.ir.graph import Value


def normalised(x: Value) -> Value:
    """Without scale and bias."""
    d = x - ops.mean(x, axes=(-1,), keepdims=True)
    return d / ops.sqrt(ops.mean(d * d, axes=(-1,), keepdims=True) + 1e-5)


def exact(x: Any) -> tuple[Any, ...]:  # noqa: ANN401 - SciPy's stubs say little
    """The answers in f64."""
    d = x - x.mean(-1, keepdims=True)
    return (special.softmax(x, axis=-1), d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5),
            special.logsumexp(x, axis=-1, keepdims=True), x.argmax(-1))


@pytest.mark.parametrize("length", [33, 64, 100, 512, 770, "n"], ids=str)
def test_rows_side_by_side(length: int | str) -> None:
    """Lengths of every schedule: four rows, two, with a partial vector, unknown."""
    exe = treadle.trace(lambda x: (
        ops.softmax(x, axis=-1), normalised(x), ops.logsumexp(x, axes=(-1,), keepdims=True),
        ops.argmax(x, axis=-1, keepdims=False)), f"f32[m,{length}]").compile("cpu")
    n = length if isinstance(length, int) else 129
    x = (np.random.default_rng(n).normal(size=(11, n)) * 5).astype(np.float32)
    singly = [exe(x[i:i + 1]).values() for i in range(len(x))]
    for m in range(1, len(x) + 1):
        found = list(exe(x[:m]).values())
        for at, (y, wanted) in enumerate(zip(found, exact(x[:m].astype(np.float64)), strict=True)):
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=2e-6)
            alone = np.concatenate([list(one)[at] for one in singly[:m]])
            np.testing.assert_array_equal(y, alone)
