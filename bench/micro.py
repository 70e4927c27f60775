"""One small model for each kernel family, with what NumPy and PyTorch users would write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from treadle.declare.arrays import Array
from treadle.measure.cases import Case

_RNG = np.random.default_rng(0)
_MS = ("com.microsoft", 1)


def node(op: str, inputs: str, output: str = "y", **attrs: Any) -> onnx.NodeProto:  # noqa: ANN401 - as ONNX has them
    """One node; inputs are separated by blanks, `-` leaves one out."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, output.split(), **attrs)


def case(family: str, name: str, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array],
         weights: Mapping[str, Array] | None = None, function: str = "", *,
         numpy: bool = True, relative: float = 1e-4) -> Case:
    """A model of these nodes from `inputs` to `y`; `function` names its twins elsewhere."""
    held = dict(weights or {})
    graph = helper.make_graph(
        list(nodes), "micro",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in held.items()])
    opsets = [helper.make_opsetid("", 21)]
    if any(n.domain for n in nodes):
        opsets.append(helper.make_opsetid(*_MS))
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    twins = {"numpy": f"bench.numpy_twins:{function}"} if function and numpy else {}
    if function:
        twins["torch"] = f"bench.torch_twins:{function}"
    return Case(name, made.SerializeToString(), inputs, family, twins, held, relative)


def f32(*shape: int, scale: float = 1.0) -> Array:
    """Normal numbers."""
    return (scale * _RNG.normal(size=shape)).astype(np.float32)


def cases() -> list[Case]:
    """All of them, family by family."""
    groups: tuple[Iterable[Case], ...] = (
        _pointwise(), _rows(), _contractions(), _quantised(), _convolutions(), _attention(),
        _movement(), _recurrent(), _selection())
    return [c for group in groups for c in group]


def _pointwise() -> Iterable[Case]:
    x, b = f32(128, 3072), f32(3072)
    yield case("pointwise", "bias, erf GELU 128x3072",
               [node("Add", "x b", "s"), node("Gelu", "s")], {"x": x}, {"b": b}, "bias_gelu",
               numpy=False)
    yield case("pointwise", "x * sigmoid(x) 128x3072",
               [node("Sigmoid", "x", "s"), node("Mul", "x s")], {"x": x}, function="silu")


def _rows() -> Iterable[Case]:
    yield case("rows", "softmax 1536x128", [node("Softmax", "x", axis=-1)],
               {"x": f32(1536, 128)}, function="softmax")
    yield case("rows", "layer norm 512x768", [node("LayerNormalization", "x w b", axis=-1)],
               {"x": f32(512, 768)}, {"w": f32(768), "b": f32(768)}, "layer_norm")
    yield case("rows", "mean of rows 512x768", [node("ReduceMean", "x a", keepdims=0)],
               {"x": f32(512, 768)}, {"a": np.array([1])}, "mean")


def _contractions() -> Iterable[Case]:
    for m, k, n in ((1, 768, 768), (8, 768, 768), (128, 768, 768), (128, 768, 3072)):
        yield case("contraction", f"matmul {m}x{k}x{n}", [node("MatMul", "x w")],
                   {"x": f32(m, k)}, {"w": f32(k, n, scale=k ** -0.5)}, "matmul")


def _quantised() -> Iterable[Case]:
    k = n = 768
    # 7 bits: engines without 8-bit dot products may saturate sums of two products
    whole = _RNG.integers(-63, 64, (k, n)).astype(np.int8)
    yield case("quantised contraction", "dynamic int8 matmul 8x768x768",
               [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "i"),
                node("Cast", "i", "f", to=onnx.TensorProto.FLOAT), node("Mul", "f s")],
               {"x": f32(8, k)}, {"w": whole}, relative=1e-2)
    packed = _RNG.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    scales = (0.01 + 0.01 * _RNG.random((n, k // 32))).astype(np.float32)
    yield case("quantised contraction", "4-bit weights in blocks of 32, 1x768x768",
               [node("MatMulNBits", "x w s", K=k, N=n, bits=4, block_size=32, domain=_MS[0])],
               {"x": f32(1, k)}, {"w": packed, "s": scales}, relative=1e-2)


def _convolutions() -> Iterable[Case]:
    x = f32(1, 64, 56, 56)
    yield case("convolution", "3x3, 64 to 64 channels, 56x56",
               [node("Conv", "x w b", pads=[1] * 4)], {"x": x},
               {"w": f32(64, 64, 3, 3, scale=0.04), "b": f32(64)}, "conv3x3", numpy=False)
    yield case("convolution", "1x1, 64 to 256 channels, 56x56", [node("Conv", "x w b")],
               {"x": x}, {"w": f32(256, 64, 1, 1, scale=0.1), "b": f32(256)}, "conv1x1",
               numpy=False)
    yield case("convolution", "depthwise 3x3, 64 channels, 56x56",
               [node("Conv", "x w b", pads=[1] * 4, group=64)], {"x": x},
               {"w": f32(64, 1, 3, 3, scale=0.3), "b": f32(64)}, "depthwise", numpy=False)
    yield case("windows", "max pool 3x3 stride 2, 64 channels, 56x56",
               [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)],
               {"x": x}, function="max_pool", numpy=False)


def _attention() -> Iterable[Case]:
    shape = (1, 12, 128, 64)
    yield case("attention", "12 heads of 64, 128 queries and keys",
               [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "p"),
                node("Mul", "p c", "s"), node("Softmax", "s", "a", axis=-1),
                node("MatMul", "a v")],
               {"q": f32(*shape), "k": f32(*shape), "v": f32(*shape)},
               {"c": np.array([64 ** -0.5], np.float32)}, "attention")


def _movement() -> Iterable[Case]:
    yield case("movement", "transpose 0 2 1 3 of 1x128x12x64",
               [node("Transpose", "x", perm=[0, 2, 1, 3])], {"x": f32(1, 128, 12, 64)},
               function="transpose")
    yield case("movement", "128 rows of an embedding 30000x384", [node("Gather", "t i")],
               {"i": _RNG.integers(0, 30000, 128)}, {"t": f32(30000, 384)}, "embedding")


def _recurrent() -> Iterable[Case]:
    steps, batch, size = 32, 1, 128
    yield case("recurrence", f"LSTM, {steps} steps, {size} to {size}",
               [node("LSTM", "x w r b", "y", hidden_size=size)],
               {"x": f32(steps, batch, size)},
               {"w": f32(1, 4 * size, size, scale=0.1), "r": f32(1, 4 * size, size, scale=0.1),
                "b": f32(1, 8 * size, scale=0.1)})


def _selection() -> Iterable[Case]:
    yield case("selection", "10 largest of 32000", [node("TopK", "x k", "y i")],
               {"x": f32(1, 32000)}, {"k": np.array([10])}, "top_k")
