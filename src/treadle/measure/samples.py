"""Medians with their spread, and what may be said when two of them are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["faster", "slower", "even"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds a call took: quartiles, the least, and how many samples of how many blocks."""

    median: float
    q1: float
    q3: float
    least: float
    samples: int
    blocks: int


def summarise(blocks: Sequence[Sequence[float]]) -> Latency:
    """Quartiles over blocks of call times; a block counts the same however many calls it held.

    Blocks differ more than the calls inside one, so that a fast block, which holds more calls,
    must not weigh more.
    """
    if not blocks or not all(blocks):
        raise ValueError("no times to summarise")
    each = min(map(len, blocks))
    at = (np.arange(each) + 0.5) / each
    even = np.concatenate([np.quantile(np.asarray(b, np.float64), at) for b in blocks])
    q1, median, q3 = np.quantile(even, (0.25, 0.5, 0.75)).tolist()
    return Latency(median, q1, q3, min(map(min, blocks)), sum(map(len, blocks)), len(blocks))


def verdict(ours: Latency, theirs: Latency) -> Verdict:
    """Whether our times lie below or above theirs; `even` when the quartiles overlap."""
    if ours.q3 < theirs.q1:
        return "faster"
    return "slower" if ours.q1 > theirs.q3 else "even"


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that treats a ratio and its inverse alike; NaN of nothing."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
