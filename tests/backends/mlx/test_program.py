"""Modes, traces, faults and threads of the device "mlx", and the traps of MLX, each once."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import TypeVar

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.running import executable, normal, program, run_graph
from treadle.api import devices
from treadle.api import trace as trace_model
from treadle.backends.devices import device
from treadle.backends.mlx import arrays, ready
from treadle.backends.mlx import device as mlx_device
from treadle.backends.mlx.backend import Mlx
from treadle.backends.mlx.owner import Owner
from treadle.backends.mlx.program import MlxProgram
from treadle.config import MLX_MODES
from treadle.declare.arrays import Array
from treadle.errors import DeviceError, RunError
from treadle.ir.graph import Builder, Graph, Value, trace
from treadle.ir.types import F32, I32, I64, parse_type
from treadle.ops.activations import silu
from treadle.ops.arithmetic import floordiv, mod, mul
from treadle.ops.attention import attention
from treadle.ops.contract import matmul
from treadle.ops.control import loop, while_
from treadle.ops.convert import cast_
from treadle.ops.dynamic import nonzero
from treadle.ops.gather import gather, scatter_elements
from treadle.ops.linalg import inverse
from treadle.ops.mathfn import exp
from treadle.ops.reduce import sum_
from treadle.ops.scan1d import argmax, softmax
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config

traced = pytest.mark.skipif(bool(mlx_device.uncompiled()), reason="g++ is not installed")
"""Tests of traces, which MLX's CPU build compiles with g++."""


def made(exe: object) -> MlxProgram:
    found = exe._program  # type: ignore[attr-defined]
    assert isinstance(found, MlxProgram)
    return found


def dense(x: Value, w: Value) -> Value:
    return exp(matmul(x, w))


T = TypeVar("T")


def graph_with_parameter() -> Graph:
    with Builder("dense") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        w = b.input("w", parse_type("f32[4,3]"), param=True)
        return b.finish(dense(x, w))


@pytest.mark.parametrize("mode", MLX_MODES)
def test_modes_agree(mode: str) -> None:
    x, w = normal(5, 4), normal(4, 3, seed=1)
    found = program(graph_with_parameter(), mode, {"w": w})
    np.testing.assert_allclose(found.run([x], {"n": 5})[0], np.exp(x @ w), rtol=1e-5)


@pytest.mark.parametrize("mode", MLX_MODES)
def test_kept_outputs_stay_on_the_device(mode: str) -> None:
    """In the mode async nobody waits for them."""
    x, w = normal(4, 4), normal(4, 3, seed=1)
    found = program(graph_with_parameter(), mode, {"w": w})
    first, = found.run([found.storage.put(x)], {"n": 4}, kept=(0,))
    assert not isinstance(first, np.ndarray)
    np.testing.assert_allclose(found.storage.get(first), np.exp(x @ w), rtol=1e-5)


def test_the_mode_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_MLX_MODE", "eager")
    exe = trace_model(lambda x: exp(x), "f32[3]").compile("mlx")
    assert made(exe).mode == "eager"
    monkeypatch.delenv("TREADLE_MLX_MODE")
    exe = trace_model(lambda x: exp(x), "f32[3]").compile("mlx")
    assert made(exe).mode == mlx_device.usual_mode()


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(DeviceError, match="no mode 'quick'"):
        Mlx().with_mode("quick")


@traced
def test_new_values_retrace_nothing() -> None:
    """Neither inputs nor parameters are part of a trace; sizes are."""
    found = program(graph_with_parameter(), "compiled", {"w": normal(4, 3)})
    assert found.traces is not None
    for seed in range(3):
        w = normal(4, 3, seed=seed)
        found.set_param("w", w)
        x = normal(5, 4, seed=seed + 10)
        np.testing.assert_allclose(found.run([x], {"n": 5})[0], np.exp(x @ w), rtol=1e-5)
    assert found.traces.count == 1
    found.run([normal(6, 4)], {"n": 6})
    assert found.traces.count == 2


@traced
def test_traces_are_bounded() -> None:
    found = program(graph_with_parameter(), "compiled", {"w": normal(4, 3)})
    assert found.traces is not None
    for n in range(1, 30):
        found.run([normal(n, 4)], {"n": n})
    assert found.traces.count <= 16 < found.traces.made


def needs_values(x: Value) -> Value:
    return sum_(cast_(nonzero(x, names=("k",)), dtype=F32), axes=(0, 1))


@traced
def test_what_needs_host_data_runs_lazily_and_says_so() -> None:
    exe = executable(needs_values, "f32[5]")
    x = np.array([0, 1, 0, 2, 3], np.float32)
    assert next(iter(exe(x).values())) == 1 + 3 + 4
    assert any("lazy, not compiled" in n and "nonzero" in n for n in exe.explain().notes)


def test_a_missing_compiler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlx_device, "on_gpu", lambda: False)
    monkeypatch.setenv("PATH", "")
    found = program(graph_with_parameter(), "compiled", {"w": normal(4, 3)})
    assert found.traces is None and "g++" in found.notes[0]


