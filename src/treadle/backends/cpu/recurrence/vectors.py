"""Small vector code that the templates of recurrences share."""

from __future__ import annotations

from collections.abc import Callable

from ....codegen.llvm.scalars import REGISTER, primitive
from ....codegen.llvm.text import F32, Function, Index, Type, Value
from ....declare import m
from ....declare.scalar import Scalar, fold, var
from ....ir.types import F32 as REAL
from ....loops.functions import open_functions


def applied(f: Function, body: Callable[[Scalar], Scalar], x: Value) -> Value:
    """A function of one f32 operand in every lane."""
    def leaf(e: Scalar) -> Value:
        if e.op == "var":
            return x
        assert isinstance(e.value, int | float)
        return f.constant(REGISTER[e.dtype.name].vector(x.type.lanes), e.value)

    return fold(open_functions([body(var(0, REAL))]), leaf,
                lambda e, args: primitive(f, e, args))[0]


def exp(f: Function, x: Value) -> Value:
    """E to the power of f32 lanes."""
    return applied(f, m.exp, x)


def silu(f: Function, x: Value) -> Value:
    """x / (1 + exp(-x))."""
    return applied(f, lambda v: v / (m.exp(-v) + 1.0), x)


def multiply_add(f: Function, a: Value, b: Value, c: Value) -> Value:
    """`a * b + c`, fused where the target has an instruction for it."""
    return f.fma(a, b, c) if f.target.has_fma else a * b + c


def load(f: Function, kind: Type, lanes: int, pointer: Value, at: Index,
         mask: Value | None = None) -> Value:
    """Lanes in memory of some float type as f32; those outside a mask are 0."""
    if mask is None:
        return f.convert(f.load(kind.vector(lanes), pointer, at), F32)
    place = f.address(pointer, at, kind)
    return f.convert(f.masked_load(kind.vector(lanes), place, mask), F32)


def store(f: Function, value: Value, kind: Type, pointer: Value, at: Index,
          mask: Value | None = None) -> None:
    """f32 lanes to memory of some float type."""
    value = f.convert(value, kind)
    if mask is None:
        f.store(value, pointer, at)
    else:
        f.masked_store(value, f.address(pointer, at, kind), mask)


def total(f: Function, x: Value) -> Value:
    """The sum of all lanes."""
    return f.reduce(x, lambda a, b: a + b)


def broadcast(f: Function, pointer: Value, at: Index, lanes: int) -> Value:
    """One f32 in every lane."""
    return f.splat(f.load(F32, pointer, at), lanes)
