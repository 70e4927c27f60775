"""The one thread that makes and evaluates MLX arrays, behind a front for all others.

Lazy arrays belong to a stream, and streams to a thread: MLX refuses to evaluate them elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar, cast

from ...errors import DeviceError

P = ParamSpec("P")
R = TypeVar("R")


class Job:
    """A call for the owner, and what became of it."""

    __slots__ = ("_call", "_done", "_error", "_value")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._done = threading.Lock()
        self._done.acquire()
        self._value: object = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call; what it raises is kept for `result`."""
        try:
            self._value = self._call()
        except BaseException as e:  # noqa: BLE001 - it belongs to the thread that asked
            self._error = e
        self._done.release()

    def result(self) -> object:
        """Wait; what the call raised is raised here."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._value


class Owner:
    """Runs calls one after another in its thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="treadle-mlx", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()

    def submit(self, call: Callable[[], object]) -> Job:
        """Queue a call."""
        if os.getpid() != self._pid:
            raise DeviceError("MLX was used before this process was forked, and its threads and "
                              "device do not survive that",
                              hint="start processes with multiprocessing's 'spawn', or fork "
                                   "before the first compile for 'mlx'")
        job = Job(call)
        if threading.current_thread() is self._thread:
            job.run()
        else:
            self._jobs.put(job)
        return job

    def call(self, fn: Callable[P, R], *args: P.args, **kw: P.kwargs) -> R:
        """`fn(*args)` in the owner's thread."""
        return cast(R, self.submit(lambda: fn(*args, **kw)).result())


_lock = threading.Lock()
_owner: list[Owner] = []


def owner() -> Owner:
    """The process's owner."""
    with _lock:
        if not _owner:
            # products of f32 in f32: the precision that the policy "f32" names
            os.environ.setdefault("MLX_ENABLE_TF32", "0")
            _owner.append(Owner())
        return _owner[0]
