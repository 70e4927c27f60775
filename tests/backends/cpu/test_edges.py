"""Odd sizes, odd values and odd memory: right values, or errors that say why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle
from tests.conformance.harness import CASES, Array, Case, on_cpu, spread, widest
from treadle import ops
from treadle.backends.cpu.claims import claim
from treadle.declare import evaluate
from treadle.declare.arrays import type_of
from treadle.errors import OperatorError, RunError
from treadle.ir.dims import sym
from treadle.ir.graph import Graph, Value
from treadle.ops.library import REGISTRY as OPS

N = sym("n")
Fn = Callable[..., object]


def compiled(fn: Fn, *types: str) -> Callable[..., list[Array]]:
    exe = treadle.trace(fn, *types).compile("cpu")  # type: ignore[arg-type]
    return lambda *arrays: list(exe(*arrays).values())


def same(fn: Fn, types: tuple[str, ...], arrays: list[Array], tolerance: float = 1e-5) -> None:
    """The CPU device agrees with the reference, NaN and infinities included."""
    model = treadle.trace(fn, *types)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        want = model.compile("reference")(*arrays).values()
    for a, b in zip(model.compile("cpu")(*arrays).values(), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Sizes


def _native(case: Case) -> bool:
    small = all(not isinstance(d, int) or d < 1 << 12 for t in case.types for d in t.shape)
    return small and all(t.dtype.sort not in ("block", "host", "string") for t in case.types) and (
        claim(case.graph.nodes[-1]).how == "native")


SIZED = [c for c in spread([c for c in CASES if any(
    d not in (0, 1) for t in c.types for d in t.shape)], most=1) if _native(c)]


@pytest.mark.parametrize("case", SIZED, ids=[c.id for c in SIZED])
@pytest.mark.parametrize("size", [0, 1])
def test_empty_and_single_axes_are_as_on_the_reference(case: Case, size: int) -> None:
    """The largest size of a sample in its place: the same values, or refused by both."""
    largest = max(int(str(d)) for t in case.types for d in t.shape)
    arrays = [np.asarray(a[tuple([slice(size) if d == largest else slice(None)
                                  for d in a.shape])]) for a in case.arrays]
    try:
        graph = case.trace([type_of(a) for a in arrays])
        want = evaluate.run(graph, arrays, {}, {})
    except (OperatorError, RunError):
        return
    agree(graph, arrays, want)


def agree(graph: Graph, arrays: list[Array], want: tuple[Array, ...]) -> None:
    for a, b in zip(on_cpu(graph, arrays), want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype == object:
            continue
        np.testing.assert_allclose(widest(a), widest(b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_nothing_to_pad_with_is_an_error_on_every_device(mode: str) -> None:
    model = treadle.trace(lambda x: OPS["pad"](x, pads=(1, 0, 1, 0), mode=mode), "f32[n,3]")
    for device in ("cpu", "reference"):
        exe = model.compile(device)
        with pytest.raises(RunError, match=f"size 0 has nothing to pad with in mode {mode}"):
            exe(np.zeros((0, 3), np.float32))
        assert next(iter(exe(np.ones((2, 3), np.float32)).values())).shape == (4, 3)


HUGE: dict[str, tuple[Fn, tuple[str, ...], list[Array]]] = {
    "outer": (lambda x, y: OPS["exp"](x) + y, ("f32[n,1]", "f32[1,m]"),
              [np.zeros((1 << 20, 1), np.float32), np.zeros((1, 1 << 20), np.float32)]),
    "expanded": (lambda x: OPS["expand"](x, shape=(1 << 31, 1 << 20)), ("f32[1,1]",),
                 [np.zeros((1, 1), np.float32)]),
    "between": (lambda x, y: OPS["sum"](OPS["cumsum"](x * y, axis=0), axes=(0, 1)),
                ("f32[n,1]", "f32[1,m]"),
                [np.zeros((1 << 20, 1), np.float32), np.zeros((1, 1 << 20), np.float32)]),
    "leaf": (lambda x: OPS["range"](start=0, step=1, length=N * 1_000_000_000, dtype=x.dtype),
             ("f32[n]",), [np.zeros(4096, np.float32)]),
    "beside an empty axis": (lambda x: OPS["expand"](OPS["exp"](x), shape=(N, 1 << 62, 4)),
                             ("f32[n,1,1]",), [np.zeros((0, 1, 1), np.float32)])}


@pytest.mark.parametrize("name", HUGE)
def test_what_memory_cannot_hold_is_refused(name: str) -> None:
    fn, types, arrays = HUGE[name]
    run = compiled(fn, *types)
    for _ in range(2):  # the second call takes the quicker way, if any
        with pytest.raises(RunError, match="GiB are available|would have the shape"):
            run(*arrays)


TOO_LARGE: dict[str, Callable[..., object]] = {
    "conv": lambda x, w: ops.conv(x, w),
    "strided": lambda x, w: ops.conv(x, w, strides=(4, 1)),
    "followed by more": lambda x, w: ops.relu(ops.conv(x, w)),
    "dilated": lambda x, w: ops.conv(x, ops.narrow(w, axis=2, start=0, length=2),
                                     dilations=(2, 1)),
    "max_pool": lambda x, w: ops.max_pool(x, kernel=(3, 1)),
    "average_pool": lambda x, w: ops.average_pool(x, kernel=(3, 1), strides=(5, 1), ceil_mode=True),
    "padded": lambda x, w: ops.conv(x, w, pads=(1, 0, 0, 0)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_windows_larger_than_their_axes_are_refused(name: str) -> None:
    """As on the reference, whatever the strides make of the size; other sizes still run."""
    model = treadle.trace(TOO_LARGE[name], "f32[n,1,h,4]", "f32[1,1,3,1]")  # type: ignore[arg-type]
    exe, judge = model.compile("cpu"), model.compile("reference")
    w = np.ones((1, 1, 3, 1), np.float32)
    for rows in (4, 3, 2, 1, 0, 5):
        x = np.ones((1, 1, rows, 4), np.float32)
        try:
            want = list(judge(x, w).values())
        except RunError as e:
            assert "does not fit an axis" in str(e)
            with pytest.raises(RunError, match="does not fit an axis"):
                exe(x, w)
            continue
        np.testing.assert_allclose(list(exe(x, w).values()), want)
    assert list(exe(np.ones((0, 1, 4, 4), np.float32), w).values())[0].size == 0


def test_sizes_below_zero_are_refused() -> None:
    run = compiled(lambda x, y: OPS["exp"](OPS["expand"](x, shape=(N - 5, 3))), "f32[1,3]",
                   "f32[n]")
    x = np.zeros((1, 3), np.float32)
    assert run(x, np.zeros(7, np.float32))[0].shape == (2, 3)
    with pytest.raises(RunError, match=r"would have the shape \[-3, 3\]"):
        run(x, np.zeros(2, np.float32))


# Values


ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3e38, -3e38, 1.0, -1.0, 88.0, 89.0,
                -104.0, 1e-20, 65504.0, 2.5], np.float32)


def odd(rows: int, columns: int) -> Array:
    """Rows of odd values among ordinary ones: one row without, one of each kind, one of all."""
    rng = np.random.default_rng(0)
    out = rng.normal(size=(rows, columns)).astype(np.float32)
    for i in range(1, rows):
        out[i, (5 * i) % columns] = ODD[(i - 1) % len(ODD)]
    return out


ROWS: dict[str, Fn] = {
    "softmax": lambda x: OPS["softmax"](x, axis=-1),
    "softmax across": lambda x: OPS["softmax"](x, axis=0),
    "log_softmax": lambda x: OPS["log_softmax"](x, axis=-1),
    "logsumexp": lambda x: OPS["logsumexp"](x, axes=(1,)),
    "extremes": lambda x: [OPS[k](x, axes=(a,)) for k in ("reduce_max", "reduce_min")
                           for a in (0, 1)],
    "sums": lambda x: [OPS["sum"](x, axes=(a,)) for a in (0, 1)],
    "positions": lambda x: [OPS[k](x, axis=a) for k in ("argmax", "argmin") for a in (0, 1)],
    "cumsum": lambda x: OPS["cumsum"](x, axis=1),
    "norm": lambda x: OPS["rms_norm"](x, OPS["narrow"](OPS["reshape"](x * 0.0 + 1.0, shape=(-1,)),
                                                      axis=0, start=0, length=37)),
    "where": lambda x: OPS["where"](x > 0.0, x, -x),
    "product": lambda x: OPS["matmul"](x, OPS["transpose"](x, perm=(1, 0)))}


@pytest.mark.parametrize("name", ROWS)
def test_nan_and_infinities_go_where_the_reference_has_them(name: str) -> None:
    same(ROWS[name], ("f32[18,37]",), [odd(18, 37)], 1e-4)


@pytest.mark.parametrize("name", ["gather", "embedding", "fused", "elements", "i32"])
def test_indices_out_of_range_are_errors_and_negative_ones_count_from_the_end(name: str) -> None:
    kinds: dict[str, Fn] = {
        "gather": lambda x, i: OPS["gather"](x, i, axis=1),
        "embedding": lambda x, i: OPS["gather"](x, i, axis=0),
        "fused": lambda x, i: OPS["exp"](OPS["gather"](x * 2.0, i, axis=0)) + 1.0,
        "elements": lambda x, i: OPS["gather_elements"](x, OPS["unsqueeze"](i, axes=(0,)), axis=0),
        "i32": lambda x, i: OPS["gather"](x, i, axis=0)}
    dtype = np.int32 if name == "i32" else np.int64
    run = compiled(kinds[name], "f32[6,6]", f"{'i32' if name == 'i32' else 'i64'}[m]")
    x = np.arange(36, dtype=np.float32).reshape(6, 6)
    got = run(x, np.array([-1, 5, -6, 0, 3, 2], dtype))[0]
    assert np.isfinite(got).all() and got.size
    for bad in (6, -7, np.iinfo(dtype).max, np.iinfo(dtype).min):
        with pytest.raises(RunError, match=f"{bad} is out of range"):
            run(x, np.array([0, bad, 1, 1, 1, 1], dtype))
    np.testing.assert_array_equal(run(x, np.array([-1, 5, -6, 0, 3, 2], dtype))[0], got)


# Memory


def layouts() -> dict[str, Callable[[Array], Array]]:
    """The same elements lying otherwise."""
    def unaligned(a: Array) -> Array:
        raw = np.zeros(a.nbytes + 1, np.uint8)
        out = raw[1:].view(a.dtype).reshape(a.shape)
        out[...] = a
        return out

    def spaced(a: Array) -> Array:
        wide = np.full((*a.shape[:-1], a.shape[-1] * 3), 99, a.dtype)
        wide[..., ::3] = a
        return wide[..., ::3]

    return {"unaligned": unaligned, "spaced": spaced,
            "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
            "columns": np.asfortranarray,
            "swapped": lambda a: a.astype(a.dtype.newbyteorder("S")),
            "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
            "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)}


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i16"])
@pytest.mark.parametrize("name", layouts())
def test_inputs_may_lie_in_any_way(name: str, dtype: str) -> None:
    def fn(x: Value, y: Value) -> list[Value]:
        return [x * y + x, OPS["transpose"](x, perm=(1, 0)), OPS["sum"](y, axes=(0,))]

    run = compiled(fn, f"{dtype}[n,7]", f"{dtype}[n,7]")
    rng = np.random.default_rng(1)
    x, y = rng.integers(-9, 9, (2, 5, 7)).astype(dtype.replace("f", "float").replace("i", "int"))
    laid = layouts()[name](x)
    x = np.array(laid, x.dtype)
    want = [x * y + x, x.T, y.sum(0, dtype=x.dtype)]
    for _ in range(2):
        kept = laid.copy()
        for got, expected in zip(run(laid, y), want, strict=True):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(laid, kept)


def test_one_array_as_several_inputs_and_outputs_over_inputs() -> None:
    exe = treadle.trace(lambda x, y: (x + y, x - y), "f32[n]", "f32[n]").compile("cpu")
    a = np.arange(1000, dtype=np.float32)
    total, rest = exe(a, a).values()
    np.testing.assert_array_equal(total, 2 * a)
    assert not rest.any()
    names = [leaf.name for leaf in exe.signature.outputs]
    kept = a.copy()
    exe(a, a, out={names[0]: a})
    np.testing.assert_array_equal(a, 2 * kept)
