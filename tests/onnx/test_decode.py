"""A decoding step of a language model, with symbolic sizes as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import treadle
from tests.onnx.build import F32, I64, model, node

HEADS, KV_HEADS, SIZE = 4, 2, 16
RNG = np.random.default_rng(5)


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def decoder() -> onnx.ModelProto:
    """Lengths come from the attention mask, the total from its shape."""
    nodes = [
        node("ReduceSum", ["mask", "axis"], ["sum"], keepdims=0),
        node("Sub", ["sum", "one"], ["last64"]),
        node("Cast", ["last64"], ["last"], to=TensorProto.INT32),
        node("Shape", ["mask"], ["shape"]),
        node("Gather", ["shape", "one"], ["total64"]),
        node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
        node("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "last", "total", "cos", "sin"],
             ["y", "nk", "nv"], domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV_HEADS,
             do_rotary=1)]
    past = ["batch", KV_HEADS, "past", SIZE]
    return model(
        nodes, [("q", F32, ["batch", "seq", HEADS * SIZE]),
                ("k", F32, ["batch", "seq", KV_HEADS * SIZE]),
                ("v", F32, ["batch", "seq", KV_HEADS * SIZE]), ("pk", F32, past),
                ("pv", F32, past), ("mask", I64, ["batch", "total"])],
        [("y", F32, ["batch", "seq", HEADS * SIZE]), ("nk", F32, None), ("nv", F32, None)],
        weights={"axis": np.array([1]), "one": np.array(1), "cos": f32(32, SIZE // 2),
                 "sin": f32(32, SIZE // 2)}, imports=[("com.microsoft", 1)])


@pytest.fixture(scope="module")
def both() -> tuple[onnxruntime.InferenceSession, treadle.Executable]:
    proto = decoder()
    return (onnxruntime.InferenceSession(proto.SerializeToString(),
                                         providers=["CPUExecutionProvider"]),
            treadle.load(proto).compile(device="reference"))


@pytest.mark.parametrize(("batch", "seq", "past"), [(2, 3, 0), (1, 1, 4), (2, 1, 7)])
def test_prompts_and_steps(
        both: tuple[onnxruntime.InferenceSession, treadle.Executable], batch: int, seq: int,
        past: int) -> None:
    session, program = both
    feeds = {"q": f32(batch, seq, HEADS * SIZE), "k": f32(batch, seq, KV_HEADS * SIZE),
             "v": f32(batch, seq, KV_HEADS * SIZE), "pk": f32(batch, KV_HEADS, past, SIZE),
             "pv": f32(batch, KV_HEADS, past, SIZE),
             "mask": np.ones((batch, seq + past), np.int64)}
    for want, found in zip(session.run(None, feeds), program(feeds).values(), strict=True):
        np.testing.assert_allclose(found, want, 1e-5, 1e-6)
