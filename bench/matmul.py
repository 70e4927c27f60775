"""Single-thread matrix products with packed weights against NumPy and the measured peak.

Run as `OPENBLAS_NUM_THREADS=1 python -m bench.matmul`. Weights rotate through more memory than the
last-level cache holds, as they do in a model, and lie in one allocation per engine, which the
system backs with large pages. Each cell is the best of interleaved rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Callable

import numpy as np

from treadle.backends.cpu.contraction import (
    Matmul,
    emit_matmul,
    pack,
    scratch_bytes,
    tile_for,
)
from treadle.codegen.llvm.jit import build
from treadle.codegen.llvm.kernel import addresses, export
from treadle.codegen.llvm.runtime import ThreadPool, aligned
from treadle.codegen.llvm.schedule import Frame, Phase, Schedule, Step
from treadle.codegen.llvm.target import host
from treadle.codegen.llvm.text import F32, I64, Module

SHAPES = [(1, 768, 768), (8, 768, 768), (32, 768, 768), (128, 768, 768), (128, 3072, 768),
          (128, 768, 3072), (512, 4096, 4096), (1, 4096, 4096), (197, 768, 768)]
CACHE = 64 << 20


def peak() -> float:
    """Multiply-add throughput of one core in GFLOP/s, best of several tries."""
    on, chains, turns = host(), 10, 200_000
    module = Module(on)
    kind = F32.vector(on.lanes(F32))
    f = module.function("peak", F32, [("n", I64), ("x", F32)], linkage="")
    n, x = f.args
    x = f.splat(x, kind.lanes)
    start = [f.constant(kind, float(j)) for j in range(chains)]
    with f.loop(0, n, 1, start) as loop:
        loop.carry(*[f.fma(x, f.fma(x, v, v), v) for v in loop.values])
    total = loop.results[0]
    for v in loop.results[1:]:
        total = total + v
    f.give(f.reduce(total, lambda a, b: a + b))
    call = build(module.text(), on).function("peak", ctypes.c_float, ctypes.c_int64,
                                             ctypes.c_float)
    flops = 2 * 2 * chains * kind.lanes * turns
    return max(flops / _seconds(lambda: call(turns, 0.0)) for _ in range(20)) / 1e9


def _seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread, so that other processes count for less."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def emitted(m: int, n: int, k: int, cold: bool) -> Callable[[int], Callable[[], object]]:
    """A maker of calls on the j-th copy of the weights."""
    on = host()
    module = Module(on)
    spec = Matmul(m, n, k, cold=cold)
    kernel = emit_matmul(module, spec, "product")
    export(module, [kernel])
    program = build(module.text(), on)
    schedule = Schedule([Phase((Step(addresses(program, 1)[0], 0, 0),), 1)], program,
                        scratch_bytes(module, spec, {}))
    pool = ThreadPool(1)
    a, c = (aligned(4 * size).view(np.float32) for size in (m * k, m * n))
    a[:] = 1
    packed = pack(np.ones((k, n), np.float32), tile_for(on, F32))
    weights = np.empty((copies(n, k, cold), packed.size), np.float32)
    weights[:] = packed
    frames = [Frame([a.ctypes.data, w.ctypes.data, c.ctypes.data]) for w in weights]

    def at(j: int) -> Callable[[], object]:
        return lambda: pool.run_serial(schedule, frames[j % len(frames)])

    at.arrays = (a, c, weights)  # type: ignore[attr-defined]  # the frames hold addresses only
    return at


def numpy(m: int, n: int, k: int, cold: bool) -> Callable[[int], Callable[[], object]]:
    """The same for NumPy."""
    a, c = np.ones((m, k), np.float32), np.zeros((m, n), np.float32)
    weights = np.empty((copies(n, k, cold), k, n), np.float32)
    weights[:] = 1
    return lambda j: lambda: np.matmul(a, weights[j % len(weights)], out=c)


def copies(n: int, k: int, cold: bool) -> int:
    """Copies of the weights that no cache holds together."""
    return max(2, -(-CACHE // (4 * n * k))) if cold else 1


def measure(engines: list[Callable[[int], Callable[[], object]]], flops: float,
            rounds: int) -> list[float]:
    """GFLOP/s of each engine, best block of interleaved rounds."""
    block = max(1, int(1e-3 / (flops / 60e9)))
    best, at = [1e9] * len(engines), 0
    for _ in range(rounds):
        for e, engine in enumerate(engines):
            calls = [engine(at + j) for j in range(block)]
            took = _seconds(lambda calls=calls: [call() for call in calls])
            best[e] = min(best[e], took / block)
        at += block
    return [flops / seconds / 1e9 for seconds in best]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--warm", action="store_true", help="keep one copy of the weights")
    options = parser.parse_args()
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if name in os.environ:
            raise SystemExit(f"unset {name}: it changes what NumPy does")
    print(f"{host().cpu}: peak {peak():.1f} GFLOP/s")
    print("| m; n, k | emitted | NumPy |\n| --- | --: | --: |")
    for m, n, k in SHAPES:
        engines = [make(m, n, k, not options.warm) for make in (emitted, numpy)]
        ours, theirs = measure(engines, 2.0 * m * n * k, options.rounds)
        print(f"| {m}; {n}, {k} | {ours:.1f} | {theirs:.1f} |", flush=True)


if __name__ == "__main__":
    main()
