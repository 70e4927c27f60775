"""Random typed expressions: text, simplification, derivatives and typing rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.declare import m
from treadle.declare.arrays import np_dtype
from treadle.declare.derive import derivative, simplify
from treadle.declare.scalar import (
    PRIMS,
    Scalar,
    arity,
    bitcast_to,
    cast_to,
    const,
    evaluate,
    make,
    substitute,
    var,
    walk,
)
from treadle.declare.scalar_text import parse, text
from treadle.errors import DeclarationError, OperatorError, ParseError
from treadle.ir.types import BOOL, DTYPES, F32, F64, I32, DType
from treadle.ops.activations import sigmoid, softplus

TYPES = tuple(DTYPES[n] for n in ("bool", "i8", "u8", "i32", "i64", "f16", "f32", "f64"))
FLOATS = tuple(d for d in TYPES if d.sort == "float")
SAME_WIDTH = {d: tuple(e for e in TYPES if e.bits == d.bits) for d in TYPES}
SORTS = {
    "num": ("int", "uint", "float"), "real": ("int", "uint", "float"),
    "ordered": ("bool", "int", "uint", "float"), "analytic": ("float",), "float": ("float",),
    "bits": ("bool", "int", "uint"), "shift": ("int", "uint")}
ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_DATA = [0.0, -0.0, 1.0, -1.0, -2.5, 0.3, 7.0, np.inf, -np.inf, np.nan]


def data(dtype: DType) -> npt.NDArray[Any]:
    """Ten hostile values of a dtype."""
    if dtype is BOOL:
        return np.array([True, False] * 5)
    if dtype.sort == "float":
        return np.array(FLOAT_DATA, np_dtype(dtype))
    info = np.iinfo(np_dtype(dtype))
    few = [0, 1, 2, 3, 5, 7, 100, info.max, info.min, info.max - 1]
    return np.array(few, np_dtype(dtype))


ARRAYS = [data(d) for d in TYPES]


def constants(dtype: DType) -> st.SearchStrategy[Scalar]:
    """Constants of a dtype, its limits included."""
    if dtype is BOOL:
        return st.booleans().map(lambda v: const(v, dtype))
    if dtype.sort == "float":
        plain = st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0, float("inf"), float("nan")])
        wide = st.floats(width={16: 16, 32: 32}.get(dtype.bits, 64))
        return st.one_of(plain, wide).map(lambda v: const(v, dtype))
    info = np.iinfo(np_dtype(dtype))
    return st.integers(int(info.min), int(info.max)).map(lambda v: const(v, dtype))


@st.composite
def expressions(draw: st.DrawFn, dtype: DType, depth: int, types: Sequence[DType] = TYPES
                ) -> Scalar:
    """An expression of a dtype over one variable of each of `types`."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(constants(dtype), st.just(var(TYPES.index(dtype), dtype))))
    below = depth - 1

    def sub(of: DType) -> Scalar:
        return draw(expressions(of, below, types))

    forms = ["prim", "prim", "prim", "where", "cast", "bitcast"]
    match draw(st.sampled_from([*forms, "order"] if dtype is BOOL else forms)):
        case "where":
            return m.where(sub(BOOL), sub(dtype), sub(dtype))
        case "cast":
            return cast_to(sub(draw(st.sampled_from(types))), dtype)
        case "bitcast":
            same = [d for d in SAME_WIDTH[dtype] if d in types]
            return bitcast_to(sub(draw(st.sampled_from(same or [dtype]))), dtype)
        case "order":
            of = draw(st.sampled_from(types))
            return make(draw(st.sampled_from(ORDER)), sub(of), sub(of))
        case _:
            fits = [n for n, p in PRIMS.items() if dtype.sort in SORTS.get(p.rule, ())]
            name = draw(st.sampled_from([*fits, *(["sigmoid"] if dtype.sort == "float" else [])]))
            return make(name, *(sub(dtype) for _ in range(PRIMS[name].arity)))


ANY = st.sampled_from(TYPES).flatmap(lambda d: expressions(d, 3))
SMOOTH = st.sampled_from(FLOATS).flatmap(lambda d: expressions(d, 2, (*FLOATS, BOOL)))


@settings(max_examples=200, deadline=None)
@given(ANY)
def test_text_round_trip_is_identity(e: Scalar) -> None:
    assert parse(text(e), TYPES) == (e,)


@settings(max_examples=100, deadline=None)
@given(ANY, ANY)
def test_text_of_several_outputs(a: Scalar, b: Scalar) -> None:
    assert parse(text(a, b), TYPES) == (a, b)


@settings(max_examples=300, deadline=None)
@given(ANY)
def test_simplify_keeps_every_bit(e: Scalar) -> None:
    short = simplify(e)
    assert short.dtype is e.dtype
    a, b = (np.broadcast_to(evaluate([s], ARRAYS)[0], (10,)) for s in (e, short))
    np.testing.assert_array_equal(a, b)
    if e.dtype.sort == "float":
        real = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a[real]), np.signbit(b[real]))


@settings(max_examples=200, deadline=None)
@given(ANY)
def test_values_have_the_dtype_of_their_node(e: Scalar) -> None:
    for node, value in zip(nodes := [*walk(e)], evaluate(nodes, ARRAYS), strict=True):
        assert value.dtype == np_dtype(node.dtype), node


