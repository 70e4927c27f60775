"""Typed scalar expressions: what an elementwise body says, as a hash-consed DAG.

Every node has a dtype from the moment it is made. A Python number takes the dtype of the operand
beside it, so nothing untyped is ever folded, differentiated or printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar, cast, final
from weakref import WeakValueDictionary

import numpy as np

from ..errors import DeclarationError, OperatorError
from ..ir.arithmetic import Arithmetic
from ..ir.types import BOOL, DType
from ..records import dataclass
from . import special
from .arrays import Array, np_dtype

Num: TypeAlias = "Scalar | float"
AttrItems: TypeAlias = tuple[tuple[str, object], ...]
R = TypeVar("R")


@final
class Scalar(Arithmetic["Scalar"]):
    """A variable, a constant, or a primitive of other expressions. Equal ones are one object.

    `value` is a variable's index, a constant's number, or the attributes of a derived primitive.
    """

    __slots__ = ("args", "dtype", "op", "value")
    op: str
    args: tuple[Scalar, ...]
    dtype: DType
    value: object

    def _apply(self, op: str, *args: object) -> Scalar:
        return make(op, *cast("tuple[Num, ...]", args))

    def __repr__(self) -> str:
        from .scalar_text import text

        return text(self)


_pool: WeakValueDictionary[object, Scalar] = WeakValueDictionary()


def intern(op: str, dtype: DType, args: tuple[Scalar, ...] = (), value: object = None) -> Scalar:
    """The one expression of this description; reprs keep 0.0, -0.0 and NaN apart."""
    key = (op, dtype, args, repr(value))
    if (node := _pool.get(key)) is None:
        node = object.__new__(Scalar)
        node.op, node.dtype, node.args, node.value = op, dtype, args, value
        node = _pool.setdefault(key, node)
    return node


def var(index: int, dtype: DType) -> Scalar:
    """Operand number `index`."""
    return intern("var", dtype, (), index)


def const(value: complex, dtype: DType) -> Scalar:
    """A constant of a dtype; a fraction in an integer type is an error."""
    if dtype.sort == "bool":
        return intern("const", dtype, (), bool(value))
    if dtype.sort in ("int", "uint"):
        if not isinstance(value, int):
            raise OperatorError(f"the constant {value!r} meets a {dtype} tensor",
                                hint="cast the tensor to a floating dtype")
        bits = dtype.bits
        low = -(2 ** (bits - 1)) if dtype.sort == "int" else 0
        if not low <= value < low + 2**bits:
            raise OperatorError(f"the constant {value} does not fit {dtype}")
        return intern("const", dtype, (), int(value))
    if dtype.sort == "complex":
        return intern("const", dtype, (), complex(value))
    if dtype.sort != "float" or isinstance(value, complex):
        raise OperatorError(f"the constant {value!r} meets a {dtype} tensor")
    return intern("const", dtype, (), float(value))


@dataclass(frozen=True, slots=True)
class Prim:
    """A scalar primitive: how it types, NumPy's function, or the body it is derived from.

    Operands are of one dtype whose sorts the rule names in `_SORTS`. `compare` and `order` give
    bool, `where` selects by a bool, `cast` and `bitcast` name their dtype.
    """

    rule: str
    numpy: Callable[..., Array] | None = None
    body: Callable[..., Scalar] | None = None
    derivative: Callable[..., Sequence[Num]] | None = None
    arity: int = 1


PRIMS: dict[str, Prim] = {
    **{n: Prim("num", f, arity=2) for n, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("pow", special.power))},
    **{n: Prim("real", f, arity=2) for n, f in (
        ("floordiv", np.floor_divide), ("truncdiv", special.truncdiv), ("mod", np.remainder),
        ("fmod", np.fmod))},
    **{n: Prim("ordered", f, arity=2) for n, f in (("max", np.maximum), ("min", np.minimum))},
    "neg": Prim("num", np.negative),
    **{n: Prim("real", f) for n, f in (("abs", np.abs), ("sign", np.sign))},
    "div": Prim("analytic", np.divide, arity=2),
    "atan2": Prim("float", np.arctan2, arity=2),
    **{n: Prim("analytic", f) for n, f in (
        ("exp", np.exp), ("expm1", np.expm1), ("log", np.log),
        ("log1p", np.log1p), ("sqrt", np.sqrt), ("sin", np.sin), ("cos", np.cos),
        ("tan", np.tan), ("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan),
        ("sinh", np.sinh), ("cosh", np.cosh), ("tanh", np.tanh), ("asinh", np.arcsinh),
        ("acosh", np.arccosh), ("atanh", np.arctanh))},
    **{n: Prim("float", f) for n, f in (
        ("floor", np.floor), ("ceil", np.ceil), ("round", np.rint), ("trunc", np.trunc),
        ("erf", special.erf))},
    **{n: Prim("compare", f, arity=2) for n, f in (("eq", np.equal), ("ne", np.not_equal))},
    **{n: Prim("order", f, arity=2) for n, f in (
        ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal))},
    **{n: Prim("bits", f, arity=2) for n, f in (
        ("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor))},
    "bitwise_not": Prim("bits", np.invert),
    **{n: Prim("shift", f, arity=2) for n, f in (
        ("shift_left", np.left_shift), ("shift_right", np.right_shift))},
    "where": Prim("where", np.where, arity=3),
    "cast": Prim("cast"),
    "bitcast": Prim("bitcast"),
}
_SORTS = {
    "num": ("int", "uint", "float", "complex"), "real": ("int", "uint", "float"),
    "ordered": ("bool", "int", "uint", "float"), "order": ("bool", "int", "uint", "float"),
    "analytic": ("float", "complex"), "float": ("float",), "bits": ("bool", "int", "uint"),
    "shift": ("int", "uint")}


def make(op: str, *args: Num, value: object = None) -> Scalar:
    """The primitive `op` of `args`; numbers take the dtype of the operands beside them."""
    if (prim := PRIMS.get(op)) is None:
        raise DeclarationError(f"'{op}' is no scalar primitive", hint=f"known: {', '.join(PRIMS)}")
    if len(args) != prim.arity:
        raise OperatorError(f"{op} takes {prim.arity} operands, got {len(args)}")
    first = 1 if prim.rule == "where" else 0
    typed = [a.dtype for a in args[first:] if isinstance(a, Scalar)]
    if not typed:
        raise DeclarationError(f"{op} of numbers alone has no dtype",
                               hint="make one a constant: m.like(x, 1.0)")
    full = tuple([a if isinstance(a, Scalar) else const(a, typed[0]) for a in args])
    if prim.body is not None:
        return intern(op, prim.body(*full, **dict(cast(AttrItems, value or ()))).dtype, full, value)
    return intern(op, _result(op, prim.rule, full, first), full, value)


def _result(op: str, rule: str, args: tuple[Scalar, ...], first: int) -> DType:
    dtype = args[first].dtype
    if any(a.dtype is not dtype for a in args[first:]):
        raise OperatorError(f"{op} meets dtypes {', '.join(a.dtype.name for a in args[first:])}",
                            hint="cast one of them")
    if dtype.sort not in _SORTS.get(rule, (dtype.sort,)) or dtype.sort in ("block", "host"):
        raise OperatorError(f"{op} needs {' or '.join(_SORTS.get(rule, ('numbers',)))} operands, "
                            f"got {dtype}", hint="cast them, for example with cast(x, dtype=F32)")
    if first and args[0].dtype is not BOOL:
        raise OperatorError(f"{op} needs a bool condition, got {args[0].dtype}")
    return BOOL if rule in ("compare", "order") else dtype


def cast_to(x: Scalar, dtype: DType) -> Scalar:
    """`x` in `dtype`."""
    return x if x.dtype is dtype else intern("cast", dtype, (x,))


def bitcast_to(x: Scalar, dtype: DType) -> Scalar:
    """The bits of `x` read as `dtype`, which must be as wide."""
    if x.dtype.bits != dtype.bits:
        raise OperatorError(f"{x.dtype} and {dtype} differ in width")
    if {x.dtype.sort, dtype.sort} & {"string", "block", "host"}:
        raise OperatorError(f"the bits of {x.dtype} are not those of {dtype}")
    return x if x.dtype is dtype else intern("bitcast", dtype, (x,))


def walk(*roots: Scalar) -> Iterator[Scalar]:
    """Every expression under `roots`, operands first, each once."""
    if len(roots) == 1 and not roots[0].args:
        yield roots[0]
        return
    seen: set[Scalar] = set()
    stack = [*reversed(roots)]
    while stack:
        node = stack[-1]
        if node not in seen:
            if waiting := [a for a in node.args if a not in seen]:
                stack += reversed(waiting)
                continue
            seen.add(node)
            yield node
        stack.pop()


def fold(roots: Sequence[Scalar], leaf: Callable[[Scalar], R],
         op: Callable[[Scalar, tuple[R, ...]], R]) -> list[R]:
    """Evaluate the DAG in any algebra: the one interpreter behind every derivation."""
    out: dict[Scalar, R] = {}
    for node in walk(*roots):
        out[node] = op(node, tuple([out[a] for a in node.args])) if node.args else leaf(node)
    return [out[r] for r in roots]


def rebuild(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """`node` with other operands of the same dtypes."""
    return node if args == node.args else intern(node.op, node.dtype, args, node.value)


def substitute(root: Scalar, args: Sequence[Scalar]) -> Scalar:
    """`root` with operand i replaced: composition, that is, fusion."""
    return fold([root], lambda s: args[cast(int, s.value)] if s.op == "var" else s, rebuild)[0]


def expand(root: Scalar, native: Container[str],
           extra: Mapping[str, Callable[..., Scalar]] | None = None) -> Scalar:
    """Open every primitive outside `native`, by a body in `extra` or its own."""
    bodies = extra or {}

    def op(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        body = bodies.get(node.op) or PRIMS[node.op].body
        if node.op in native or body is None:
            return rebuild(node, args)
        attrs = dict(cast(AttrItems, node.value or ()))
        return expand(body(*args, **attrs), native, extra)

    return fold([root], lambda s: s, op)[0]


def evaluate(roots: Sequence[Scalar], args: Sequence[Array]) -> list[Array]:
    """NumPy values of `roots`; every operation runs in its node's dtype."""
    def leaf(s: Scalar) -> Array:
        if s.op == "var":
            return args[cast(int, s.value)]
        return np.asarray(s.value).astype(np_dtype(s.dtype))

    def op(s: Scalar, xs: tuple[Array, ...]) -> Array:
        if s.op == "cast":
            return special.cast(s.dtype, np.asarray(xs[0]))
        if s.op == "bitcast":
            return special.bitcast(s.dtype, np.asarray(xs[0]))
        fn = PRIMS[s.op].numpy
        assert fn is not None, s.op
        return np.asarray(fn(*xs))

    with np.errstate(all="ignore"):
        return fold([expand(r, ()) for r in roots], leaf, op)


def arity(*roots: Scalar) -> int:
    """One more than the highest operand index."""
    return max((cast(int, s.value) + 1 for s in walk(*roots) if s.op == "var"), default=0)


def is_const(s: Scalar, value: float) -> bool:
    """Whether `s` is the constant `value`, the sign of zero included."""
    return s.op == "const" and s.value == value and (
        not isinstance(s.value, float) or math.copysign(1, s.value) == math.copysign(1, value))
