"""Elementwise operators: arithmetic, comparison, activations, conversion.

`consumed_inputs` of opset 1 was a hint about memory without meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ....declare.opdef import REGISTRY, cast_value, full_value
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import DTYPES, DType
from ..context import Context
from ..reading import dtype_of
from ..registry import MICROSOFT, importer

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish",
    "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus",
    "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh"}
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Equal": "eq", "Less": "lt", "Greater": "gt",
    "LessOrEqual": "le", "GreaterOrEqual": "ge"}
_OLD_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")
"""Until opset 6 these broadcast only on request, from `axis` on."""


def _unary(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, *, consumed_inputs: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - what an operator gives
        return REGISTRY[name](x)

    return entry


def _modern(op: Callable[..., Any]) -> Callable[..., Any]:
    def entry(ctx: Context, a: Value, b: Value) -> Any:  # noqa: ANN401 - what an operator gives
        return op(a, b)

    return entry


def _legacy(op: Callable[..., Any]) -> Callable[..., Any]:
    def entry(ctx: Context, a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None,
              consumed_inputs: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - what an operator gives
        return op(a, _aligned(a, b, axis) if broadcast else b)

    return entry


def _aligned(a: Value, b: Value, axis: int | None) -> Value:
    """Opset 1 broadcasting: the axes of b stand at `axis` of a, counted from the left."""
    if axis is None or b.type.rank == 0:
        return b
    at = axis % a.type.rank if a.type.rank else 0
    after = a.type.rank - at - b.type.rank
    if after < 0:
        raise Declined(f"broadcast axis {axis} leaves no room for {b.type}")
    return REGISTRY["unsqueeze"](b, axes=tuple(range(b.type.rank, b.type.rank + after))) \
        if after else b  # type: ignore[return-value]


def _div(a: Value, b: Value) -> object:
    """Integers divide towards zero, as ONNX Runtime's C++ does."""
    whole = a.dtype.sort in ("int", "uint")
    return REGISTRY["truncdiv" if whole else "div"](a, b)


def _pow(a: Value, b: Value) -> object:
    """The result has the base's dtype; a fractional exponent of an integer computes in floats."""
    if a.dtype is b.dtype:
        return REGISTRY["pow"](a, b)
    if a.dtype.sort in ("int", "uint") and b.dtype.sort == "float":
        return cast_value(_value(REGISTRY["pow"](cast_value(a, b.dtype), b)), a.dtype)
    return REGISTRY["pow"](a, cast_value(b, a.dtype))


def _value(x: object) -> Value:
    assert isinstance(x, Value)
    return x


def _plain(name: str) -> Callable[..., Any]:
    return lambda a, b: REGISTRY[name](a, b)


for _op, _name in UNARY.items():
    importer(_op)(_unary(_name))
for _op, _fn in {**{o: _plain(n) for o, n in BINARY.items()}, "Div": _div, "Pow": _pow}.items():
    if _op in _OLD_BINARY:
        importer(_op, until=6)(_legacy(_fn))
        importer(_op, since=7)(_modern(_fn))
    else:
        importer(_op)(_modern(_fn))


@importer("PRelu", until=6)
def prelu_per_channel(ctx: Context, x: Value, slope: Value, *,
                      consumed_inputs: tuple[int, ...] = ()) -> object:
    """One slope, or one for each channel of axis 1."""
    shared = slope.type.rank != 1 or slope.shape[0] == 1
    return REGISTRY["prelu"](x, slope if shared else _aligned(x, slope, 1))


@importer("PRelu", since=7)
def prelu(ctx: Context, x: Value, slope: Value) -> object:
    """The slope broadcasts to x."""
    return REGISTRY["prelu"](x, slope)


