"""Windows of narrow elements run natively in f32 and give what the operator gives."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import treadle
from treadle.ir.graph import Value
from treadle.ops.conv import convolution
from treadle.ops.movement import reshape
from treadle.ops.pool import max_pool, sum_pool

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "i8": np.int8}


def both(fn: Callable[..., Value], types: list[str], arrays: list[np.ndarray]
         ) -> tuple[np.ndarray, np.ndarray]:
    """What the CPU and the reference give."""
    model = treadle.trace(fn, *types)
    exe = model.compile("cpu")
    counts = exe.explain().counts
    assert "host" not in counts
    assert any("computed in f32" in line for line in exe.explain().passes)
    return next(iter(exe(*arrays).values())), next(iter(
        model.compile("reference")(*arrays).values()))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_convolutions_of_halves(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(DTYPES[dtype]) for s in (
        (2, 5, 9, 11), (7, 5, 3, 3), (7,)))

    def biased(x: Value, w: Value, b: Value) -> Value:
        return convolution(x, w, pads=(1, 1, 1, 1)) + reshape(b, shape=(7, 1, 1))

    got, want = both(biased, [
        f"{dtype}[n,5,h,w]", f"{dtype}[7,5,3,3]", f"{dtype}[7]"], [x, w, b])
    assert got.dtype == want.dtype
    tol = 2e-3 if dtype == "f16" else 1.6e-2
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pools(dtype: str) -> None:
    x = (np.random.default_rng(1).normal(size=(2, 3, 10, 13)) * 40 + 60).astype(DTYPES[dtype])
    pools = [max_pool] if dtype in ("u8", "i8") else [max_pool, sum_pool]
    for pool in pools:
        got, want = both(lambda x, pool=pool: pool(x, kernel=(3, 2), strides=(2, 1)), [
            f"{dtype}[n,3,h,w]"], [x])
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
