"""Affine quantisation, and operators between quantised tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....declare.opdef import REGISTRY, cast_value
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import BOOL, DType, axis_of, count
from ....ops.activations import leaky_relu, sigmoid
from ....ops.compare import where
from ....ops.movement import concat, reshape, transpose
from ....ops.pool import average_pool, global_average_pool
from ....ops.quantize import (
    conv_integer,
    dequantize_linear,
    dynamic_quantize_linear,
    qconv,
    qmatmul,
    quantize_linear,
)
from ....ops.reduce import mean
from ....ops.scan1d import softmax
from ..context import Context
from ..reading import dtype_of
from ..registry import MICROSOFT, importer
from .convolution import check_kernel, window_pads

Ints = tuple[int, ...]


def single(p: Value) -> Value:
    """A parameter of one element as a scalar, others as they are."""
    return reshape(p, shape=()) if p.shape == (1,) else p


def _params(scale: Value, zero: Value | None, block_size: int) -> tuple[Value, Value | None]:
    if block_size:
        return scale, zero
    return single(scale), None if zero is None else single(zero)


def _dtype(code: int, what: str) -> DType | None:
    return dtype_of(code, what) if code else None


@importer("QuantizeLinear", since=10)
def quantize(ctx: Context, x: Value, scale: Value, zero: Value | None, *, axis: int = 1,
             block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1
             ) -> Value:
    """Per tensor, axis or block; the zero point tells the type, else `output_dtype`, else u8."""
    by, offset = _params(scale, zero, block_size)
    return quantize_linear(x, by, zero=offset, axis=axis, block_size=block_size,
                           dtype=_dtype(output_dtype, "output_dtype"), saturate=bool(saturate),
                           precision=_dtype(precision, "precision"))


@importer("DequantizeLinear", since=10)
def dequantize(ctx: Context, x: Value, scale: Value, zero: Value | None, *, axis: int = 1,
               block_size: int = 0, output_dtype: int = 0) -> Value:
    """Per tensor, axis or block."""
    by, offset = _params(scale, zero, block_size)
    return dequantize_linear(x, by, zero=offset, axis=axis, block_size=block_size,
                             dtype=_dtype(output_dtype, "output_dtype"))


@importer("QuantizeLinear", domain=MICROSOFT)
def contrib_quantize(ctx: Context, x: Value, scale: Value, zero: Value | None, *, axis: int = 1,
                     block_size: int = 0, output_dtype: int = 0, saturate: int = 1) -> Value:
    """As the standard's."""
    return quantize(ctx, x, scale, zero, axis=axis, block_size=block_size,
                    output_dtype=output_dtype, saturate=saturate)


@importer("DequantizeLinear", domain=MICROSOFT)
def contrib_dequantize(ctx: Context, x: Value, scale: Value, zero: Value | None, *,
                       axis: int = 1, block_size: int = 0) -> Value:
    """As the standard's."""
    return dequantize(ctx, x, scale, zero, axis=axis, block_size=block_size)


@importer("DynamicQuantizeLinear", since=11)
def dynamic_quantize(ctx: Context, x: Value) -> tuple[Value, ...]:
    """Over the tensor's own range."""
    return dynamic_quantize_linear(x)


@importer("QLinearMatMul", since=10)
def qlinear_matmul(ctx: Context, a: Value, a_scale: Value, a_zero: Value, b: Value,
                   b_scale: Value, b_zero: Value, y_scale: Value, y_zero: Value) -> Value:
    """A requantised product."""
    return qmatmul(a, single(a_scale), single(a_zero), b, single(b_scale), single(b_zero),
                   single(y_scale), single(y_zero))


@importer("QLinearConv", since=10)
def qlinear_conv(ctx: Context, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value,
                 w_zero: Value, y_scale: Value, y_zero: Value, bias: Value | None, *,
                 auto_pad: str = "NOTSET", dilations: Ints = (), group: int = 1,
                 kernel_shape: Ints = (), pads: Ints = (), strides: Ints = ()) -> Value:
    """A requantised convolution."""
    check_kernel(w, kernel_shape)
    edges = window_pads(x, w.shape[2:], strides, dilations, pads, auto_pad)
    return qconv(x, single(x_scale), single(x_zero), w, single(w_scale), single(w_zero),
                 single(y_scale), single(y_zero), bias=bias, strides=strides,
                 dilations=dilations, pads=edges, groups=group)


@importer("ConvInteger", since=10)
def integer_conv(ctx: Context, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, *,
                 auto_pad: str = "NOTSET", dilations: Ints = (), group: int = 1,
                 kernel_shape: Ints = (), pads: Ints = (), strides: Ints = ()) -> Value:
    """An exact convolution of 8-bit tensors."""
    check_kernel(w, kernel_shape)
    edges = window_pads(x, w.shape[2:], strides, dilations, pads, auto_pad)
    return conv_integer(x, w, x_zero=None if x_zero is None else single(x_zero),
                        w_zero=None if w_zero is None else single(w_zero), strides=strides,
                        dilations=dilations, pads=edges, groups=group)


def _real(x: Value, scale: Value, zero: Value | None) -> Value:
    return dequantize_linear(x, single(scale), zero=None if zero is None else single(zero))


