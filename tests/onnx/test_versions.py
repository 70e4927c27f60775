"""Old versions of operators mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.ort import Run, check

RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def plain(op: str, opset: int, outputs: int = 1, **attrs: object) -> Run:
    return Run(op, {"x": f32(2, 3, 4)}, outputs, attrs, domain="", opset=opset)


def norm(opset: int, **attrs: object) -> Run:
    x = {"x": f32(2, 3, 4), "s": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3))}
    return Run("BatchNormalization", x, 1, attrs, domain="", opset=opset)


CASES = {
    "Softmax 11": plain("Softmax", 11), "Softmax 9 axis 0": plain("Softmax", 9, axis=0),
    "Softmax 11 axis -1": plain("Softmax", 11, axis=-1), "Softmax 13": plain("Softmax", 13, axis=1),
    "LogSoftmax 11 axis 1": plain("LogSoftmax", 11, axis=1),
    "Hardmax 11 axis 1": plain("Hardmax", 11, axis=1), "Hardmax 13": plain("Hardmax", 13, axis=1),
    "TopK 9": plain("TopK", 9, 2, k=2, axis=1),
    "TopK 10": Run("TopK", {"x": f32(2, 5), "k": ints(3)}, 2, domain="", opset=10),
    "TopK 11 smallest": Run("TopK", {"x": f32(5, 2), "k": ints(3)}, 2, {"largest": 0, "axis": 0},
                            domain="", opset=11),
    "ReduceSum 11": plain("ReduceSum", 11, axes=[0, -1], keepdims=0),
    "ReduceSum 11 all": plain("ReduceSum", 11),
    "ReduceMean 13": plain("ReduceMean", 13, axes=[1]),
    "ReduceL2 18": Run("ReduceL2", {"x": f32(2, 3), "a": ints(1)}, domain="", opset=18,
                       weights=["a"]),
    "ReduceSum 13 nothing": Run("ReduceSum", {"x": f32(2, 3), "a": ints()}, domain="", opset=13,
                                weights=["a"], attrs={"noop_with_empty_axes": 1}),
    "ReduceSum 13 axes as an input": Run("ReduceSum", {"x": f32(2, 3), "a": ints(-1)}, domain="",
                                         opset=13),
    "ArgMax 11": plain("ArgMax", 11, axis=1, keepdims=0),
    "BatchNormalization 7": norm(7, epsilon=1e-3), "BatchNormalization 9": norm(9),
    "BatchNormalization 15": norm(15),
    "Gemm 7": Run("Gemm", {"a": f32(4, 2), "b": f32(3, 4), "c": f32(2, 1)}, domain="", opset=7,
                  attrs={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    "Gemm 11 without C": Run("Gemm", {"a": f32(2, 4), "b": f32(4, 3)}, domain="", opset=11),
    "Dropout 10": Run("Dropout", {"x": f32(2, 3)}, 1, domain="", opset=10),
    "Dropout 7": Run("Dropout", {"x": f32(2, 3)}, 1, domain="", opset=7),
    "LpNormalization": plain("LpNormalization", 12, axis=1, p=1),
    "LRN": Run("LRN", {"x": f32(2, 5, 3, 4)}, domain="", opset=12,
               attrs={"size": 3, "alpha": 0.01}),
    "MeanVarianceNormalization": Run("MeanVarianceNormalization", {"x": f32(2, 3, 4, 5)},
                                     domain="", opset=9, rtol=1e-4),
    "QuantizeLinear 10": Run("QuantizeLinear", {
        "x": f32(2, 3), "s": np.float32(0.1)[None], "z": np.uint8(3)[None]}, domain="", opset=10,
        weights=["s", "z"], steps=1),
    "CumSum 11": Run("CumSum", {"x": f32(2, 3), "axis": np.array(1, np.int32)}, domain="",
                     opset=11, attrs={"exclusive": 1, "reverse": 1}),
    "LayerNormalization of ONNX Runtime at 9": Run(
        "LayerNormalization", {"x": f32(2, 3), "s": f32(3), "b": f32(3)}, domain="", opset=9),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    check(CASES[name])
