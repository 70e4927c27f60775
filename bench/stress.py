"""Runs a million random schedules on 1 to 8 threads beside busy processes; `make stress`.

Every run is compared, bytes and error, with the same schedule on one thread.
"""

from __future__ import annotations

import argparse
import random
import time

from tests.codegen.workload import Workload, guarded, hogs
from treadle.codegen.llvm.runtime import ThreadPool


def pairs(seed: int) -> list[tuple[Workload, Workload]]:
    """Equal workloads: one for the pool, one for the caller alone."""
    pick = random.Random(seed)
    made = []
    for _ in range(24):
        chunks = tuple(pick.choice([1, 1, 2, 3, 5, 8, 13]) for _ in range(pick.randint(1, 6)))
        fails = pick.randrange(len(chunks)) if pick.random() < 0.2 else None
        limit, guards = pick.randrange(3), guarded(pick, chunks)
        made.append((Workload(chunks, fails, limit, guards),
                     Workload(chunks, fails, limit, guards)))
    return made


SPINS = ({}, {"run_spins": 1, "step_spins": 1}, {"run_spins": 10**5, "step_spins": 10**5})
"""Threads that park as usual, at once, or hardly ever."""


def stress(runs: int, threads: int, busy: int, seed: int) -> float:
    """Seconds that `runs` runs took; raises at the first difference."""
    pick, pool = random.Random(seed), ThreadPool(threads, **SPINS[seed % len(SPINS)])
    every = pairs(seed)
    started = time.monotonic()
    with hogs(busy):
        for at in range(runs):
            alone, many = pick.choice(every)
            if many.outcome(pool.run) != alone.outcome(pool.run_serial):
                raise SystemExit(f"run {at} of {runs} differs: {threads} threads, {busy} busy "
                                 f"processes, seed {seed}, chunks {many.chunks}")
    pool.close()
    return time.monotonic() - started


def main() -> None:
    """Divide the runs among thread counts and busy processes, and report each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = [(threads, busy) for busy in (0, 1, 2) for threads in range(1, 9)]
    each = -(-options.runs // len(parts))
    for at, (threads, busy) in enumerate(parts):
        took = stress(each, threads, busy, options.seed + at)
        print(f"{each} runs, {threads} threads beside {busy} busy processes: equal, "
              f"{took / each * 1e6:.0f} us a run", flush=True)


if __name__ == "__main__":
    main()