def picks(x: Value, i: Value) -> Value:
    return gather(x, i, axis=0)


@pytest.mark.parametrize("mode", MLX_MODES)
def test_an_index_out_of_range_fails_its_run_alone(mode: str) -> None:
    exe = executable(picks, "f32[3,2]", "i64[2]", mode=mode)
    x = normal(3, 2)
    with pytest.raises(RunError, match="the index 7 is out of range for axis 0 of size 3"):
        exe(x, np.array([0, 7]))
    np.testing.assert_array_equal(next(iter(exe(x, np.array([-1, 0])).values())), x[[-1, 0]])


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_a_singular_matrix_is_an_error(mode: str) -> None:
    exe = executable(lambda x: inverse(x), "f32[2,2,2]", mode=mode)
    stack = np.stack([np.eye(2), np.ones((2, 2))]).astype(np.float32)
    with pytest.raises(RunError, match="batch entry 1 is singular"):
        exe(stack)


def doubled(n: Value) -> Value:
    def body(x: Value) -> tuple[Value]:
        return (mul(x, 2.0),)

    return while_([n], body=body, cond=lambda x: x < 100.0)  # type: ignore[return-value,call-overload]


@traced
def test_sizes_that_cannot_be_traced_are_told() -> None:
    """A result without elements is taken from the host's rule."""
    exe = executable(lambda x: argmax(x, axis=0), "f32[3,n]")
    exe(normal(3, 2))
    assert next(iter(exe(normal(3, 0)).values())).shape == (0,)
    assert any("'n': 0" in n and "without elements" in n for n in exe.explain().notes)


@traced
def test_loops_read_their_condition() -> None:
    exe = executable(doubled, "f32[]")
    assert next(iter(exe(np.float32(3.0).reshape(())).values())) == 192.0
    assert any("while" in n for n in exe.explain().notes)


@traced
def test_a_loop_of_known_length_is_traced() -> None:
    def turns(x: Value) -> Value:
        def body(i: Value, go: Value, x: Value) -> tuple[Value, ...]:
            return go, mul(x, 2.0)

        from treadle.ops.leaves import full

        trip = full(value=5, shape=(), dtype=I64)
        return loop([x], trip=trip, body=body, length=5)  # type: ignore[return-value,call-overload]

    exe = executable(turns, "f32[2]")
    found = made(exe)
    x = normal(2)
    np.testing.assert_allclose(next(iter(exe(x).values())), 32 * x)
    assert found.traces is not None and found.traces.count == 1


def in_thread(fn: Callable[[], T]) -> T:
    out: list[T] = []
    thread = threading.Thread(target=lambda: out.append(fn()))
    thread.start()
    thread.join()
    return out[0]


def test_any_thread_may_call() -> None:
    """MLX itself refuses arrays of another thread's stream."""
    exe = executable(lambda x: exp(x), "f32[3]", mode="lazy")
    x = normal(3)
    for _ in range(3):
        found = in_thread(lambda: next(iter(exe(x).values())))
        np.testing.assert_allclose(found, np.exp(x), rtol=1e-5)


@traced
def test_threads_share_two_traces() -> None:
    """The first thread runs its calls itself, one of the owner's those of all others."""
    exe = executable(lambda x: exp(x), "f32[3]")
    x = normal(3)

    def call() -> Array:
        return next(iter(exe(x).values()))

    for found in (call(), *[in_thread(call) for _ in range(3)], call()):
        np.testing.assert_allclose(found, np.exp(x), rtol=1e-5)
    traces = made(exe).traces
    assert traces is not None and traces.count <= 2


def test_the_first_thread_may_end() -> None:
    """Then the next one that calls takes its place; arrays go on."""
    held = list[Owner]()

    def begin() -> mx.array:
        held.append(Owner())
        return held[0].call(lambda: mx.array([1.0, 2.0]) + 1)

    lazy = in_thread(begin)
    assert held[0].call(lambda: np.array(lazy * 2).tolist()) == [4.0, 6.0]
    assert held[0].call(threading.get_ident) == threading.get_ident()
    assert in_thread(lambda: held[0].call(threading.get_ident)) != threading.get_ident()


def test_products_of_one_operand_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; the parts are views of one product."""
    monkeypatch.setattr(arrays, "on_gpu", lambda: True)
    weights = {"q": normal(4, 6), "k": normal(4, 3, seed=1)}
    with Builder("two") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        q, k = (b.input(n, parse_type(f"f32[4,{w.shape[1]}]"), param=True)
                for n, w in weights.items())
        graph = b.finish([matmul(x, q), exp(matmul(x, k))])
    backend = Mlx("lazy")
    ctx = Context(dict(weights), legaliser=backend)
    done = backend.compile(from_config().run(graph, ctx).graph, ctx.params)
    assert [n.op for n in done.graph.nodes].count("matmul") == 1
    given = normal(5, 4, seed=2)
    found = done.run([given], {"n": 5})
    for have, want in zip(found, (given @ weights["q"], np.exp(given @ weights["k"])), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@traced
def test_expressions_as_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a lazy run gives an expression of several primitives one launch."""
    monkeypatch.setattr(ready, "on_gpu", lambda: True)
    w, x = normal(4, 3), normal(5, 4)
    y = x @ w
    exe = executable(lambda x, w: silu(matmul(x, w)), "f32[5,4]", "f32[4,3]", mode="lazy")
    for _ in range(2):
        found, = exe(x, w).values()
        np.testing.assert_allclose(found, y / (1 + np.exp(-y)), rtol=1e-4)
    steps = [s for s in made(exe).plans.all() if s.ready is not None and s.ready.whole is not None]
    assert [s.node.op for s in steps] == ["silu"]


