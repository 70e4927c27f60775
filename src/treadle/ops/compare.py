"""Elementwise comparison, logic, bits and selection."""

from __future__ import annotations

from ..declare import m, scalar
from ..declare.kinds import elementwise
from ..declare.scalar import Scalar
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.types import BOOL

INF, NAN = float("inf"), float("nan")
BITS = (arr([0b1100, 255], "u8"), arr([0b1010, 1], "u8"))
TRUTH = ([True, True, False, False], [True, False, True, False])


@elementwise(samples=[known([1.0, 2.0, NAN], [1.0, 3.0, NAN], expect=[[True, False, False]]),
                      known([True, False], [True, True], expect=[[True, False]]),
                      known(arr(["a", "b"], "string"), arr(["a", "c"], "string"),
                            expect=[[True, False]])])
def eq(a: Scalar, b: Scalar) -> Scalar:
    """Whether a == b; NaN equals nothing."""
    return m.eq(a, b)


@elementwise(samples=[known([1.0, 2.0, NAN], [1.0, 3.0, NAN], expect=[[False, True, True]])])
def ne(a: Scalar, b: Scalar) -> Scalar:
    """Whether a != b; NaN differs from everything."""
    return m.ne(a, b)


@elementwise(samples=[sample("f32[5]", "f32[4,1]"),
                      known([1.0, 2.0, NAN], [1.0, 3.0, NAN], expect=[[False, True, False]]),
                      known(arr([-1], "i8"), arr([1], "i8"), expect=[[True]])])
def lt(a: Scalar, b: Scalar) -> Scalar:
    """Whether a < b."""
    return scalar.make("lt", a, b)


@elementwise(samples=[known([1.0, 4.0, NAN], [1.0, 3.0, NAN], expect=[[True, False, False]])])
def le(a: Scalar, b: Scalar) -> Scalar:
    """Whether a <= b."""
    return scalar.make("le", a, b)


@elementwise(samples=[known([1.0, 2.0, NAN], [1.0, 0.0, 1.0], expect=[[False, True, False]]),
                      known(arr([255], "u8"), arr([1], "u8"), expect=[[True]])])
def gt(a: Scalar, b: Scalar) -> Scalar:
    """Whether a > b."""
    return scalar.make("gt", a, b)


@elementwise(samples=[known([1.0, 2.0, NAN], [1.0, 3.0, 1.0], expect=[[True, False, False]])])
def ge(a: Scalar, b: Scalar) -> Scalar:
    """Whether a >= b."""
    return scalar.make("ge", a, b)


def _truth(x: Scalar, name: str) -> Scalar:
    if x.dtype is not BOOL:
        raise OperatorError(f"{name} needs bool operands, got {x.dtype}",
                            hint="compare with zero: ne(x, 0), or use the bitwise operator")
    return x


@elementwise(samples=[known(*TRUTH, expect=[[True, False, False, False]])])
def logical_and(a: Scalar, b: Scalar) -> Scalar:
    """Whether both hold; bool only."""
    return _truth(a, "logical_and") & _truth(b, "logical_and")


@elementwise(samples=[known(*TRUTH, expect=[[True, True, True, False]])])
def logical_or(a: Scalar, b: Scalar) -> Scalar:
    """Whether either holds; bool only."""
    return _truth(a, "logical_or") | _truth(b, "logical_or")


@elementwise(samples=[known(*TRUTH, expect=[[False, True, True, False]])])
def logical_xor(a: Scalar, b: Scalar) -> Scalar:
    """Whether exactly one holds; bool only."""
    return _truth(a, "logical_xor") ^ _truth(b, "logical_xor")


@elementwise(samples=[known([True, False], expect=[[False, True]])])
def logical_not(x: Scalar) -> Scalar:
    """Whether x does not hold; bool only."""
    return ~_truth(x, "logical_not")


@elementwise(samples=[known(*BITS, expect=[[0b1000, 1]]), known(*TRUTH, expect=[[1, 0, 0, 0]])])
def bitwise_and(a: Scalar, b: Scalar) -> Scalar:
    """a & b, for integers and bool."""
    return a & b


@elementwise(samples=[known(*BITS, expect=[[0b1110, 255]])])
def bitwise_or(a: Scalar, b: Scalar) -> Scalar:
    """a | b, for integers and bool."""
    return a | b


@elementwise(samples=[known(*BITS, expect=[[0b0110, 254]])])
def bitwise_xor(a: Scalar, b: Scalar) -> Scalar:
    """a ^ b, for integers and bool."""
    return a ^ b


@elementwise(samples=[known(arr([0, 0b1010], "u8"), expect=[[255, 0b11110101]]),
                      known(arr([0, -1], "i32"), expect=[[-1, 0]])])
def bitwise_not(x: Scalar) -> Scalar:
    """~x, for integers and bool."""
    return ~x


@elementwise(samples=[known(arr([1, 200, 1, 1], "u8"), arr([3, 1, 8, 255], "u8"),
                            expect=[[8, 144, 0, 0]]),
                      known(arr([-1, 1, 1], "i8"), arr([1, 7, -1], "i8"), expect=[[-2, -128, 0]])])
def shift_left(a: Scalar, b: Scalar) -> Scalar:
    """a << b; bits leave at the top. A b outside 0..width-1 shifts everything out: 0."""
    return a << b


@elementwise(samples=[known(arr([8, 200, 255, 1], "u8"), arr([3, 1, 8, 255], "u8"),
                            expect=[[1, 100, 0, 0]]),
                      known(arr([-8, -8, 8, -8], "i8"), arr([1, 100, 100, -1], "i8"),
                            expect=[[-4, -1, 0, -1]])])
def shift_right(a: Scalar, b: Scalar) -> Scalar:
    """a >> b; a sign bit is copied in. A b outside 0..width-1 leaves only the sign: 0 or -1."""
    return a >> b


@elementwise(samples=[known([1.0, NAN, INF], expect=[[False, True, False]]),
                      known(arr([NAN, 1.0], "f16"), expect=[[True, False]])])
def isnan(x: Scalar) -> Scalar:
    """Whether x is NaN."""
    return m.ne(x, x)


@elementwise(samples=[
    known([1.0, NAN, INF, -INF], expect=[[False, False, True, True]]),
    known([INF, -INF], detect_negative=False, expect=[[True, False]]),
    known([INF, -INF], detect_positive=False, expect=[[False, True]]),
    known([INF], detect_positive=False, detect_negative=False, expect=[[False]])])
def isinf(x: Scalar, *, detect_negative: bool = True, detect_positive: bool = True) -> Scalar:
    """Whether x is an infinity of a sign that is asked for (ONNX IsInf)."""
    if detect_negative and detect_positive:
        return m.eq(m.abs_(x), INF)
    if detect_negative or detect_positive:
        return m.eq(x, INF if detect_positive else -INF)
    return m.eq(x, x) & m.ne(x, x)


@elementwise(keep=("cond",), samples=[
    sample("bool[4,1]", "f32[4,8]", "f32[]"), sample("bool[3]", "i32[3]", "i64[3]"),
    known([True, False, True], [1.0, 2.0, NAN], [3.0, 4.0, 5.0], expect=[[1.0, 4.0, NAN]]),
    known([True, False], arr(["a", "b"], "string"), arr(["c", "d"], "string"),
          expect=[["a", "d"]])])
def where(cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """A where cond, else b; what is not selected has no influence, NaN included."""
    return m.where(cond, a, b)
