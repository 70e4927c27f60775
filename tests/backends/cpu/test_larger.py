"""Elementwise operators, folds and rows at sizes with whole vectors, tails and several chunks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.harness import CASES, Case, draw, on_cpu, widest
from treadle.declare import evaluate
from treadle.declare.arrays import Array
from treadle.ir.graph import Graph, trace
from treadle.ir.types import BF16, F16, F32, DType, TensorType
from treadle.ops.library import REGISTRY

FACTOR = 19
ROWS = ("softmax", "log_softmax", "layer_norm", "rms_norm", "logsumexp", "mean", "argmax")


def _first_drawn() -> list[Case]:
    """The first sample of each operator whose data is drawn, not stated."""
    out: dict[str, Case] = {}
    for c in CASES:
        kind = c.op.kind in ("elementwise", "reduction") or c.op.name in ROWS
        if kind and c.sample.data is None and c.types and any(t.rank for t in c.types):
            out.setdefault(c.op.name, c)
    return list(out.values())


DRAWN = _first_drawn()


def _grown(case: Case, dtype: DType | None = None) -> tuple[Graph, list[Array]]:
    types = [TensorType(tuple([d if d in (0, 1) else d * FACTOR for d in t.shape]),
                        dtype if dtype and t.dtype is F32 else t.dtype) for t in case.types]
    rng = np.random.default_rng(case.seed)
    return case.trace(types), [draw(t, case.sample, rng) for t in types]


def _agree(graph: Graph, arrays: list[Array], unit: float) -> None:
    want = evaluate.run(graph, arrays, {}, {})
    for a, b in zip(on_cpu(graph, arrays), want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        scale = np.abs(widest(b)[np.isfinite(widest(b))]).max(initial=0)
        np.testing.assert_allclose(widest(a), widest(b), rtol=4 * unit, atol=unit * scale)


@pytest.mark.parametrize("case", DRAWN, ids=[c.op.name for c in DRAWN])
def test_larger(case: Case) -> None:
    _agree(*_grown(case), 1e-6 if case.op.kind == "elementwise" else 5e-6)


HALVES = [c for c in DRAWN if not c.op.keep and all(t.dtype is F32 for t in c.types)]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("case", HALVES[::4], ids=[c.op.name for c in HALVES[::4]])
def test_larger_halves(case: Case, dtype: DType) -> None:
    _agree(*_grown(case, dtype), 1e-3 if dtype is F16 else 8e-3)


WIDTHS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
INTEGERS = ("add", "sub", "mul", "floordiv", "truncdiv", "mod", "fmod", "max", "min", "bitwise_and",
            "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "eq", "lt", "ge")


INTEGER_CASES = [(n, d) for n in INTEGERS for d in WIDTHS
                 if d in ("i8", "u32", "i64") or n in ("add", "mod", "shift_right")]


@pytest.mark.parametrize(("name", "dtype"), INTEGER_CASES)
def test_integers_of_every_width(name: str, dtype: str) -> None:
    from treadle.declare.arrays import np_dtype
    from treadle.ir.types import DTYPES

    kind = DTYPES[dtype]
    info = np.iinfo(np_dtype(kind))
    rng = np.random.default_rng(1)
    a, b = rng.integers(info.min, info.max, (2, 301), np_dtype(kind), endpoint=True)
    b[::3] = rng.integers(0, 5, b[::3].shape)
    a[:2], b[:2] = info.min, info.max
    if kind.sort == "int":
        b[1] = -1
    graph = trace(lambda x, y: REGISTRY[name](x, y), *[TensorType((301,), kind)] * 2)
    _agree(graph, [a, b], 0.0)


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16", "i8", "u16", "i64", "u64", "bool"])
def test_casts_between_all_types(source: str) -> None:
    from treadle.declare.arrays import np_dtype
    from treadle.ir.types import DTYPES

    rng = np.random.default_rng(2)
    x = (rng.normal(size=211) * 10.0 ** rng.integers(-3, 12, 211))
    with np.errstate(all="ignore"):
        a = x.astype(np_dtype(DTYPES[source]))
        if source in ("f32", "f64"):
            a[:4] = [np.nan, np.inf, -np.inf, -0.0]
    targets = ["f32", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "bool"]
    targets += [] if source == "f64" else ["f16", "bf16"]
    graph = trace(lambda v: [REGISTRY["cast"](v, dtype=DTYPES[t]) for t in targets],
                  TensorType((211,), DTYPES[source]))
    want = evaluate.run(graph, [a], {}, {})
    for t, g, w in zip(targets, on_cpu(graph, [a]), want, strict=True):
        np.testing.assert_array_equal(widest(g), widest(w), err_msg=f"{source} to {t}")
