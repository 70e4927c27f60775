"""The process in which one engine runs; `processes.Worker` drives it through a pipe.

It imports nothing of an engine before it is asked to, so that memory and start-up times are the
engine's own.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..declare.arrays import Array
    from .engines import Job, Run

_SAMPLE_S = 50e-6
"""Shorter calls are timed several at once: reading the clock takes about 50 ns."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Milliseconds from a bare interpreter to the first outputs, and the outputs."""

    version: str
    import_ms: float
    create_ms: float
    first_ms: float
    base_bytes: int
    outputs: list[Array]


@dataclass(frozen=True, slots=True)
class Block:
    """Milliseconds a call, sample by sample, and how often the system took the processor away."""

    times_ms: list[float]
    preemptions: int


def peak_memory() -> int:
    """Bytes of physical memory this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss starts at the parent's peak there
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Server:
    """Answers the requests; the engine and its call stay open between them."""

    run: Run

    def open(self, job: Job) -> Opened:
        """Import the engine, build its model and run it once."""
        from .engines import engine

        # arrays that came through the pipe lie in small pages, unlike those that users make
        job = replace(job, inputs={n: a.copy() for n, a in job.inputs.items()},
                      weights={n: a.copy() for n, a in job.weights.items()})
        base, chosen = peak_memory(), engine(job.engine)
        clock = [time.perf_counter()]
        import_module(chosen.package)
        clock.append(time.perf_counter())
        self.run = chosen.open(job)
        clock.append(time.perf_counter())
        outputs = list(self.run())
        clock.append(time.perf_counter())
        imported, created, first = (1e3 * s for s in np.diff(clock).tolist())
        return Opened(chosen.version(), imported, created, first, base,
                      [np.asarray(o) for o in outputs])

    def block(self, seconds: float) -> Block:
        """Call for about `seconds` after a warm-up of a tenth of that, at least once."""
        once = self._warm(0.1 * seconds)
        inner = max(1, round(_SAMPLE_S / once))
        samples = max(1, round(seconds / (inner * once)))
        run, turns, clock = self.run, range(inner), time.perf_counter_ns
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        times: list[float] = []
        gc.disable()
        for _ in range(samples):
            start = clock()
            for _ in turns:
                run()
            times.append((clock() - start) / inner / 1e6)
        gc.enable()
        return Block(times, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - taken)

    def _warm(self, seconds: float) -> float:
        """Seconds of the quickest call in a warm-up."""
        end, least = time.perf_counter() + seconds, float("inf")
        while True:
            start = time.perf_counter()
            self.run()
            now = time.perf_counter()
            least = min(least, now - start)
            if now >= end:
                return max(least, 1e-7)

    def memory(self) -> int:
        """Bytes at most, so far."""
        return peak_memory()


def serve(pipe: Connection) -> None:
    """Answer `(request, arguments)` with `("ok", answer)` or `("error", text)` until it closes."""
    server = Server()
    requests: dict[str, Callable[..., Any]] = {
        "open": server.open, "block": server.block, "memory": server.memory}
    while True:
        try:
            request, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("ok", requests[request](*args)))
        except Exception as e:  # an engine may raise anything; the report names it
            pipe.send(("error", f"{type(e).__name__}: {e}"))


def _end_with_parent() -> None:
    """A stopped worker cannot notice that its parent was killed, so the system ends it."""
    if sys.platform == "linux":
        death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)


def main(descriptor: int) -> None:
    """Serve the pipe that the parent passed on."""
    _end_with_parent()
    serve(Connection(descriptor))
