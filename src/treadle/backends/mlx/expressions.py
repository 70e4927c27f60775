"""Scalar expressions as MLX operations: every elementwise operator comes through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import TypeAlias, cast

import mlx.core as mx

from ...declare import m
from ...declare.scalar import PRIMS, AttrItems, Scalar, fold, rebuild, walk
from ...ir.graph import Attrs, Node
from ...ir.types import DTYPES, F32, DType
from ...loops.functions.exponential import ERF_END, erf
from ...loops.functions.forms import below, with_sign
from ...ops.library import REGISTRY
from ...records import dataclass
from .arrays import HELD, constant, holds, number, on_gpu
from .lowering import Call, Lowering

Prim: TypeAlias = Callable[..., mx.array]


def _where_zero(b: mx.array, unit: int = 1) -> mx.array:
    """Divisors with which an integer division traps neither on 0 nor on overflow."""
    one = number(unit, b.dtype)
    safe = mx.where(mx.equal(b, number(0, b.dtype)), one, b)
    return safe if _unsigned(b) else mx.where(mx.equal(b, number(-1, b.dtype)), one, safe)


def _unsigned(x: mx.array) -> bool:
    return bool(mx.issubdtype(x.dtype, mx.unsignedinteger))


def _integer(x: mx.array) -> bool:
    return bool(mx.issubdtype(x.dtype, mx.integer))


def _floor_mod(a: mx.array, b: mx.array) -> tuple[mx.array, mx.array]:
    """Quotient and remainder of floats as NumPy computes them: fmod, then the sign of b."""
    zero = number(0, a.dtype)
    rest = fmod(a, b)
    turn = mx.logical_and(mx.not_equal(rest, zero), mx.not_equal(rest < zero, b < zero))
    rest = mx.where(turn, rest + b, rest)
    whole = (a - rest) / b
    low = mx.floor(whole)
    low = mx.where(whole - low > number(0.5, a.dtype), low + number(1, a.dtype), low)
    low = mx.where(mx.equal(b, zero), a / b, low)
    rest = mx.where(mx.equal(rest, zero), mx.where(b < zero, -mx.abs(rest), mx.abs(rest)), rest)
    return low, rest


def fmod(a: mx.array, b: mx.array) -> mx.array:
    """The remainder with the sign of a (C fmod); 0 for an integer divided by 0."""
    zero = number(0, a.dtype)
    if not _integer(a):
        rest = mx.remainder(mx.abs(a), mx.abs(b))
        return mx.where(a < zero, -rest, rest)
    rest = mx.remainder(a, _where_zero(b)) if _unsigned(a) else a - truncdiv(a, b) * b
    return mx.where(mx.equal(b, zero), zero, rest)


def floordiv(a: mx.array, b: mx.array) -> mx.array:
    """numpy.floor_divide; an integer by 0 is 0."""
    if not _integer(a):
        return _floor_mod(a, b)[0]
    zero = number(0, a.dtype)
    out = mx.floor_divide(a, _where_zero(b))
    if not _unsigned(a):
        out = mx.where(mx.equal(b, number(-1, b.dtype)), zero - a, out)
    return mx.where(mx.equal(b, zero), zero, out)


def truncdiv(a: mx.array, b: mx.array) -> mx.array:
    """Integer division towards zero; by 0 it is 0."""
    low = floordiv(a, b)
    if _unsigned(a) or not _integer(a):
        return low
    zero = number(0, a.dtype)
    inexact = mx.logical_and(mx.not_equal(low * b, a), mx.not_equal(a < zero, b < zero))
    inexact = mx.logical_and(inexact, mx.not_equal(b, zero))
    return low + inexact.astype(a.dtype)


def mod(a: mx.array, b: mx.array) -> mx.array:
    """numpy.remainder; an integer by 0 is 0."""
    if not _integer(a):
        return _floor_mod(a, b)[1]
    zero = number(0, a.dtype)
    trivial = mx.equal(b, zero)
    if not _unsigned(a):
        trivial = mx.logical_or(trivial, mx.equal(b, number(-1, b.dtype)))
    return mx.where(trivial, zero, mx.remainder(a, _where_zero(b)))


def power(a: mx.array, b: mx.array) -> mx.array:
    """a ** b; an integer to a negative power truncates towards zero."""
    if not _integer(a) or _unsigned(a):
        return mx.power(a, b)
    zero, one, two = (number(v, a.dtype) for v in (0, 1, 2))
    even = mx.equal(mx.bitwise_and(b, one), zero)
    unit = mx.where(mx.equal(a, one), one, mx.where(
        mx.equal(a, number(-1, a.dtype)), mx.where(even, one, one - two), zero))
    return mx.where(b < zero, unit, mx.power(a, mx.maximum(b, zero)))


def _shift(op: Prim, left: bool) -> Prim:
    def shift(a: mx.array, b: mx.array) -> mx.array:
        last = 8 * a.itemsize - 1
        top, zero = number(last, b.dtype), number(0, a.dtype)
        gone = b > top if _unsigned(b) else mx.logical_or(b > top, b < number(0, b.dtype))
        out = op(a, mx.where(gone, top, b))
        return mx.where(gone, zero, out) if left or _unsigned(a) else out

    return shift


def _sign(x: mx.array) -> mx.array:
    return mx.where(mx.not_equal(x, x), x, mx.sign(x)) if not _integer(x) else mx.sign(x)


@dataclass(frozen=True, slots=True)
class Either:
    """A function of flags, and what it is for all else."""

    of_bool: Prim
    of_int: Prim

    def __call__(self, *xs: mx.array) -> mx.array:
        """By the dtype of the first operand."""
        return self.of_bool(*xs) if xs[0].dtype == mx.bool_ else self.of_int(*xs)


TABLE: dict[str, Prim] = {
    "add": mx.add, "sub": mx.subtract, "mul": mx.multiply, "div": mx.divide, "pow": power,
    "floordiv": floordiv, "truncdiv": truncdiv, "mod": mod, "fmod": fmod,
    "max": Either(mx.logical_or, mx.maximum), "min": Either(mx.logical_and, mx.minimum),
    "neg": lambda x: number(0, x.dtype) - x if _integer(x) else mx.negative(x),
    "abs": mx.abs, "sign": _sign, "atan2": mx.arctan2,
    **{n: cast(Prim, getattr(mx, n)) for n in (
        "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "floor", "ceil", "round", "erf")},
    **{n: cast(Prim, getattr(mx, n.replace("a", "arc", 1))) for n in (
        "asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "trunc": lambda x: mx.where(x < number(0, x.dtype), mx.ceil(x), mx.floor(x)),
    "eq": mx.equal, "ne": mx.not_equal, "lt": mx.less, "le": mx.less_equal, "gt": mx.greater,
    "ge": mx.greater_equal,
    "bitwise_and": Either(mx.logical_and, mx.bitwise_and),
    "bitwise_or": Either(mx.logical_or, mx.bitwise_or),
    "bitwise_xor": Either(mx.not_equal, mx.bitwise_xor),
    "bitwise_not": Either(mx.logical_not, mx.bitwise_invert),
    "shift_left": _shift(mx.left_shift, True), "shift_right": _shift(mx.right_shift, False),
    "where": mx.where,
    "fma": lambda a, b, c: a * b + c}
"""MLX's operation for each scalar primitive; `cast` and `bitcast` name their dtype."""
_COMPLEX = frozenset({"add", "sub", "mul", "div", "neg", "eq", "ne", "where", "cast", "var",
                      "const"})


