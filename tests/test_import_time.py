"""`import treadle` is quick and loads nothing heavy."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

HEAVY = ("onnx", "onnxruntime", "llvmlite", "cupy", "mlx", "torch")
LIMIT_MS = 150
RUNS = 5
_PROBE = f"""
import json, sys, time
start = time.perf_counter()
import treadle
took = (time.perf_counter() - start) * 1e3
print(json.dumps([took, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def _probe() -> tuple[float, list[str]]:
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took, loaded = json.loads(done.stdout)
    return took, loaded


def test_import_is_quick_and_light() -> None:
    runs = [_probe() for _ in range(RUNS)]
    assert runs[0][1] == []
    assert statistics.median(took for took, _ in runs) < LIMIT_MS
