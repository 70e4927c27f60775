"""One node on treadle and on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import treadle
from tests.onnx.build import node


@dataclass(frozen=True, slots=True)
class Run:
    """One node with its operands by name; None stands for an operand left out."""

    op: str
    operands: Mapping[str, np.ndarray | None]
    outputs: int = 1
    attrs: Mapping[str, Any] = field(default_factory=dict)
    weights: Sequence[str] = ()
    rtol: float = 1e-5
    atol: float = 1e-5
    domain: str = "com.microsoft"
    steps: int = 0
    """How many units a quantised output may be off."""
    opset: int = 21
    ml: int = 3
    compared: int = 9
    """How many of the outputs are compared."""

    def model(self) -> onnx.ModelProto:
        """The node as a model."""
        given = {n: a for n, a in self.operands.items() if a is not None}
        names = [n if n in given else "" for n in self.operands]
        outputs = [f"y{i}" for i in range(self.outputs)]
        made = node(self.op, names, outputs, domain=self.domain, **self.attrs)
        free = [n for n in given if n not in self.weights]
        infos = [helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(given[n].dtype), given[n].shape) for n in free]
        results = [helper.make_empty_tensor_value_info(n) for n in outputs]
        graph = helper.make_graph([made], "g", infos, results, [
            numpy_helper.from_array(given[n], n) for n in self.weights])
        return helper.make_model(graph, ir_version=10 if self.opset > 12 else 7, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1),
            helper.make_opsetid("ai.onnx.ml", self.ml)])

    def feeds(self) -> dict[str, np.ndarray]:
        """The operands that are inputs."""
        return {n: a for n, a in self.operands.items()
                if a is not None and n not in self.weights}


def check(run: Run) -> None:
    """Both give the same outputs."""
    model = run.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    want = session.run(None, run.feeds())
    found = list(treadle.load(model).compile(device="reference")(run.feeds()).values())
    assert len(want) == len(found)
    for w, f in list(zip(want, found, strict=True))[:run.compared]:
        assert w.shape == f.shape and w.dtype == f.dtype
        if w.dtype == object:
            assert w.tolist() == f.tolist()
        elif run.steps:
            assert np.abs(w.astype(np.int32) - f.astype(np.int32)).max(initial=0) <= run.steps
        else:
            np.testing.assert_allclose(f, w, run.rtol, run.atol)
