"""Recurrences of the CPU device against plain recurrences in f64."""
# ruff: noqa: ANN401 - attributes, dtypes and graph values of any kind

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.oracles import state_space as oracle
from treadle.backends.cpu.claims import claim
from treadle.backends.cpu.recurrence.linear import emit_linear
from treadle.backends.cpu.recurrence.spec import Linear
from treadle.codegen.llvm import target
from treadle.codegen.llvm.jit import assembly, spills
from treadle.codegen.llvm.kernel import export
from treadle.codegen.llvm.text import F16, F32, Module
from treadle.declare.arrays import dtype_of_array
from treadle.ir.dims import sym
from treadle.ir.graph import trace
from treadle.ir.types import TensorType
from treadle.ops.movement import narrow
from treadle.ops.state_space import linear_attention
from treadle.ops.state_space_conv import causal_conv_with_state
from treadle.ops.state_space_scan import selective_scan
from treadle.runtime.model import Built, Model

Arrays = Mapping[str, np.ndarray]
RNG = np.random.default_rng(7)
TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}


def f32(*shape: int, scale: float = 0.5) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def compiled(op: Callable[..., Any], operands: Arrays, positional: int, threads: int = 2,
             time: Mapping[str, int] | None = None, **attrs: Any) -> Any:
    """The operator as a program whose batch is N and whose axis `time[name]` is T."""
    names, axes = list(operands), time or {}

    def kind(name: str, x: np.ndarray) -> TensorType:
        sizes: list[Any] = list(x.shape)
        if name in axes:
            sizes[axes[name]] = sym("T")
        return TensorType(tuple(sizes), dtype_of_array(x))

    def call(*xs: Any) -> Any:
        return op(*xs[:positional], **dict(zip(names[positional:], xs[positional:], strict=True)),
                  **attrs)

    graph = trace(call, *[kind(n, x) for n, x in operands.items()], name="one")
    assert [claim(n).how for n in graph.nodes] == ["native"], [claim(n) for n in graph.nodes]
    return Model("one", Built(graph, {})).compile("cpu", threads=threads)


def run(program: Any, operands: Arrays) -> list[np.ndarray]:
    return list(program.run(list(operands.values())).values())


def close(got: list[np.ndarray], want: list[np.ndarray], factor: float = 1.0) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        wide = w.astype(np.float64)
        bound = TOLERANCE[g.dtype.name] * factor * max(np.abs(wide).max(initial=0), 1e-3)
        np.testing.assert_allclose(g.astype(np.float64), wide, rtol=0, atol=bound)


def attention(tokens: int, heads: tuple[int, int, int], dk: int, dv: int, decay: int = 0,
              beta: int = 0, past: bool = True, window: int = 0, dtype: Any = np.float32,
              state: Any = None, n: int = 2) -> dict[str, np.ndarray]:
    q, k, h = heads
    key = f32(n, tokens, k, dk)
    key /= np.linalg.norm(key, axis=-1, keepdims=True) + 1e-6
    out = {"query": f32(n, tokens, q * dk), "key": key.reshape(n, tokens, k * dk),
           "value": f32(n, tokens, h * dv)}
    if past:
        out["past"] = f32(*[window] * (window > 0), n, h, dk, dv)
    if decay:
        out["decay"] = -np.abs(f32(n, tokens, decay))
    if beta:
        out["beta"] = RNG.random((n, tokens, beta)).astype(np.float32)
    return {name: x.astype(state if name == "past" and state else dtype)
            for name, x in out.items()}


def answer(operands: Arrays, **attrs: Any) -> list[np.ndarray]:
    q, k, v, *rest = operands.values()
    return oracle.linear_attention(q, k, v, **dict(zip(list(operands)[3:], rest, strict=True)),
                                   **attrs)


GEOMETRIES: dict[str, dict[str, Any]] = {
    "linear": {"heads": (4, 2, 2), "dk": 16, "dv": 32},
    "gated": {"heads": (2, 2, 2), "dk": 13, "dv": 37, "decay": 2},
    "gated by key": {"heads": (2, 1, 2), "dk": 16, "dv": 20, "decay": 32, "past": False},
    "delta": {"heads": (2, 2, 2), "dk": 16, "dv": 16, "beta": 1},
    "gated_delta": {"heads": (8, 1, 2), "dk": 20, "dv": 150, "decay": 2, "beta": 2},
    "gated_delta by key": {"heads": (1, 1, 4), "dk": 9, "dv": 8, "decay": 36, "beta": 4,
                           "window": 3},
    "gated_delta halves": {"heads": (2, 2, 2), "dk": 8, "dv": 11, "decay": 2, "beta": 2,
                           "dtype": np.float16, "state": np.float32},
    "gated_delta wide": {"heads": (4, 2, 2), "dk": 10, "dv": 64, "decay": 20, "beta": 1,
                         "state": np.float16},
    "gated bf16": {"heads": (2, 2, 2), "dk": 8, "dv": 16, "decay": 2, "window": 2,
                   "dtype": ml_dtypes.bfloat16}}
