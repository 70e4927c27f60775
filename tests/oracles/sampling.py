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


def col2im(x: np.ndarray, *, image: tuple[int, ...], kernel: tuple[int, ...],
           strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
           pads: tuple[int, ...] = ()) -> list[np.ndarray]:
    attrs = {"strides": strides or None, "dilations": dilations or None, "pads": pads or None}
    return ort.run("Col2Im", [x, np.array(image, np.int64), np.array(kernel, np.int64)], attrs,
                   opset=18)


def deform_conv(x: np.ndarray, w: np.ndarray, offset: np.ndarray, *,
                mask: np.ndarray | None = None, bias: np.ndarray | None = None,
                strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
                pads: tuple[int, ...] = (), groups: int = 1, offset_groups: int = 1
                ) -> list[np.ndarray]:
    attrs = {"strides": strides or None, "dilations": dilations or None, "pads": pads or None,
             "group": groups, "offset_group": offset_groups}
    return ort.run("DeformConv", [x, w, offset, bias, mask], attrs, opset=22)


def max_roi_pool(x: np.ndarray, rois: np.ndarray, *, size: tuple[int, ...], scale: float = 1.0
                 ) -> list[np.ndarray]:
    return ort.run("MaxRoiPool", [x, rois], {"pooled_shape": size, "spatial_scale": scale},
                   opset=13)


def roi_align(x: np.ndarray, rois: np.ndarray, batch: np.ndarray, *, mode: str = "avg",
              size: tuple[int, ...] = (1, 1), sampling_ratio: int = 0, scale: float = 1.0,
              half_pixel: bool = True) -> list[np.ndarray]:
    attrs = {"mode": mode, "output_height": size[0], "output_width": size[1],
             "sampling_ratio": sampling_ratio, "spatial_scale": scale,
             "coordinate_transformation_mode": "half_pixel" if half_pixel
             else "output_half_pixel"}
    return ort.run("RoiAlign", [x, rois, batch.astype(np.int64)], attrs, opset=16)


def crop_and_resize(x: np.ndarray, boxes: np.ndarray, batch: np.ndarray, *,
                    size: tuple[int, ...], mode: str = "linear", fill: float = 0.0
                    ) -> list[np.ndarray]:
    attrs = {"mode": "bilinear" if mode == "linear" else mode, "extrapolation_value": fill}
    return ort.run("CropAndResize", [x, boxes, batch, np.array(size, np.int32)], attrs,
                   opset=21, domain="com.microsoft")
