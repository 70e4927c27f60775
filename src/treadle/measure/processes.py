"""Starts, stops and questions the worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import Pipe
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import TreadleError

if TYPE_CHECKING:
    from .engines import Job
    from .worker import Block, Opened

UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that change what NumPy's BLAS does; no worker sees them."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TREADLE_THREADS")

_MAIN = f"import sys, {__package__}.worker as w; w.main(int(sys.argv[1]))"


class EngineFailure(TreadleError):
    """An engine that raised, ended its process, or did not answer in time."""


def environment(threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker: this process's, its import path, and the thread counts."""
    found = {k: v for k, v in os.environ.items() if k not in UNSET}
    found["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return {**found, **dict.fromkeys(_THREADS, str(threads)), **extra}


class Worker:
    """One engine in its own process, stopped by a signal whenever it is not answering.

    A stopped process has no thread that spins, so the engine measured next has the machine alone.
    """

    def __init__(self, threads: int, extra: Mapping[str, str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._pipe, child = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, str(child.fileno())],
            pass_fds=[child.fileno()], env=environment(threads, extra),
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        child.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def open(self, job: Job) -> Opened:
        """Build the model and run it once."""
        return self._ask("open", job)

    def block(self, seconds: float) -> Block:
        """Time calls for about `seconds`."""
        return self._ask("block", seconds)

    def peak_memory(self) -> int:
        """Bytes of physical memory at most, so far."""
        return self._ask("memory")

    @property
    def stopped(self) -> bool:
        """Whether the process stands still, as Linux's /proc tells it."""
        with open(f"/proc/{self._process.pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"

    def _ask(self, request: str, *args: object) -> Any:  # noqa: ANN401 - each request has its answer
        self._signal(signal.SIGCONT)
        try:
            self._pipe.send((request, args))
            if not self._pipe.poll(self._timeout_s):
                self.close()
                raise EngineFailure(f"no answer within {self._timeout_s:g} s")
            status, answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise EngineFailure(self._last_words()) from None
        self._stop()
        if status == "error":
            raise EngineFailure(answer)
        return answer

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _last_words(self) -> str:
        """How the process ended, and the last line it wrote."""
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"its process ended {how}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
