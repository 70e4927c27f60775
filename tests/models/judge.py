"""ONNX Runtime as the judge of a model, and what agreement with it means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

DEVICES = ("reference", "cpu")


def session(model: Path | bytes) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread, silent about unused initializers."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def agree(name: str, a: np.ndarray, b: np.ndarray, errors: int = 1) -> None:
    """|a-b| <= errors * (1e-5 + 1e-4 max(|b|, mean|b|)); integers equal."""
    assert a.shape == b.shape and a.dtype == b.dtype, name
    if a.dtype.kind != "f":
        np.testing.assert_array_equal(a, b, err_msg=name)
        return
    limit = errors * (1e-5 + 1e-4 * np.maximum(np.abs(b), np.abs(b).mean()))
    worst = np.max(np.abs(a - b) - limit, initial=-np.inf)
    assert worst <= 0, f"{name}: exceeds the bound by {worst}"
