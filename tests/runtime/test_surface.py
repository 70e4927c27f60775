"""What every device offers between calls: runs in flight, parameters, clones."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, model, node
from tests.runtime.surface import compiled, names, random
from treadle.declare.arrays import Array
from treadle.errors import BindingError, RunError
from treadle.ir.graph import Value
from treadle.ops import concat, gather, matmul, sum_

# Runs in flight


def test_runs_in_flight_read_what_was_submitted(on: str) -> None:
    exe = compiled(on, lambda x: matmul(x, x) + 1.0, "f32[n,n]")
    x = np.empty((64, 64), np.float32)
    runs = []
    for k in range(100):  # more than may wait
        x[...] = k
        runs.append(exe.submit(x))
    x[...] = -1
    for k, run in enumerate(runs):
        (y,) = run.result().values()
        np.testing.assert_array_equal(y, np.full((64, 64), 64.0 * k * k + 1, np.float32))


def test_an_error_belongs_to_its_run(on: str) -> None:
    exe = compiled(on, lambda x, i: gather(x, i, axis=0) * 2.0, "f32[n]", "i64[m]")
    x = random(5)
    runs = [exe.submit(x, np.array([i])) for i in (1, 7, 2, -9, 4)]
    for i, run in zip((1, 7, 2, -9, 4), runs, strict=True):
        if i in (7, -9):
            with pytest.raises(RunError, match=f"index {i}"):
                run.result()
        else:
            assert next(iter(run.result().values())) == x[i] * 2
    with pytest.raises(BindingError, match="is missing"):
        exe.submit(x)


def test_a_call_comes_after_what_was_submitted(on: str) -> None:
    exe = compiled(on, lambda x, s: (matmul(x, x), s + 1.0), "f32[n,n]", "f32[]")
    (x, s), (_, after) = names(exe)
    count = exe.resident(s)
    count.feed(after)
    for _ in range(20):
        exe.submit(random(50, 50))
    exe({x: random(50, 50)})
    assert count.read() == 21


def test_a_dropped_executable_finishes_its_runs(on: str) -> None:
    exe = compiled(on, lambda x: matmul(x, x), "f32[n,n]")
    runs = [exe.submit(np.full((80, 80), k, np.float32)) for k in range(20)]
    del exe
    gc.collect()
    for k, run in enumerate(runs):
        assert next(iter(run.result().values()))[0, 0] == 80 * k * k


def test_runs_that_wait_can_be_withdrawn(on: str) -> None:
    exe = compiled(on, lambda x: x + 1.0, "f32[n]")
    held = threading.Event()
    first = exe._line.submit(held.wait)  # noqa: SLF001 - holds the line as a long run does
    runs = [exe.submit(np.full(2, k, np.float32)) for k in range(30)]
    assert all(run.cancel() for run in runs[::2])
    held.set()
    first.result()
    for k, run in enumerate(runs):
        if k % 2:
            assert next(iter(run.result().values()))[0] == k + 1
        else:
            with pytest.raises(CancelledError):
                run.result()
    assert next(iter(exe(np.zeros(1, np.float32)).values())) == 1


def test_what_waits_for_a_run_may_call(on: str) -> None:
    exe = compiled(on, lambda x: x * 2.0, "f32[]")
    found: list[float] = []

    def again(run: Any) -> None:  # noqa: ANN401 - a future
        (y,) = run.result().values()
        found.append(float(next(iter(exe(y).values()))))

    runs = [exe.submit(np.float32(k)) for k in range(40)]
    for run in runs:
        run.add_done_callback(again)
    exe.submit(np.float32(0)).result()
    assert sorted(found)[-1] == 4 * 39


def test_what_a_run_calls_cannot_call_back(on: str) -> None:
    """Nor where a device calls from another thread than the caller's."""
    exe, other = (compiled(on, lambda x: x * 2.0, "f32[n]") for _ in range(2))
    x = np.ones(3, np.float32)
    exe(x)

    def within(call: Callable[[], object]) -> None:
        def watch(*_: object) -> None:
            assert exe.explain().rows
            call()

        exe.run([x], watch=watch)

    def check() -> None:
        for call in (lambda: exe(x), lambda: exe.run([x])):
            with pytest.raises(RunError, match="its own run called"):
                within(call)
        within(lambda: other(x))

    check()
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(check).result(timeout=60)
    assert next(iter(exe(x).values())).tolist() == [2, 2, 2]


