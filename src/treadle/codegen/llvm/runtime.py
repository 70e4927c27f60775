"""Threads that run schedules: the Python side of the worker runtime."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...config import MAX_THREADS
from ...errors import TreadleError
from . import worker
from .cache import default_cache
from .jit import build
from .kernel import SCRATCH_AT
from .processors import default_threads
from .schedule import Frame, Schedule
from .target import host

Words = NDArray[np.int64]
RUN_SPINS, STEP_SPINS = 2000, 1000
"""Polls before a worker parks between runs, and before anyone parks inside one."""


class KernelFault(TreadleError):
    """A kernel reported an error: the node's number, the kernel's code, and a value about it."""

    def __init__(self, node: int, code: int, value: int) -> None:
        super().__init__(f"node {node} failed with code {code} (value {value})")
        self.node, self.code, self.value = node, code, value


class _Native:
    """The compiled runtime of this process."""

    def __init__(self, parking: str) -> None:
        program = build(lambda: worker.runtime_text(host(), parking), host(), default_cache(),
                        f"worker runtime, {parking}")
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        self.prepare = program.function("prepare", None, pointer)
        self.serial = program.function("serial", ctypes.c_int32, *[pointer] * 3)
        self.timed = program.function("timed", ctypes.c_int32, *[pointer] * 4)
        self.start = program.function("start", ctypes.c_int32, *[pointer] * 3)
        self.stop = program.function("stop", None, pointer)
        self.worker = program.function("worker", None, pointer, whole)
        self.oldest = program.function("oldest", whole, pointer)


@functools.cache
def _native(parking: str) -> _Native:
    return _Native(parking)


def aligned(size: int, alignment: int = 64) -> NDArray[np.uint8]:
    """`size` zero bytes at an aligned address."""
    block = np.zeros(size + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    return block[start:start + size]


class _Lane:
    """A lane for runs on the caller alone: scratch memory and an error record."""

    def __init__(self) -> None:
        self.words = aligned(64).view(np.int64)
        self.address = self.words.ctypes.data
        self.words[worker.KEY // 8] = worker.NO_ERROR
        self.scratch, self.size = aligned(0), 0

    def reserve(self, size: int) -> None:
        """Have at least `size` bytes of scratch."""
        if self.size < size:
            self.scratch, self.size = aligned(size), size
            self.words[SCRATCH_AT // 8] = self.scratch.ctypes.data

    def fault(self) -> KernelFault:
        """The error of the run that just failed; the lane is clean again."""
        key, code, value = (int(self.words[o // 8])
                            for o in (worker.KEY, worker.CODE, worker.VALUE))
        self.words[worker.KEY // 8] = worker.NO_ERROR
        return KernelFault(key >> worker.INDEX_BITS, code, value)


class _Crew:
    """The sync block of a pool and the threads that work on it. Knows no pool, so pools can die."""

    def __init__(self, native: _Native, threads: int, spins: tuple[int, int]) -> None:
        self.native, self.lanes = native, threads
        self.lock = threading.Lock()
        self.sync = aligned(worker.sync_bytes(threads), 128).view(np.int64)
        self.address = self.sync.ctypes.data
        for offset, value in ((worker.LANES, threads), (worker.NEXT_FIRST, 1),
                              (worker.RUN_SPINS, spins[0]), (worker.STEP_SPINS, spins[1])):
            self.sync[offset // 8] = value
        for lane in range(threads):
            self.lane_words(lane)[worker.KEY // 8] = worker.NO_ERROR
        native.prepare(self.address)
        self.scratch = [aligned(0)] * threads
        self.threads: list[threading.Thread] = []
        self.last: Schedule | None = None
        self.retired: list[tuple[int, Schedule]] = []

    def lane_words(self, lane: int) -> Words:
        """The record that kernels of a lane see."""
        start = (worker.LANE_BASE + worker.LANE_BYTES * lane + worker.LANE) // 8
        return self.sync[start:start + 8]

    def begin(self) -> None:
        """Start the threads, or as many as the system allows: those that run do all the work."""
        for tid in range(1, self.lanes):
            thread = threading.Thread(target=self.native.worker, args=(self.address, tid),
                                      name=f"treadle-{tid}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self.threads.append(thread)

    def reserve(self, size: int) -> None:
        """Have at least `size` bytes of scratch in every lane; only between runs."""
        if self.scratch[0].nbytes < size:
            self.scratch = [aligned(size) for _ in range(self.lanes)]
            for lane, block in enumerate(self.scratch):
                self.lane_words(lane)[SCRATCH_AT // 8] = block.ctypes.data

    def keep(self, schedule: Schedule) -> None:
        """Hold on to schedules that a late worker may still be reading."""
        if self.last is not schedule:
            if self.last is not None:
                before = int(self.sync[worker.EPOCH // 8]) - 2
                self.retired.append((before, self.last))
            self.last = schedule
        if self.retired:
            oldest = self.native.oldest(self.address)
            self.retired = [item for item in self.retired if item[0] >= oldest]

    def run(self, schedule: Schedule, frame: Frame) -> None:
        """One run with all lanes; the caller holds the lock."""
        if not self.threads:
            self.begin()
        self.reserve(schedule.scratch)
        failed = self.native.start(self.address, schedule.address, frame.address)
        self.keep(schedule)
        if failed:
            at = worker.RESULT_KEY // 8
            key, code, value = (int(word) for word in self.sync[at:at + 3])
            raise KernelFault(key >> worker.INDEX_BITS, code, value)

    def finish(self) -> None:
        """Let the threads return."""
        with self.lock:
            if self.threads:
                self.native.stop(self.address)
                for thread in self.threads:
                    thread.join()
                self.threads = []


class ThreadPool:
    """Persistent threads that run schedules; the calling thread is one of them.

    `threads` counts the caller; the default is `default_threads()`. A pool serves one run at a
    time: a run that finds it busy executes on its caller alone, with equal results. Threads start
    with the first run that can use them and again after a fork; they end when the pool is closed,
    collected, or the process exits.

    `parking` is `futex` (Linux) or `pthread`. `run_spins` and `step_spins` are polls before a
    thread sleeps between runs and inside a run.
    """

    def __init__(self, threads: int | None = None, *, parking: str | None = None,
                 run_spins: int = RUN_SPINS, step_spins: int = STEP_SPINS) -> None:
        self.threads = default_threads() if threads is None else threads
        if not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"a pool of {self.threads} threads, expected 1 to {MAX_THREADS}")
        system = "futex" if sys.platform == "linux" else "pthread"
        self._make = functools.partial(_Crew, _native(parking or system), self.threads,
                                       (max(run_spins, 1), max(step_spins, 1)))
        self._spare: list[_Lane] = []
        self._closed = False
        self._renew()
        _POOLS.add(self)

    def _renew(self) -> None:
        self._crew = self._make()
        self._finalizer = weakref.finalize(self, self._crew.finish)

    def run(self, schedule: Schedule, frame: Frame) -> None:
        """Execute a schedule on a frame that no other run uses.

        Raises `KernelFault` for the lowest failing node. Everything the schedule writes is then
        undefined.
        """
        crew = self._crew
        if self.threads > 1 and not schedule.serial and crew.lock.acquire(blocking=False):
            try:
                if not self._closed:
                    crew.run(schedule, frame)
                    return
            finally:
                crew.lock.release()
        self.run_serial(schedule, frame)

    def runner(self, schedule: Schedule) -> Callable[[Schedule, Frame], None]:
        """The quickest of `run` and `run_serial` that serves a schedule."""
        return self.run_serial if self.threads == 1 or schedule.serial else self.run

    def run_serial(self, schedule: Schedule, frame: Frame) -> None:
        """The same on the calling thread alone."""
        try:  # a list's pop and append are atomic
            lane = self._spare.pop()
        except IndexError:
            lane = _Lane()
        if schedule.scratch > lane.size:
            lane.reserve(schedule.scratch)
        failed = self._crew.native.serial(schedule.address, frame.address, lane.address)
        fault = lane.fault() if failed else None
        self._spare.append(lane)
        if fault is not None:
            raise fault

    def profile(self, schedule: Schedule, frame: Frame) -> NDArray[np.float64]:
        """Seconds that each step takes on the calling thread, chunk after chunk.

        Raises `KernelFault` as `run` does.
        """
        lane, ticks = _Lane(), np.zeros(schedule.steps + 1, np.int64)
        lane.reserve(schedule.scratch)
        started = time.perf_counter()
        failed = self._crew.native.timed(schedule.address, frame.address, lane.address,
                                         ticks.ctypes.data)
        took = time.perf_counter() - started
        if failed:
            self.run_serial(schedule, frame)
        share = ticks[:-1].astype(np.float64) / max(int(ticks.sum()), 1)
        return np.multiply(share, took, dtype=np.float64)

    def close(self) -> None:
        """End the threads; later runs execute on their caller."""
        self._closed = True
        self._finalizer()

    def _after_fork(self) -> None:
        """The child has none of the threads: start afresh, and leave the old block as it is."""
        self._finalizer.detach()
        self._spare = []
        self._renew()


_POOLS: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
_shared: dict[int, ThreadPool] = {}
_shared_lock = threading.Lock()


def shared_pool(threads: int | None = None) -> ThreadPool:
    """The process's pool of that many threads; executables share it."""
    count = default_threads() if threads is None else threads
    with _shared_lock:
        if count not in _shared:
            _shared[count] = ThreadPool(count)
        return _shared[count]


def _child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_POOLS):
        pool._after_fork()


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
if _register is not None:
    _register(after_in_child=_child)
