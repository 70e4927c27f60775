"""Programs with sizes as constants, for bindings that come again and again."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence

from ..backends.base import Call, Program
from ..declare.arrays import Array

LOG = logging.getLogger("treadle")
HOT = 8
"""Runs of a binding after which a program of its own is worth compiling."""
_WATCHED = 1024
"""Bindings that are counted at once; beyond it the counts start again."""
Compile = Callable[[Mapping[str, int]], Program]


class Specialised:
    """The programs of the hottest bindings, the least recently used one going first."""

    def __init__(self, most: int, compile_: Compile, source: str) -> None:
        self.most, self._compile, self._source = most, compile_, source
        self.kept: OrderedDict[tuple[tuple[str, int], ...], Program] = OrderedDict()
        self._seen: Counter[tuple[tuple[str, int], ...]] = Counter()
        self.notes: list[str] = []

    def clone(self) -> Specialised:
        """The same for another executable, which has no programs yet."""
        return Specialised(self.most, self._compile, self._source)

    def find(self, binding: Mapping[str, int]) -> tuple[Program | None, bool]:
        """The program of a binding, or None while it is not hot, and whether it was made now."""
        if not binding:
            return None, False
        key = tuple(sorted(binding.items()))
        if (found := self.kept.get(key)) is not None:
            self.kept.move_to_end(key)
            return found, False
        if len(self._seen) >= _WATCHED:
            self._seen.clear()
        self._seen[key] += 1
        if self._seen[key] < HOT:
            return None, False
        del self._seen[key]
        start = time.perf_counter()
        found = self.kept[key] = self._compile(binding)
        took = time.perf_counter() - start
        self._tell(f"{self._source}: compiled for {_text(key)}, which came {HOT} times, "
                   f"in {1e3 * took:.0f} ms")
        if len(self.kept) > self.most:
            old, _ = self.kept.popitem(last=False)
            self._tell(f"{self._source}: dropped the program for {_text(old)}, the least recently "
                       f"used of {self.most + 1}")
        return found, True

    def used(self, binding: Mapping[str, int], call: Call) -> Call:
        """A call of a program that counts as its use."""
        key = tuple(sorted(binding.items()))

        def run(inputs: Sequence[Array], out: Sequence[Array | None] = ()) -> list[Array] | None:
            self.kept.move_to_end(key)
            return call(inputs, out)

        return run if key in self.kept else call

    def _tell(self, line: str) -> None:
        LOG.info(line)
        self.notes = [*self.notes[-7:], line]


def _text(key: tuple[tuple[str, int], ...]) -> str:
    return ", ".join([f"{name}={n}" for name, n in key])
