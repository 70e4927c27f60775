"""Times of several calls in alternating blocks: medians with quartiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CALLS = 5
"""Calls of one side before the other has its turn."""


@dataclass(frozen=True)
class Times:
    """Seconds of many calls of one side."""

    seconds: Sequence[float]

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile in microseconds."""
        low, middle, high = np.percentile(self.seconds, [25, 50, 75]) * 1e6
        return float(low), float(middle), float(high)

    @property
    def median(self) -> float:
        """Microseconds."""
        return self.quartiles()[1]

    def __str__(self) -> str:
        low, middle, high = self.quartiles()
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def turns(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Times]:
    """Every call in blocks of `CALLS`, one side after another, after some that do not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(CALLS):
            call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, found.values())) < 2 * CALLS:
        for name, call in calls.items():
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                found[name].append(time.perf_counter() - start)
    return {name: Times(t) for name, t in found.items()}


def ratio(ours: Times, theirs: Times) -> str:
    """The ratio of medians, in brackets where the quartiles of both sides overlap."""
    (a, x, b), (c, y, d) = ours.quartiles(), theirs.quartiles()
    text = f"{x / y:.2f}"
    return f"[{text}]" if a <= d and c <= b else text
