"""What the device "mlx" promises of its runs: errors stay with theirs, memory is bounded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

import treadle
from tests.backends.mlx.running import executable, normal
from tests.onnx.build import F32, model, node
from tests.runtime.surface import names
from treadle.backends.mlx import claims, shared
from treadle.backends.mlx.lowering import plain
from treadle.backends.mlx.program import MlxProgram
from treadle.backends.mlx.traces import KEPT, Trace, Traces
from treadle.config import MLX_MODES
from treadle.errors import RunError
from treadle.ir.graph import Value
from treadle.ops import argmax, concat, cumsum, full, matmul, sum_
from treadle.runtime.executable import Executable
from treadle.runtime.model import Model


@pytest.fixture
def unfused() -> Iterator[None]:
    """Traces run as they are: on the CPU MLX calls g++ for each kernel."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def fails(x: mx.array, **_: object) -> mx.array:
    """Zeros like x; of three rows as a product that MLX's CPU has not."""
    at, halves = mx.array([0]), mx.zeros((1, 2, 2), dtype=mx.float16)
    made = mx.gather_mm(halves, halves, rhs_indices=at, stream=mx.cpu)  # type: ignore[arg-type]
    return x * 0.0 + made[0, 0, 0].astype(x.dtype) if len(x) == 3 else x * 0.0


@pytest.mark.parametrize("mode", MLX_MODES)
def test_what_mlx_fails_to_evaluate_fails_its_run_alone(
        mode: str, unfused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX gives zeros for such arrays afterwards; nothing here reads them."""
    monkeypatch.setitem(claims.LOWERINGS, "cumsum", plain(fails))
    exe = executable(lambda s, x: s + 1.0 + sum_(cumsum(x, axis=0), axes=(0,)),
                     "f32[2]", "f32[n,2]", mode=mode)
    (s, x), (new,) = names(exe)
    zero, fit, wrong = (np.zeros(n, np.float32) for n in (2, (2, 2), (3, 2)))
    message = r"^cumsum\(.*MLX failed" if mode == "eager" else "MLX failed to evaluate the graph"
    runs = [exe.submit(zero, m) for m in (fit, wrong, fit)]
    with pytest.raises(RunError, match=message):
        runs[1].result()
    for run in runs[::2]:
        np.testing.assert_array_equal(run.result()[new], zero + 1)
    state = exe.resident(s, zero).feed(new)  # in the mode async nobody waits for these runs
    for _ in range(2):
        exe({x: fit})
        with pytest.raises(RunError, match=message):
            exe({x: wrong})
    np.testing.assert_array_equal(state.read(), zero + 2)


def test_calls_keep_no_trace_that_was_dropped(unfused: None, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    """An executable keeps more calls than its program traces; a call traces again."""
    alive = weakref.WeakSet[Trace]()
    add = Traces.add
    monkeypatch.setattr(Traces, "add", lambda self, key, trace: (
        alive.add(trace), add(self, key, trace))[1])
    exe = executable(lambda x: matmul(x, x), "f32[n,n]")
    for n in [*range(1, 2 * KEPT), 1, 1]:
        for _ in range(2):
            np.testing.assert_allclose(next(iter(exe(np.ones((n, n), np.float32)).values())), n)
    gc.collect()
    assert len(alive) == KEPT


def test_lengths_are_traced_when_they_come_again(unfused: None) -> None:
    """A cache that grows has sizes of its own in every run, and a trace costs more than a run."""
    exe = executable(lambda s, x: concat([s, x], axis=0), "f32[n,2]", "f32[1,2]")
    (s, x), (grown,) = names(exe)
    state = exe.resident(s, shape=(0, 2), capacity=8).feed(grown)
    assert any("traced when it comes again" in note for note in exe.explain().notes)
    rows = normal(6, 2)
    for made in (0, 6, 6):
        state.length = 0
        for row in rows:
            exe({x: row[None]})
        np.testing.assert_array_equal(state.read(), rows)
        program = exe._program  # noqa: SLF001 - what is counted
        assert isinstance(program, MlxProgram) and program.traces and program.traces.made == made


def test_remarks_on_sizes_are_bounded() -> None:
    exe = executable(lambda x: argmax(x, axis=0), "f32[m,n]")
    for m in range(1, 3 * KEPT):
        exe(normal(m, 0))
    notes = exe.explain().notes
    assert len(notes) == KEPT and f"'m': {3 * KEPT - 1}" in notes[-1]


def weighted() -> Model:
    """A filter, which MLX reads packed, and a matrix, which it reads as it is."""
    loaded = treadle.load(model(
        [node("Conv", ["x", "f"], ["t"]), node("MatMul", ["t", "w"], ["y"])],
        [("x", F32, ["n", 2, 4, 4])], [("y", F32, None)],
        weights={"f": normal(3, 2, 2, 2), "w": normal(3, 5, seed=1)}))
    assert isinstance(loaded, Model)
    return loaded


def forms(exe: Executable) -> set[int]:
    exe(np.ones((1, 2, 4, 4), np.float32))
    found = exe._program  # noqa: SLF001 - whose arrays are compared
    assert isinstance(found, MlxProgram) and found._given is not None  # noqa: SLF001 - the same
    return {id(x) for part in found._given for x in part}  # noqa: SLF001 - the same


def test_programs_share_parameters_on_the_device() -> None:
    """Those of one model, of a clone, and after `share_params`; not what is replaced later."""
    loaded = weighted()
    one, two = (loaded.compile("mlx", mode="lazy", freeze=False) for _ in range(2))
    other = weighted().compile("mlx", mode="lazy", freeze=False)
    assert len(forms(one)) == 2
    assert forms(one) == forms(two) == forms(one.clone()) and forms(one).isdisjoint(forms(other))
    one.set_param("w", normal(3, 5, seed=2))
    assert len(forms(one) & forms(two)) == 1
    other.share_params(one)
    assert forms(other) == forms(one) != forms(two)


def test_parameters_that_did_not_reach_the_device_are_brought_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX gives zeros for what it failed to evaluate."""
    exe = weighted().compile("mlx", mode="lazy", freeze=False)
    x = normal(1, 2, 4, 4)
    want = weighted().compile("reference")(x)["y"]

    def full(*_: object) -> None:
        raise RunError("MLX failed to evaluate the graph: out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(shared, "evaluate", full)
        for _ in range(2):
            with pytest.raises(RunError, match="out of memory"):
                exe(x)
    np.testing.assert_allclose(exe(x)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MLX_MODES)
def test_constant_results_are_the_callers_own(mode: str) -> None:
    """What is kept for later runs does not change with what a caller writes."""
    def constant(x: Value) -> list[Value]:
        made = full(value=2.0, shape=(3,), dtype=x.dtype)
        return [made, made]

    exe = executable(constant, "f32[1]", mode=mode)
    for _ in range(3):
        first, second = exe(np.ones(1, np.float32)).values()
        np.testing.assert_array_equal(first, [2.0] * 3)
        first[...] = 7.0
        np.testing.assert_array_equal(second, [2.0] * 3)
