"""State-space and cache operators of ONNX against ONNX Runtime's own kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import treadle
from tests.onnx import build
from tests.onnx.ort import Run, check
from tests.oracles import state_space as oracle
from treadle import ops
from treadle.errors import RunError, UnsupportedError

RNG = np.random.default_rng(3)
BF16 = ml_dtypes.bfloat16
DEVICES = [name for name, what in treadle.devices().items() if not what.startswith("not ")]


def f32(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def attention(tokens: int, heads: tuple[int, int, int], dk: int = 4, dv: int = 6, decay: int = 0,
              beta: int = 0, past: bool = True) -> dict[str, np.ndarray | None]:
    q, k, h = heads
    return {"query": f32(2, tokens, q * dk), "key": f32(2, tokens, k * dk),
            "value": f32(2, tokens, h * dv), "past_state": f32(2, h, dk, dv) if past else None,
            "decay": -np.abs(f32(2, tokens, decay)) if decay else None,
            "beta": RNG.random((2, tokens, beta)).astype(np.float32) if beta else None}


def attends(rule: str, heads: tuple[int, int, int], tokens: int = 5, scale: float = 0.0,
            decay: int = 0, beta: int = 0, past: bool = True) -> Run:
    return Run("LinearAttention", attention(tokens, heads, decay=decay, beta=beta, past=past), 2,
               {"update_rule": rule, "q_num_heads": heads[0], "kv_num_heads": heads[2],
                "scale": scale})


def convolves(x: tuple[int, ...], taps: int = 4, past: bool = True, **attrs: object) -> Run:
    last, reach = attrs.get("channels_last"), (taps - 1) * int(str(attrs.get("dilation", 1)))
    count = int(np.prod(x[2:])) if last else x[1]
    state = (x[0], reach, *x[2:]) if last else (x[0], count, reach)
    return Run("CausalConvWithState", {
        "input": f32(*x), "weight": f32(count, 1, taps), "bias": f32(count),
        "past_state": f32(*state) if past else None}, 2, attrs)


RUNS = {
    "linear": attends("linear", (4, 2, 2)),
    "one key head": attends("linear", (4, 1, 2), past=False),
    "gated": attends("gated", (2, 2, 2), decay=2, scale=0.7),
    "gated by key": attends("gated", (4, 2, 2), decay=8),
    "delta": attends("delta", (2, 2, 2), beta=1),
    "gated_delta": attends("gated_delta", (4, 2, 2), decay=2, beta=2, tokens=40),
    "gated_delta by key": attends("gated_delta", (4, 2, 2), decay=8, beta=2, tokens=1),
    "fewer queries than states": attends("gated_delta", (1, 1, 4), decay=4, beta=4),
    "no tokens": attends("gated_delta", (2, 2, 2), decay=2, beta=2, tokens=0),
    "an unused decay": attends("linear", (2, 2, 2), decay=2),
    "convolution": convolves((2, 3, 5), activation="silu"),
    "convolution dilated": convolves((2, 3, 5), dilation=3),
    "convolution channels last": convolves((2, 5, 3), channels_last=1, activation="swish"),
    "convolution over several axes": convolves((2, 5, 2, 3), channels_last=1, dilation=2),
    "convolution of nothing": convolves((2, 3, 0)),
    "convolution without past": convolves((2, 3, 2), past=False),
    "convolution of one tap": convolves((2, 3, 4), taps=1, past=False),
    "gate": Run("LinearAttentionGate", {"a": f32(2, 3, 4), "dt_bias": f32(4),
                                        "decay_scale": -np.abs(f32(4)), "b": f32(2, 3, 4)}, 2),
    "gate f16": Run("LinearAttentionGate", {
        "a": f32(2, 3, 4).astype(np.float16), "dt_bias": f32(4),
        "decay_scale": -np.abs(f32(4))}, 1, rtol=1e-3),
    "add": Run("GatedAdd", {"x": f32(2, 3, 4), "y": f32(2, 3, 4), "gate": f32(2, 3, 1)}),
    "add f16": Run("GatedAdd", {n: f32(2, 3, w).astype(np.float16)
                                for n, w in (("x", 4), ("y", 4), ("gate", 1))}, rtol=1e-3),
    "norm": Run("GatedRMSNorm", {"x": f32(2, 3, 8), "scale": f32(4), "gate": f32(2, 3, 8)},
                attrs={"epsilon": 1e-3}),
    "norm by sigmoid": Run("GatedRMSNorm", {"x": f32(2, 8), "scale": f32(8), "gate": f32(2, 8)},
                           attrs={"activation": "sigmoid"}),
    **{f"cache {mode} {at}": Run("TensorScatter", {
        "cache": f32(2, 3, 7, 4), "update": f32(2, 3, 2, 4), "at": np.array(at)}, domain="",
        attrs={"mode": mode}, opset=24)
       for mode, at in (("linear", [0, 5]), ("circular", [6, 13]), ("circular", [0, 6]))},
    "cache on another axis": Run("TensorScatter", {
        "cache": f32(2, 7, 4), "update": f32(2, 3, 4), "at": np.array([4, 0])}, domain="",
        attrs={"axis": 1}, opset=24)}


@pytest.mark.parametrize("name", RUNS)
def test_onnx_runtime_gives_the_same(name: str) -> None:
    check(RUNS[name])


def loaded(op: str, shapes: Mapping[str, Sequence[int | str]],
           attrs: Mapping[str, object] | None = None, outputs: int = 2,
           domain: str = "com.microsoft", kinds: Mapping[str, int] | None = None
           ) -> treadle.Model:
    infos = [helper.make_tensor_value_info(n, (kinds or {}).get(n, onnx.TensorProto.FLOAT), s)
             for n, s in shapes.items() if s]
    names = [n if s else "" for n, s in shapes.items()]
    nodes = [build.node(op, names, [f"y{i}" for i in range(outputs)], domain=domain,
                        **(attrs or {}))]
    graph = helper.make_graph(nodes, "g", infos, [
        helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)])
    model = treadle.load(helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 27), helper.make_opsetid("com.microsoft", 1)], ir_version=10))
    assert isinstance(model, treadle.Model)
    return model


HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
QKV = {"query": (2, 5, 16), "key": (2, 5, 8), "value": (2, 5, 12)}
GATED = {**QKV, "past_state": (2, 2, 4, 6), "decay": (2, 5, 2), "beta": (2, 5, 2)}
WRONG = [
    ({}, {}, {"update_rule": "slow"}, "update_rule is 'slow'"),
    ({"decay": ()}, {}, {}, "update_rule 'gated_delta' needs decay"),
    ({"beta": (2, 5, 3)}, {}, {}, r"beta is f32\[2,5,3\]; \[2,5,2\] or \[2,5,1\] is needed"),
    ({"decay": (2, 5, 4)}, {}, {}, r"decay is f32\[2,5,4\]; \[2,5,2\] or \[2,5,8\] is needed"),
    ({"past_state": (2, 2, 4, 5)}, {}, {}, r"past_state is f32\[2,2,4,5\]; \[2,2,4,6\]"),
    ({"key": (2, 5, 6)}, {}, {}, "it must hold heads of 4"),
    ({"value": (2, 5, 13)}, {}, {}, "its last axis must hold 2 heads of equal size"),
    ({"value": (2, 4, 12)}, {}, {}, "batch and time must be the same"),
    ({"query": (2, 5, "w")}, {}, {}, "its last axis must be a known number"),
    ({}, {}, {"q_num_heads": 3}, "one number must be a multiple of the other"),
    ({}, {}, {"q_num_heads": 0}, "at least one of each is needed"),
    ({}, {"beta": onnx.TensorProto.FLOAT16}, {}, "beta is f16 and query is f32"),
    ({}, {}, {"state_window": 9}, "state_window is 9; 0 to 8 is needed")]


@pytest.mark.parametrize(("shapes", "kinds", "attrs", "sentence"), WRONG)
def test_what_a_node_may_not_be_is_said(shapes: dict[str, tuple[int, ...]],
                                        kinds: dict[str, int], attrs: dict[str, object],
                                        sentence: str) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        loaded("LinearAttention", {**GATED, **shapes}, {**HEADS, **attrs}, kinds=kinds)


def test_the_standard_asks_for_more() -> None:
    for shapes, attrs, sentence in (
            ({**GATED, "query": (2, 5, 4)}, {"q_num_heads": 1}, "a multiple of the 2 kv_num_heads"),
            ({**GATED, "key": (2, 5, 4)}, {}, "2 heads of 4 are needed"),
            (GATED, {"update_rule": "gated"}, "update_rule 'gated' takes no beta")):
        with pytest.raises(UnsupportedError, match=sentence):
            loaded("LinearAttention", shapes, {**HEADS, **attrs}, domain="")


CONV = {"input": (2, 3, 5), "weight": (3, 1, 4), "bias": (3,), "past_state": (2, 3, 3)}


@pytest.mark.parametrize(("shapes", "attrs", "sentence"), [
    ({"weight": (4, 1, 4)}, {}, "the channels must be the same"),
    ({"weight": (3, 2, 4)}, {}, r"weight is f32\[3,2,4\]; \[channels,1,kernel\] is needed"),
    ({"past_state": (2, 3, 4)}, {}, r"past_state is f32\[2,3,4\]; \[2,3,3\] is needed"),
    ({}, {"dilation": 0}, "dilation is 0; a positive"),
    ({"past_state": ()}, {"dilation": 2**30}, "positions back"),
    ({}, {"activation": "relu"}, "activation is 'relu'"),
    ({}, {"ndim": 2}, "ndim is 2; 1 is needed"),
    ({}, {"state_length": 5}, "state_length is 5; 0 is needed"),
    ({"input": (2, 3, 5, 1)}, {}, r"\[N,channels,L\] is needed")])
def test_what_a_convolution_may_not_be_is_said(shapes: dict[str, tuple[int, ...]],
                                               attrs: dict[str, object], sentence: str) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        loaded("CausalConvWithState", {**CONV, **shapes}, attrs)


def scatters(cache: np.ndarray, update: np.ndarray, n: int, mode: str) -> Any:  # noqa: ANN401
    shapes = {"cache": cache.shape, "update": update.shape, "at": (n,)}
    return loaded("TensorScatter", shapes, {"mode": mode}, 1, "",
                  {"at": onnx.TensorProto.INT64}).compile()


@pytest.mark.parametrize(("rows", "width", "at"), [
    (2, 2, [0, 3]), (2, 2, [-1, 0]), (0, 2, [4, 5]), (1, 0, [9, 0]), (2, 2, [2**63 - 1, 0])])
def test_positions_of_a_linear_cache_are_checked_by_the_run(rows: int, width: int, at: list[int]
                                                            ) -> None:
    """Also where no element is written, as ONNX Runtime does."""
    given = {"cache": f32(2, 1, 4, width), "update": f32(2, 1, rows, width), "at": np.array(at)}
    shapes = {"cache": (2, 1, 4, width), "update": (2, 1, "rows", width), "at": (2,)}
    model = loaded("TensorScatter", shapes, {}, 1, "", {"at": onnx.TensorProto.INT64})
    wrong = next(str(x) for x in at if not 0 <= x <= 4 - rows)
    for device in DEVICES:
        with pytest.raises(RunError, match=wrong):
            model.compile(device)(given)


def test_positions_beyond_signed_numbers() -> None:
    cache, update, at = f32(1, 5, 2), f32(1, 2, 2), np.array([2**64 - 1], np.uint64)
    model = treadle.trace(lambda c, u, at: ops.kv_append(c, u, at, mode="circular"),
                          "f32[1,5,2]", "f32[1,2,2]", "u64[1]")
    want = cache.copy()
    want[0, [0, 1]] = update[0]  # 2^64 - 1 is a multiple of 5
    for device in DEVICES:
        got, = model.compile(device).run([cache, update, at]).values()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("at", [2**63 - 1, -2**63, -1])
def test_a_circular_cache_takes_any_position(at: int) -> None:
    cache, update = f32(1, 5, 2), f32(1, 3, 2)
    exe = scatters(cache, update, 1, "circular")
    want = cache.copy()
    for i in range(3):
        want[0, (at + i) % 5] = update[0, i]
    np.testing.assert_array_equal(
        exe({"cache": cache, "update": update, "at": np.array([at])})["y0"], want)


def test_windows_of_states() -> None:
    """What ONNX Runtime runs on CUDA alone, by the definition."""
    x, w, past = f32(2, 3, 2), f32(3, 1, 3), f32(4, 2, 3, 2)
    conv = loaded("CausalConvWithState", {"x": x.shape, "w": w.shape, "b": (),
                                          "past": past.shape}, {"state_window": 4}).compile()
    for got, want in zip(conv(x=x, w=w, past=past).values(), oracle.causal_conv_with_state(
            x, w, past=past, state_window=4), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    given = {n: a for n, a in attention(2, (4, 2, 2), decay=2, beta=2).items() if a is not None}
    given["past_state"] = f32(3, 2, 2, 4, 6)
    exe = loaded("LinearAttention", {n: a.shape for n, a in given.items()},
                 {"state_window": 3, **HEADS}).compile()
    q, k, v, s, g, b = given.values()
    want = oracle.linear_attention(q, k, v, past=s, decay=g, beta=b, q_heads=4, kv_heads=2,
                                   state_window=3)
    for got, w in zip(exe(given).values(), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_taps_far_apart(device: str) -> None:
    """Beyond what the templates of `cpu` hold; code does not grow with the distance."""
    x, w, past = f32(1, 3, 9), f32(3, 1, 2), f32(1, 3, 70000)
    model = loaded("CausalConvWithState", {"x": x.shape, "w": w.shape, "b": (),
                                           "past": past.shape}, {"dilation": 70000})
    want = oracle.causal_conv_with_state(x, w, past=past, dilation=70000)
    for got, right in zip(model.compile(device)(x=x, w=w, past=past).values(), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def test_a_gate_that_is_projected_first() -> None:
    """com.microsoft GatedAdd in bf16: every step is rounded, as its documentation says."""
    kind = onnx.TensorProto.BFLOAT16
    model = loaded("GatedAdd", {"x": ("N", 3, 5), "y": ("N", 3, 5), "gate": ("N", 3, 70),
                                "w": (70, 1)}, outputs=1, kinds=dict.fromkeys("xyw", kind)
                   | {"gate": kind})
    x, y, gate, w = (f32(*s).astype(BF16) for s in ((2, 3, 5), (2, 3, 5), (2, 3, 70), (70, 1)))
    wide = [a.astype(np.float32) for a in (x, y, gate, w)]
    p = (wide[2] @ wide[3]).astype(BF16).astype(np.float32)
    s = (1 / (1 + np.exp(-p))).astype(BF16).astype(np.float32)
    want = (wide[0] + (wide[1] * s).astype(BF16).astype(np.float32)).astype(BF16)
    for device in DEVICES:
        got, = model.compile(device).run([x, y, gate, w]).values()
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2**-7)


def test_a_gate_weight_is_bf16_of_known_shape() -> None:
    for kinds, width, sentence in (({}, 7, "both must be bf16"), (
            dict.fromkeys(("x", "y", "gate", "w"), onnx.TensorProto.BFLOAT16), 8, "are needed")):
        with pytest.raises(UnsupportedError, match=sentence):
            loaded("GatedAdd", {"x": (3, 5), "y": (3, 5), "gate": (3, 7), "w": (width, 1)},
                   outputs=1, kinds=kinds)
