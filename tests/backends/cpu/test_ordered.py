"""Kernels whose order matters: running folds, writes by index, extremes, sorting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest

import treadle
from treadle.errors import RunError
from treadle.ir.graph import Value
from treadle.ops.gather import gather_nd, scatter_elements, scatter_nd
from treadle.ops.pad import roll
from treadle.ops.positions import kv_append
from treadle.ops.scan1d import argmax, argmin, argsort, cumprod, cumsum, sort, topk
from treadle.runtime.executable import Executable

Arrays = Sequence[np.ndarray]
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
          "f16": np.float16, "bf16": ml_dtypes.bfloat16, "bool": np.bool_,
          "u64": np.uint64}


def native(fn: Callable[..., object], *types: str, threads: int | None = None) -> Executable:
    """Compiled without a host step."""
    exe = treadle.trace(fn, *types).compile("cpu", threads=threads)
    assert isinstance(exe, Executable)
    assert "host" not in exe.explain().counts
    return exe


def one(out: dict[str, np.ndarray]) -> np.ndarray:
    return next(iter(out.values()))


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 3).astype(DTYPES[dtype]) if dtype != "u8" else (
        rng.integers(0, 255, shape, dtype=np.uint8))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_folds_have_the_bits_of_a_loop(dtype: str, exclusive: bool, reverse: bool) -> None:
    for op, fold in ((cumsum, np.cumsum), (cumprod, np.cumprod)):
        for axis in (0, 2) if dtype == "f32" and op is cumsum else (1,):
            exe = native(lambda x, op=op, axis=axis: op(
                x, axis=axis, exclusive=exclusive, reverse=reverse), f"{dtype}[a,b,c]")
            for shape in ((3, 5, 19), (2, 1, 40), (1, 130, 2), (0, 3, 2), (2, 0, 3)):
                x = numbers(dtype, shape)
                w = np.flip(x, axis) if reverse else x
                want = fold(w, axis=axis, dtype=x.dtype)
                if exclusive:
                    unit = np.full_like(np.take(want, [0] if want.shape[axis] else [], axis),
                                        op is cumprod)
                    cut = [slice(None)] * 3
                    cut[axis] = slice(None, -1)
                    want = np.concatenate([unit, want[tuple(cut)]], axis)
                want = np.flip(want, axis) if reverse else want
                assert one(exe(x)).tobytes() == np.ascontiguousarray(want).tobytes(), shape


def test_halves_are_summed_in_f32() -> None:
    x = numbers("f16", (4, 300))
    exe = native(lambda x: cumsum(x, axis=-1), "f16[4,n]")
    want = np.cumsum(x.astype(np.float32), -1).astype(np.float16)
    np.testing.assert_array_equal(one(exe(x)), want)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "bf16", "bool"])
@pytest.mark.parametrize("last", [False, True])
def test_extremes_along_any_axis(dtype: str, last: bool) -> None:
    for (op, find), axis in itertools.product(((argmax, np.argmax), (argmin, np.argmin)), (1, 2)):
        exe = native(lambda x, op=op, axis=axis: op(x, axis=axis, select_last=last),
                     f"{dtype}[a,b,c]")
        for shape in ((3, 5, 19), (2, 70, 3), (33, 1, 1), (0, 3, 2)):
            if not shape[axis]:
                continue
            x = numbers(dtype, shape, seed=sum(shape))
            if dtype in ("f32", "f64"):
                x.reshape(-1)[::7] = np.nan
            x = np.round(x) if dtype == "f32" else x
            w = x.astype(np.float32) if dtype == "bf16" else x
            at = find(np.flip(w, axis) if last else w, axis)
            want = shape[axis] - 1 - at if last else at
            np.testing.assert_array_equal(one(exe(x)), want)


def test_an_empty_axis_has_no_extreme() -> None:
    exe = native(lambda x: argmax(x, axis=1), "f32[a,b]")
    with pytest.raises(RunError, match="axis 1 has no element"):
        exe(np.zeros((2, 0), np.float32))


REDUCTIONS = ("none", "add", "mul", "max", "min")
_AT = {"add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def written(x: np.ndarray, at: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
            ) -> np.ndarray:
    """By the definition: one update after another."""
    out = x.copy()
    where = np.stack([np.broadcast_to(a, updates.shape) for a in at], -1).reshape(-1, len(at))
    for place, u in zip(where, updates.reshape(-1), strict=True):
        if reduction == "none":
            out[tuple(place)] = u
        else:
            _AT[reduction](out, tuple(place), u)
    return out


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_by_elements(reduction: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for axis in range(3) if (reduction, dtype) == ("add", "f32") else (1,):
        exe = native(lambda x, i, u, axis=axis: scatter_elements(
            x, i, u, axis=axis, reduction=reduction),
            f"{dtype}[a,b,c]", "i64[a,b,c]", f"{dtype}[a,b,c]")
        for shape in ((3, 5, 19), (2, 40, 3), (1, 1, 7), (0, 2, 2)):
            x, u = numbers(dtype, shape), numbers(dtype, shape, seed=1)
            n = shape[axis]
            i = rng.integers(-n, n, shape) if n else np.zeros(shape, np.int64)
            grid = list(np.ix_(*map(np.arange, shape)))
            grid[axis] = np.where(i < 0, i + n, i)
            np.testing.assert_array_equal(one(exe(x, i, u)),
                                          written(x, tuple(grid), u, reduction))


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_by_tuples(reduction: str, dtype: str) -> None:
    rng = np.random.default_rng(4)
    for depth in (1, 2, 3) if (reduction, dtype) == ("none", "f32") else (2,):
        rest = "abc"[depth:]
        exe = native(lambda x, i, u: scatter_nd(x, i, u, reduction=reduction), f"{dtype}[a,b,c]",
                     f"i64[p,q,{depth}]", f"{dtype}[{','.join(['p', 'q', *rest])}]")
        for shape, lead in (((4, 3, 18), (5, 2)), ((2, 2, 2), (1, 9)), ((3, 3, 1), (0, 4))):
            i = np.stack([rng.integers(0, n, lead) for n in shape[:depth]], -1)
            x, u = numbers(dtype, shape), numbers(dtype, (*lead, *shape[depth:]), seed=1)
            ones = (1,) * (3 - depth)
            at = tuple([i[..., k].reshape(*lead, *ones) for k in range(depth)])
            at += tuple([g for g in np.ix_(*map(np.arange, (*lead, *shape[depth:])))[2:]])
            np.testing.assert_array_equal(one(exe(x, i, u)), written(x, at, u, reduction))


def test_scatter_reports_a_bad_index_and_equals_itself_on_any_threads() -> None:
    def fn(x: Value, i: Value, u: Value) -> Value:
        return scatter_nd(x, i, u, reduction="add")

    types = ("f32[n,m]", "i64[k,1]", "f32[k,m]")
    rng = np.random.default_rng(5)
    x, u = (rng.normal(size=(k, 200)).astype(np.float32) for k in (50, 700))
    i = rng.integers(0, 50, (700, 1))
    first = one(native(fn, *types, threads=1)(x, i, u))
    for threads in (2, 4):
        assert one(native(fn, *types, threads=threads)(x, i, u)).tobytes() == first.tobytes()
    i[13] = 50
    with pytest.raises(RunError, match="index 50 is out of range"):
        native(fn, *types)(x, i, u)


def test_scattered_tuples_read_back() -> None:
    exe = native(lambda x, i, u: gather_nd(scatter_nd(x, i, u), i),
                 "f32[5,6]", "i64[k,2]", "f32[k]")
    i = np.stack(np.unravel_index(np.random.default_rng(0).permutation(30)[:12], (5, 6)), -1)
    u = numbers("f32", (12,))
    np.testing.assert_array_equal(one(exe(np.zeros((5, 6), np.float32), i, u)), u)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_caches_are_appended_to(mode: str, axis: int) -> None:
    shape, part = [2, 3, 9, 5], [2, 3, 9, 5]
    part[axis] = 2
    types = ["n", "3", "9", "5"], ["n", "3", "9", "5"]
    types[1][axis] = "2"
    exe = native(lambda c, u, at: kv_append(c, u, at, axis=axis, mode=mode),
                 f"f32[{','.join(types[0])}]", f"f32[{','.join(types[1])}]", "i64[n]")
    cache, update = numbers("f32", tuple(shape)), numbers("f32", tuple(part), seed=1)
    n = shape[axis]
    at = np.array([n - 2, 0]) if mode == "linear" else np.array([2**63 - 1, -(2**63)])
    want = cache.copy()
    for b, first in enumerate(at.tolist()):
        for t in range(2):
            place, source = [slice(None)] * 3, [slice(None)] * 3
            place[axis - 1], source[axis - 1] = (first + t) % n, t
            want[b][tuple(place)] = update[b][tuple(source)]
    np.testing.assert_array_equal(one(exe(cache, update, at)), want)
    if mode == "linear":
        with pytest.raises(RunError, match="do not fit"):
            exe(cache, update, np.array([0, n - 1]))


def test_rolling() -> None:
    for shift, axis in ((-7, 1), (2, 0)):
        exe = native(lambda x, s=shift, a=axis: roll(x, shift=s, axis=a), "f32[a,b]")
        for shape in ((3, 17), (0, 4), (1, 1)):
            x = numbers("f32", shape)
            np.testing.assert_array_equal(one(exe(x)), np.roll(x, shift, axis))


def ranks(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """A stable order by Python's sort, NaN above all, -0 equal to 0."""
    def key(v: float) -> tuple[bool, float]:
        return (v != v, 0.0 if v != v else v)

    def row(r: np.ndarray) -> list[int]:
        values = [int(v) if r.dtype.kind in "iub" else float(v) for v in r]
        return sorted(range(len(values)), reverse=descending,
                      key=lambda i: (*key(values[i]), -i if descending else i))

    return np.apply_along_axis(row, axis, x) if x.size else np.zeros(x.shape, np.int64)


