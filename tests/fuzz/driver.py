"""The parent's side of `worker.py`: send mutants, notice death and silence, start anew."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.seeds import mutant

HERE = Path(__file__).parent
SILENCE_S = 60.0
"""Wall time without an answer after which a worker is stopped; its own limits are tighter."""
SAVED = Path(tempfile.gettempdir()) / "treadle-fuzz"
"""Where mutants that fail are kept."""


class Worker:
    """A worker process, started when it is needed and again after it died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        threads = {k: "1" for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        return subprocess.Popen([sys.executable, "-X", "faulthandler", str(HERE / "worker.py")],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, **threads})

    def ask(self, request: str) -> str:
        """The verdict on one request; a worker that dies or is silent is itself the verdict."""
        if self.process is None:
            self.process = self._start()
        p = self.process
        assert p.stdin is not None and p.stdout is not None and p.stderr is not None
        p.stdin.write(request.encode() + b"\n")
        p.stdin.flush()
        if not select.select([p.stdout], [], [], SILENCE_S)[0]:
            self.close()
            return f"fail hang: no answer in {SILENCE_S:g} s"
        if answer := p.stdout.readline().decode(errors="replace").strip():
            return answer
        code = p.wait()
        last = p.stderr.read().decode(errors="replace").strip().splitlines()
        self.close()
        return f"fail crash: the process died with {code}: {' | '.join(last[:6])}"

    def close(self) -> None:
        """End the process."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process = None


def save(seed: str, kind: str, number: int) -> Path:
    """The mutant as a file."""
    SAVED.mkdir(exist_ok=True)
    path = SAVED / f"{seed}-{kind}-{number}.onnx"
    path.write_bytes(mutant(seed, kind, number)[0])
    return path
