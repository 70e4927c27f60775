"""What small values hold before the run: numbers and symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from treadle.declare.content import LIMIT, content, sizes_of
from treadle.ir.dims import Size, dmax, dmin, sym
from treadle.ir.graph import Builder, Value, trace
from treadle.ir.types import F32, I64, parse_type
from treadle.ops.arithmetic import floordiv, max_, min_, mod, neg, truncdiv
from treadle.ops.compare import eq, gt, where
from treadle.ops.convert import cast_
from treadle.ops.gather import gather
from treadle.ops.leaves import constant, full, shape_of, sizes, witness
from treadle.ops.library import REGISTRY
from treadle.ops.movement import concat, reshape, squeeze, unsqueeze
from treadle.ops.reduce import prod, sum_

N, M = sym("n"), sym("m")
X = parse_type("f32[n,m,8]")
Sizes = tuple[Size, ...] | None


def found(fn: Callable[[Value], Value], type_: object = X) -> Sizes:
    """`sizes_of` what `fn` makes of a value of shape [n, m, 8]."""
    out: list[Sizes] = []

    def model(x: Value) -> Value:
        y = fn(x)
        out.append(sizes_of(y))
        return y

    trace(model, parse_type(str(type_)))
    return out[0]


def at(x: Value, i: int) -> Value:
    """Shape -> Gather, as exporters write it."""
    return gather(shape_of(x), constant(value=np.array(i)), axis=0)


def vector(x: Value) -> Value:
    return unsqueeze(x, axes=(0,))


CASES: dict[str, tuple[Callable[[Value], Value], tuple[Size, ...]]] = {
    "shape": (shape_of, (N, M, 8)),
    "gather": (lambda x: at(x, 1), (M,)),
    "negative gather": (lambda x: at(x, -1), (8,)),
    "gather vector": (lambda x: gather(shape_of(x), constant(value=np.array([2, 0])), axis=0),
                      (8, N)),
    "slice": (lambda x: cast(Value, REGISTRY["slice"](
        shape_of(x), starts=(1,), ends=(3,), steps=(1,), axes=(0,))), (M, 8)),
    "concat": (lambda x: concat([vector(at(x, 0)), constant(value=np.array([-1])),
                                 vector(at(x, 1) * 2)], axis=0), (N, -1, 2 * M)),
    "sum": (lambda x: at(x, 0) + at(x, 1) - 1, (N + M - 1,)),
    "floor div": (lambda x: at(x, 0) // 2, (N // 2,)),
    "div chain": (lambda x: floordiv(at(x, 0) + 7, 8) * 8, ((N + 7) // 8 * 8,)),
    "trunc div": (lambda x: truncdiv(at(x, 0) * 6, 3), (2 * N,)),
    "mod": (lambda x: mod(at(x, 0), 4), (N - N // 4 * 4,)),
    "max": (lambda x: max_(at(x, 0), 1), (dmax(N, 1),)),
    "min": (lambda x: min_(at(x, 0), at(x, 1)), (dmin(M, N),)),
    "neg": (lambda x: neg(at(x, 0)), (-N,)),
    "cast to i32": (lambda x: cast_(shape_of(x), dtype=parse_type("i32[]").dtype), (N, M, 8)),
    "reshape": (lambda x: reshape(shape_of(x), shape=(3, 1)), (N, M, 8)),
    "squeeze": (lambda x: squeeze(vector(at(x, 0)), axes=(0,)), (N,)),
    "where decided": (lambda x: where(gt(at(x, 2), 4), at(x, 0), at(x, 1)), (N,)),
    "where by bounds": (lambda x: where(gt(at(x, 0) + 1, 0), at(x, 0), at(x, 1)), (N,)),
    "sizes": (lambda x: sizes(sizes=(N, 3)), (N, 3)),
    "full of a size": (lambda x: full(value=2 * N, shape=(2,), dtype=I64), (2 * N, 2 * N)),
    "numbers": (lambda x: constant(value=np.array([3, 4])) * 2 + 1, (7, 9)),
    "product of numbers": (lambda x: prod(constant(value=np.array([3, 4])), axes=(0,)), (12,)),
}


@pytest.mark.parametrize("name", CASES)
def test_shape_arithmetic_is_followed(name: str) -> None:
    fn, want = CASES[name]
    assert found(fn) == want


UNKNOWN: dict[str, Callable[[Value], Value]] = {
    "data": lambda x: cast_(sum_(x, axes=(0, 1, 2)), dtype=I64),
    "floats": lambda x: cast_(cast_(at(x, 0), dtype=F32) * 0.5, dtype=I64),
    "division of what may be negative": lambda x: (at(x, 0) - 5) // 2,
    "division by what may be 0": lambda x: floordiv(at(x, 0), at(x, 1)),
    "undecided": lambda x: where(eq(at(x, 0), at(x, 1)), at(x, 0), at(x, 1)),
    "many": lambda x: full(value=1, shape=(LIMIT + 1,), dtype=I64),
    "no integer": lambda x: full(value=1.0, shape=(2,), dtype=F32),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_depends_on_data_is_unknown(name: str) -> None:
    assert found(UNKNOWN[name]) is None


def test_content_of_numbers_keeps_dtype_and_shape() -> None:
    with Builder("g"):
        c = content(constant(value=np.array([[1.5, 2.0]], "f4")) * 2.0)
    assert c is not None and c.dtype == np.float32
    np.testing.assert_array_equal(c, [[3.0, 4.0]])


def test_sizes_from_data_are_named_by_a_witness() -> None:
    def model(lengths: Value) -> Value:
        w = witness(lengths, names=("rows", "cols"))
        assert w.shape == (sym("rows"), sym("cols"))
        assert sizes_of(shape_of(w)) == w.shape
        return full(value=1.0, shape=(2 * sym("rows"), 3), dtype=F32)

    g = trace(model, parse_type("i64[2]"))
    assert g.nodes[0].makes() == {"rows", "cols"}
    assert str(g.outputs[0].type) == "f32[2*rows,3]"


def test_a_long_chain_is_followed_without_recursion_errors() -> None:
    def model(x: Value) -> Value:
        n = at(x, 0)
        for _ in range(3000):
            n = n + 1
        return n

    assert found(model) == (N + 3000,)
