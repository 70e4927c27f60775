"""How many threads this process may use: affinity, cores, and the cgroup's limit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from ...config import Config


def default_threads() -> int:
    """`TREADLE_THREADS`, or the usable cores within the cgroup's limit of processor time."""
    chosen = Config.from_environment().threads
    return chosen if chosen is not None else usable_cores()


def usable_cores(proc: Path = Path("/proc/self/cgroup"), sys: Path = Path("/sys")) -> int:
    """Physical cores that the affinity mask allows, at most the cgroup's quota; at least 1.

    Two hardware threads of a core share its multipliers, so they count once.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    cores = len({_siblings(sys, number) for number in allowed})
    limits = [limit for limit in _cgroup_limits(proc, sys / "fs/cgroup") if limit > 0]
    return max(1, min([cores, *(math.ceil(limit) for limit in limits)]))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _siblings(sys: Path, number: int) -> str:
    path = sys / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
    return _read(path) or str(number)


def _cgroup_limits(proc: Path, root: Path) -> Iterable[float]:
    """Processors' worth of time that each enclosing cgroup allows, in versions 1 and 2."""
    for line in _read(proc).splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0":
            yield from (_quota_v2(folder) for folder in _upward(root, path))
        elif "cpu" in controllers.split(","):
            for mount in (root / "cpu", root / controllers):
                yield from (_quota_v1(folder) for folder in _upward(mount, path))


def _upward(root: Path, path: str) -> Iterable[Path]:
    """The folder of a cgroup and of all that enclose it; a container may show only the root."""
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _quota_v2(folder: Path) -> float:
    return _ratio(*(_read(folder / "cpu.max").split() + ["", ""])[:2])


def _quota_v1(folder: Path) -> float:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float:
    """`quota / period`, 0 where there is no limit."""
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return 0.0
    return int(quota) / int(period)
