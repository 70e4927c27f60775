"""Scalar primitives as LLVM instructions, lane by lane over vectors of any width."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...declare.scalar import Scalar, fold, rebuild, var, walk
from ...declare.scalar_text import text
from ...ir.types import DTYPES, DType
from .text import BF16, F16, F32, F64, I1, I8, I16, I32, I64, Function, Module, Type, Value

REGISTER: dict[str, Type] = {
    "bool": I1, "u8": I8, "i8": I8, "u16": I16, "i16": I16, "u32": I32, "i32": I32, "u64": I64,
    "i64": I64, "f16": F16, "bf16": I16, "f32": F32, "f64": F64}
"""What holds one lane of a dtype. bf16 is kept as its bits: few targets convert it."""
MEMORY = {**REGISTER, "bool": I8}
Emit: TypeAlias = Callable[[Function, DType, Sequence[Value]], Value]


def holds(dtype: DType) -> bool:
    """Whether values of a dtype fit the lanes of a vector."""
    return dtype.name in REGISTER


def supported(root: Scalar) -> str:
    """Why an expression node has no instructions here, or nothing."""
    if not holds(root.dtype):
        return f"no instructions compute {root.dtype}"
    if root.op == "cast":
        pair = (root.args[0].dtype.name, root.dtype.name)
        return "f64 to a half would round twice" if pair in _TWICE else ""
    if root.op in ("var", "const", "bitcast", "where"):
        return ""
    if root.op in PRIMITIVES:
        narrow = [a.dtype.name for a in root.args if a.dtype.name in ("f16", "bf16")]
        return f"{root.op} has no instruction on {narrow[0]}" if narrow else ""
    return f"{root.op} has no instruction"


_TWICE = {("f64", "f16"), ("f64", "bf16")}


def constant(f: Function, e: Scalar) -> Value:
    """A constant as a scalar."""
    assert isinstance(e.value, int | float)
    if e.dtype.name == "bf16":
        bits = int(BF16.constant(float(e.value))[3:], 16)
        return f.constant(I16, bits)
    return f.constant(REGISTER[e.dtype.name], e.value)


def primitive(f: Function, e: Scalar, args: Sequence[Value]) -> Value:
    """The value of a node, its operands' lanes being equally many."""
    if e.op == "cast":
        return _cast(f, e.args[0].dtype, e.dtype, args[0])
    if e.op == "bitcast":
        return _bitcast(f, e.args[0].dtype, e.dtype, args[0])
    return PRIMITIVES[e.op](f, e.args[-1].dtype, args)


def evaluate(f: Function, roots: Sequence[Scalar], known: dict[Scalar, Value],
             widen: Callable[[Value], Value] = lambda v: v) -> list[Value]:
    """The values of expressions over known ones; `widen` gives constants their lanes."""
    for e in walk(*roots):
        if e not in known:
            known[e] = widen(constant(f, e)) if e.op == "const" else primitive(
                f, e, [known[a] for a in e.args])
    return [known[r] for r in roots]


def rare_function(module: Module, e: Scalar) -> Function:
    """The function of one lane that computes the unusual value of a `rarely`."""
    unusual, x = e.args[2:]
    kept, = fold([unusual], lambda s: var(0, x.dtype) if s is x else s,
                 lambda s, a: var(0, x.dtype) if s is x else rebuild(s, a))
    name = f"rare_{hashlib.blake2s(text(kept).encode(), digest_size=8).hexdigest()}"
    if name not in module.functions:
        f = module.function(name, REGISTER[unusual.dtype.name],
                            [("x", REGISTER[x.dtype.name])], attributes="nounwind noinline cold")
        f.give(*evaluate(f, [kept], {var(0, x.dtype): f.args[0]}))
    return module.functions[name]


def _bitcast(f: Function, source: DType, target: DType, x: Value) -> Value:
    if target.name == "bool":
        return f.compare("ne", x, 0)
    if source.name == "bool":
        return f.cast("zext", x, x.type.with_scalar(I8))
    return f.bitcast(x, x.type.with_scalar(REGISTER[target.name]))


def _cast(f: Function, source: DType, target: DType, x: Value) -> Value:
    """Floats become integers by truncation, saturating, NaN 0; integers wrap; bool is x != 0."""
    if source.name == "bf16":
        return _cast(f, DTYPES["f32"], target, _widen_bf16(f, x))
    if target.name == "bool":
        return f.compare("ne", x, 0)
    if target.name == "bf16":
        return _round_bf16(f, _cast(f, source, DTYPES["f32"], x))
    to = REGISTER[target.name]
    kind = x.type.with_scalar(to)
    if source.sort == "float" and target.sort == "float":
        return f.cast("fpext" if to.bits > x.type.bits else "fptrunc", x, kind)
    if source.sort == "float":
        return _to_integer(f, target, _single(f, x), to)
    unsigned = source.sort in ("uint", "bool")
    if target.sort == "float":
        return f.cast("uitofp" if unsigned else "sitofp", x, kind)
    if to.bits <= x.type.bits:
        return f.cast("trunc", x, kind) if to.bits < x.type.bits else x
    return f.cast("zext" if unsigned else "sext", x, kind)


