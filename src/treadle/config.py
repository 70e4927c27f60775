"""Environment variables, typed: every one is a field of `Config` and nothing else reads them.

The table in docs/environment.md is generated from these fields by tools/docs.py.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from treadle.errors import ConfigError

PREFIX = "TREADLE_"
_ON = frozenset({"1", "on", "true", "yes"})
_OFF = frozenset({"0", "off", "false", "no"})
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_switch(text: str) -> bool:
    """Read `1`, `on`, `true`, `yes` or `0`, `off`, `false`, `no`, in any case."""
    word = text.lower()
    if word not in _ON | _OFF:
        raise ValueError("1 or 0 (also on/off, true/false, yes/no)")
    return word in _ON


MAX_THREADS = 1024
"""Most threads of one executable."""


def parse_threads(text: str) -> int:
    """Read a whole number from 1 to `MAX_THREADS`."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_THREADS):
        raise ValueError(f"a whole number from 1 to {MAX_THREADS}")
    return int(text)


def parse_bytes(text: str) -> int:
    """Read a number of bytes; the suffixes K, M, G and T count in powers of 1024."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(unit)]
    if not (digits.isascii() and digits.isdigit() and unit in _UNITS):
        raise ValueError("a number of bytes such as 1048576, 512M or 4G")
    return int(digits) * _UNITS[unit]


def parse_path(text: str) -> Path:
    """Read a path, relative to the working directory; `~` is the home directory."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError("a path whose home directory (`~`) exists") from None


MLX_MODES = ("compiled", "lazy", "async", "eager")
"""When the device "mlx" evaluates operators."""


def parse_mode(text: str) -> str:
    """Read one of `MLX_MODES`."""
    if text not in MLX_MODES:
        raise ValueError(f"one of {', '.join(MLX_MODES)}")
    return text


def parse_vector_bytes(text: str) -> int:
    """Read 16, 32 or 64."""
    if text not in ("16", "32", "64"):
        raise ValueError("16, 32 or 64")
    return int(text)


class Variable(NamedTuple):
    """How one variable appears in the environment and in the documentation."""

    name: str
    field: str
    parse: Callable[[str], object]
    default: str
    doc: str


def _meta(parse: Callable[[str], object], default: str, doc: str) -> dict[str, object]:
    return {"parse": parse, "default": default, "doc": doc}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings that the environment gives; `Config.from_environment()` reads them afresh."""

    verify: bool = field(
        default=False,
        metadata=_meta(parse_switch, "0", "Check the graph's invariants after every pass."),
    )
    dump: Path | None = field(
        default=None,
        metadata=_meta(
            parse_path,
            "",
            "Directory that receives a folder for every compiled model: its graph, LLVM IR, "
            "assembly, memory plan and a script that runs it again.",
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_meta(
            parse_threads,
            "the usable processors",
            "Worker threads of a CPU executable whose `compile` call names no `threads`. The "
            "default respects the process's affinity and its cgroup's CPU limit.",
        ),
    )
    cache: bool = field(
        default=True,
        metadata=_meta(parse_switch, "1", "Keep compiled code on disk between processes."),
    )
    cache_dir: Path | None = field(
        default=None,
        metadata=_meta(
            parse_path,
            "the user's cache directory",
            "Directory of compiled code and of downloaded models.",
        ),
    )
    cache_limit: int = field(
        default=4 << 30,
        metadata=_meta(
            parse_bytes,
            "4G",
            "Bytes of compiled code kept on disk; beyond it the least recently used goes first. "
            "K, M, G and T count in powers of 1024.",
        ),
    )
    vector_bytes: int | None = field(
        default=None,
        metadata=_meta(
            parse_vector_bytes,
            "those of the processor",
            "Size of the vectors that native code is written for: 16, 32 or 64. Ones that the "
            "processor lacks are taken apart, which shows what another processor computes, slowly.",
        ),
    )
    mlx_mode: str | None = field(
        default=None,
        metadata=_meta(
            parse_mode,
            "compiled on a GPU, lazy on the CPU",
            "Mode of the device `mlx` where `compile` names none: compiled, lazy, async or eager.",
        ),
    )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read `environ`, the process's own by default; an empty variable counts as unset.

        Raises `ConfigError` for a value that does not parse and warns of a `TREADLE_` variable
        that does not exist.
        """
        environ = os.environ if environ is None else environ
        _warn_of_unknown(environ)
        given = {v.field: _parse(v, environ[v.name]) for v in VARIABLES if environ.get(v.name)}
        return cls(**given)  # type: ignore[arg-type]

    def cache_root(self) -> Path:
        """The cache directory in use; it need not exist yet."""
        if self.cache_dir is not None:
            return self.cache_dir
        from platformdirs import user_cache_path

        return user_cache_path("treadle", appauthor=False)


VARIABLES = tuple(Variable(PREFIX + f.name.upper(), f.name, **f.metadata) for f in fields(Config))
"""Every variable, in the order in which the documentation lists them."""


def _parse(variable: Variable, text: str) -> object:
    try:
        return variable.parse(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"environment variable {variable.name} is {text!r}, expected {error}",
            hint=f"correct it or unset it; the default is {variable.default or 'unset'}",
        ) from None


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    known = [v.name for v in VARIABLES]
    for name in sorted(n for n in environ if n.startswith(PREFIX) and n not in known):
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        warnings.warn(f"treadle reads no variable {name}{meant}", stacklevel=3)
