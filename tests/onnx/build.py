"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Info = tuple[str, int, Sequence[int | str | None] | None]


def info(name: str, dtype: int, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    """A named type."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Info], outputs: Sequence[Info], *,
          weights: dict[str, np.ndarray] | None = None, opset: int = 21,
          imports: Sequence[tuple[str, int]] = (), functions: Sequence[Any] = ()
          ) -> onnx.ModelProto:
    """A model of these nodes."""
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", [info(*i) for i in inputs],
                              [info(*o) for o in outputs], tensors)
    opsets = [helper.make_opsetid(d, v) for d, v in (("", opset), *imports)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions),
                             ir_version=10)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: object) -> onnx.NodeProto:
    """One node."""
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def add_model() -> onnx.ModelProto:
    """y = x + x over a symbolic axis."""
    return model([node("Add", ["x", "x"], ["y"])], [("x", F32, ["n", 3])],
                 [("y", F32, ["n", 3])])
