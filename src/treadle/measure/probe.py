"""What the machine can do: multiply-adds a second, and bytes read a second.

Small kernels, made by the same code generator as the CPU device's, run on plain threads; the best
of several tries counts, since everything else on the machine can only slow them down.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable

import numpy as np

_CHAINS = 12
"""Multiply-adds in flight; two units of latency 4 or 5 need at most 10."""
_STREAMS = 8
_TRIES = 12
_SMALLEST = 1 << 16


@functools.cache
def _kernels() -> tuple[Callable[..., int], Callable[..., int], int]:
    """`fma(turns, x) -> f32`, `read(floats, address) -> f32`, and the f32 lanes of a vector."""
    from ..codegen.llvm.jit import build
    from ..codegen.llvm.target import host
    from ..codegen.llvm.text import F32, I64, PTR, Module

    on = host()
    module = Module(on)
    lanes = on.lanes(F32)
    kind = F32.vector(lanes)

    f = module.function("fma", F32, [("n", I64), ("x", F32)], linkage="")
    n, x = f.args
    wide = f.splat(x, lanes)
    with f.loop(0, n, 1, [f.constant(kind, float(j)) for j in range(_CHAINS)]) as loop:
        loop.carry(*[f.fma(f.fma(v, wide, wide), wide, wide) for v in loop.values])
    total = functools.reduce(lambda a, b: a + b, loop.results)
    f.give(f.reduce(total, lambda a, b: a + b))

    f = module.function("read", F32, [("n", I64), ("data", PTR)], linkage="")
    n, data = f.args
    with f.loop(0, n, _STREAMS * lanes, [f.constant(kind, 0.0)] * _STREAMS) as loop:
        loop.carry(*[v + f.load(kind, data, loop.index + j * lanes)
                     for j, v in enumerate(loop.values)])
    total = functools.reduce(lambda a, b: a + b, loop.results)
    f.give(f.reduce(total, lambda a, b: a + b))

    program = build(module.text(), on)
    return (program.function("fma", ctypes.c_float, ctypes.c_int64, ctypes.c_float),
            program.function("read", ctypes.c_float, ctypes.c_int64, ctypes.c_void_p), lanes)


@functools.cache
def peak_gflops(threads: int) -> float:
    """f32 multiply-adds of `threads` threads in GFLOP/s; a multiply-add is 2."""
    fma, _, lanes = _kernels()
    turns = 500_000
    seconds = _best([lambda: fma(turns, 0.5)] * threads)
    return threads * turns * 2 * _CHAINS * lanes * 2 / seconds / 1e9


def read_gbytes(size: int, threads: int) -> float:
    """GB/s at which `threads` threads together read `size` bytes again and again.

    Sizes are rounded up to a power of two of at least 64 KB and cached.
    """
    return _read_gbytes(max(_SMALLEST, 1 << (size - 1).bit_length()), threads)


@functools.cache
def _read_gbytes(size: int, threads: int) -> float:
    _, read, lanes = _kernels()
    step = _STREAMS * lanes
    count = max(1, size // 4 // threads // step) * step
    data = np.ones(count * threads, np.float32)
    turns = max(1, (64 << 20) // (4 * count * threads))

    def pass_over(lane: int) -> Callable[[], None]:
        address = data.ctypes.data + 4 * count * lane

        def work() -> None:
            for _ in range(turns):
                read(count, address)

        return work

    return turns * data.nbytes / _best([pass_over(j) for j in range(threads)]) / 1e9


def _best(works: list[Callable[[], object]]) -> float:
    """Least seconds in which all works ran, each on its own thread, started together."""
    spans: list[tuple[float, float]] = []
    gate = threading.Barrier(len(works))

    def lane(work: Callable[[], object]) -> None:
        work()
        for _ in range(_TRIES):
            gate.wait()
            start = time.perf_counter()
            work()
            spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=lane, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    spans.sort()
    rounds = [spans[i:i + len(works)] for i in range(0, len(spans), len(works))]
    return min(max(end for _, end in r) - min(start for start, _ in r) for r in rounds)
