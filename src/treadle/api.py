"""`load` and `trace`: from a file or a Python function to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from .backends.base import Backend
from .backends.devices import DEVICES, device
from .errors import DeviceError
from .ir.graph import Value
from .ir.graph import trace as trace_graph
from .ir.types import TensorType, parse_type
from .runtime.model import Built, LateModel, Model


def load(source: str | os.PathLike[str] | bytes | Any) -> Model | LateModel:  # noqa: ANN401 - an onnx.ModelProto, whose import is deferred
    """Load an ONNX model from a path, bytes or a `ModelProto`.

    Nothing runs yet; `compile` makes an executable. Raises ImportFailure, or UnsupportedError
    with a table of everything that cannot be imported.
    """
    from .frontends.onnx.load import load_onnx

    return load_onnx(source)


def trace(fn: Callable[..., Value | Sequence[Value]], /, *specs: str | TensorType) -> Model:
    """Record a Python function over operators of `treadle.ops` as a model.

    `specs` are the types of its arguments, such as `"f32[batch,64]"`.
    """
    types = [parse_type(s) if isinstance(s, str) else s for s in specs]
    return Model(getattr(fn, "__name__", "function"), Built(trace_graph(fn, *types), {}))


def devices() -> dict[str, str]:
    """What stands behind each device here, or why it cannot run."""
    return {name: _here(device(name)) for name in DEVICES}


def _here(found: Backend) -> str:
    try:
        why = found.unavailable()
        return f"not available: {why}" if why else found.describe()
    except DeviceError as e:
        return f"not available: {e.message}"
