"""What a dump has of the kernels that MLX launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.running import executable
from treadle.backends.mlx import norms
from treadle.backends.mlx.kernels import row_norm, template
from treadle.ir.graph import Value
from treadle.ops.mathfn import exp
from treadle.ops.norm import rms_norm


def normed(x: Value, gain: Value) -> Value:
    return exp(rms_norm(x, gain))


def test_a_dump_has_the_text_of_launched_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    """The launch itself is a stub: there is no GPU here."""
    def stub(*_: object) -> Callable[..., list[mx.array]]:
        def launch(*, output_shapes: list[tuple[int, ...]], output_dtypes: list[mx.Dtype],
                   **_: object) -> list[mx.array]:
            return [mx.zeros(s, d) for s, d in zip(output_shapes, output_dtypes, strict=True)]

        return launch

    monkeypatch.setattr(norms, "on_gpu", lambda: True)
    monkeypatch.setattr(template, "target", lambda: "metal")
    monkeypatch.setattr(template, "build", stub)
    monkeypatch.setenv("TREADLE_DUMP", str(tmp_path))
    exe = executable(normed, "f16[n,8]", "f16[8]", mode="lazy")
    exe(np.ones((3, 8), np.float16), np.ones(8, np.float16))
    rows = {r.op: r.kernel for r in exe.explain().rows}
    name = row_norm.PLAIN.name
    assert rows == {"rms_norm": name, "exp": "MLX operations"}
    found, = tmp_path.glob("*/kernels/*")
    text = found.read_text()
    assert found.name == f"{name}.metal" and row_norm.PLAIN.render("metal") in text
    assert "// rms_norm @ test_dump.py:" in text and "groups of" in text and "D=8" in text
