"""Facts about the machine that a report must carry."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..codegen.llvm.processors import usable_cores
from .probe import peak_gflops, read_gbytes

_DRAM_BYTES = 256 << 20
"""More than the last-level cache of one socket holds."""


@dataclass(slots=True)
class Machine:
    """Where and when a report was made; load averages tell whether the machine was quiet."""

    processor: str
    cores: int
    system: str
    python: str
    treadle: str
    started: str
    load_before: float
    load_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What `threads` threads reach: f32 multiply-adds, and reads from memory."""

    threads: int
    peak_gflops: float
    read_gbytes: float


def machine() -> Machine:
    """The machine this runs on, now."""
    return Machine(_processor(), usable_cores(), platform.platform(), platform.python_version(),
                   importlib.metadata.version("treadle"),
                   datetime.now(UTC).isoformat(timespec="seconds"), load())


def limits(threads: int) -> Limits:
    """Measured limits; takes about a second."""
    return Limits(threads, peak_gflops(threads), read_gbytes(_DRAM_BYTES, threads))


def load() -> float:
    """Processes that wanted a processor over the last minute, on average."""
    return os.getloadavg()[0]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
