"""Quantisation by ONNX Runtime."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.oracles.ort import run
from treadle.declare.arrays import Array, np_dtype
from treadle.ir.types import DType


def _element(dtype: DType | None) -> int | None:
    return None if dtype is None else helper.np_dtype_to_tensor_dtype(np_dtype(dtype))


def quantize_linear(x: Array, scale: Array, zero: Array | None = None, axis: int = 1,
                    block_size: int = 0, dtype: DType | None = None, **_: object) -> Array:
    return run("QuantizeLinear", [x, scale, zero], {
        "axis": axis, "block_size": block_size or None, "output_dtype": _element(dtype)},
        opset=23)[0]


def dequantize_linear(x: Array, scale: Array, zero: Array | None = None, axis: int = 1,
                      block_size: int = 0, dtype: DType | None = None) -> Array:
    return run("DequantizeLinear", [x, scale, zero], {
        "axis": axis, "block_size": block_size or None, "output_dtype": _element(dtype)},
        opset=23)[0]


def dynamic_quantize_linear(x: Array) -> list[Array]:
    return run("DynamicQuantizeLinear", [x], outputs=3)


def qmatmul(a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
            y_scale: Array, y_zero: Array) -> Array:
    """By the formula in f64; half-way cases do not arise in random scales."""
    acc = (a.astype("f8") - a_zero) @ (b.astype("f8") - b_zero)
    y = np.rint(acc * a_scale * b_scale / y_scale) + y_zero
    return np.clip(y, 0, 255).astype(np.uint8)


def conv_integer(x: Array, w: Array, x_zero: Array, w_zero: Array, strides: tuple[int, ...],
                 pads: tuple[int, ...], groups: int) -> Array:
    """By ONNX Runtime's Conv in f32, exact for sums this small."""
    shape = (-1, *[1] * (w.ndim - 1))
    args = [(x.astype("f4") - x_zero), w.astype("f4") - w_zero.reshape(shape)]
    y = run("Conv", args, {"strides": strides, "pads": pads, "group": groups})[0]
    return y.astype(np.int32)


def qconv(x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
          y_scale: Array, y_zero: Array, bias: Array, strides: tuple[int, ...],
          pads: tuple[int, ...], groups: int) -> Array:
    acc = conv_integer(x, w, x_zero, w_zero, strides, pads, groups)
    shape = (-1, *[1] * (x.ndim - 2))
    scale = x_scale.astype("f8") * w_scale.reshape(shape) / y_scale
    y = np.rint((acc + bias.reshape(shape)) * scale) + y_zero
    return np.clip(y, 0, 255).astype(np.uint8)
