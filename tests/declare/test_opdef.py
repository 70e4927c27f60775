"""Calling operators: promotion, attributes, variadic operands, regions, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from treadle.declare.arrays import Array, np_dtype, type_of
from treadle.declare.opdef import infer
from treadle.errors import OperatorError
from treadle.ir.graph import Builder, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import DTYPES, F16, F32, DType, parse_type, promote
from treadle.ir.verify import verify
from treadle.ops.activations import silu, softcap
from treadle.ops.arithmetic import add
from treadle.ops.compare import where
from treadle.ops.contract import matmul
from treadle.ops.control import if_, scan
from treadle.ops.convert import cast_
from treadle.ops.library import REGISTRY
from treadle.ops.movement import concat, reshape
from treadle.ops.reduce import sum_
from treadle.ops.scan1d import softmax

F = parse_type("f32[n,4]")
PROMOTED = ["bool", "u8", "i8", "i32", "i64", "u32", "f16", "bf16", "f32", "f64", "c64",
            "f8e5m2"]
MIXED = [d for d in PROMOTED if d != "bool"]


@pytest.mark.parametrize("a", MIXED)
@pytest.mark.parametrize("b", PROMOTED)
def test_operands_meet_in_one_dtype(a: str, b: str) -> None:
    """On values and on arrays alike."""
    want = promote(DTYPES[a], DTYPES[b])
    g = trace(lambda x, y: x + y, parse_type(f"{a}[2]"), parse_type(f"{b}[2]"))
    verify(g, infer)
    assert g.outputs[0].type.dtype is want
    one = add(*(np.ones(2, np_dtype(DTYPES[d])) for d in (a, b)))
    assert type_of(one).dtype is want
    np.testing.assert_array_equal(one.astype(np.complex64), [2, 2])


def test_kept_operands_keep_their_dtype() -> None:
    g = trace(lambda c, x, y: where(c, x, y), *map(parse_type, ("bool[2]", "f16[2]", "f32[2]")))
    node = g.outputs[0].producer
    assert node is not None
    assert [v.dtype.name for v in node.inputs] == ["bool", "f32", "f32"]
    assert [n.op for n in g.nodes] == ["cast", "where"]


def test_pairs_that_do_not_mix_are_errors_in_both_worlds() -> None:
    with pytest.raises(OperatorError, match="u64 and i64 have no common integer type"):
        trace(lambda x, y: x + y, parse_type("u64[2]"), parse_type("i64[2]"))
    with pytest.raises(OperatorError, match="u64 and i64 have no common integer type"):
        add(np.ones(2, "u8"), np.ones(2, "i8"))


@pytest.mark.parametrize(("number", "dtype", "want"), [
    (2, "i8", "i8"), (2, "f16", "f16"), (0.5, "bf16", "bf16"), (1, "f64", "f64")])
def test_numbers_take_the_dtype_beside_them(number: float, dtype: str, want: str) -> None:
    g = trace(lambda x: number + x, parse_type(f"{dtype}[2]"))
    assert g.outputs[0].dtype.name == want
    assert type_of(add(np.ones(2, np_dtype(DTYPES[dtype])), number)).dtype.name == want


@pytest.mark.parametrize(("number", "dtype"), [(0.5, "i32"), (300, "u8"), (-1, "u8")])
def test_numbers_that_do_not_fit_are_errors(number: float, dtype: str) -> None:
    with pytest.raises(OperatorError):
        trace(lambda x: x + number, parse_type(f"{dtype}[2]"))
    with pytest.raises(OperatorError):
        add(np.ones(2, np_dtype(DTYPES[dtype])), number)


MISUSE: dict[str, tuple[Callable[[], object], str]] = {
    "unknown attribute": (lambda: trace(lambda x: REGISTRY["softcap"](x, cup=1.0), F),
                          "softcap has no attribute 'cup'\n  help: it takes cap"),
    "unknown, eager": (lambda: REGISTRY["softcap"](np.ones(2, "f4"), cup=1.0),
                       "softcap has no attribute 'cup'\n  help: it takes cap"),
    "missing": (lambda: trace(lambda x: REGISTRY["softcap"](x), F),
                "softcap: attribute 'cap' is missing"),
    "missing, eager": (lambda: REGISTRY["softcap"](np.ones(2, "f4")),
                       "softcap: attribute 'cap' is missing"),
    "wrong type": (lambda: softcap(np.ones(2, "f4"), cap=cast(float, "x")),
                   "softcap: attribute cap='x' is not float"),
    "operands": (lambda: trace(lambda x: REGISTRY["add"](x), F),
                 "add takes 2 operands (a, b), got 1"),
    "operands, eager": (lambda: REGISTRY["add"](np.ones(2, "f4")),
                        "add takes 2 operands (a, b), got 1"),
    "too many, eager": (lambda: REGISTRY["silu"](np.ones(2, "f4"), np.ones(2, "f4")),
                        "silu takes 1 operands (x), got 2"),
    "variadic": (lambda: trace(lambda x: REGISTRY["concat"](x, x, axis=0), F),
                 "concat takes a list as its last operand\n  help: write concat([a, b], ...)"),
    "variadic, eager": (lambda: REGISTRY["concat"](np.ones(2), axis=0),
                        "concat takes a list as its last operand"),
    "array meets value": (lambda: trace(lambda x: x + cast(Value, np.ones(4)), F),
                          "add: a NumPy array meets a graph value\n  help: record it with"),
    "text": (lambda: trace(lambda x: REGISTRY["add"](x, "1"), F), "add: '1' is no operand"),
    "text, eager": (lambda: REGISTRY["add"](np.ones(2), "1"), "add: '1' is no operand"),
    "numbers": (lambda: REGISTRY["add"](1, 2), "add: 1 is no operand\n  help: operands are NumPy "
                "arrays, and numbers beside an array"),
    "none": (lambda: trace(lambda x: REGISTRY["add"](x, None), F), "add: None is no operand"),
    "branch": (lambda: trace(lambda x: x if x > 0 else -x, F),
               "the value is not known while tracing, so Python cannot branch on it\n  help: "
               "select with where(), or branch on attributes and shapes"),
    "no builder": (lambda: silu(Value(F)), "operators on graph values need an open builder\n"
                   "  help: call them inside trace(fn, ...) or `with Builder(...)`"),
    "region": (lambda: trace(lambda x: REGISTRY["if"](x, then=lambda: x), parse_type("bool[]")),
               "if: the region 'orelse' is missing"),
    "region no closure": (lambda: trace(lambda x: REGISTRY["if"](x, then=x, orelse=x),
                                        parse_type("bool[]")),
                          "if: the region 'then' is a closure, got %x: bool[]"),
    "inner sizes": (lambda: trace(matmul, F, parse_type("f32[8,3]")),
                    "matmul(f32[n,4], f32[8,3]): "),
    "condition": (lambda: trace(where, F, F, F), "where(f32[n,4], f32[n,4], f32[n,4]): where "
                                                 "needs a bool condition, got f32"),
    "sort": (lambda: trace(silu, parse_type("i32[4]")), "silu(i32[4]): "),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_explained(name: str) -> None:
    build, want = MISUSE[name]
    with pytest.raises(OperatorError) as e:
        build()
    assert str(e.value).startswith(want), str(e.value)


def test_errors_name_operator_operands_and_source() -> None:
    with pytest.raises(OperatorError) as e:
        trace(add, F, parse_type("f32[m,4]"))
    assert str(e.value) == (
        "add(f32[n,4], f32[m,4]): [n,4] and [m,4] do not broadcast: n against m on axis -2\n"
        f"  at test_opdef.py:{_line_of('trace(add, F, parse')}\n"
        "  help: reshape or expand one operand; equal symbols are equal sizes")


def _line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as f:
        return next(i for i, line in enumerate(f, 1) if text in line)


def test_an_error_inside_a_composite_names_the_inner_operator() -> None:
    with pytest.raises(OperatorError) as e:
        trace(lambda x: softmax(x, axis=3), F)
    assert str(e.value).startswith("softmax(f32[n,4]): ")


def test_optional_operands() -> None:
    clip = REGISTRY["clip"]
    g = trace(lambda x, hi: clip(x, hi=hi), F, parse_type("f32[]"))
    node = g.nodes[-1]
    assert node.keys == ("hi",) and len(node.inputs) == 2
    assert g.nodes[-1].operands()[1] == {"hi": g.inputs[1]}
    np.testing.assert_array_equal(
        cast(Array, clip(np.array([1.0, 3.0], "f4"), hi=np.float32(2.0))), [1, 2])
    none = trace(lambda x: clip(x, lo=None), F).nodes[-1]
    assert none.keys == ()


def test_variadic_operands_are_grouped_and_spread() -> None:
    g = trace(lambda x: concat([x, x, x], axis=0), F)
    assert len(g.nodes[-1].inputs) == 3
    assert str(g.outputs[0].type) == "f32[3*n,4]"
    assert concat([np.ones(2, "f4")] * 2, axis=0).shape == (4,)


def test_regions_are_traced_with_their_captures() -> None:
    def model(xs: Value, w: Value) -> tuple[Value, ...]:
        def body(c: Value, x: Value) -> tuple[Value, Value]:
            return silu(c * w) + x, c

        return cast("tuple[Value, ...]", scan([sum_(xs, axes=(0,)), xs], carried=1, body=body))

    g = trace(model, parse_type("f32[t,4]"), parse_type("f32[4]"))
    body = g.nodes[-1].regions["body"]
    assert body.captures == (g.inputs[1],) and len(body.inputs) == 2
    again = parse_graph(str(g))
    verify(again, infer)
    assert str(again) == str(g)


def test_branches_capture() -> None:
    g = trace(lambda p, x: cast(Value, if_(p, then=lambda: silu(x), orelse=lambda: x * 2.0)),
              parse_type("bool[]"), F, name="choose")
    regions = g.nodes[-1].regions
    assert list(regions) == ["then", "orelse"]
    assert all(r.captures == (g.inputs[1],) for r in regions.values())


def test_a_builder_can_open_composites() -> None:
    with Builder("g", lambda node: node.op == "softmax") as b:
        x = b.input("x", F)
        softmax(x, axis=1)
    assert "softmax" not in {n.op for n in b.graph.nodes} and len(b.graph.nodes) > 2


def test_halves_round_once() -> None:
    x = np.float16([60000, 60000])
    assert add(x, x).dtype == np.float16 and np.isinf(add(x, x)).all()
    scalars = REGISTRY["silu"].scalars({}, (F16,))
    assert scalars[0].op == "cast" and scalars[0].dtype is F16
    assert scalars[0].args[0].dtype is F32


@pytest.mark.parametrize("dtype", [F16, F32, DTYPES["i4"], DTYPES["u64"]], ids=str)
def test_bodies_and_types_agree_on_casts(dtype: DType) -> None:
    out = cast_(np.array([1.0, 2.0], "f4"), dtype=dtype)
    assert type_of(out).dtype is dtype


def test_symbolic_attributes_are_read_from_the_run() -> None:
    n = F.shape[0]
    g = trace(lambda x: reshape(x, shape=(4 * n,)), F)
    assert g.nodes[-1].attrs["shape"] == (4 * n,)
    verify(g, infer)