@settings(max_examples=150, deadline=None)
@given(SMOOTH)
def test_derivatives_close_over_the_primitives(e: Scalar) -> None:
    for i, dtype in enumerate(TYPES):
        if dtype not in FLOATS:
            continue
        first = derivative(e, i)
        second = derivative(first, i)
        assert first.dtype is second.dtype is e.dtype
        assert parse(text(second), TYPES) == (second,)
        evaluate([first, second], ARRAYS)


@settings(max_examples=100, deadline=None)
@given(ANY, st.data())
def test_substitution_is_composition(e: Scalar, more: st.DataObject) -> None:
    inner = [more.draw(expressions(d, 1)) for d in TYPES]
    whole = evaluate([substitute(e, inner)], ARRAYS)[0]
    steps = [np.broadcast_to(a, (10,)) for a in evaluate(inner, ARRAYS)]
    np.testing.assert_array_equal(np.broadcast_to(whole, (10,)),
                                  np.broadcast_to(evaluate([e], steps)[0], (10,)))


def test_equal_expressions_are_one_object() -> None:
    x = var(0, F32)
    assert x + 1.0 is var(0, F32) + 1.0
    assert const(0.0, F32) is not const(-0.0, F32)
    assert const(float("nan"), F32) is const(float("nan"), F32)
    assert const(1, F32) is not const(1, F64)
    assert arity(x * var(3, F32)) == 4


def test_sharing_keeps_the_text_short() -> None:
    e = var(0, F32)
    for _ in range(200):
        e = e * e + e
    assert len(text(e)) < 20_000
    assert parse(text(e), (F32,)) == (e,)


@pytest.mark.parametrize(("before", "after"), [
    ("mul(x0,1.0)", "x0"), ("mul(1.0,x0)", "x0"), ("sub(x0,0.0)", "x0"), ("div(x0,1.0)", "x0"),
    ("neg(neg(x0))", "x0"), ("where(gt(x0,0.0),x0,x0)", "x0"), ("add(2.0,3.0)", "5.0"),
    ("where(gt(2.0,1.0),x0,neg(x0))", "x0"), ("f32(f64(x0))", "x0"),
    ("add(x0,0.0)", "add(x0,0.0)"), ("mul(x0,0.0)", "mul(x0,0.0)"),
    ("sub(x0,-0.0)", "sub(x0,-0.0)"),
    ("f32(f16(x0))", "f32(f16(x0))"), ("div(1.0,0.0)", "div(1.0,0.0)"),
    ("eq(x0,x0)", "eq(x0,x0)")])
def test_identities(before: str, after: str) -> None:
    assert text(simplify(parse(before, (F32,))[0])) == after


def test_a_complex_product_by_one_stays() -> None:
    e = parse("mul(x0,c64:1.0+0.0)", (DTYPES["c64"],))[0]
    assert simplify(e) is e


@pytest.mark.parametrize("source", [
    "", "add(x0", "add(x0,x1))", "nothing(x0)", "x7", "add(x0,1", "1.0.0", "t0=x0", "f32:x",
    "where(x0,x0,x0)", "i32:0.5", "u8:256", "add(x0,i32:1)", "add(1.0)", ";", "x0;", "=", "add",
    "bits_f64(x0)", "(" * 300 + "x0"])
def test_bad_text_is_a_parse_error(source: str) -> None:
    with pytest.raises(ParseError, match="not a scalar expression"):
        parse(source, (F32,))


def test_typing_errors_say_what_to_do() -> None:
    x, i = var(0, F32), var(1, I32)
    with pytest.raises(OperatorError, match="add meets dtypes f32, i32"):
        make("add", x, i)
    with pytest.raises(OperatorError, match="exp needs float or complex operands, got i32"):
        make("exp", i)
    with pytest.raises(OperatorError, match=r"the constant 0.5 meets a i32 tensor"):
        _ = i * 0.5
    with pytest.raises(OperatorError, match="where needs a bool condition, got f32"):
        m.where(x, x, x)
    with pytest.raises(DeclarationError, match="has no dtype"):
        make("add", 1.0, 2.0)
    with pytest.raises(OperatorError, match="differ in width"):
        bitcast_to(x, F64)
    with pytest.raises(OperatorError, match="branch"):
        bool(x > 0)


def test_derived_primitives_survive_and_open() -> None:
    x = var(0, F64)
    assert text(sigmoid(x) * x) == "mul(sigmoid(x0),x0)"
    assert text(derivative(softplus(x), 0)) == "sigmoid(x0)"
    assert text(derivative(sigmoid(x), 0)) == "t0=sigmoid(x0);mul(t0,sub(1.0,t0))".replace(
        "1.0", "f64:1.0")


def test_python_operators() -> None:
    x, i = var(0, F32), var(0, I32)
    assert text(2.0**x, x**2.0, 1.0 / x, 3.0 - x, -x) == (
        "pow(2.0,x0);pow(x0,2.0);div(1.0,x0);sub(3.0,x0);neg(x0)")
    assert text(7 // i, 7 % i, i // 7, i % 7) == (
        "floordiv(i32:7,x0);mod(i32:7,x0);floordiv(x0,i32:7);mod(x0,i32:7)")
    assert text(i & 1, i | 1, i ^ 1, ~i, i << 2, i >> 2) == (
        "bitwise_and(x0,i32:1);bitwise_or(x0,i32:1);bitwise_xor(x0,i32:1);bitwise_not(x0);"
        "shift_left(x0,i32:2);shift_right(x0,i32:2)")
    assert text(x < 1.0, x <= 1.0, x > 1.0, x >= 1.0) == (
        "lt(x0,1.0);le(x0,1.0);gt(x0,1.0);ge(x0,1.0)")
