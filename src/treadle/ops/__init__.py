"""What the operators mean, one family a file. `treadle.ops.gelu` and all others by name."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    from . import library

    if (op := library.PUBLIC.get(name)) is None:
        raise AttributeError(f"there is no operator '{name}' in treadle.ops")
    return op


def __dir__() -> list[str]:
    from . import library

    return sorted(library.PUBLIC)
