"""Load an ONNX model as a `Model`, now or at its first run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx

from ...declare.arrays import Array
from ...errors import ImportFailure
from ...ir.types import STRING
from ...runtime.model import Built, LateModel, Model
from ...runtime.signature import Leaf, Signature
from .context import LateBinding
from .model import declared_inputs, import_model
from .reading import DTYPE_OF, read_model


def load_onnx(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Model | LateModel:
    """The model in a file, bytes or a ModelProto.

    Raises ImportFailure for what is no valid model and UnsupportedError, with a table, for valid
    models that use what is not supported.
    """
    proto, folder, file = read_model(source)
    try:
        done = import_model(proto, folder, file)
        return Model(file, Built(done.graph, done.params, done.notes))
    except LateBinding as e:
        binder = Binder(proto, folder, file, e)
        inputs = tuple([Leaf(d.name, d.dtype, d.shape) for d in declared_inputs(proto, file)])
        outputs = tuple([_output_leaf(v) for v in proto.graph.output])
        return LateModel(file, Signature(inputs, outputs), binder)
    except RecursionError:
        raise ImportFailure(f"{file}: nested too deeply") from None


class Binder:
    """Builds the graph of a late-bound model once inputs are there.

    It learns on the way which inputs' values, and whether their shapes, the graph depends on.
    """

    def __init__(self, proto: onnx.ModelProto, folder: Path | None, file: str,
                 first: LateBinding) -> None:
        self.proto, self.folder, self.file = proto, folder, file
        self.statics: set[str] = set(first.values)
        self.by_shape = first.shapes
        self.reason = first.message

    def __call__(self, arrays: Mapping[str, Array]) -> Built:
        """The graph for these inputs."""
        while True:
            statics = {n: arrays[n] for n in self.statics}
            shapes = {n: a.shape for n, a in arrays.items()} if self.by_shape else {}
            try:
                done = import_model(self.proto, self.folder, self.file, statics=statics,
                                    shapes=shapes)
                return Built(done.graph, done.params, done.notes)
            except LateBinding as e:
                self._learn(e)

    def _learn(self, need: LateBinding) -> None:
        """Take in what the import asked for; asking for nothing new is an error."""
        new = set(need.values) - self.statics
        if not new and (self.by_shape or not need.shapes):
            raise ImportFailure(f"{self.file}: {need.message}",
                                hint="the size depends on data computed in the graph") from need
        self.statics |= new
        self.by_shape = self.by_shape or need.shapes


def _output_leaf(v: onnx.ValueInfoProto) -> Leaf:
    return Leaf(v.name, DTYPE_OF.get(v.type.tensor_type.elem_type, STRING), None)