TOKENS = (0, 1, 3, 5, 16, 41, 64)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_linear_attention_of_any_length_by_one_program(name: str) -> None:
    shape = GEOMETRIES[name]
    attrs = {"rule": name.split()[0], "q_heads": shape["heads"][0], "kv_heads": shape["heads"][2],
             "state_window": shape.get("window", 0)}
    given = attention(tokens=2, **shape)
    time = {n: 1 for n in given if n != "past"}
    program = compiled(linear_attention, given, 3, time=time, **attrs)
    for tokens in TOKENS:
        operands = attention(tokens=tokens, **shape)
        close(run(program, operands), answer(operands, **attrs))


@pytest.mark.parametrize(("tokens", "known"), [(700, True), (700, False), (4500, False)])
@pytest.mark.parametrize("past", [True, False])
def test_spans_hand_the_state_on(tokens: int, known: bool, past: bool) -> None:
    """Prompts that kernels take in several spans, which differ with what is known of T."""
    shape: dict[str, Any] = {"heads": (2, 1, 2), "dk": 8, "dv": 16, "decay": 2, "beta": 2,
                             "past": past, "n": 1 + known}
    attrs = {"rule": "gated_delta", "q_heads": 2, "kv_heads": 2}
    operands = attention(tokens, **shape)
    time = {n: 1 for n in operands if n != "past" and not known}
    program = compiled(linear_attention, operands, 3, time=time, **attrs)
    close(run(program, operands), answer(operands, **attrs))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_thread_counts_give_the_same_bits(dtype: Any) -> None:
    operands = attention(300, (4, 2, 4), 16, 140, 4, 4, dtype=dtype)
    attrs = {"rule": "gated_delta", "q_heads": 4, "kv_heads": 4}
    runs = [run(compiled(linear_attention, operands, 3, threads, **attrs), operands)
            for threads in (1, 2, 4)]
    for other in runs[1:]:
        assert [x.tobytes() for x in other] == [x.tobytes() for x in runs[0]]


def test_decays_to_nothing_and_long_keys_are_exact_cases() -> None:
    """exp(-inf) forgets everything; keys of any length follow the recurrence they define."""
    shape: dict[str, Any] = {"heads": (2, 2, 2), "dk": 16, "dv": 16, "decay": 2, "beta": 2}
    attrs = {"rule": "gated_delta", "q_heads": 2, "kv_heads": 2}
    operands = attention(70, **shape)
    program = compiled(linear_attention, operands, 3, **attrs)
    operands["decay"][:, 20:23] = -np.inf
    operands["decay"][:, 40] = -200.0
    operands["decay"][:, 50:] = 0.0
    close(run(program, operands), answer(operands, **attrs))
    operands = attention(70, **shape)
    operands["key"] *= 2.5  # beta |k|^2 up to 6.25: the recurrence overshoots and grows
    operands["beta"][:] = RNG.uniform(0.2, 1.0, operands["beta"].shape)
    close(run(program, operands), answer(operands, **attrs), factor=50)
    operands["key"] *= 0
    close(run(program, operands), answer(operands, **attrs))


@pytest.mark.parametrize("decay", [2, 16])
def test_a_token_reaches_no_token_before_it(decay: int) -> None:
    shape: dict[str, Any] = {"heads": (2, 2, 2), "dk": 8, "dv": 16, "decay": decay, "beta": 2}
    attrs = {"rule": "gated_delta", "q_heads": 2, "kv_heads": 2}
    operands = attention(40, **shape)
    program = compiled(linear_attention, operands, 3, **attrs)
    sound = run(program, operands)[0]
    for name, x in operands.items():
        if name != "past":
            x[:, 21] = np.nan
            x[:, 23] = np.inf
    found = run(program, operands)[0]
    np.testing.assert_array_equal(found[:, :21], sound[:, :21])
    assert np.isnan(found[:, 24:]).all()


def test_decays_that_grow() -> None:
    operands = attention(50, (2, 2, 2), 8, 8, 2)
    operands["decay"] = np.abs(operands["decay"]) * 0.3
    attrs = {"rule": "gated", "q_heads": 2, "kv_heads": 2}
    close(run(compiled(linear_attention, operands, 3, **attrs), operands),
          answer(operands, **attrs))


