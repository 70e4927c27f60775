"""Grids, regions and deformed windows by ONNX Runtime."""

from __future__ import annotations

import numpy as np

from . import ort


def grid_sample(x: np.ndarray, grid: np.ndarray, *, mode: str = "linear",
                padding: str = "zeros", align_corners: bool = False) -> list[np.ndarray]:
    return ort.run("GridSample", [x, grid], {
        "mode": mode, "padding_mode": padding, "align_corners": int(align_corners)}, opset=20)


def affine_grid(theta: np.ndarray, *, size: tuple[int, ...], align_corners: bool = False
                ) -> list[np.ndarray]:
    full = np.array([len(theta), 1, *size], np.int64)
    return ort.run("AffineGrid", [theta, full], {"align_corners": int(align_corners)}, opset=20)
