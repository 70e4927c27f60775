"""What a run executes, as the words that the worker runtime reads.

A *step* is one kernel with its arguments. A *phase* is one or more steps cut into the same number
of chunks; a chunk goes through all steps of its phase in order, and a phase begins when all chunks
of the one before are done. The chunk count is part of the plan: it never depends on threads. A
phase of one chunk may end with a *guard*, which decides whether the phases after it run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import numpy as np

from ...records import dataclass
from .jit import Program

MAX_CHUNKS = (1 << 15) - 1
HEADER_WORDS, PHASE_WORDS, STEP_WORDS = 4, 8, 4
"""Header: phases, address of the phases, address of the steps. Phase: first step, steps, chunks,
chunks up to its end; its guard's byte offset in the frame, value, phases (0: no guard) and their
chunks. Step: kernel address, byte offset of its arguments in the frame, node."""


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel's address, its arguments as a range of the frame, and the node it stands for.

    `offset` counts the frame's 8-byte words. Of several errors in one phase the lowest `node` wins.
    """

    kernel: int
    offset: int
    node: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Unless a bool is `value` once a phase is done, the `phases` after it are skipped.

    The word `offset` of the frame is the address of the bool.
    """

    offset: int
    value: bool
    phases: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that each chunk runs in order without waiting for other chunks."""

    steps: tuple[Step, ...]
    chunks: int
    guard: Guard | None = None


class Schedule:
    """Phases in order. Immutable: workers read it without locks, so a new binding makes a new one.

    `scratch` is the number of bytes that any of its kernels needs per lane. `serial` says that no
    phase has work for a second thread. `program`, one or several, holds the kernels' code and stays
    loaded.
    """

    __slots__ = ("address", "phases", "program", "scratch", "serial", "steps", "words")

    def __init__(self, phases: Sequence[Phase], program: Program | Sequence[Program],
                 scratch: int = 0) -> None:
        steps = [step for phase in phases for step in phase.steps]
        self.phases, self.steps, self.scratch = len(phases), len(steps), scratch
        steps_at = HEADER_WORDS + PHASE_WORDS * len(phases)
        self.words = words = np.zeros(steps_at + STEP_WORDS * len(steps) + 8, np.int64)
        words[:3] = (len(phases), words.ctypes.data + 8 * HEADER_WORDS,
                     words.ctypes.data + 8 * steps_at)
        ends = _ends(phases)
        first = 0
        for at, phase in enumerate(phases):
            row = HEADER_WORDS + PHASE_WORDS * at
            words[row:row + 4] = (first, len(phase.steps), phase.chunks, ends[at])
            first += len(phase.steps)
            if (guard := phase.guard) is not None:
                words[row + 4:row + 8] = (8 * guard.offset, guard.value, guard.phases,
                                          ends[at + guard.phases] - ends[at])
        for at, step in enumerate(steps):
            row = steps_at + STEP_WORDS * at
            words[row:row + 3] = (step.kernel, 8 * step.offset, step.node)
        words.flags.writeable = False
        self.address, self.program = words.ctypes.data, program
        self.serial = all(phase.chunks == 1 for phase in phases)


def _ends(phases: Sequence[Phase]) -> list[int]:
    """For each phase the chunks up to its end."""
    ends: list[int] = []
    for at, phase in enumerate(phases):
        if not 0 < phase.chunks <= MAX_CHUNKS:
            raise ValueError(f"phase {at} has {phase.chunks} chunks, expected 1 to {MAX_CHUNKS}")
        if (guard := phase.guard) is not None and (
                phase.chunks != 1 or not 0 < guard.phases < len(phases) - at):
            raise ValueError(f"phase {at} of {len(phases)} has {phase.chunks} chunks and a guard "
                             f"of {guard.phases} phases")
        ends.append(phase.chunks + (ends[-1] if ends else 0))
    return ends


class Frame:
    """The 8-byte words that a schedule's steps take their arguments from.

    Words may change between runs. One frame serves one run at a time: a kernel reads its words
    while it runs. `table` is the same memory as a ctypes array, whose items are quicker to set.
    """

    __slots__ = ("address", "table", "words")

    def __init__(self, words: Iterable[int]) -> None:
        self.words = np.array([*words, 0], np.int64)
        self.address = self.words.ctypes.data
        self.table = (ctypes.c_int64 * self.words.size).from_address(self.address)
