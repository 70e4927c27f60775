"""treadle: a compiler and runtime for machine-learning graphs.

`load` a model, `compile` it for a device, call it with arrays. Everything is imported when first
used: importing this package loads neither onnx nor a code generator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors, ops
    from .api import devices, load, trace
    from .errors import TreadleError
    from .runtime.executable import Executable
    from .runtime.model import Model

__version__ = "0.1.0"
_PUBLIC = {"load": ".api", "trace": ".api", "devices": ".api", "Model": ".runtime.model",
           "Executable": ".runtime.executable", "TreadleError": ".errors"}
__all__ = ["Executable", "Model", "TreadleError", "devices", "errors", "load", "ops", "trace"]


def __getattr__(name: str) -> object:
    if name in ("ops", "errors"):
        return import_module(f".{name}", __name__)
    if (module := _PUBLIC.get(name)) is None:
        raise AttributeError(f"module 'treadle' has no attribute '{name}'")
    return getattr(import_module(module, __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
