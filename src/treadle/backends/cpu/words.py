"""The words of a segment's kernel calls under one binding of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ...codegen.llvm.schedule import Guard
from ...codegen.llvm.schedule import Step as KernelCall
from ...ir.dims import Size, evaluate
from ...ir.graph import Value
from ...memory.views import View
from ...records import dataclass, replace
from .assembly import AnyNative, GuardStep, NativeStep, RepeatStep
from .limits import reserve
from .lowered import Packed

LISTED = 1100
"""Bytes at most that a call takes while a plan is made."""
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


Numbered: TypeAlias = "tuple[int, AnyNative]"
"""A step with its number in the stage."""


@dataclass(slots=True)
class Cut:
    """A phase in the making."""

    calls: list[KernelCall]
    chunks: int
    guard: Guard | None = None


class Words:
    """The words of a segment's kernel calls, in order."""

    def __init__(self, addresses: Sequence[int], known: Mapping[NativeStep, Sequence[Part]],
                 binding: Mapping[str, int]) -> None:
        self.addresses, self.parts, self.numbers = addresses, known, Numbers(binding)
        self.bases: dict[Base, int] = {}
        self.base_of: list[int] = []
        self.offsets: list[int] = []
        self.phases: list[Cut] = []
        self.scratch = 0
        self._needs: set[tuple[int, ...]] = set()
        self._fresh = True  # whether the next call begins a phase

    def write(self, steps: Sequence[Numbered]) -> None:
        """All steps in order, each guard with those that it holds back."""
        ends: list[tuple[int, int]] = []
        for at, (number, step) in enumerate(steps):
            if isinstance(step, GuardStep):
                self._guard(step, self.numbers.of(step.flag.offset))
                ends.append((at + step.steps, len(self.phases) - 1))
            elif isinstance(step, RepeatStep):
                self._repeat(number, step)
            else:
                self._call(number, step)
            self._close(at, ends)

    def _call(self, number: int, step: NativeStep) -> None:
        bases, offsets = self._known(step, self.numbers)
        self._add(number, step, self._cut(step, offsets, self.numbers), bases, offsets)

    def _repeat(self, number: int, step: RepeatStep) -> None:
        """The calls of every turn; offsets are linear in the turn."""
        count = self.numbers.of(step.count)
        calls = sum([len(s.calls()) for s in step.bodies[0]])
        reserve(count * calls * LISTED, step.node.outputs, self.numbers.binding)
        for call in step.start[count % 2]:
            self._call(number, call)
        turns = [Numbers({**self.numbers.binding, step.turn: t}) for t in (0, 1)]
        known = {c: (*self._known(c, turns[0]), self._known(c, turns[1])[1])
                 for body in step.bodies for s in body for c in s.calls()}
        chunks = {c: self._cut(c, first, turns[0]) for c, (_, first, _) in known.items()}
        for turn in range(count):
            ends: list[tuple[int, int]] = []
            for at, s in enumerate(step.bodies[(count - turn) % 2]):
                if isinstance(s, GuardStep):
                    low, high = (n.of(s.flag.offset) for n in turns)
                    self._guard(s, low + turn * (high - low))
                    ends.append((at + s.steps, len(self.phases) - 1))
                else:
                    bases, first, second = known[s]
                    self._add(number, s, chunks[s], bases, [
                        a + turn * (b - a) for a, b in zip(first, second, strict=True)])
                self._close(at, ends)

    def _guard(self, step: GuardStep, offset: int) -> None:
        """A phase of one chunk ends with the guard; how many it holds back is known later."""
        if self._fresh or self.phases[-1].chunks > 1:
            self.phases.append(Cut([], 1))
        self.phases[-1].guard = Guard(len(self.offsets), step.value, 0)
        self.base_of.append(self._base(step.flag.base))
        self.offsets.append(offset)
        self._fresh = True

    def _close(self, at: int, ends: list[tuple[int, int]]) -> None:
        """End what guards hold back where step `at` is the last of it."""
        while ends and ends[-1][0] == at:
            cut = self.phases[number := ends.pop()[1]]
            assert cut.guard is not None
            held = len(self.phases) - 1 - number
            cut.guard = replace(cut.guard, phases=held) if held else None
            self._fresh = True

    def _base(self, base: Base) -> int:
        return self.bases.setdefault(base, len(self.bases))

    def _known(self, step: NativeStep, numbers: Numbers) -> tuple[list[int], list[int]]:
        """The number of each word's base, and its offset."""
        bases, offsets = list[int](), list[int]()
        for base, size, item in self.parts[step]:
            bases.append(-1 if base is None else self._base(base))
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
        if not chunks:
            return
        call = KernelCall(self.addresses[step.kernel], len(self.offsets), number)
        self.base_of += bases
        self.offsets += offsets
        if not self._fresh and chunks == 1 == self.phases[-1].chunks:
            self.phases[-1].calls.append(call)
        else:
            self.phases.append(Cut([call], chunks))
            self._fresh = False
