"""What the operators mean, one family a file. `treadle.ops.gelu` and all others by name."""

from __future__ import annotations

import typing as _typing
from importlib import import_module as _import_module


def _public() -> _typing.Mapping[str, object]:
    library = _import_module(".library", __name__)  # `from . import` would ask __getattr__ first
    return _typing.cast("_typing.Mapping[str, object]", library.PUBLIC)


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    if (op := _public().get(name)) is None:
        other = f"; there is '{name}_'" if f"{name}_" in _public() else ""
        raise AttributeError(f"there is no operator '{name}' in treadle.ops{other}")
    return op


def __dir__() -> list[str]:
    return sorted(_public())
