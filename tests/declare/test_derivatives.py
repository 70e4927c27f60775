"""Derivatives of every elementwise operator against central differences in f64, to second order."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from treadle.declare.derive import derivative
from treadle.declare.opdef import OpDef
from treadle.declare.scalar import Scalar, evaluate, walk
from treadle.declare.scalar_text import parse, text
from treadle.declare.schema import Sample
from treadle.ir.types import BOOL, DTYPES, F32, F64, DType, parse_type
from treadle.ops.library import REGISTRY

Array = npt.NDArray[Any]
POINTS = 24
RULED = {"round": 1.0, "stop_gradient": 0.0}
"""Derivatives that are conventions and not slopes: straight through, and none."""
UNRULED = ("bitcast", "round_to_grid")  # the second has a slope for each choice of `ste`
FAMILIES = ("arithmetic", "compare", "convert", "activations", "mathfn")
FLAT = ("floor", "ceil", "trunc", "sign", "floordiv", "truncdiv")


def attributes(op: OpDef, s: Sample) -> dict[str, object]:
    given = {k: DTYPES[str(v)] if k == "dtype" else v for k, v in s.attrs.items()
             if k in op.schema.attrs}
    return op.bind(given)[1]


def wide(dtype: str) -> DType:
    return BOOL if dtype == "bool" else F64


def dtypes_of(s: Sample, op: OpDef) -> tuple[DType, ...] | None:
    """The sample's operands, floats as f64; None when one is neither a float nor bool."""
    if s.data is None:
        names = [parse_type(t).dtype for t in s.types]
        plain = all(d is BOOL or d.sort == "float" for d in names)
        return tuple([wide(d.name) for d in names]) if plain else None
    plain = all(isinstance(d, list) and isinstance(d[0], float) for d in s.data)
    return (F64,) * len(s.data) if plain else None


CASES = [
    pytest.param(op, s, id=f"{op.name}-{i}")
    for op in REGISTRY.values() if op.kind == "elementwise" and op.name not in UNRULED
    for i, s in enumerate(op.samples)
    if (dtypes := dtypes_of(s, op)) and F64 in dtypes
    and any(r.dtype is F64 for r in op.scalars(attributes(op, s), dtypes))]


