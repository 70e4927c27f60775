"""The table of importer entries: one small function per (domain, operator, version range).

An entry's positional parameters are the node's inputs (absent optional ones are None; a starred
parameter takes any number), its keyword-only parameters are the attributes with their defaults.
A trailing underscore keeps a name clear of Python's own. An attribute that the entry does not name
is refused, never ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import DeclarationError
from ...records import dataclass

Entry = Callable[..., Any]
ONNX, ML, MICROSOFT = "", "ai.onnx.ml", "com.microsoft"


@dataclass(frozen=True, slots=True)
class Importer:
    """An entry with the versions it serves and what its signature says."""

    domain: str
    op: str
    since: int
    until: int
    fn: Entry
    inputs: int
    variadic: bool
    whole: bool
    """Whether the values of a starred parameter must all be there."""
    required: tuple[bool, ...]
    attrs: Mapping[str, tuple[str, bool]]
    """By ONNX attribute name: the parameter's name, and whether it must be given."""
    annotations: Mapping[str, str]
    """By ONNX attribute name: the type that the entry is written for."""


_TABLE: dict[tuple[str, str], list[Importer]] = {}
_LOADED: list[bool] = []
_NEWEST = 1 << 30


def importer(*ops: str, since: int = 1, until: int = _NEWEST, domain: str = ONNX
             ) -> Callable[[Entry], Entry]:
    """Register an entry for operator versions in [since, until] of the domain's opset."""

    def register(fn: Entry) -> Entry:
        code, told = fn.__code__, fn.__annotations__
        count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        names, defaults = code.co_varnames, fn.__kwdefaults__ or {}
        inputs, given = names[1:count], count - len(fn.__defaults__ or ())
        attrs = {n.rstrip("_"): (n, n not in defaults) for n in names[count:last]}
        notes = {n.rstrip("_"): str(told[n]) for n in names[count:last]}
        star = [told[names[last]]] if code.co_flags & inspect.CO_VARARGS else []
        required = tuple([told[n] == "Value" and i < given for i, n in enumerate(inputs, 1)])
        for op in ops:
            rows = _TABLE.setdefault((domain, op), [])
            if any(r.since <= until and since <= r.until for r in rows):
                raise DeclarationError(f"{domain or 'ai.onnx'}::{op} {since}: two importers")
            rows.append(Importer(domain, op, since, until, fn, len(inputs), bool(star),
                                 star == ["Value"], required, attrs, notes))
        return fn

    return register


def table() -> Mapping[tuple[str, str], Sequence[Importer]]:
    """Every entry, by (domain, operator)."""
    if not _LOADED:
        _LOADED.append(True)
        folder = Path(__file__).parent / "operators"
        for file in sorted(folder.glob("*.py")):
            if file.stem != "__init__":
                import_module(f".operators.{file.stem}", __package__)
    return _TABLE


def find(domain: str, op: str, version: int) -> Importer | None:
    """The entry that serves this operator at an opset version."""
    return next((r for r in table().get((domain, op), ()) if r.since <= version <= r.until), None)
