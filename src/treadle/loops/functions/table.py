"""The bodies by function and dtype, with the bounds of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...declare import m
from ...declare.scalar import Scalar
from ...ir.types import F32, F64, DType
from . import exponential, logarithm, trigonometric

Body: TypeAlias = Callable[..., Scalar]


def _widely(body: Body) -> Body:
    """An f64 body for f32 operands; the result rounds twice, the second time for good."""
    def single(*args: Scalar) -> Scalar:
        return m.cast(body(*[m.cast(a, F64) for a in args]), F32)

    return single


def _shortly(body: Callable[[Scalar, bool], Scalar]) -> Body:
    return _widely(lambda x: body(x, True))


_BOTH: dict[str, Body] = {
    "exp": exponential.exp, "expm1": exponential.expm1, "tanh": exponential.tanh,
    "sigmoid": exponential.sigmoid, "erf": exponential.erf, "log": logarithm.log,
    "log1p": logarithm.log1p}
_WIDE: dict[str, Body] = {
    "sinh": exponential.sinh, "cosh": exponential.cosh, "asinh": logarithm.asinh,
    "acosh": logarithm.acosh, "atanh": logarithm.atanh, "asin": trigonometric.asin,
    "acos": trigonometric.acos, "atan": trigonometric.atan, "atan2": trigonometric.atan2}
_CIRCULAR = {
    "sin": trigonometric.sin, "cos": trigonometric.cos, "tan": trigonometric.tan}

FUNCTIONS: dict[tuple[str, DType], Body] = {
    **{(n, d): f for n, f in _BOTH.items() for d in (F32, F64)},
    **{(n, F64): f for n, f in (*_WIDE.items(), *_CIRCULAR.items())},
    **{(n, F32): _widely(f) for n, f in _WIDE.items()},
    **{(n, F32): _shortly(f) for n, f in _CIRCULAR.items()},
    ("gelu", F32): exponential.gelu, ("gelu_tanh", F32): exponential.gelu_tanh,
    ("pow", F32): logarithm.pow32, ("pow", F64): logarithm.pow64}
"""Bodies by function and dtype; what is missing is the printer's."""

BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0), "exp2": (0.51, 1.5), "expm1": (2.0, 2.0), "log": (1.0, 1.0),
    "log2": (2.0, 2.0), "log1p": (1.0, 1.0), "pow": (0.51, 1.0), "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5), "sigmoid": (2.5, 2.5), "tanh": (3.0, 3.0), "sinh": (0.51, 3.0),
    "cosh": (0.51, 2.0), "asinh": (0.51, 2.0), "acosh": (0.51, 2.0), "atanh": (0.51, 2.5),
    "sin": (0.51, 2.5), "cos": (0.51, 2.5), "tan": (0.51, 3.5), "asin": (0.51, 2.5),
    "acos": (0.51, 1.5), "atan": (0.51, 1.0), "atan2": (0.51, 1.5), "erf": (5.5, 6.0),
    "erfc": (8.0, 6.0)}
"""Most units in the last place of f32 and of f64 results, by operator."""

UNITS: dict[str, float] = {"gelu": 3.5, "gelu_tanh": 2.5}
"""Most units in the operand's last place of f32 results that cancel, by operator."""
