"""The turn in which MLX works, and the threads that may take it.

Lazy arrays belong to a stream, and MLX's usual streams to a thread: it refuses to evaluate them
elsewhere. Here all work lies on streams that any thread may use, one at a time. MLX keeps what it
compiles for one thread alone, so two threads run everything: the first one that asks, at once, and
one of our own for all others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar, cast

import mlx.core as mx

from ...errors import DeviceError

P = ParamSpec("P")
R = TypeVar("R")


class Job:
    """A call for our thread, and what became of it."""

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
    """Runs calls one after another, on streams of its own.

    The first thread that calls is at home: its calls run where they are made. When it has ended the
    next one that calls is. Calls of all other threads run in a thread of the owner's.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._home = threading.current_thread()
        self._ident = threading.get_ident()
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._server: threading.Thread | None = None
        self.stream = mx.new_thread_unsafe_stream(mx.default_device())
        cpu = cast("mx.Device", mx.cpu)
        self.cpu = self.stream if self.stream.device == cpu else mx.new_thread_unsafe_stream(cpu)

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()

    def _send(self, call: Callable[[], object]) -> object:
        job = Job(call)
        with self._turn:
            if self._server is None:
                self._server = threading.Thread(target=self._serve, name="treadle-mlx",
                                                daemon=True)
                self._server.start()
        self._jobs.put(job)
        return job.result()

    def _inside(self) -> bool:
        """Whether calls of this thread run in it."""
        me = threading.current_thread()
        if me is self._server:
            return True
        if self._home.is_alive():
            return False
        self._home, self._ident = me, threading.get_ident()
        return True

    def call(self, fn: Callable[P, R], *args: P.args, **kw: P.kwargs) -> R:
        """`fn(*args)` in a turn of its own, on the owner's stream."""
        if os.getpid() != self._pid:
            raise DeviceError("MLX was used before this process was forked, and its threads and "
                              "device do not survive that",
                              hint="start processes with multiprocessing's 'spawn', or fork "
                                   "before the first compile for 'mlx'")
        if threading.get_ident() == self._ident or self._inside():
            with self._turn, mx.stream(self.stream):
                return fn(*args, **kw)
        return cast(R, self._send(lambda: self.call(fn, *args, **kw)))


_lock = threading.Lock()
_owner: list[Owner] = []


def owner() -> Owner:
    """The process's owner."""
    if _owner:
        return _owner[0]
    with _lock:
        if not _owner:
            # products of f32 in f32: the precision that the policy "f32" names
            os.environ.setdefault("MLX_ENABLE_TF32", "0")
            _owner.append(Owner())
        return _owner[0]
