"""The order of an executable's runs: one after another, as they were asked for."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..errors import RunError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..declare.arrays import Array
    from ..declare.evaluate import Watch
    from ..ir.graph import Node

T = TypeVar("T")
IN_FLIGHT = 32
"""Submitted runs that may wait; another one waits for a place."""


class Line:
    """Runs jobs one at a time, in order; submitted ones on a thread of its own.

    The thread starts with the first submission and ends, after what is left, with the line. A
    forked child has none of the runs that its parent submitted. `waiting` counts submitted jobs,
    `holder` is the thread in the middle of one, or 0.
    """

    def __init__(self) -> None:
        self._renew()
        _LINES.add(self)

    def _renew(self) -> None:
        self.lock = threading.Lock()
        self.waiting = 0
        self._count = threading.Lock()
        self._places = threading.BoundedSemaphore(IN_FLIGHT)
        self.holder = 0
        self._thread = 0
        self._executor: ThreadPoolExecutor | None = None

    def run(self, job: Callable[[], T]) -> T:
        """Do a job now, after everything that was submitted before."""
        if self.inside:
            raise RunError("an executable was used by something that its own run called",
                           hint="clone() it, or wait for the run to end")
        if self.waiting and threading.get_ident() != self._thread:
            return self.submit(job).result()
        return self._do(job)

    @property
    def inside(self) -> bool:
        """Whether this thread is in the middle of a job."""
        return self.holder == threading.get_ident()

    def inner(self, watch: Watch) -> Watch:
        """A callback of a job, which a device may call from a thread of its own."""
        def seen(node: Node, outputs: Sequence[Array]) -> None:
            before, self.holder = self.holder, threading.get_ident()
            try:
                watch(node, outputs)
            finally:
                self.holder = before

        return seen

    def _do(self, job: Callable[[], T]) -> T:
        with self.lock:
            self.holder = threading.get_ident()
            try:
                return job()
            finally:
                self.holder = 0

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Do a job later; the future has its result or its error."""
        from concurrent.futures import ThreadPoolExecutor

        placed = threading.get_ident() != self._thread  # the line's own thread cannot wait for it
        if placed:
            self._places.acquire()
        with self._count:
            self.waiting += 1
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="treadle-runs")
            future = self._executor.submit(self._work, job, placed)
        future.add_done_callback(lambda f: self._leave(placed) if f.cancelled() else None)
        return future

    def _work(self, job: Callable[[], T], placed: bool) -> T:
        self._thread = threading.get_ident()
        try:
            return self._do(job)
        finally:
            self._leave(placed)

    def _leave(self, placed: bool) -> None:
        with self._count:
            self.waiting -= 1
        if placed:
            self._places.release()


_LINES: weakref.WeakSet[Line] = weakref.WeakSet()


def _child() -> None:
    for line in list(_LINES):
        line._renew()


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
if _register is not None:
    _register(after_in_child=_child)