def convert(x: mx.array, dtype: DType) -> mx.array:
    """A cast; floats outside an integer type's range saturate and NaN becomes 0."""
    target = HELD[dtype]
    if x.dtype == target and dtype.bits >= 8:
        return x
    if x.dtype == mx.complex64:
        x = mx.real(x)
    if dtype.sort not in ("int", "uint") or _integer(x) or x.dtype == mx.bool_:
        return _low_bits(x.astype(target), dtype)
    x = x.astype(mx.float32)
    low = -(2 ** (dtype.bits - 1)) if dtype.sort == "int" else 0
    high = 2 ** (dtype.bits - (dtype.sort == "int")) - 1
    over, under = x >= constant(float(high + 1), F32), x <= constant(float(low), F32)
    zero = constant(0.0, F32)
    safe = mx.where(mx.logical_or(mx.logical_or(over, under), mx.not_equal(x, x)), zero, x)
    kept = _whole(safe, dtype)
    return mx.where(over, constant(high, dtype), mx.where(under, constant(low, dtype), kept))


def _low_bits(x: mx.array, dtype: DType) -> mx.array:
    """A byte as an integer of fewer bits, sign-extended."""
    if dtype.bits >= 8:
        return x
    by = constant(8 - dtype.bits, DTYPES["i8" if dtype.sort == "int" else "u8"])
    return mx.right_shift(mx.left_shift(x, by), by)


def _whole(x: mx.array, dtype: DType) -> mx.array:
    """f32 within the range of an integer type; u64 in two halves, which no cast gets wrong."""
    if dtype.name != "u64":
        return x.astype(HELD[dtype])
    half = constant(2.0**63, F32)
    large = x >= half
    rest = mx.where(large, x - half, x).astype(mx.int64).astype(mx.uint64)
    return rest + mx.where(large, constant(2**63, dtype), constant(0, dtype))


def bitcast(x: mx.array, dtype: DType) -> mx.array:
    """The bits of x as another type; any byte but 0 is a true bool."""
    if dtype.name == "bool":
        return mx.not_equal(x.view(mx.uint8), number(0, mx.uint8))
    return _low_bits(x.view(HELD[dtype]), dtype)


