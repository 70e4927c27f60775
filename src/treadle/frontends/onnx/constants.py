"""The import of a model once more, with other numbers in initializers of at most one element."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ...declare.arrays import Array
from ...errors import ImportFailure
from ...runtime.model import Built
from .model import import_model
from .protocol import onnx
from .reading import read_model

Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"


class Again:
    """What imports a source again. A file is read again then, and must be the same."""

    def __init__(self, source: Source | Any) -> None:  # noqa: ANN401 - whatever `load` takes
        self.source = source
        self._about = self._looked()

    def _looked(self) -> tuple[int, int] | None:
        if not isinstance(self.source, str | os.PathLike):
            return None
        about = Path(self.source).stat()
        return about.st_size, about.st_mtime_ns

    def __call__(self, values: Mapping[str, Array]) -> Built:
        """The graph and parameters of the source with these values.

        Raises ImportFailure if the file is another one or the model admits no such value.
        """
        proto, beside, file = read_model(self.source)
        if self._looked() != self._about:
            raise ImportFailure(f"{file} has changed since it was loaded",
                                hint="load it again, then compile")
        if isinstance(self.source, onnx.ModelProto):
            proto = onnx.ModelProto()
            proto.CopyFrom(self.source)
        from onnx import numpy_helper

        for tensor in proto.graph.initializer:
            if tensor.name in values:
                tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
        done = import_model(proto, beside, file)
        return Built(done.graph, done.params, done.notes, done.constants, self)
