"""Convolution by ONNX Runtime, in f32."""

from __future__ import annotations

import numpy as np

from . import ort


def _attrs(strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...],
           groups: int) -> dict[str, object]:
    return {"strides": strides or None, "dilations": dilations or None, "pads": pads or None,
            "group": groups}


def _run(op: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None,
         attrs: dict[str, object]) -> list[np.ndarray]:
    wide = [None if a is None else a.astype(np.float32) for a in (x, w, bias)]
    return [y.astype(x.dtype) for y in ort.run(op, wide, attrs)]


def conv(x: np.ndarray, w: np.ndarray, *, bias: np.ndarray | None = None,
         strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
         pads: tuple[int, ...] = (), groups: int = 1) -> list[np.ndarray]:
    return _run("Conv", x, w, bias, _attrs(strides, dilations, pads, groups))


def conv_transpose(x: np.ndarray, w: np.ndarray, *, bias: np.ndarray | None = None,
                   strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
                   pads: tuple[int, ...] = (), output_padding: tuple[int, ...] = (),
                   groups: int = 1) -> list[np.ndarray]:
    attrs = _attrs(strides, dilations, pads, groups)
    return _run("ConvTranspose", x, w, bias, {**attrs, "output_padding": output_padding or None})