SORTED = ["f32", "f64", "f16", "bf16", "i64", "u8", "i32", "bool", "u64"]


def disordered(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Many ties, and the ends of the type."""
    if dtype == "u64":
        return np.random.default_rng(1).choice(np.array([0, 1, 2**63, 2**64 - 1], np.uint64), shape)
    x = numbers(dtype, shape, seed=sum(shape))
    if dtype.startswith(("f", "bf")):
        x = np.round(x * 2) / 2 if dtype != "bf16" else x
        flat = x.astype(DTYPES[dtype]).reshape(-1)
        flat[::11], flat[::13], flat[::5], flat[::7] = np.nan, -np.inf, 0.0, -0.0
        return flat.reshape(shape)
    if dtype == "i64":
        flat = x.reshape(-1)
        flat[::5], flat[::7] = 2**63 - 1, -(2**63)
    return x


@pytest.mark.parametrize("dtype", SORTED)
def test_rows_are_sorted_stably(dtype: str) -> None:
    for descending, axis in ((False, 1), (True, 0)) if dtype == "f32" else ((True, 1),):
        exe = native(lambda x, d=descending, a=axis: [
            sort(x, axis=a, descending=d), argsort(x, axis=a, descending=d)], f"{dtype}[a,b]")
        for shape in ((3, 37), (1, 1), (4, 8), (2, 0), (0, 3), (5, 130)):
            x = disordered(dtype, shape)
            values, places = exe(x).values()
            order = ranks(x, axis, descending)
            np.testing.assert_array_equal(places, order)
            want = np.take_along_axis(x, order, axis)
            assert values.tobytes() == want.tobytes(), (shape, descending)


@pytest.mark.parametrize(("dtype", "largest"), [("f32", False), *((d, True) for d in SORTED)])
def test_the_first_of_an_order(dtype: str, largest: bool) -> None:
    for k, axis in ((1, 0), (3, 1), (40, 1)) if dtype == "f32" else ((3, 1),):
        exe = native(lambda x, k=k, a=axis: topk(x, k=k, axis=a, largest=largest),
                     f"{dtype}[a,b]")
        for shape in ((3, 67), (5, 40), (1, 130)):
            x = disordered(dtype, shape)
            values, places = exe(x).values()
            order = np.take(ranks(x, axis, largest), range(k), axis)
            np.testing.assert_array_equal(places, order)
            assert values.tobytes() == np.take_along_axis(x, order, axis).tobytes()
    with pytest.raises(RunError, match=f"{k} elements of axis 1 of size 2"):
        exe(disordered(dtype, (3, 2)))