def points(op: OpDef, s: Sample, dtypes: tuple[DType, ...]) -> list[Array]:
    """Random points of the sample's range, or near the data it states."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    if s.data is None:
        return [rng.uniform(s.low, s.high, POINTS) > 0 if d is BOOL else
                rng.uniform(s.low, s.high, POINTS) for d in dtypes]
    near = [np.broadcast_to(np.asarray(d, float), np.broadcast_shapes(
        *(np.shape(x) for x in s.data))) for d in s.data]
    return [x + rng.uniform(0.01, 0.02, x.shape) for x in near]


def slope(root: Scalar, xs: list[Array], i: int, h: float = 1e-4) -> Array:
    """Central differences of fourth order."""
    step = h * np.maximum(1e-3, np.abs(xs[i]))

    def at(k: int) -> Array:
        return evaluate([root], [x + k * step if j == i else x for j, x in enumerate(xs)])[0]

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


def check(op: OpDef, root: Scalar, xs: list[Array], i: int) -> Scalar:
    d = derivative(root, i)
    assert d.dtype is root.dtype
    assert parse(text(d), tuple([F64 if x.dtype == float else BOOL for x in xs])) == (d,)
    got, value = (np.broadcast_to(v, xs[i].shape) for v in evaluate([d, root], xs))
    with np.errstate(all="ignore"):
        want = np.full(xs[i].shape, RULED[op.name]) if op.name in RULED else slope(root, xs, i)
        # Rounding errors of the differences grow with the value; a jump between them shows.
        scale = 1.0 + np.abs(value / np.maximum(1e-3, np.abs(xs[i])))
        smooth = op.name in RULED or np.isclose(want / scale, slope(root, xs, i, 5e-5) / scale,
                                                rtol=1e-5, atol=1e-7)
        plain = np.isfinite(want) & np.isfinite(value) & np.isfinite(scale) & smooth
        assert plain.sum() * 2 >= (np.isfinite(value) & np.isfinite(xs[i])).sum()
        np.testing.assert_allclose((got / scale)[plain], (want / scale)[plain],
                                   rtol=1e-6, atol=1e-9)
    return d


@pytest.mark.parametrize(("op", "s"), CASES)
def test_first_and_second_derivative(op: OpDef, s: Sample) -> None:
    dtypes = dtypes_of(s, op)
    assert dtypes
    xs = points(op, s, dtypes)
    floats = [i for i, d in enumerate(dtypes) if d is F64]
    for root in op.scalars(attributes(op, s), dtypes):
        if root.dtype is not F64:
            continue
        for i in floats:
            first = check(op, root, xs, i)
            if op.name in RULED:
                continue
            for j in floats:
                check(op, first, xs, j)


def test_every_differentiable_operator_is_covered() -> None:
    """Of the general families, only what never gives floats is left out; cast is tested below."""
    covered = {p.values[0].name for p in CASES if isinstance(p.values[0], OpDef)}
    others = {op.name for op in REGISTRY.values() if op.kind == "elementwise"
              and op.body.__module__.rsplit(".", 1)[-1] in FAMILIES} - covered
    assert others == {
        "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
        "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left",
        "shift_right", "isnan", "isinf", "bitcast", "cast"}


UNARY = [op for op in REGISTRY.values()
         if op.kind == "elementwise" and len(op.schema.operands) == 1
         and any(p.values[0] is op for p in CASES)]
PAIRS = [op for op in REGISTRY.values()
         if op.kind == "elementwise" and len(op.schema.operands) == 2
         and any(p.values[0] is op for p in CASES)]


def expressions(op: OpDef, dtype: DType) -> list[Scalar]:
    s = next(s for s in op.samples if (t := dtypes_of(s, op)) and F64 in t)
    if op.name == "cast":
        return [op.scalars(op.bind({"dtype": dtype})[1], (F64,))[0]]
    return list(op.scalars(attributes(op, s), (dtype,) * len(op.schema.operands)))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("op", [o for o in UNARY if o.name != "map"], ids=lambda op: op.name)
def test_no_nan_where_the_value_is_finite(op: OpDef, dtype: DType) -> None:
    """At 0, far out and at infinity; the second derivative at finite points."""
    x = np.array([0.0, -0.0, 1e-30, -1e-30, 65504.0, -65504.0, 1e6, -1e6, np.inf, -np.inf],
                 "f4" if dtype is F32 else "f8")
    for root in expressions(op, dtype):
        operand = [x.astype("f8")] if op.name == "cast" else [x]
        first = derivative(root, 0)
        y, d, dd = (np.broadcast_to(v, x.shape)
                    for v in evaluate([root, first, derivative(first, 0)], operand))
        finite = np.isfinite(y)
        assert not np.isnan(d[finite]).any(), x[finite & np.isnan(d)]
        finite &= np.isfinite(x)
        assert not np.isnan(dd[finite]).any(), x[finite & np.isnan(dd)]


@pytest.mark.parametrize("op", PAIRS, ids=lambda op: op.name)
def test_no_nan_of_two_operands(op: OpDef) -> None:
    few = np.array([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, 1e3])
    xs = [a.reshape(-1) for a in np.meshgrid(few, few)]
    for root in expressions(op, F64):
        for i in range(2):
            first = derivative(root, i)
            for j in range(2):
                y, d, dd = (np.broadcast_to(v, xs[0].shape)
                            for v in evaluate([root, first, derivative(first, j)], xs))
                finite = np.isfinite(y)
                assert not np.isnan(d[finite]).any()
                finite &= np.isfinite(d)
                assert not np.isnan(dd[finite]).any(), np.array(xs)[:, finite & np.isnan(dd)]


CONVENTIONS = [
    ("abs", [0.0, -0.0], [0.0, 0.0]), ("relu", [0.0, -0.0], [0.0, 0.0]),
    ("sqrt", [0.0, -0.0, -4.0], [0.0, 0.0, 0.0]), ("rsqrt", [0.0, -0.0, -4.0], [0.0, 0.0, 0.0]),
    ("round", [0.5, 1.2, -3.7], [1.0, 1.0, 1.0]), ("stop_gradient", [3.0], [0.0]),
    ("sign", [0.0, 2.0], [0.0, 0.0]), ("relu6", [0.0, 3.0, 6.0], [0.0, 1.0, 0.0]),
    ("sigmoid", [-800.0, 0.0, 800.0], [0.0, 0.25, 0.0]),
    ("softplus", [-800.0, 0.0, 800.0], [0.0, 0.5, 1.0]),
    ("log_sigmoid", [-800.0, 0.0, 800.0], [1.0, 0.5, 0.0])]


@pytest.mark.parametrize(("name", "at", "want"), CONVENTIONS, ids=lambda v: str(v)[:12])
def test_conventions(name: str, at: list[float], want: list[float]) -> None:
    root = expressions(REGISTRY[name], F64)[0]
    got = evaluate([derivative(root, 0)], [np.array(at)])[0]
    np.testing.assert_array_equal(np.broadcast_to(got, (len(at),)), want)


def test_ties_share_and_selections_select() -> None:
    for name in ("max", "min"):
        root = expressions(REGISTRY[name], F64)[0]
        got = [evaluate([derivative(root, i)], [np.array([1.0, 1.0]), np.array([1.0, 2.0])])[0]
               for i in range(2)]
        picked = float(name == "min")
        np.testing.assert_array_equal(got, [[0.5, picked], [0.5, 1 - picked]])
    where = REGISTRY["where"].scalars({}, (BOOL, F64, F64))[0]
    operands = [np.array([True, False]), np.array([np.nan, 1.0]), np.array([1.0, np.nan])]
    np.testing.assert_array_equal(evaluate([derivative(where, 1)], operands)[0], [1.0, 0.0])


def test_halves_are_differentiated_in_f32() -> None:
    for name in ("f16", "bf16"):
        root = REGISTRY["silu"].scalars({}, (DTYPES[name],))[0]
        d = derivative(root, 0)
        assert d.dtype is DTYPES[name]
        inner = [s for s in walk(d) if s.args and s.op != "cast"]
        assert inner
        assert all(s.dtype is F32 for s in inner)


def test_casts_pass_the_tangent() -> None:
    f16 = REGISTRY["cast"].scalars(REGISTRY["cast"].bind({"dtype": DTYPES["f16"]})[1], (F64,))[0]
    assert text(derivative(f16, 0)) == "f16:1.0"
    i32 = REGISTRY["cast"].scalars(REGISTRY["cast"].bind({"dtype": DTYPES["i32"]})[1], (F64,))[0]
    assert text(derivative(i32, 0)) == "i32:0"
    f8 = REGISTRY["cast"].scalars(REGISTRY["cast"].bind({"dtype": DTYPES["f8e4m3fn"]})[1],
                                  (F64,))[0]
    got = evaluate([derivative(f8, 0)], [np.array([1.0, 1000.0, -1000.0])])[0]
    np.testing.assert_array_equal(got.astype("f8"), [1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", FLAT)
def test_steps_are_flat(name: str) -> None:
    root = expressions(REGISTRY[name], F64)[0]
    assert text(derivative(root, 0)) == "f64:0.0"