def _fold(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, *xs: Value, consumed_inputs: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - what an operator gives
        return reduce(REGISTRY[name], xs)  # type: ignore[arg-type]

    return entry


for _op, _name in (("Max", "max"), ("Min", "min"), ("Sum", "add")):
    importer(_op)(_fold(_name))


@importer("Mean")
def mean(ctx: Context, *xs: Value, consumed_inputs: tuple[int, ...] = ()) -> object:
    """The mean of several tensors."""
    return REGISTRY["div"](_fold("add")(ctx, *xs), float(len(xs)))


@importer("Mod")
def mod(ctx: Context, a: Value, b: Value, *, fmod: int = 0) -> object:
    """The sign of the divisor, or of the dividend with fmod=1."""
    return REGISTRY["fmod" if fmod else "mod"](a, b)


@importer("BitShift")
def bit_shift(ctx: Context, a: Value, b: Value, *, direction: str) -> object:
    """Shift by elements of b."""
    if direction not in ("LEFT", "RIGHT"):
        raise Declined(f"BitShift with direction={direction!r}")
    return REGISTRY["shift_left" if direction == "LEFT" else "shift_right"](a, b)


@importer("IsInf")
def is_inf(ctx: Context, x: Value, *, detect_negative: int = 1, detect_positive: int = 1
           ) -> object:
    """Infinities of the signs asked for."""
    return REGISTRY["isinf"](x, detect_negative=bool(detect_negative),
                             detect_positive=bool(detect_positive))


@importer("Where")
def where(ctx: Context, cond: Value, a: Value, b: Value) -> object:
    """Select by a bool tensor."""
    return REGISTRY["where"](cond, a, b)


@importer("Identity")
def identity(ctx: Context, x: Value) -> object:
    """The value itself, under another name."""
    return x


@importer("Clip", until=10)
def clip_attributes(ctx: Context, x: Value, *, min_: float | None = None,
                    max_: float | None = None, consumed_inputs: tuple[int, ...] = ()) -> object:
    """Bounds as attributes."""
    lo = None if min_ is None else full_value(min_, x.dtype)
    hi = None if max_ is None else full_value(max_, x.dtype)
    return REGISTRY["clip"](x, lo=lo, hi=hi)


@importer("Clip", since=11)
def clip(ctx: Context, x: Value, lo: Value | None, hi: Value | None) -> object:
    """Bounds as tensors."""
    return REGISTRY["clip"](x, lo=lo, hi=hi)


@importer("LeakyRelu")
def leaky_relu(ctx: Context, x: Value, *, alpha: float = 0.01,
               consumed_inputs: tuple[int, ...] = ()) -> object:
    """A slope below zero."""
    return REGISTRY["leaky_relu"](x, alpha=alpha)


@importer("Elu")
def elu(ctx: Context, x: Value, *, alpha: float = 1.0,
        consumed_inputs: tuple[int, ...] = ()) -> object:
    """Exponential below zero."""
    return REGISTRY["elu"](x, alpha=alpha)


@importer("Celu")
def celu(ctx: Context, x: Value, *, alpha: float = 1.0) -> object:
    """Continuously differentiable exponential."""
    return REGISTRY["celu"](x, alpha=alpha)


@importer("Selu")
def selu(ctx: Context, x: Value, *, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875, consumed_inputs: tuple[int, ...] = ()
         ) -> object:
    """Scaled exponential."""
    return REGISTRY["selu"](x, alpha=alpha, gamma=gamma)


@importer("HardSigmoid")
def hard_sigmoid(ctx: Context, x: Value, *, alpha: float = 0.2, beta: float = 0.5,
                 consumed_inputs: tuple[int, ...] = ()) -> object:
    """Clipped line."""
    return REGISTRY["hard_sigmoid"](x, alpha=alpha, beta=beta)


@importer("ThresholdedRelu")
def thresholded_relu(ctx: Context, x: Value, *, alpha: float = 1.0) -> object:
    """Zero up to a threshold."""
    return REGISTRY["thresholded_relu"](x, alpha=alpha)


@importer("Shrink")
def shrink(ctx: Context, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> object:
    """Zero near zero."""
    return REGISTRY["shrink"](x, lambd=lambd, bias=bias)


@importer("Swish")
def swish(ctx: Context, x: Value, *, alpha: float = 1.0) -> object:
    """x sigmoid(alpha x)."""
    return REGISTRY["swish"](x, beta=alpha)


@importer("Gelu", since=20)
def gelu(ctx: Context, x: Value, *, approximate: str = "none") -> object:
    """By erf, or by tanh."""
    if approximate not in ("none", "tanh"):
        raise Declined(f"Gelu with approximate={approximate!r}")
    return REGISTRY["gelu" if approximate == "none" else "gelu_tanh"](x)


@importer("Gelu", domain=MICROSOFT)
def contrib_gelu(ctx: Context, x: Value) -> object:
    """By erf."""
    return REGISTRY["gelu"](x)


@importer("BiasGelu", domain=MICROSOFT)
def bias_gelu(ctx: Context, x: Value, bias: Value) -> object:
    """GELU of a sum."""
    return REGISTRY["gelu"](x + bias)


@importer("FastGelu", domain=MICROSOFT)
def fast_gelu(ctx: Context, x: Value, bias: Value | None) -> object:
    """GELU by tanh, of a sum."""
    return REGISTRY["gelu_tanh"](x if bias is None else x + bias)


@importer("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: Context, x: Value, *, alpha: float = 1.702) -> object:
    """x sigmoid(alpha x)."""
    return REGISTRY["quick_gelu"](x, alpha=alpha)


def convert(x: Value, dtype: DType, saturate: bool = True, round_mode: str = "up") -> object:
    """A cast, left out where it changes nothing."""
    if x.dtype is dtype:
        return x
    if x.dtype.sort == "float" and dtype.sort in ("int", "uint") and dtype.bits < 8:
        x = cast_value(x, DTYPES["i32"])  # 4 and 2 bits wrap, as the standard's cases do
    return REGISTRY["cast"](x, dtype=dtype, saturate=saturate, round_mode=round_mode)


_NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
          "STRING": 8, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13}


@importer("Cast", until=5)
def cast_by_name(ctx: Context, x: Value, *, to: str) -> object:
    """The target spelled as a string."""
    return convert(x, dtype_of(_NAMES.get(to.upper(), 0), ctx.node_name))


@importer("Cast", since=6)
def cast(ctx: Context, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> object:
    """The target as a data type code."""
    return convert(x, dtype_of(to, ctx.node_name), bool(saturate), round_mode)


@importer("CastLike")
def cast_like(ctx: Context, x: Value, like: Value, *, saturate: int = 1,
              round_mode: str = "up") -> object:
    """The target is another value's type."""
    return convert(x, like.dtype, bool(saturate), round_mode)


@importer("BitCast")
def bit_cast(ctx: Context, x: Value, *, to: int) -> object:
    """The same bits as another type."""
    return REGISTRY["bitcast"](x, dtype=dtype_of(to, ctx.node_name))
