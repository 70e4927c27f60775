"""What the operators mean, one family a file. `treadle.ops.gelu` and all others by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast


def _public() -> Mapping[str, object]:
    library = import_module(".library", __name__)  # `from . import` would ask __getattr__ first
    return cast("Mapping[str, object]", library.PUBLIC)


def __getattr__(name: str) -> object:
    if name.startswith("__") or (op := _public().get(name)) is None:
        raise AttributeError(f"there is no operator '{name}' in treadle.ops")
    return op


def __dir__() -> list[str]:
    return sorted(_public())
