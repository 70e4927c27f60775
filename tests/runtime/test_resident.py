"""Resident state on every device: fed whole, with a capacity, by rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest

import treadle
from tests.runtime.surface import compiled, names, random
from tools.fetch import model as fetched
from treadle.declare.arrays import Array, np_dtype
from treadle.errors import BindingError, RunError
from treadle.ir.graph import Value
from treadle.ir.types import DTYPES
from treadle.ops import concat, gather, matmul, narrow, softmax, sum_, transpose
from treadle.runtime.executable import Executable


def test_an_output_becomes_the_state_whole(on: str) -> None:
    exe = compiled(on, lambda s, x: (s * 0.5 + x, sum_(s, axes=(0,))), "f32[4]", "f32[4]")
    (s, x), (new, total) = names(exe)
    state = exe.resident(s, np.arange(4, dtype=np.float32)).feed(new)
    want = np.arange(4, dtype=np.float32)
    for k in range(6):
        given = random(4, seed=k)
        out = exe({x: given})
        assert list(out) == [total]
        np.testing.assert_allclose(out[total], want.sum(), rtol=1e-5)
        want = want * np.float32(0.5) + given
        np.testing.assert_allclose(state.read(), want, rtol=1e-6)
    state.write(np.zeros(4, np.float32))
    exe({x: np.ones(4, np.float32)})
    np.testing.assert_array_equal(state.read(), np.ones(4))
    with pytest.raises(BindingError, match="no input|2 inputs"):
        exe(np.ones(4, np.float32), np.ones(4, np.float32))
    exe.release(s)
    assert new in exe(np.ones(4, np.float32), np.ones(4, np.float32))


def test_a_state_that_grows_without_capacity(on: str) -> None:
    exe = compiled(on, lambda s, x: concat([s, x], axis=0), "f32[n,2]", "f32[m,2]")
    (s, _), (new,) = names(exe)
    state = exe.resident(s, shape=(0, 2)).feed(new)
    rows = [random(k, 2, seed=k) for k in (1, 3, 2)]
    for row in rows:
        assert exe(row) == {}
    np.testing.assert_array_equal(state.read(), np.concatenate(rows))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "u4", "f8e4m3fn"])
def test_states_of_any_dtype_are_exact(on: str, dtype: str) -> None:
    """Also of those that a device has no arrays of."""
    exe = compiled(on, lambda s, x: concat([s, x], axis=0), f"{dtype}[n,2]", f"{dtype}[1,2]")
    (s, _), (new,) = names(exe)
    rows = np.array([[[1 / 3, 5]], [[2.7, 0]], [[4, 1e-3]]]).astype(np_dtype(DTYPES[dtype]))
    for room in (4, None):
        state = exe.resident(s, rows[0], capacity=room).feed(new)
        for row in rows[1:]:
            exe(row)
        found = state.read()
        assert found.dtype == rows.dtype
        np.testing.assert_array_equal(found, rows[:, 0])
        exe.release(s)


def attend(past: Value, new: Value, q: Value) -> tuple[Value, Value]:
    """Attention of one query to a cache and a new row; the cache with the row."""
    keys = concat([past, new], axis=2)
    weights = softmax(matmul(q, transpose(keys, perm=(0, 1, 3, 2))), axis=-1)
    return keys, matmul(weights, keys)


CACHE = ("f32[batch,2,past,8]", "f32[batch,2,new,8]", "f32[batch,2,1,8]")


def attended(keys: Array, q: Array) -> Array:
    scores = np.einsum("bhqd,bhkd->bhqk", q, keys, dtype=np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), keys)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_cache_with_capacity(on: str, batch: int) -> None:
    exe = compiled(on, attend, *CACHE)
    (past, new, q), (keys, out) = names(exe)
    cache = exe.resident(past, shape=(batch, 2, 0, 8), axis=2, capacity=12).feed(keys)
    want = np.zeros((batch, 2, 0, 8), np.float32)
    for k, rows in enumerate((5, 1, 1, 1, 2)):
        x, y = random(batch, 2, rows, 8, seed=k), random(batch, 2, 1, 8, seed=-k % 97)
        got = exe({new: x, q: y})
        want = np.concatenate([want, x], 2)
        assert list(got) == [out] and cache.length == want.shape[2] and cache.shape == want.shape
        np.testing.assert_allclose(got[out], attended(want, y), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(cache.read(), want)
    with pytest.raises(RunError, match=r"does not fit.*10 rows are in use"):
        exe({new: random(batch, 2, 3, 8), q: y})
    np.testing.assert_array_equal(cache.read(), want)
    cache.length = 4  # forgets rows
    exe({new: x, q: y})
    np.testing.assert_array_equal(cache.read(), np.concatenate([want[:, :, :4], x], 2))


def test_rows_at_a_position(on: str) -> None:
    """One row at the end, at a number, and where an input says."""
    exe = compiled(on, lambda s, x, at: (x * 2.0, sum_(s, axes=(0,)), at + 0),
                   "f32[n,3]", "f32[1,3]", "i64[]")
    (s, x, at), (row, total, _) = names(exe)
    state = exe.resident(s, shape=(0, 3), capacity=4).feed(row, at="end")
    zero, rows = np.int64(0), [random(1, 3, seed=k) for k in range(4)]
    for k, r in enumerate(rows):
        out = exe({x: r, at: zero})
        sums = 2 * np.sum([*rows[:k], 0 * r], axis=(0, 1))
        np.testing.assert_allclose(out[total], sums, atol=1e-5)
    want = 2 * np.concatenate(rows)
    np.testing.assert_array_equal(state.read(), want)
    with pytest.raises(RunError, match=r"row 4 of axis 0.*\[4, 3\].*4 rows"):
        exe({x: r, at: zero})
    state.feed(row, at=1)
    exe({x: rows[3], at: zero})
    want[1] = 2 * rows[3]
    np.testing.assert_array_equal(state.read(), want)
    state.feed(row, at=at)
    for k in (3, 0, 2):
        exe({x: rows[0], at: np.int64(k)})
        want[k] = 2 * rows[0]
    np.testing.assert_array_equal(state.read(), want)
    with pytest.raises(RunError, match="row -1"):
        exe({x: rows[0], at: np.int64(-1)})
    state.feed(None)
    assert row in exe({x: rows[0], at: zero})
    np.testing.assert_array_equal(state.read(), want)


def test_rows_of_storage_that_is_always_whole(on: str) -> None:
    exe = compiled(on, lambda s, x, at: (x + 0.0, sum_(s, axes=(0, 1, 2)), at + 0),
                   "f32[2,5,3]", "f32[2,1,3]", "i64[1]")
    (s, x, at), (row, total, _) = names(exe)
    state = exe.resident(s, axis=1).feed(row, at=at)
    want = np.zeros((2, 5, 3), np.float32)
    for k in (4, 0, 2, 2):
        given = random(2, 1, 3, seed=k)
        out = exe({x: given, at: np.array([k])})
        np.testing.assert_allclose(out[total], want.sum(), atol=1e-5)
        want[:, k] = given[:, 0]
    np.testing.assert_array_equal(state.read(), want)


def test_a_failed_run_feeds_nothing(on: str) -> None:
    exe = compiled(on, lambda s, x, i: (concat([s, x], axis=0), gather(x, i, axis=0)),
                   "f32[n]", "f32[m]", "i64[1]")
    (s, x, i), (new, _) = names(exe)
    state = exe.resident(s, np.array([1, 2], np.float32), capacity=6).feed(new)
    runs = [exe.submit({x: np.array([k], np.float32), i: np.array([k % 2])}) for k in range(4)]
    for k, run in enumerate(runs):
        if k % 2:
            with pytest.raises(RunError, match="index 1 is out of range"):
                run.result()
        else:
            run.result()
    np.testing.assert_array_equal(state.read(), [1, 2, 0, 2])


def test_states_and_results_share_no_memory(on: str) -> None:
    exe = compiled(on, lambda s, x: (x + 0.0, x * 1.0, s + 0.0, narrow(x, axis=0, start=0,
                   length=2)), "f32[3]", "f32[3]")
    (s, x), (a, b, c, d) = names(exe)
    state, given = exe.resident(s).feed(a), random(3)
    out = exe(given)
    for value in (given, *out.values(), state.read()):
        value[...] = 9
    np.testing.assert_array_equal(state.read(), random(3))
    np.testing.assert_array_equal(exe(given)[c], random(3))
    assert {b, c, d} == set(out) and x


def test_an_input_may_pass_through_to_the_state(on: str) -> None:
    exe = compiled(on, lambda s, x: (x, s * 2.0), "f32[3]", "f32[3]")
    (s, _), (same, doubled) = names(exe)
    exe.resident(s).feed(same)
    given = random(3)
    exe(given)
    given[...] = 0
    np.testing.assert_array_equal(exe(given)[doubled], 2 * random(3))


def test_what_cannot_be_resident_is_an_error(on: str) -> None:
    exe = compiled(on, lambda s, x: (s + x, s * 0.0), "f32[n,m]", "f32[n,m]")
    (s, x), (new, _) = names(exe)
    errors: list[tuple[Callable[[], object], str]] = [
        (lambda: exe.resident("q"), "'q' is no input"),
        (lambda: exe.resident(s), "no known shape"),
        (lambda: exe.resident(s, shape=(2,)), "does not fit"),
        (lambda: exe.resident(s, shape=(2, 2), capacity=4), "which axis"),
        (lambda: exe.resident(s, shape=(2, 2), axis=5), "no axis 5"),
        (lambda: exe.resident(s, shape=(2, 2), axis=0, capacity=1), "starts with 2"),
        (lambda: exe.resident(s, np.zeros((2, 2))), "dtype f64"),
        (lambda: exe.release(s), "is not resident")]
    for call, text in errors:
        with pytest.raises(BindingError, match=text):
            call()
    state = exe.resident(s, shape=(2, 2))
    more: list[tuple[Callable[[], object], str]] = [
        (lambda: state.feed("q"), "no output 'q'"),
        (lambda: state.feed(new, at=0), "no axis of rows"),
        (lambda: state.length, "no capacity"),
        (lambda: state.write(np.zeros((3, 2), np.float32)), "does not fit storage"),
        (lambda: exe.resident(s), "is resident already")]
    for call, text in more:
        with pytest.raises(BindingError, match=text):
            call()
    with pytest.raises(BindingError, match="size n is 2"):
        exe(np.ones((3, 2), np.float32))
    assert "Resident" in repr(state) and s not in repr(exe) and x in repr(exe)
    assert any(s in line for line in exe.explain().notes)


@pytest.mark.parametrize("on", ["reference", "cpu"])
def test_a_published_model_keeps_its_state(on: str) -> None:
    """A voice detector over a stream, chunk by chunk, against ONNX Runtime with state by hand."""
    path = fetched("silero-vad/silero_vad.onnx")
    first = {"input": np.zeros((1, 576), np.float32), "state": np.zeros((2, 1, 128), np.float32),
             "sr": np.array(16000)}
    exe = treadle.load(path).bind(first).compile(on)
    assert isinstance(exe, Executable)
    state = exe.resident("state", shape=(2, 1, 128)).feed("stateN")
    asked = [leaf.name for leaf in exe.signature.inputs if leaf.name != "state"]
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for k in range(6):
        first["input"] = random(1, 576, seed=k) * np.float32(0.3)
        want, first["state"] = session.run(None, first)
        found = exe({name: first[name] for name in asked})
        np.testing.assert_allclose(found["output"], want, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(state.read(), first["state"], rtol=1e-3, atol=1e-4)
