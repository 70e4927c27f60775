"""`import treadle` is quick and loads nothing heavy."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from onnx import TensorProto, helper

from treadle.frontends.onnx.model import CERTAIN

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


_LOAD = """
import sys, treadle
treadle.load(sys.argv[1]).compile("reference")
before = "onnx" in sys.modules
import onnx
print(before, isinstance(treadle.load(onnx.load(sys.argv[1])), treadle.Model))
"""


def test_a_model_needs_the_messages_of_onnx_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", CERTAIN)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10)
                     .SerializeToString())
    command = [sys.executable, "-c", _LOAD, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
