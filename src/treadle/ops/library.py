"""The complete operator table; import `REGISTRY` from here and nothing can be missing."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from ..declare.opdef import REGISTRY, OpDef

for _file in sorted(Path(__file__).parent.glob("*.py")):
    if _file.stem not in ("__init__", "library"):
        import_module(f".{_file.stem}", __package__)

PUBLIC: dict[str, OpDef] = {op.body.__name__: op for op in REGISTRY.values()}
"""Operators by their Python name, which is the name with `_` where Python needs it."""

for _name, _op in PUBLIC.items():
    setattr(sys.modules[__name__.rpartition(".")[0]], _name, _op)  # before a file of that name

__all__ = ["PUBLIC", "REGISTRY"]
