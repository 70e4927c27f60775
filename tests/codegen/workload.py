"""Schedules whose results betray a chunk that ran twice, never, too early, or in another order."""

from __future__ import annotations

import contextlib
import functools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from treadle.codegen.llvm import jit, target
from treadle.codegen.llvm.kernel import Kernel, addresses, export
from treadle.codegen.llvm.runtime import KernelFault
from treadle.codegen.llvm.schedule import Frame, Guard, Phase, Schedule, Step
from treadle.codegen.llvm.text import I8, I64, PTR, Module

SIZE = 96
CODE = 7
Outcome = tuple[bytes, tuple[int, int, int] | None]
Guards = Mapping[int, tuple[bool, int]]
"""For some phases the value that the flag must have, and how many phases need it."""


@dataclass(frozen=True)
class Code:
    """The loaded kernels' addresses."""

    program: jit.Program
    mix: int
    fold: int
    guard: int
    decide: int


@functools.cache
def code() -> Code:
    """Kernels `y[i] = 3 x[i] + i`, `z[i] += y[n-1-i]`, failure from chunk `limit`, `x[7] & 2`."""
    module = Module(target.host())
    mix = Kernel(module, "mix", [("x", PTR), ("y", PTR)])
    f = mix.function
    with f.loop(*mix.share(SIZE)) as at:
        f.store(f.load(I64, mix["x"], at.index) * 3 + at.index, mix["y"], at.index)
    mix.finish()
    fold = Kernel(module, "fold", [("y", PTR), ("z", PTR)])
    f = fold.function
    with f.loop(*fold.share(SIZE)) as at:
        other = f.load(I64, fold["y"], SIZE - 1 - at.index)
        f.store(f.load(I64, fold["z"], at.index) + other, fold["z"], at.index)
    fold.finish()
    guard = Kernel(module, "guard", [("limit", I64)])
    f = guard.function
    with f.when(f.compare("lt", guard.chunk, guard["limit"])):
        good = f.label("good")
        f.jump(good)
        f.start(good)
        guard.finish()
        f.start(f.label("bad"))
    guard.fail(CODE, guard.chunk * 10 + guard.chunks)
    decide = Kernel(module, "decide", [("x", PTR), ("flag", PTR)])
    f = decide.function
    f.store(f.cast("trunc", f.load(I64, decide["x"], 7) & 2, I8), decide["flag"])
    decide.finish()
    export(module, [mix, fold, guard, decide])
    program = jit.build(module.text(), target.host())
    return Code(program, *addresses(program, 4))


class Workload:
    """One schedule and its own arrays; `outcome` runs it and gives all that can be seen."""

    def __init__(self, chunks: tuple[int, ...], fails_at: int | None = None,
                 limit: int = 0, guards: Guards | None = None) -> None:
        self.arrays = np.arange(3 * SIZE, dtype=np.int64).reshape(3, SIZE)
        self.flags = np.zeros(len(chunks), np.uint8)
        x, y, z = (row.ctypes.data for row in self.arrays)
        flags = [word for at in range(len(chunks)) for word in (x, self.flags[at:].ctypes.data)]
        self.frame = Frame([x, y, y, z, z, x, limit, *flags])
        self.chunks, self.fails_at, self.guards = chunks, fails_at, guards or {}
        self.schedule = Schedule([self._phase(at, n) for at, n in enumerate(chunks)],
                                 code().program)

    def _phase(self, at: int, chunks: int) -> Phase:
        own, guard = code(), None
        kernel, offset = [(own.mix, 0), (own.fold, 2), (own.mix, 4)][at % 3]
        steps = [Step(kernel, offset, 2 * at)]
        if at in self.guards:
            value, phases = self.guards[at]
            steps.append(Step(own.decide, 7 + 2 * at, 2 * at))
            guard = Guard(8 + 2 * at, value, phases)
        if at == self.fails_at:
            steps.append(Step(own.guard, 6, 2 * at + 1))
        return Phase(tuple(steps), chunks, guard)

    def outcome(self, run: Callable[[Schedule, Frame], None]) -> Outcome:
        """Run once; the arrays' bytes and the fault, if any. The arrays go on changing."""
        fault = None
        try:
            run(self.schedule, self.frame)
        except KernelFault as error:
            fault = (error.node, error.code, error.value)
        return self.arrays.tobytes() + self.flags.tobytes(), fault

    def expect(self) -> None:
        """The same in NumPy, for a workload that does not fail."""
        x, y, z = self.arrays
        at, resume = np.arange(SIZE), 0
        for phase in range(len(self.chunks)):
            if phase < resume:
                continue
            if phase % 3 == 1:
                z += y[::-1]
            else:
                source, to = (x, y) if phase % 3 == 0 else (z, x)
                to[:] = source * 3 + at
            if phase in self.guards:
                value, phases = self.guards[phase]
                self.flags[phase] = x[7] & 2
                resume = phase + 1 + phases * (bool(self.flags[phase]) is not value)


def guarded(pick: random.Random, chunks: tuple[int, ...]) -> Guards:
    """Guards of some phases of one chunk; they may hold back others with guards of their own."""
    return {at: (pick.random() < 0.5, pick.randint(1, len(chunks) - 1 - at))
            for at, n in enumerate(chunks[:-1]) if n == 1 and pick.random() < 0.6}


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that keep a core busy each."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
               for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