def test_token_by_token_is_the_prefill() -> None:
    shape: dict[str, Any] = {"heads": (4, 2, 2), "dk": 16, "dv": 32, "decay": 2, "beta": 2}
    attrs = {"rule": "gated_delta", "q_heads": 4, "kv_heads": 2}
    operands = attention(40, **shape)
    program = compiled(linear_attention, operands, 3, time={
        n: 1 for n in operands if n != "past"}, **attrs)
    whole, state, rows = run(program, operands), operands["past"], list[np.ndarray]()
    for t in range(40):
        y, state = run(program, {n: state if n == "past" else x[:, t:t + 1]
                                 for n, x in operands.items()})
        rows.append(y)
    close([np.concatenate(rows, 1), state], whole)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "first": {"x": (2, 5), "taps": 4, "bias": True, "past": True, "activation": "silu"},
    "first dilated": {"x": (2, 3), "taps": 3, "dilation": 3, "past": True, "state_window": 4},
    "first without past": {"x": (1, 9), "taps": 20, "bias": True, "state_window": 2},
    "last": {"x": (2, 37), "taps": 4, "bias": True, "past": True, "activation": "swish",
             "channels_last": True},
    "last windowed": {"x": (2, 3, 11), "taps": 3, "dilation": 2, "past": True, "state_window": 3,
                      "channels_last": True},
    "last without past": {"x": (1, 64), "taps": 18, "channels_last": True, "state_window": 5},
    "one tap": {"x": (1, 8), "taps": 1, "bias": True, "channels_last": True},
    "halves": {"x": (2, 6), "taps": 3, "past": True, "dtype": np.float16},
    "bf16": {"x": (2, 5), "taps": 4, "past": True, "activation": "silu",
             "dtype": ml_dtypes.bfloat16}}


def convolution(length: int, x: tuple[int, ...], taps: int, bias: bool = False,
                past: bool = False, dilation: int = 1, channels_last: bool = False,
                state_window: int = 0, dtype: Any = np.float32, activation: str = "none"
                ) -> dict[str, np.ndarray]:
    n, *channels = x
    count, reach = int(np.prod(channels)), (taps - 1) * dilation
    wide = (n, length, *channels) if channels_last else (n, count, length)
    state = (n, reach, *channels) if channels_last else (n, count, reach)
    out = {"x": f32(*wide), "weight": f32(count, 1, taps)}
    if bias:
        out["bias"] = f32(count)
    if past:
        out["past"] = f32(*[state_window] * (state_window > 0), *state)
    assert activation in ("none", "silu", "swish")
    return {name: a.astype(dtype) for name, a in out.items()}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_causal_convolution_of_any_length_by_one_program(name: str) -> None:
    shape = CONVOLUTIONS[name]
    attrs = {k: shape[k] for k in ("activation", "dilation", "channels_last", "state_window")
             if k in shape}
    axis = 1 if shape.get("channels_last") else 2
    program = compiled(causal_conv_with_state, convolution(2, **shape), 2, time={"x": axis},
                       **attrs)
    for length in (0, 1, 2, 7, 33, 1500):
        operands = convolution(length, **shape)
        x, w, *rest = operands.values()
        named = dict(zip(list(operands)[2:], rest, strict=True))
        close(run(program, operands), oracle.causal_conv_with_state(x, w, **named, **attrs))


@pytest.mark.parametrize(("channels", "states", "state", "dtype"), [
    (5, 16, True, np.float32), (32, 3, False, np.float32), (19, 4, True, np.float16)])
def test_selective_scan_of_any_length_by_one_program(channels: int, states: int, state: bool,
                                                     dtype: Any) -> None:
    def given(tokens: int) -> dict[str, np.ndarray]:
        rate = np.abs(f32(2, tokens, channels, scale=0.2))
        out = {"x": f32(2, tokens, channels).astype(dtype), "dt": rate.astype(dtype),
               "a": -np.abs(f32(channels, states)), "b": f32(2, tokens, states).astype(dtype),
               "c": f32(2, tokens, states).astype(dtype)}
        return {**out, **({"state": f32(2, channels, states)} if state else {})}

    time: dict[str, int] = dict.fromkeys(["x", "dt", "b", "c"], 1)
    program = compiled(selective_scan, given(2), 5, time=time)
    for tokens in (0, 1, 3, 50):
        operands = given(tokens)
        values = list(operands.values())
        close(run(program, operands),
              oracle.selective_scan(*values[:5], state=values[5] if state else None))


