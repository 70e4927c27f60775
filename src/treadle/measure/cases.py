"""What is measured: a model with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..declare.arrays import Array
from .agree import RELATIVE
from .engines import Job, engine

OVERHEAD = "two-node graph"


@dataclass(frozen=True, slots=True)
class Case:
    """A model and inputs for it.

    `functions` gives `module:name` for engines that read no ONNX; they get `weights` too.
    `relative` is the bound within which the engines' outputs must agree, and `family` a heading.
    """

    name: str
    source: Path | bytes
    inputs: Mapping[str, Array]
    family: str = "models"
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    weights: Mapping[str, Array] = field(default_factory=dict[str, Array])
    relative: float = RELATIVE

    def file(self, folder: Path) -> Path:
        """The model as a file, written to `folder` where it is held as bytes."""
        if isinstance(self.source, Path):
            return self.source
        path = folder / "model.onnx"
        path.write_bytes(self.source)
        return path

    def job(self, name: str, file: Path, threads: int) -> Job:
        """The same for one engine; the weights go only where no file has them."""
        function = self.functions.get(name, "")
        return Job(name, file, self.inputs, threads, function, self.weights if function else {})

    def runs_on(self, name: str) -> bool:
        """Whether the engine reads the model or has a function instead."""
        return engine(name).takes_onnx or name in self.functions


def overhead() -> Case:
    """relu(x + c) over 8 numbers: what a call costs when there is nothing to compute."""
    import onnx
    from onnx import helper, numpy_helper

    kind, shape = onnx.TensorProto.FLOAT, [8]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Relu", ["s"], ["y"])],
        "overhead", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [numpy_helper.from_array(np.ones(shape, np.float32), "c")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Case(OVERHEAD, made.SerializeToString(),
                {"x": np.linspace(-2, 2, 8, dtype=np.float32)}, "call overhead")
