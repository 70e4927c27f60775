"""The words of a segment's kernel calls under one binding of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ...codegen.llvm.schedule import Step as KernelCall
from ...ir.dims import Size, evaluate
from ...ir.graph import Value
from ...memory.views import View
from .assembly import NativeStep, RepeatStep
from .lowered import Packed

Base: TypeAlias = "Value | Packed"
Part: TypeAlias = "tuple[Base | None, Size, int]"
"""A word: the base it points into, the offset or the number itself, and bytes an element."""


def parts(step: NativeStep) -> list[Part]:
    """The words of a call, before sizes are known."""
    found: list[Part] = []
    for word in step.lowered.words:
        if isinstance(word, Packed):
            found.append((word, 0, 1))
        elif isinstance(word, View):
            found.append((word.base, word.offset, word.base.dtype.bits // 8))
        else:
            found.append((None, word, 1))
    return found


class Numbers:
    """Sizes under one binding, each evaluated once."""

    def __init__(self, binding: Mapping[str, int]) -> None:
        self.binding = binding
        self._known: dict[Size, int] = {}

    def of(self, size: Size) -> int:
        """The number that a size is."""
        if isinstance(size, int):
            return size
        if (found := self._known.get(size)) is None:
            found = self._known[size] = evaluate(size, self.binding)
        return found


class Words:
    """The words of a segment's kernel calls, in order."""

    def __init__(self, addresses: Sequence[int], known: Mapping[NativeStep, Sequence[Part]],
                 binding: Mapping[str, int]) -> None:
        self.addresses, self.parts, self.numbers = addresses, known, Numbers(binding)
        self.bases: dict[Base, int] = {}
        self.base_of: list[int] = []
        self.offsets: list[int] = []
        self.phases: list[tuple[list[KernelCall], int]] = []
        self.scratch = 0
        self._needs: set[tuple[int, ...]] = set()

    def call(self, number: int, step: NativeStep) -> None:
        """One call."""
        bases, offsets = self._known(step, self.numbers)
        self._add(number, step, self._cut(step, offsets, self.numbers), bases, offsets)

    def repeat(self, number: int, step: RepeatStep) -> None:
        """The calls of every turn; offsets are linear in the turn."""
        count = self.numbers.of(step.count)
        for call in step.start[count % 2]:
            self.call(number, call)
        turns = [Numbers({**self.numbers.binding, step.turn: t}) for t in (0, 1)]
        known = [[(c, *self._known(c, turns[0]), self._known(c, turns[1])[1]) for c in body]
                 for body in step.bodies]
        chunks = {c: self._cut(c, first, turns[0]) for body in known for c, _, first, _ in body}
        for turn in range(count):
            for c, bases, first, second in known[(count - turn) % 2]:
                self._add(number, c, chunks[c], bases,
                          [a + turn * (b - a) for a, b in zip(first, second, strict=True)])

    def _known(self, step: NativeStep, numbers: Numbers) -> tuple[list[int], list[int]]:
        """The number of each word's base, and its offset."""
        bases, offsets = list[int](), list[int]()
        for base, size, item in self.parts[step]:
            bases.append(-1 if base is None else self.bases.setdefault(base, len(self.bases)))
            offsets.append(size * item if isinstance(size, int) else numbers.of(size) * item)
        return bases, offsets

    def _cut(self, step: NativeStep, offsets: Sequence[int], numbers: Numbers) -> int:
        """Chunks of a call. What scratch memory a kernel needs depends on its words alone."""
        binding = numbers.binding
        if (key := (step.kernel, *offsets)) not in self._needs:
            self._needs.add(key)
            self.scratch = max(self.scratch, step.lowered.scratch(binding))
        return step.lowered.chunks(binding)

    def _add(self, number: int, step: NativeStep, chunks: int, bases: Sequence[int],
             offsets: Sequence[int]) -> None:
        call = KernelCall(self.addresses[step.kernel], len(self.offsets), number)
        self.base_of += bases
        self.offsets += offsets
        if self.phases and chunks == 1 == self.phases[-1][1]:
            self.phases[-1][0].append(call)
        else:
            self.phases.append(([call], chunks))
