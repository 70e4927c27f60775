"""One block of memory for all intermediate buffers; a binding of the symbols gives offsets."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from ..ir.dims import Size, evaluate
from ..records import dataclass
from .liveness import Access, Interval, lifetimes, reuses

ALIGNMENT = 64
B = TypeVar("B", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Layout(Generic[B]):
    """Byte offsets and sizes of the buffers under one binding, and the bytes of the whole."""

    offsets: Mapping[B, int]
    sizes: Mapping[B, int]
    total: int


class ArenaPlan(Generic[B]):
    """Lifetimes and sizes of buffers: everything about an arena but the numbers of a binding.

    `steps` run in order; `sizes` are bytes; `kept` buffers are still needed after the last step.
    """

    def __init__(self, steps: Sequence[Access[B]], sizes: Mapping[B, Size],
                 kept: Sequence[B] = ()) -> None:
        lives = lifetimes(steps, kept)
        self.sizes = {b: sizes[b] for b in lives}
        self.lives = lives
        same = {new: old for new, old in reuses(steps, lives).items() if sizes[new] == sizes[old]}
        self.root = {b: _follow(b, same) for b in lives}
        self._spans: dict[B, Interval] = {}
        for b, root in self.root.items():
            span, own = self._spans.get(root, lives[b]), lives[b]
            self._spans[root] = Interval(min(span.first, own.first), max(span.last, own.last))
        self._order = sorted(self._spans, key=lambda b: self._spans[b].first)
        self.length = len(steps)

    def layout(self, binding: Mapping[str, int], unused: Collection[B] = ()) -> Layout[B]:
        """Place every buffer: the smallest hole that fits, in the order of first use.

        `unused` ones get no room; no step touches them under this binding.
        """
        bytes_: dict[B, int] = {}
        offsets: dict[B, int] = {}
        space = _Space()
        ends: list[list[B]] = [[] for _ in range(self.length + 1)]
        at = 0
        for b in self._order:
            span = self._spans[b]
            while at < span.first:
                for dead in ends[at]:
                    space.release(offsets[dead], bytes_[dead])
                at += 1
            size = 0 if b in unused else evaluate(self.sizes[b], binding)
            bytes_[b] = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
            offsets[b] = space.take(bytes_[b])
            ends[span.last].append(b)
        found = {b: offsets[root] for b, root in self.root.items()}
        return Layout(found, {b: 0 if b in unused else evaluate(n, binding)
                              for b, n in self.sizes.items()}, space.top)

    def check(self, layout: Layout[B]) -> None:
        """Raise AssertionError if two buffers that are needed at once share a byte."""
        items = [(self._spans[b], layout.offsets[b], layout.sizes[b], b) for b in self._order]
        for i, (span, low, size, b) in enumerate(items):
            for other, start, length, c in items[:i]:
                together = span.first <= other.last and other.first <= span.last
                if together and low < start + length and start < low + size:
                    raise AssertionError(f"{b!r} and {c!r} share bytes while both are needed")

    def freed(self) -> list[list[B]]:
        """Per step, the buffers whose last use it is: what poison may overwrite after it."""
        out: list[list[B]] = [[] for _ in range(self.length)]
        for b, span in self._spans.items():
            if span.last < self.length:
                out[span.last].append(b)
        return out


def _follow(b: B, same: Mapping[B, B]) -> B:
    while b in same:
        b = same[b]
    return b


class _Space:
    """Free holes below `top`, merged with their neighbours, smallest fitting one first."""

    def __init__(self) -> None:
        self.top = 0
        self._starts: list[int] = []
        self._holes: dict[int, int] = {}

    def take(self, size: int) -> int:
        best = -1
        for start in self._starts:
            length = self._holes[start]
            if length >= size and (best < 0 or length < self._holes[best]):
                best = start
        if best < 0:
            return self._extend(size)
        length = self._remove(best)
        if length > size:
            self._add(best + size, length - size)
        return best

    def _extend(self, size: int) -> int:
        start = self.top
        if self._starts and (last := self._starts[-1]) + self._holes[last] == self.top:
            self._remove(last)
            start = last
        self.top = start + size
        return start

    def release(self, start: int, size: int) -> None:
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + size:
            size += self._remove(self._starts[at])
        if at and (before := self._starts[at - 1]) + self._holes[before] == start:
            size += self._remove(before)
            start = before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        bisect.insort(self._starts, start)
        self._holes[start] = size

    def _remove(self, start: int) -> int:
        self._starts.remove(start)
        return self._holes.pop(start)
