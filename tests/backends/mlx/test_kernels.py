"""Kernels written once: both renderings are C++ that a compiler reads, and the composed forms."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.lockstep import FIBERS, SHIMS, Lockstep
from tests.backends.mlx.running import normal
from treadle.backends.mlx.kernels import row_norm
from treadle.backends.mlx.kernels.template import Target, Template, header
from treadle.errors import DeclarationError

TEMPLATES = [row_norm.PLAIN, row_norm.RESIDUAL]
CONSTANTS = {"WARPS": 4, "D": 96, "EACH": 1,
             "CENTRED": 1, "RESIDUAL": 1, "BIASED": 1, "SHIFTED": 1, "WIDTH": 8, "EPS": 1,
             "EPS_LOW": 0}


def unit(template: Template, target: Target) -> str:
    """A kernel as a C++ function with MLX's signature."""
    given = "".join(f", const T* {n}" for n in template.inputs)
    made = "".join(f", T* {n}" for n in template.outputs)
    fixed = "".join(f"constexpr int {k} = {v};\n" for k, v in CONSTANTS.items())
    return (f"{FIBERS}{SHIMS[target]}{header(target)}{fixed}template <typename T> void kernel("
            f"int{given}{made}) {{{template.render(target)}}}\n"
            f"template void kernel<float>(int"
            f"{', const float*' * given.count(',')}{', float*' * made.count(',')});\n")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.name)
def test_a_rendering_compiles(template: Template, target: Target, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cpp"
    source.write_text(unit(template, target))
    done = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-Wno-unknown-pragmas", source],
                          capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize(("d", "kind", "centred"), [(264, "f2", True), (33, "f2", False)])
def test_a_norm_rounds_once(d: int, kind: str, centred: bool, target: Target,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's text, run thread by thread, against f64; wide loads and single ones."""
    monkeypatch.setattr(row_norm, "launch", Lockstep(target))
    x, r = normal(3, d).astype(kind), normal(3, d, seed=1).astype(kind)
    bias, gamma, beta = (normal(d, seed=s).astype(kind) for s in (2, 3, 4))
    total = x.astype(np.float64) + r + bias
    away = total - total.mean(-1, keepdims=True) * centred
    want = away / np.sqrt((away**2).mean(-1, keepdims=True) + 0.1) * gamma + beta
    y, kept = (np.array(a) for a in row_norm.row_norm(
        mx.array(x), mx.array(gamma), mx.array(beta), 0.1, centred=centred,
        residual=mx.array(r), bias=mx.array(bias)))
    np.testing.assert_array_max_ulp(kept, total.astype(kind), 1)
    np.testing.assert_array_max_ulp(y, want.astype(kind), 1)


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(DeclarationError, match="no word of the templates"):
        Template("t", ("x",), ("y",), "y[0] = $THERE;").render("metal")
