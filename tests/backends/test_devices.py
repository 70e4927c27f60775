"""Devices that cannot run here say why, and what runs in their place."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys, warnings
sys.modules["llvmlite"] = None  # as if it were not installed
import numpy as np, treadle
model = treadle.trace(lambda x: x * 2.0, "f32[n]")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    exe = model.compile()
found = {"here": treadle.devices(), "device": exe.backend.name, "file": seen[0].filename,
         "warned": [str(w.message) for w in seen],
         "y": exe(np.ones(2, np.float32))["output_0"].tolist()}
try:
    model.compile("cpu")
except treadle.TreadleError as e:
    found["error"] = f"{type(e).__name__}: {e}"
print(json.dumps(found))
"""


def test_without_llvm_models_run_on_the_reference() -> None:
    """A warning says so where the caller compiles; asking for the device by name is an error."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True,
                          check=True, timeout=120)
    found = json.loads(done.stdout)
    assert found["device"] == "reference" and found["y"] == [2, 2] and found["file"] == "<string>"
    (warned,) = found["warned"]
    assert warned.startswith("models run on the slow device 'reference': 'cpu' cannot run here")
    for text in (warned, found["error"], found["here"]["cpu"]):
        assert "llvmlite" in text and "pip install llvmlite" in text
    assert found["error"].startswith("DeviceError: the device 'cpu' cannot run here")
    assert found["here"]["cpu"].startswith("not available: ")