def test_storage_of_the_caller(on: str) -> None:
    exe = compiled(on, lambda x: x * 2.0, "f32[n]")
    (name,) = names(exe)[1]
    out = np.empty(3, np.float32)
    assert exe.submit(np.ones(3, np.float32), out={name: out}).result()[name] is out
    assert out.tolist() == [2, 2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_submits_afresh(on: str) -> None:
    if on == "mlx":
        return  # its owner thread is gone in a child, which is a clear error of its own
    exe = compiled(on, lambda x: x * 2.0, "f32[]")
    exe.submit(np.float32(1)).result()
    child = os.fork()
    if child == 0:
        try:
            ok = next(iter(exe.submit(np.float32(3)).result(20).values())) == 6
            os._exit(0 if ok else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# Parameters and copies


def weighted() -> Any:  # noqa: ANN401 - a model of the front end
    return treadle.load(model(
        [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])],
        [("x", F32, ["n", 16])], [("y", F32, None)],
        weights={"w": random(16, 16, seed=1), "b": random(16, seed=2)}))


def close(got: Array, *parts: Array) -> None:
    x, w, b = parts
    np.testing.assert_allclose(got, x.astype(np.float64) @ w + b, rtol=1e-4, atol=1e-4)


def test_parameters_are_shared_and_replaced(on: str) -> None:
    one, two = (weighted().compile(on, freeze=False) for _ in range(2))
    x, w, b = random(3, 16), random(16, 16, seed=1), random(16, seed=2)
    new = random(16, 16, seed=3)
    one.set_params({"w": new})
    two.share_params(one)
    close(two(x)["y"], x, new, b)
    assert two._program.params["w"] is one._program.params["w"]  # noqa: SLF001 - no copy
    one.set_param("b", np.zeros(16, np.float32))
    close(one(x)["y"], x, new, np.zeros(16))
    close(two(x)["y"], x, new, b)
    with pytest.raises(BindingError, match="no parameter 'q'"):
        one.set_params({"w": w, "q": w})
    close(one(x)["y"], x, new, np.zeros(16))
    with pytest.raises(BindingError, match="has no parameter 'w'"):
        two.share_params(compiled(on, lambda a: a + 1.0, "f32[n]"))


def test_parameters_change_between_runs_in_flight(on: str) -> None:
    exe = weighted().compile(on, freeze=False)
    x, b = random(3, 16), random(16, seed=2)
    runs = []
    for k in range(5):
        exe.set_param("w", np.full((16, 16), k, np.float32))
        runs.append(exe.submit(x))
    for k, run in enumerate(runs):
        close(run.result()["y"], x, np.full((16, 16), k), b)


def test_returned_parameters_are_copies(on: str) -> None:
    proto = model([node("Identity", ["w"], ["y"])], [], [("y", F32, None)],
                  weights={"w": random(4)})
    exe = treadle.load(proto).compile(on, freeze=False)
    for _ in range(2):
        out = exe()["y"]
        np.testing.assert_array_equal(out, random(4))
        out[...] = 0


def test_a_clone_goes_its_own_way(on: str) -> None:
    def fn(s: Value, x: Value) -> Sequence[Value]:
        return concat([s, x], axis=0), sum_(s, axes=(0,))

    exe = compiled(on, fn, "f32[n]", "f32[m]")
    (s, x), (new, total) = names(exe)
    state = exe.resident(s, np.ones(2, np.float32), capacity=8).feed(new)
    exe({x: np.ones(1, np.float32)})
    other = exe.clone()
    for _ in range(3):
        other({x: np.full(1, 5, np.float32)})
    assert state.read().tolist() == [1, 1, 1]
    assert exe({x: np.ones(1, np.float32)})[total] == 3
    assert other({x: np.ones(1, np.float32)})[total] == 18

    first = weighted().compile(on, freeze=False)
    second = first.clone()
    first.set_param("w", np.zeros((16, 16), np.float32))
    given, w, b = random(3, 16), random(16, 16, seed=1), random(16, seed=2)
    close(first(given)["y"], given, 0 * w, b)
    close(second(given)["y"], given, w, b)


def test_clones_run_at_once(on: str) -> None:
    exe = compiled(on, lambda x: matmul(x, x), "f32[n,n]")
    made = [exe, *(exe.clone() for _ in range(3))]
    runs = [e.submit(np.full((60, 60), k, np.float32)) for k in range(10) for e in made]
    for i, run in enumerate(runs):
        assert next(iter(run.result().values()))[0, 0] == 60 * (i // 4) ** 2