def _single(f: Function, x: Value) -> Value:
    return f.cast("fpext", x, x.type.with_scalar(F32)) if x.type.scalar == F16 else x


def _to_integer(f: Function, target: DType, x: Value, to: Type) -> Value:
    kind = x.type.with_scalar(to)
    sign = "u" if target.sort == "uint" else "s"
    return f.call(f"llvm.fpto{sign}i.sat.{kind.mangled}.{x.type.mangled}", kind, x)


def _widen_bf16(f: Function, x: Value) -> Value:
    wide = f.cast("zext", x, x.type.with_scalar(I32)) << 16
    return f.bitcast(wide, x.type.with_scalar(F32))


def _round_bf16(f: Function, x: Value) -> Value:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = f.bitcast(x, x.type.with_scalar(I32))
    odd = f.binary("lshr", bits, 16) & 1
    rounded = f.binary("lshr", bits + 0x7FFF + odd, 16)
    nan = f.binary("lshr", bits, 16) | 0x40
    picked = f.select(f.compare("uno", x, x), nan, rounded)
    return f.cast("trunc", picked, x.type.with_scalar(I16))


def _order(op: str) -> Emit:
    def emit(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
        unsigned = dtype.sort in ("uint", "bool") and op not in ("eq", "ne")
        return f.compare(f"u{op}" if unsigned else op, a[0], a[1])

    return emit


def _extreme(op: str) -> Emit:
    """NaN wins, as in NumPy."""
    def emit(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
        x, y = a
        first = _order(op)(f, dtype, a)
        if dtype.sort != "float":
            return f.select(first, x, y)
        return f.select(first | f.compare("uno", x, x), x, y)

    return emit


def _divide(kind: str) -> Emit:
    """Integer division: by zero gives 0, the lowest number by -1 wraps."""
    def emit(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
        x, y = a
        if dtype.sort == "float":
            return FLOAT_DIVISION[kind](f, x, y)
        zero = f.compare("eq", y, 0)
        if dtype.sort == "uint":
            q = f.binary("udiv", x, f.select(zero, 1, y))
            rest = x - q * y
            return f.select(zero, 0, q if kind in ("floordiv", "truncdiv") else rest)
        minus = f.compare("eq", y, -1)
        q = f.binary("sdiv", x, f.select(zero | minus, 1, y))
        q = f.select(minus, -x, q)
        rest = x - q * y
        off = f.compare("ne", rest, 0) & f.compare("lt", rest ^ y, 0)
        if kind == "floordiv":
            q = f.select(off, q - 1, q)
        if kind == "mod":
            rest = f.select(off, rest + y, rest)
        return f.select(zero, 0, q if kind in ("floordiv", "truncdiv") else rest)

    return emit


_WHOLE = {"float": 2.0**24, "double": 2.0**53}
"""Integers below this are numbers of the format."""


def _float_fmod(f: Function, x: Value, y: Value) -> Value:
    """C's fmod, exact: a quotient that is an integer of the format is at most one too large.

    Other lanes ask the C library.
    """
    kind, a, b = x.type, f.unary("fabs", x), f.unary("fabs", y)
    q, near = f.unary("trunc", a / b), f.compare("lt", a, b)
    rest = f.fma(-q, b, a)
    rest = f.select(near, a, f.select(f.compare("lt", rest, 0.0), rest + b, rest))
    usual = near | f.compare("lt", q, _WHOLE[kind.name])
    rest = f.call(f"llvm.copysign.{kind.mangled}", kind, rest, x)
    if not kind.lanes:
        with f.loop(0, f.cast("zext", ~usual, I64), 1, [rest]) as at:
            at.carry(_library_fmod(f, x, y))
        return at.results[0]
    count = f.select(f.reduce(~usual, lambda a, b: a | b), f.constant(I64, kind.lanes), 0)
    with f.loop(0, count, 1, [rest]) as at:
        exact = _library_fmod(f, f.extract(x, at.index), f.extract(y, at.index))
        item = f.select(f.extract(usual, at.index), f.extract(at.values[0], at.index), exact)
        at.carry(f.insert(at.values[0], item, at.index))
    return at.results[0]


def _library_fmod(f: Function, x: Value, y: Value) -> Value:
    return f.call("fmodf" if x.type == F32 else "fmod", x.type, x, y)


def _float_mod(f: Function, x: Value, y: Value) -> Value:
    """The remainder with the divisor's sign, a zero too, as NumPy's npy_divmod computes it."""
    rest = _float_fmod(f, x, y)
    off = f.compare("ne", rest, 0.0) & (f.compare("lt", rest, 0.0) ^ f.compare("lt", y, 0.0))
    zero = f.call(f"llvm.copysign.{x.type.mangled}", x.type, rest, y)
    return f.select(off, rest + y, f.select(f.compare("eq", rest, 0.0), zero, rest))


def _float_floordiv(f: Function, x: Value, y: Value) -> Value:
    rest = _float_fmod(f, x, y)
    off = f.compare("ne", rest, 0.0) & (f.compare("lt", rest, 0.0) ^ f.compare("lt", y, 0.0))
    q = (x - rest) / y
    q = f.select(off, q - 1.0, q)
    down = f.unary("floor", q)
    down = f.select(f.compare("gt", q - down, 0.5), down + 1.0, down)
    return f.select(f.compare("eq", y, 0.0), x / y, down)


FLOAT_DIVISION: dict[str, Callable[[Function, Value, Value], Value]] = {
    "mod": _float_mod, "floordiv": _float_floordiv,
    "fmod": _float_fmod,
    "truncdiv": lambda f, x, y: f.unary("trunc", x / y)}


def _shift(name: str) -> Emit:
    """Shifts by the width or more give 0, or the sign of a negative number."""
    def emit(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
        x, y = a
        most = x.type.bits - 1
        inside = f.compare("ule", y, most)
        if name == "shift_right" and dtype.sort == "int":
            return f.binary("ashr", x, f.select(inside, y, most))
        out = f.binary("shl" if name == "shift_left" else "lshr", x, f.select(inside, y, 0))
        return f.select(inside, out, 0)

    return emit


def _sign(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
    x = a[0]
    above = f.compare("ugt" if dtype.sort == "uint" else "gt", x, 0)
    if dtype.sort == "uint":
        return f.select(above, f.constant(x.type, 1), f.constant(x.type, 0))
    out = f.select(f.compare("lt", x, 0), f.constant(x.type, -1), x if dtype.sort == "float"
                   else f.constant(x.type, 0))
    return f.select(above, f.constant(x.type, 1), out)


def _abs(f: Function, dtype: DType, a: Sequence[Value]) -> Value:
    if dtype.sort == "float":
        return f.unary("fabs", a[0])
    return a[0] if dtype.sort == "uint" else f.select(f.compare("lt", a[0], 0), -a[0], a[0])


def _rounding(name: str) -> Emit:
    return lambda f, _, a: f.unary(name, a[0])


def _plain(compute: Callable[[Sequence[Value]], Value]) -> Emit:
    """What neither the dtype nor the builder matters to."""
    return lambda _f, _dtype, a: compute(a)


def _fma(f: Function, _: DType, a: Sequence[Value]) -> Value:
    return f.fma(*[_in_memory(f, x) for x in a])


def _in_memory(f: Function, x: Value) -> Value:
    """A constant that a fused step reads from memory, where AVX2 has too few registers for all.

    LLVM would broadcast it before each use; a whole vector is an operand of the instruction. The
    data are not called constant, or LLVM would see through them.
    """
    target = f.module.target
    small = target.is_x86 and target.vector_bytes == 32
    if not (small and x.name.startswith("splat (") and x.type.lanes * x.type.bits == 256):
        return x
    name = f"each_{x.type.mangled}_{x.name[7:-1].split()[1]}"
    f.module.data(name, f"internal global {x.type} {x.name}, align 32")
    return f.emit(x.type, f"load {x.type}, ptr @{name}, align 32, !invariant.load !{{}}")


PRIMITIVES: dict[str, Emit] = {
    **{n: _plain(c) for n, c in (
        ("add", lambda a: a[0] + a[1]), ("sub", lambda a: a[0] - a[1]),
        ("mul", lambda a: a[0] * a[1]), ("div", lambda a: a[0] / a[1]), ("neg", lambda a: -a[0]),
        ("bitwise_and", lambda a: a[0] & a[1]), ("bitwise_or", lambda a: a[0] | a[1]),
        ("bitwise_xor", lambda a: a[0] ^ a[1]), ("bitwise_not", lambda a: ~a[0]))},
    "fma": _fma,
    "abs": _abs, "sign": _sign, "max": _extreme("gt"), "min": _extreme("lt"),
    **{n: _order(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{n: _divide(n) for n in ("floordiv", "truncdiv", "mod", "fmod")},
    **{n: _rounding(v) for n, v in (("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"),
                                    ("round", "rint"), ("sqrt", "sqrt"))},
    **{n: _shift(n) for n in ("shift_left", "shift_right")},
    "where": lambda f, _, a: f.select(a[0], a[1], a[2]),
    "rarely": lambda f, _, a: f.select(a[0], a[2], a[1])}
"""Primitives with instructions of their own, given the dtype of their last operand."""