def _stored(y: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    return quantize_linear(y, single(scale), zero=None if zero is None else single(zero),
                           dtype=dtype)


def _two(fn: Callable[[Value, Value], Value]) -> Callable[..., Any]:
    def entry(ctx: Context, a: Value, a_scale: Value, a_zero: Value | None, b: Value,
              b_scale: Value, b_zero: Value | None, y_scale: Value, y_zero: Value | None
              ) -> Value:
        y = fn(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
        return _stored(y, y_scale, y_zero, a.dtype)

    return entry


importer("QLinearAdd", domain=MICROSOFT)(_two(lambda a, b: a + b))
importer("QLinearMul", domain=MICROSOFT)(_two(lambda a, b: a * b))


@importer("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value,
                    y_zero: Value | None) -> Value:
    """Sigmoid in f32 between quantised tensors."""
    return _stored(sigmoid(_real(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@importer("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None,
                       y_scale: Value, y_zero: Value | None, *, alpha: float = 0.01) -> Value:
    """A slope below zero between quantised tensors."""
    y = leaky_relu(_real(x, x_scale, x_zero), alpha=alpha)
    return _stored(y, y_scale, y_zero, x.dtype)


@importer("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value,
                    y_zero: Value, *, axis: int = -1, opset: int) -> Value:
    """Softmax in f32; before opset 13 all axes from `axis` on count as one."""
    real = _real(x, x_scale, x_zero)
    if opset >= 13:
        y = softmax(real, axis=axis)
    else:
        at = axis_of(axis, x.type.rank)
        rows = reshape(real, shape=(count(x.shape[:at]), count(x.shape[at:])))
        y = reshape(softmax(rows, axis=1), shape=x.shape)
    return _stored(y, y_scale, y_zero, x.dtype)


@importer("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None,
                        y_scale: Value, y_zero: Value | None, *, axes: Ints, keepdims: int
                        ) -> Value:
    """The mean in f32."""
    y = mean(_real(x, x_scale, x_zero), axes=axes, keepdims=bool(keepdims))
    return _stored(y, y_scale, y_zero, x.dtype)


@importer("QLinearWhere", domain=MICROSOFT)
def qlinear_where(ctx: Context, condition: Value, x: Value, x_scale: Value, x_zero: Value,
                  y: Value, y_scale: Value, y_zero: Value, z_scale: Value, z_zero: Value
                  ) -> Value:
    """A selection between two quantised tensors."""
    z = where(cast_value(condition, BOOL), _real(x, x_scale, x_zero), _real(y, y_scale, y_zero))
    return _stored(z, z_scale, z_zero, x.dtype)


@importer("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(ctx: Context, y_scale: Value, y_zero: Value, *parts: Value, axis: int) -> Value:
    """Tensors, each followed by its scale and zero point, joined and requantised."""
    if len(parts) % 3:
        raise Declined(f"QLinearConcat with {len(parts)} inputs, which are no triples")
    triples = [parts[i:i + 3] for i in range(0, len(parts), 3)]
    return _stored(concat([_real(*t) for t in triples], axis=axis), y_scale, y_zero, y_zero.dtype)


def _first(x: Value) -> Value:
    """Channels moved from the last axis to axis 1."""
    n = x.type.rank
    return transpose(x, perm=(0, n - 1, *range(1, n - 1)))


def _last(x: Value) -> Value:
    return transpose(x, perm=(0, *range(2, x.type.rank), 1))


@importer("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None,
                         y_scale: Value, y_zero: Value | None, *, auto_pad: str = "NOTSET",
                         ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0,
                         kernel_shape: Ints, pads: Ints = (), strides: Ints = ()) -> Value:
    """The mean of each window in f32."""
    real = _real(x, x_scale, x_zero)
    real = _first(real) if channels_last else real
    y = average_pool(real, kernel=kernel_shape, strides=strides, ceil_mode=bool(ceil_mode),
                     pads=window_pads(real, kernel_shape, strides, (), pads, auto_pad),
                     count_include_pad=bool(count_include_pad))
    return _stored(_last(y) if channels_last else y, y_scale, y_zero, x.dtype)


@importer("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(ctx: Context, x: Value, x_scale: Value, x_zero: Value | None,
                                y_scale: Value, y_zero: Value | None, *, channels_last: int = 0
                                ) -> Value:
    """The mean over space in f32."""
    real = _real(x, x_scale, x_zero)
    y = global_average_pool(_first(real) if channels_last else real)
    return _stored(_last(y) if channels_last else y, y_scale, y_zero, x.dtype)


@importer("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(ctx: Context, x: Value, w: Value, r: Value, bias: Value | None,
                          lens: Value | None, h: Value | None, c: Value | None,
                          peephole: Value | None, w_scale: Value, w_zero: Value, r_scale: Value,
                          r_zero: Value, *, activation_alpha: tuple[float, ...] = (),
                          activation_beta: tuple[float, ...] = (),
                          activations: tuple[str, ...] = (), clip: float | None = None,
                          direction: str = "forward", hidden_size: int | None = None,
                          input_forget: int = 0) -> object:
    """LSTM with 8-bit weights; the input and the state are rounded to 8 bits as it runs."""
    if hidden_size is not None and hidden_size != r.shape[1]:
        raise Declined(f"hidden_size {hidden_size} contradicts the recurrent weight {r.type}")
    return REGISTRY["dynamic_quantized_lstm"](
        x, w, r, w_scale, w_zero, r_scale, r_zero, bias=bias, sequence_lens=lens, initial_h=h,
        initial_c=c, peephole=peephole, direction=direction, activations=activations,
        alpha=activation_alpha, beta=activation_beta, clip=clip, input_forget=bool(input_forget))