def test_operands_that_are_slices_of_one_projection() -> None:
    """Views with their own strides are read where they lie."""
    packed, heads, d = f32(2, 30, 3 * 2 * 8), 2, 8

    def call(x: Any) -> Any:
        q, k, v = (narrow(x, axis=2, start=i * heads * d, length=heads * d) for i in range(3))
        return linear_attention(q, k, v, rule="linear", q_heads=heads, kv_heads=heads)

    graph = trace(call, TensorType(packed.shape, dtype_of_array(packed)), name="one")
    program = Model("one", Built(graph, {})).compile("cpu")
    q, k, v = (packed[..., i * 16:i * 16 + 16] for i in range(3))
    close(run(program, {"x": packed}), oracle.linear_attention(
        q, k, v, rule="linear", q_heads=heads, kv_heads=heads))


@pytest.mark.parametrize("on", [target.AVX2, target.AVX512, target.NEON], ids=lambda t: t.cpu)
def test_tiles_stay_in_registers(on: target.Target) -> None:
    module = Module(on)
    spec = Linear(2, 2, 2, 64, 64, 0.1, "head", "head", True, 0, F16, F32)
    export(module, [emit_linear(module, spec, "scan")])
    found = spills(assembly(module.text(), on))
    tiles = {name: s for name, s in found.items() if name.startswith((
        "slab_product", "slab_update", "slab_answer", "slab_solve", "state_step"))}
    assert tiles
    assert not {name: s for name, s in tiles.items() if s.moves}


@pytest.mark.parametrize(("width", "registers"), [(16, 32), (64, 32)])
def test_vectors_of_any_width(width: int, registers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The geometry of other processors, computed by this one: LLVM splits or joins the vectors."""
    other = replace(target.host(), vector_bytes=width, vector_registers=registers)
    for module in ("assembly", "recurrence.lowering"):
        monkeypatch.setattr(f"treadle.backends.cpu.{module}.host", lambda: other)
    shape: dict[str, Any] = {"heads": (4, 2, 2), "dk": 20, "dv": 150, "decay": 2, "beta": 2}
    attrs = {"rule": "gated_delta", "q_heads": 4, "kv_heads": 2}
    for tokens in (1, 75):
        operands = attention(tokens, **shape)
        close(run(compiled(linear_attention, operands, 3, **attrs), operands),
              answer(operands, **attrs))
    for last in (False, True):
        given = convolution(20, (2, 37), 4, past=True, channels_last=last)
        close(run(compiled(causal_conv_with_state, given, 2, channels_last=last), given),
              oracle.causal_conv_with_state(*list(given.values())[:2], past=given["past"],
                                            channels_last=last))
    scan = [f32(1, 9, 21), np.abs(f32(1, 9, 21)), -np.abs(f32(21, 3)), f32(1, 9, 3), f32(1, 9, 3)]
    names: list[str] = ["x", "dt", "a", "b", "c"]
    given = dict(zip(names, scan, strict=True))
    close(run(compiled(selective_scan, given, 5), given), oracle.selective_scan(*scan))


STATEFUL: dict[str, tuple[Any, int, Any]] = {
    "linear attention": (linear_attention, 3, lambda t: attention(
        t, (2, 2, 2), 8, 32, decay=2, beta=2, n=1)),
    "selective scan": (selective_scan, 5, lambda t: {
        "x": f32(1, t, 70), "dt": np.abs(f32(1, t, 70)), "a": -np.abs(f32(70, 4)),
        "b": f32(1, t, 4), "c": f32(1, t, 4), "state": f32(1, 70, 4)}),
    "convolution": (causal_conv_with_state, 2, lambda t: convolution(
        t, (1, 5), 4, past=True)),
    "channels last": (causal_conv_with_state, 2, lambda t: convolution(
        t, (1, 600), 4, past=True, channels_last=True))}


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("tokens", [1, 2, 600])
def test_states_are_replaced_where_they_lie(name: str, tokens: int) -> None:
    op, positional, given = STATEFUL[name]
    attrs: dict[str, Any] = {"linear attention": {"q_heads": 2, "kv_heads": 2},
                             "channels last": {"channels_last": True}}.get(name, {})
    operands = given(tokens)
    program = compiled(op, operands, positional, **attrs)
    key = "state" if "state" in operands else "past"
    past = program.signature.inputs[list(operands).index(key)].name
    outputs, state, want = program.signature.outputs, operands[key], list[np.ndarray]()
    for _ in range(3):
        y, state = run(program, {**operands, key: state})
        want.append(y)
    held = program.resident(past, operands[key]).feed(output=outputs[1].name)
    rest = [x for n, x in operands.items() if n != key]
    for y in want:
        np.testing.assert_array_equal(program(*rest)[outputs[0].name], y)
    np.testing.assert_array_equal(held.read(), state)
    assert held.grant.in_place, held.grant
