"""From which step to which a buffer is needed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from ..records import dataclass

B = TypeVar("B", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Access(Generic[B]):
    """The buffers that one step writes and reads.

    `reuse` pairs a written buffer with a read one whose place it may take, because the step reads
    every element before it writes there.
    """

    writes: tuple[B, ...]
    reads: tuple[B, ...]
    reuse: tuple[tuple[B, B], ...] = ()


@dataclass(frozen=True, slots=True)
class Interval:
    """Steps `first` to `last`, both included."""

    first: int
    last: int


def lifetimes(steps: Sequence[Access[B]], kept: Iterable[B] = ()) -> dict[B, Interval]:
    """The interval of every buffer that a step writes; those `kept` live past the last step."""
    first: dict[B, int] = {}
    last: dict[B, int] = {}
    for at, step in enumerate(steps):
        for b in step.writes:
            first.setdefault(b, at)
        for b in (*step.writes, *step.reads):
            if b in first:
                last[b] = at
    for b in kept:
        if b in first:
            last[b] = len(steps)
    return {b: Interval(at, last[b]) for b, at in first.items()}


def reuses(steps: Sequence[Access[B]], lives: dict[B, Interval]) -> dict[B, B]:
    """Which buffer takes the place of which: the old one dies in the step that makes the new one.

    Every buffer is replaced at most once.
    """
    out: dict[B, B] = {}
    taken: set[B] = set()
    for at, step in enumerate(steps):
        for new, old in step.reuse:
            dies = old in lives and lives[old].last == at and lives[old].first < at
            if dies and new not in out and old not in taken and lives[new].first == at:
                out[new] = old
                taken.add(old)
    return out
