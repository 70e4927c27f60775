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


def _spread(p: Array, w: Array, axis: int, block_size: int) -> Array:
    """Scales or zero points element by element, in f64."""
    if block_size:
        return p.astype("f8").repeat(block_size, axis)[tuple([slice(n) for n in w.shape])]
    shape = [1] * w.ndim
    shape[axis] = -1
    return p.astype("f8").reshape(shape)


def _weight(w: Array, scale: Array, zero: Array | None, axis: int, block_size: int) -> Array:
    offset = 0.0 if zero is None else _spread(zero, w, axis, block_size)
    return (w.astype("f8") - offset) * _spread(scale, w, axis, block_size)


def quantized_matmul(x: Array, w: Array, scale: Array, zero: Array | None = None,
                     bias: Array | None = None, axis: int = 1, block_size: int = 0,
                     transposed: bool = True) -> Array:
    """By the definition in f64."""
    real = _weight(w, scale, zero, axis, block_size)
    y = x.astype("f8") @ (real.T if transposed else real)
    return (y if bias is None else y + bias).astype(x.dtype)


def quantized_grouped_matmul(x: Array, w: Array, scale: Array, expert: Array, zero: Array,
                             axis: int, block_size: int, transposed: bool = True) -> Array:
    real = _weight(w, scale, zero, axis, block_size)
    each = real[expert] if not transposed else real[expert].transpose(0, 2, 1)
    return (x[:, None].astype("f8") @ each)[:, 0].astype(x.dtype)


def quantized_gather(w: Array, scale: Array, indices: Array, zero: Array | None = None,
                     axis: int = 1, block_size: int = 0, **_: object) -> Array:
    return _weight(w, scale, zero, axis, block_size)[indices].astype(scale.dtype)


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
