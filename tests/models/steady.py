"""What memory and threads must not change about a compiled model's results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.backends.cpu.program import CpuProgram
from treadle.codegen.llvm.runtime import shared_pool
from treadle.runtime.executable import Executable
from treadle.runtime.late import LateExecutable

Inputs = dict[str, np.ndarray]
THREADS = (1, 2, 2, 4)


def programs(exe: Executable | LateExecutable) -> Iterator[CpuProgram]:
    """The programs behind an executable and its specialisations, those of regions included."""
    held = [exe] if isinstance(exe, Executable) else list(exe._kept.values())
    waiting = [e._program for e in held]
    while waiting:
        program = waiting.pop()
        assert isinstance(program, CpuProgram)
        yield program
        waiting += program.regions.values()


def check_steady(exe: Executable | LateExecutable, inputs: Inputs) -> None:
    """The same bits on 1, 2 and 4 threads, from run to run, and with dead memory poisoned."""
    arrays = exe.signature.arrange((inputs,), {})
    wanted = [_bits(a) for a in exe(inputs).values()]

    def same(how: str) -> None:
        found = [_bits(a) for a in exe.run(arrays).values()]
        assert found == wanted, how

    made = list(programs(exe))
    pools = [p.pool for p in made]
    for threads in THREADS:
        for p in made:
            p.pool = shared_pool(threads)
        same(f"{threads} threads")
    for p, pool in zip(made, pools, strict=True):
        p.pool, p.poison = pool, True
        for arena in p.arenas:
            arena[...] = 0xFF
    same("dead memory poisoned")
    for p in made:
        p.poison = False


def check_layouts(exe: Executable | LateExecutable) -> int:
    """No two buffers that are needed at once share a byte, in every plan made so far."""
    checked = 0
    for p in programs(exe):
        for planner, plans in zip(p.stages, p._plans, strict=True):
            for plan in plans.values():
                planner.arena.check(plan.layout)
                checked += 1
    return checked


def _bits(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    return value.shape, value.dtype, value.tolist() if value.dtype == object else value.tobytes()
