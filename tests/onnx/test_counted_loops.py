"""Loops as PyTorch exports them: a condition that is always true, a trip count of a size."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import treadle
from tests.onnx.build import F32, model, node

Info = helper.make_tensor_value_info


def scripted(ends: bool) -> ModelProto:
    """Row after row of x is added to what is carried, and stacked."""
    inner = [node("Gather", ["x", "i"], ["row"]), node("Add", ["held", "row"], ["sum"]),
             node("Tanh", ["sum"], ["next"]), node("Mul", ["next", "next"], ["square"])]
    inner += [node("ReduceSum", ["next"], ["total"], keepdims=0),
              node("Constant", [], ["top"], value_float=2.0),
              node("Less", ["total", "top"], ["still"])] if ends else [
                  node("Identity", ["go"], ["still"])]
    body = helper.make_graph(
        inner, "body", [Info("i", TensorProto.INT64, []), Info("go", TensorProto.BOOL, []),
                        Info("held", TensorProto.FLOAT, [3])],
        [Info("still", TensorProto.BOOL, []), Info("next", TensorProto.FLOAT, [3]),
         Info("square", TensorProto.FLOAT, [3])])
    nodes = [node("Shape", ["x"], ["shape"]), node("Constant", [], ["zero"], value_int=0),
             node("Gather", ["shape", "zero"], ["n"]),
             helper.make_node("Constant", [], ["true"], value=helper.make_tensor(
                 "t", TensorProto.BOOL, [], [True])),
             node("Loop", ["n", "true", "h"], ["last", "all"], body=body)]
    return model(nodes, [("x", F32, ["rows", 3]), ("h", F32, [3])],
                 [("last", F32, None), ("all", F32, None)])


@pytest.mark.parametrize("ends", [False, True])
def test_a_loop_over_rows(ends: bool) -> None:
    proto = scripted(ends)
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    exe = treadle.load(proto).compile("cpu")
    for n in (1, 6, 2, 0):
        rng = np.random.default_rng(n)
        given = {"x": rng.normal(size=(n, 3)).astype("f4"), "h": rng.normal(size=3).astype("f4")}
        for got, want in zip(exe(given).values(), session.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert [r.claim for r in exe.explain().rows if r.op == "loop"] == ["host" if ends else "native"]
