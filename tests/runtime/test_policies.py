"""What `compile` is told about random numbers and about sizes that come again."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, model, node
from tests.runtime.surface import random
from treadle.declare.arrays import Array
from treadle.errors import BindingError
from treadle.ops import normal, softmax, sum_
from treadle.runtime.executable import Executable
from treadle.runtime.random import mixed


def noisy() -> Any:  # noqa: ANN401 - a model of the front end
    return treadle.load(model(
        [node("RandomNormalLike", ["x"], ["a"]), node("RandomUniformLike", ["x"], ["b"]),
         node("RandomNormal", [], ["c"], shape=[8], seed=3.0)],
        [("x", F32, ["n"])], [("a", F32, None), ("b", F32, None), ("c", F32, None)]))


def draws(exe: Any, runs: int) -> list[Array]:  # noqa: ANN401 - either executable
    return [exe(np.zeros(8, np.float32))["a"] for _ in range(runs)]


def distinct(arrays: list[Array]) -> bool:
    return len({a.tobytes() for a in arrays}) == len(arrays)


def test_splitmix_gives_its_published_numbers() -> None:
    """Seed 1234567 of the reference code, http://prng.di.unimi.it/splitmix64.c."""
    assert [mixed(1234567, i) for i in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
        16408922859458223821]


def test_runs_draw_the_same_or_from_a_seed(on: str) -> None:
    loaded = noisy()
    fixed = draws(loaded.compile(on), 3)
    assert not distinct(fixed[:2]) and not distinct(fixed[1:])
    one, two, other = (loaded.compile(on, random=seed) for seed in (5, 5, 6))
    first = draws(one, 4)
    assert distinct([*first, *draws(other, 4), fixed[0]])
    for a, b in zip(first, draws(two, 4), strict=True):
        np.testing.assert_array_equal(a, b)
    out = one(np.zeros(8, np.float32))
    assert not np.array_equal(out["a"], out["b"])
    np.testing.assert_array_equal(out["c"], two(np.zeros(8, np.float32))["c"])  # has its own seed


def test_a_sequence_can_be_taken_up_again(on: str) -> None:
    exe = noisy().compile(on, random=9)
    first = draws(exe, 3)
    copy = exe.clone()
    rest = draws(exe, 2)
    for a, b in zip(rest, draws(copy, 2), strict=True):
        np.testing.assert_array_equal(a, b)
    exe.reseed(9)
    x = np.zeros(8, np.float32)
    for run, b in zip([exe.submit(x) for _ in range(5)], [*first, *rest], strict=True):
        np.testing.assert_array_equal(run.result()["a"], b)
    exe.reseed(9, runs=2)
    np.testing.assert_array_equal(draws(exe, 1)[0], first[2])
    exe.reseed(9)
    for refused in (exe, lambda y: exe.submit(y).result()):
        with pytest.raises(BindingError):
            refused(np.zeros((8, 1), np.float32))
    np.testing.assert_array_equal(draws(exe, 1)[0], first[0])  # what is refused is no run


def test_the_key_of_a_traced_function(on: str) -> None:
    def fn(x: Any, random_key: Any) -> Any:  # noqa: ANN401 - values
        return normal(random_key, shape=x.shape) * 0.5 + x

    loaded = treadle.trace(fn, "f32[n]", "i64[]")
    by_hand, exe = loaded.compile(on), loaded.compile(on, random=1)
    assert isinstance(exe, Executable) and "random_key" not in repr(exe)
    x = np.zeros(6, np.float32)
    for run in range(3):
        key = np.uint64(mixed(1, run)).astype(np.int64)
        np.testing.assert_array_equal(*(next(iter(found.values())) for found in (
            exe(x), by_hand(x, key))))


def test_a_model_without_random_numbers_needs_no_seed() -> None:
    with pytest.raises(BindingError, match="draws no random numbers"):
        treadle.trace(lambda x: x + 1.0, "f32[n]").compile("reference", random=1)
    with pytest.raises(BindingError, match="compiled without random="):
        noisy().compile("reference").reseed(1)


def test_hot_bindings_get_programs_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    """Eight runs compile one; the least recently used goes; a line says why, explain() too."""
    exe = treadle.trace(lambda x: softmax(x * 2.0, axis=1) + sum_(x, axes=(0,)),
                        "f32[n,m]").compile("cpu", specialise=2)
    judge = treadle.trace(lambda x: softmax(x * 2.0, axis=1) + sum_(x, axes=(0,)),
                          "f32[n,m]").compile("reference")
    special = exe._special  # noqa: SLF001 - what is counted
    assert special is not None
    with caplog.at_level(logging.INFO, "treadle"):
        for shape, runs, kept in [((2, 3), 7, 0), ((2, 3), 1, 1), ((4, 5), 20, 2), ((2, 3), 2, 2),
                                  ((1, 9), 7, 2), ((1, 9), 1, 2), ((2, 3), 1, 2), ((4, 5), 3, 2)]:
            for k in range(runs):
                x = random(*shape, seed=k)
                np.testing.assert_allclose(*(next(iter(e(x).values())) for e in (exe, judge)),
                                           rtol=1e-5, atol=1e-6)
            assert len(special.kept) == kept
    lines = [r.getMessage() for r in caplog.records]
    assert ["compiled for" in x for x in lines] == [True, True, True, False]
    assert "m=3, n=2, which came 8 times" in lines[0] and "dropped the program for m=5, n=4" in (
        lines[3])
    assert lines[-1] in exe.explain().notes
    assert all(isinstance(d, int) for p in special.kept.values()
               for v in p.graph.inputs for d in v.type.shape)


def test_specialised_programs_follow_parameters() -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F32, ["n", 16])],
                  [("y", F32, None)], weights={"w": random(16, 16)})
    exe = treadle.load(proto).compile("cpu", freeze=False, specialise=1)
    x = random(3, 16)
    exe.set_param("w", 2 * np.eye(16, dtype=np.float32))
    for _ in range(12):
        np.testing.assert_allclose(exe(x)["y"], 2 * x, rtol=1e-6)
    exe.set_param("w", 3 * np.eye(16, dtype=np.float32))
    for _ in range(12):
        np.testing.assert_allclose(exe(x)["y"], 3 * x, rtol=1e-6)
    assert len(exe._special.kept) == 1  # noqa: SLF001 - what is counted


def test_specialised_programs_under_several_threads() -> None:
    """Threads drop one another's programs and replace parameters between calls."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F32, ["n", 4])],
                  [("y", F32, None)], weights={"w": random(4, 4)})
    exe = treadle.load(proto).compile("cpu", freeze=False, specialise=1)
    exe.set_param("w", np.eye(4, dtype=np.float32))

    def work(rows: int) -> None:
        x = random(rows, 4, seed=rows)
        for _ in range(60):
            np.testing.assert_allclose(exe(x)["y"], x, rtol=1e-6)

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(work, n) for n in (1, 2, 3, 2)]:
            job.result()
    x = random(3, 4)
    exe.set_param("w", 2 * np.eye(4, dtype=np.float32))
    np.testing.assert_allclose(exe(x)["y"], 2 * x, rtol=1e-6)
