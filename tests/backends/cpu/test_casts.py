"""Windows whose results end in another dtype, halves with a bias, and products of no columns."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import treadle
from tests.onnx.build import F32, model, node
from treadle.declare.arrays import Array

F16 = 10
DTYPES = {"f16": 10, "f64": 11, "i32": 6, "u8": 2}


def ranged(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(1, 2, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_cast_after_windows(op: str, dtype: str) -> None:
    proto = model([node(op, ["x", "w", "b"], ["t"], pads=[1, 1, 1, 1]),
                   node("Cast", ["t"], ["y"], to=DTYPES[dtype])],
                  [("x", F32, ["n", 4, "h", 9])], [("y", DTYPES[dtype], None)],
                  weights={"w": ranged(4, 4, 3, 3), "b": ranged(4, seed=1)})
    x = ranged(2, 4, 7, 9, seed=2)
    (want,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    exe = treadle.load(proto).compile("cpu")
    for _ in range(2):
        got = exe(x)["y"]
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-3,
                                   atol=1 if want.dtype.kind in "iu" else 0)


def test_a_convolution_of_halves_with_a_bias() -> None:
    w, b, x = (ranged(*s, seed=i).astype(np.float16)
               for i, s in enumerate([(4, 3, 3, 3), (4,), (2, 3, 6, 8)]))
    proto = model([node("Conv", ["x", "w", "b"], ["y"])], [("x", F16, ["n", 3, "h", 8])],
                  [("y", F16, None)], weights={"w": w, "b": b})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(float), (3, 3), (2, 3))
    want = np.einsum("nchwij,mcij->nmhw", windows, w.astype(float)) + b[:, None, None]
    got = treadle.load(proto).compile("cpu")(x)["y"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), want, rtol=1e-3)


def test_products_of_no_columns() -> None:
    exe = treadle.trace(lambda a, b: treadle.ops.matmul(a, b), "f32[n,64]", "f32[64,m]").compile(
        "cpu")
    for m in (0, 3, 0):
        (y,) = exe(ranged(5, 64), ranged(64, m)).values()
        np.testing.assert_allclose(y, ranged(5, 64) @ ranged(64, m), rtol=1e-5)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F16, ["n", 64])],
                  [("y", F16, None)], weights={"w": np.zeros((64, 0), np.float16)})
    assert treadle.load(proto).compile("cpu")(ranged(5, 64).astype(np.float16))["y"].shape == (5, 0)