def child(queue: object) -> None:
    try:
        queue.put(devices()["mlx"])  # type: ignore[attr-defined]
        executable(lambda x: exp(x), "f32[3]", mode="lazy")(normal(3))
        queue.put("ran")  # type: ignore[attr-defined]
    except DeviceError as e:
        queue.put(str(e))  # type: ignore[attr-defined]


def test_a_forked_child_is_told() -> None:
    executable(lambda x: exp(x), "f32[3]", mode="lazy")(normal(3))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert "not available: MLX was used before" in queue.get(timeout=60)
    assert "forked" in queue.get(timeout=60)
    process.join()


def one(fn: Callable[..., Value], *arrays: Array, mode: str = "lazy") -> Array:
    """The first output of a function of arrays."""
    from treadle.declare.arrays import type_of

    return run_graph(mode, trace(fn, *[type_of(a) for a in arrays]), arrays)[0]


def test_long_sums_keep_their_digits() -> None:
    """MLX adds on the CPU one after another: 5e-5 is lost over four million elements."""
    x = np.random.default_rng(0).random(1 << 22, dtype=np.float32)
    found = one(lambda x: sum_(x, axes=(0,)), x)
    np.testing.assert_allclose(found, x.sum(dtype=np.float64), rtol=1e-6)


def test_halves_are_computed_in_f32() -> None:
    x = np.full(4096, 0.1, np.float16)
    assert one(lambda x: sum_(x, axes=(0,)), x) == np.float16(x.astype(np.float32).sum())
    row = np.linspace(-9, 9, 4096).astype(np.float16)
    wide = np.exp(row.astype(np.float64) - 9)
    np.testing.assert_allclose(one(lambda x: softmax(x), row).astype(np.float64),
                               wide / wide.sum(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("mode", ["lazy", "compiled"])
def test_causal_attention_counts_from_the_first_key(mode: str) -> None:
    """MLX's mask "causal" is aligned to the last key."""
    q, k, v = normal(1, 2, 3, 8), normal(1, 2, 5, 8, seed=1), normal(1, 2, 5, 8, seed=2)
    found = one(lambda q, k, v: attention(q, k, v, right=0), q, k, v, mode=mode)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(8)
    scores = np.where(np.tri(3, 5, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(found, p / p.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-6)


def test_causal_attention_at_two_lengths() -> None:
    """A shapeless trace would repeat the mask of the first length."""
    exe = executable(lambda q: attention(q, q, q, right=0), "f32[1,2,s,8]")
    want = executable(lambda q: attention(q, q, q, right=0), "f32[1,2,s,8]", mode="lazy")
    for s in (4, 7, 4):
        q = normal(1, 2, s, 8, seed=s)
        for a, b in zip(exe(q).values(), want(q).values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_integer_division_traps_nothing() -> None:
    """MLX divides i32's lowest by -1 with the processor's instruction, which ends the process."""
    a = np.array([-2**31, -2**31, 7, -7], np.int32)
    b = np.array([-1, 0, 0, 2], np.int32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(one(lambda a, b: floordiv(a, b), a, b), a // b)
        np.testing.assert_array_equal(one(lambda a, b: mod(a, b), a, b), a % b)


def test_casts_saturate() -> None:
    x = np.array([1e30, -1e30, np.nan, -1.5], np.float32)
    np.testing.assert_array_equal(one(lambda x: cast_(x, dtype=I32), x),
                                  [2**31 - 1, -2**31, 0, -1])


def test_the_last_of_several_updates_wins() -> None:
    x, at = np.zeros(3, np.float32), np.array([1, 1, 1])
    found = one(lambda x, i, u: scatter_elements(x, i, u, axis=0), x, at, normal(3))
    assert found[1] == normal(3)[2]


def test_f64_runs_on_the_host_and_is_named() -> None:
    exe = executable(lambda x: exp(x), "f64[3]")
    x = normal(3).astype(np.float64)
    np.testing.assert_array_equal(next(iter(exe(x).values())), np.exp(x))
    assert [(r.claim, "f64" in r.reason) for r in exe.explain().rows] == [("host", True)]


def test_strides_and_byte_order_of_inputs() -> None:
    exe = executable(lambda x: mul(x, 2.0), "f32[4,3]", mode="lazy")
    x = normal(3, 4).T[::-1]
    np.testing.assert_array_equal(next(iter(exe(x).values())), 2 * x)


def test_the_device_is_described() -> None:
    assert device("mlx").unavailable() == "" and "MLX 0." in device("mlx").describe()