def _erf(x: Scalar) -> Scalar:
    """erf, which without fused steps does not reach 1 where it should, or passes it."""
    a = m.abs_(x)
    return with_sign(m.where(a >= ERF_END, m.like(x, 1.0), below(erf(a), 1.0)), x)


def _opened(root: Scalar) -> Scalar:
    """Derived primitives opened, and the functions that MLX approximates less well."""
    def op(e: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if e.op == "erf" and e.dtype is F32 and not on_gpu():  # nearer than MLX's on the CPU
            return _erf(*args)
        body = PRIMS[e.op].body if e.op in PRIMS else None
        if body is None:
            return _extreme(rebuild(e, args))
        return _opened(body(*args, **dict(cast(AttrItems, e.value or ()))))

    return fold([root], lambda s: s, op)[0]


def _extreme(e: Scalar) -> Scalar:
    """where(a <= c, c, a) as max(a, c), and its mirror: one pass; a NaN in `a` stays in both."""
    if e.op != "where" or e.args[0].op not in ("le", "ge") or e.args[1].op != "const":
        return e
    (test, c, a), nan = e.args, e.args[1].value != e.args[1].value
    if test.args != (a, c) or nan or e.dtype.name == "bool":
        return e
    return m.max_(a, c) if test.op == "le" else m.min_(a, c)


Code: TypeAlias = "tuple[list[tuple[Prim, tuple[int, ...]]], list[int]]"
"""Calls on the numbers of earlier ones, and the numbers of the results."""


@lru_cache(4096)
def code_of(roots: tuple[Scalar, ...]) -> Code:
    """Opened expressions as calls; operands are found by `var`, which reads all of them."""
    code, at = list[tuple[Prim, tuple[int, ...]]](), dict[Scalar, int]()
    for s in walk(*roots):
        dtype, value = s.dtype, s.value
        if s.op == "var":
            fn: Prim = itemgetter(cast(int, value))
        elif s.op == "const":
            fn = partial(constant, cast(complex, value), dtype)
        elif s.op in ("cast", "bitcast"):
            fn = partial(convert if s.op == "cast" else bitcast, dtype=dtype)
        else:
            fn = TABLE[s.op]
        at[s] = len(code)
        code.append((fn, (-1,) if s.op == "var" else tuple([at[a] for a in s.args])))
    return code, [at[r] for r in roots]


def run_code(code: Code, args: Sequence[mx.array]) -> list[mx.array]:
    """The results of calls."""
    calls, results = code
    made = list[mx.array]()
    for fn, places in calls:
        made.append(fn(args) if places == (-1,) else fn(*[made[i] for i in places]))
    return [made[i] for i in results]


def evaluate(roots: tuple[Scalar, ...], args: Sequence[mx.array]) -> list[mx.array]:
    """The values of opened expressions."""
    return run_code(code_of(roots), args)


@lru_cache(4096)
def opened(roots: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """Expressions in the primitives of `TABLE`."""
    return tuple([_opened(r) for r in roots])


def unsupported(roots: Sequence[Scalar]) -> str:
    """Why MLX cannot compute expressions, or nothing."""
    for e in walk(*roots):
        if not holds(e.dtype):
            return f"MLX has no arrays of {e.dtype} on every device"
        if e.dtype.sort == "complex" and e.op not in _COMPLEX:
            return f"{e.op} of complex numbers"
        if e.op == "cast" and e.args[0].dtype.sort == "complex" and e.dtype.sort != "float":
            return f"a cast of complex numbers to {e.dtype}"
    return ""


@lru_cache(4096)
def expressions(node: Node) -> tuple[Scalar, ...]:
    """What an elementwise node computes."""
    dtypes = tuple([v.dtype for v in node.inputs])
    return opened(REGISTRY[node.op].scalars(node.attrs, dtypes))


def _refuse(node: Node) -> str:
    return "" if node.reads() else unsupported(expressions(node))


def _kernel(call: Call, /, *given: mx.array | list[mx.array], **attrs: object
            ) -> Sequence[mx.array]:
    """All elementwise operators; variadic ones get their operands as a list."""
    args = [x for g in given for x in (g if isinstance(g, list) else [g])]
    node = call.node
    roots = expressions(node) if call.fixed else opened(REGISTRY[node.op].scalars(
        cast("Attrs", attrs), tuple([v.dtype for v in node.inputs])))
    return full(evaluate(roots, args), args)


def full(out: list[mx.array], args: Sequence[mx.array]) -> list[mx.array]:
    """Results in the common shape of the operands, of which each may have read some."""
    shape = args[0].shape if len(args) == 1 else mx.broadcast_shapes(*[a.shape for a in args])
    return [a if a.shape == shape else mx.broadcast_to(a, shape) for a in out]


ELEMENTWISE = Lowering(_kernel, _refuse)
