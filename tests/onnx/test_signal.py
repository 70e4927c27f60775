"""Transforms, sampling and regions in models, against ONNX Runtime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, I64, model, node
from tests.onnx.ort import Run, check

RNG = np.random.default_rng(2)
MS = "com.microsoft"


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def scalar(value: int) -> np.ndarray:
    return np.asarray(value, np.int64)


BOXES = np.array([[0.0, 0.0, 2.0, 3.0], [1.0, 1.0, 3.5, 2.5]], np.float32)
RUNS = {
    "DFT 17": Run("DFT", {"x": f32(2, 6, 3, 2)}, attrs={"axis": 2, "inverse": 1}, domain="",
                  opset=17),
    "DFT 17 one-sided": Run("DFT", {"x": f32(2, 6, 1), "n": scalar(8)}, attrs={"onesided": 1},
                            weights=["n"], domain="", opset=17),
    "DFT 20": Run("DFT", {"x": f32(2, 6, 3, 1), "n": None, "axis": scalar(-3)}, weights=["axis"],
                  domain=""),
    "DFT 20 axis as an input": Run("DFT", {"x": f32(2, 6, 3, 1), "n": None, "axis": scalar(1)},
                                   domain=""),
    "STFT": Run("STFT", {"x": f32(1, 32, 1), "step": scalar(8), "w": f32(16),
                         "n": scalar(16)}, weights=["step", "n"], domain=""),
    **{op: Run(op, {"n": scalar(9)}, attrs={"periodic": p}, domain="")
       for p, op in enumerate(("HannWindow", "HammingWindow", "BlackmanWindow"))},
    "MelWeightMatrix": Run("MelWeightMatrix", {
        "b": scalar(8), "n": scalar(64), "r": scalar(8192), "low": np.asarray(0, np.float32),
        "high": np.asarray(4000, np.float32)}, domain=""),
    "GridSample 16": Run("GridSample", {"x": f32(1, 2, 4, 5), "g": f32(1, 3, 3, 2)},
                         attrs={"mode": "bicubic", "padding_mode": "border"}, domain="",
                         opset=16, rtol=1e-4),
    "GridSample of com.microsoft": Run("GridSample", {"x": f32(1, 2, 4, 5), "g": f32(1, 3, 3, 2)},
                                       attrs={"padding_mode": "reflection"}, rtol=1e-4),
    "AffineGrid": Run("AffineGrid", {"t": f32(2, 2, 3), "s": i64(2, 3, 4, 5)}, domain=""),
    "Col2Im": Run("Col2Im", {"x": f32(1, 8, 6), "i": i64(3, 4), "b": i64(2, 2)}, domain=""),
    "RoiAlign 10": Run("RoiAlign", {"x": f32(1, 2, 5, 6), "r": BOXES, "b": i64(0, 0)},
                       attrs={"output_height": 2, "output_width": 3, "sampling_ratio": 2},
                       domain="", opset=10, rtol=1e-4),
    "RoiAlign": Run("RoiAlign", {"x": f32(1, 2, 5, 6), "r": BOXES, "b": i64(0, 0)},
                    attrs={"output_height": 2, "output_width": 3, "mode": "max"}, domain="",
                    rtol=1e-4),
    "MaxRoiPool": Run("MaxRoiPool", {
        "x": f32(1, 2, 5, 6), "r": np.hstack([np.zeros((2, 1), np.float32), BOXES])},
        attrs={"pooled_shape": [2, 2]}, domain=""),
    "CropAndResize": Run("CropAndResize", {
        "x": f32(2, 3, 5, 6), "r": np.array([[0.1, 0.2, 0.9, 1.2]], np.float32),
        "b": np.array([1], np.int32), "s": np.array([3, 4], np.int32)},
        attrs={"extrapolation_value": -1.0}),
}


@pytest.mark.parametrize("name", RUNS)
def test_as_onnx_runtime(name: str) -> None:
    check(RUNS[name])


@pytest.mark.parametrize("axes", [1, 2])
def test_rfft_and_back(axes: int) -> None:
    """ONNX Runtime has these only on GPUs: NumPy is the reference."""
    x = f32(2, 4, 7)
    proto = model([node("Rfft", ["x"], ["y"], domain=MS, signal_ndim=axes),
                   node("Irfft", ["y"], ["z"], domain=MS, signal_ndim=axes)],
                  [("x", F32, x.shape)], [("y", F32, None), ("z", F32, None)], imports=[(MS, 1)])
    y, z = treadle.load(proto).compile(device="reference")({"x": x}).values()
    want = np.fft.rfftn(x, axes=tuple(range(3 - axes, 3)))
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], want, atol=1e-5)
    np.testing.assert_allclose(z, x, atol=1e-6)


def test_a_frame_length_known_at_the_run() -> None:
    proto = model([node("STFT", ["x", "step", "", "n"], ["y"])],
                  [("x", F32, [1, "s", 1]), ("step", I64, []), ("n", I64, [])],
                  [("y", F32, None)])
    x = f32(1, 20, 1)
    (y,) = treadle.load(proto).compile(device="reference")(
        {"x": x, "step": scalar(4), "n": scalar(8)}).values()
    frames = np.stack([np.fft.rfft(x[0, i:i + 8, 0]) for i in range(0, 13, 4)])
    np.testing.assert_allclose(y[0, ..., 0] + 1j * y[0, ..., 1], frames, atol=1e-5)
