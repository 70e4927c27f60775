"""The equations, one family a file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from ..pattern import EQUATIONS, Equation


def load() -> Mapping[str, Equation]:
    """Every equation by name."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.stem != "__init__":
            import_module(f".{file.stem}", __package__)
    return EQUATIONS
