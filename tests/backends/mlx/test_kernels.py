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
from treadle.backends.mlx.kernels import quantized_row, row_norm
from treadle.backends.mlx.kernels.template import Target, Template, header
from treadle.backends.mlx.owner import owner
from treadle.declare.arrays import Array
from treadle.errors import DeclarationError

TEMPLATES = [quantized_row.TEMPLATE, row_norm.PLAIN, row_norm.RESIDUAL]
CONSTANTS = {"N": 8, "K": 64, "G": 32, "ROWS": 2, "WORDS": 2, "WARPS": 4, "D": 96, "EACH": 1,
             "CENTRED": 1, "RESIDUAL": 1, "BIASED": 1, "SHIFTED": 1, "WIDTH": 8, "EPS": 1,
             "EPS_LOW": 0}


def unit(template: Template, target: Target) -> str:
    """A kernel as a C++ function with MLX's signature."""
    words = ", uint32_t* w" if "w" in template.inputs else ""
    given = "".join(f", const T* {n}" for n in template.inputs if n != "w")
    made = "".join(f", T* {n}" for n in template.outputs)
    fixed = "".join(f"constexpr int {k} = {v};\n" for k, v in CONSTANTS.items())
    return (f"{FIBERS}{SHIMS[target]}{header(target)}{fixed}template <typename T> void kernel("
            f"int{words}{given}{made}) {{{template.render(target)}}}\n"
            f"template void kernel<float>(int{', uint32_t*' * bool(words)}"
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


def dequantised(w: Array, scales: Array, biases: Array, group: int) -> Array:
    """The weight by the definition of the format: low fields first."""
    fields = (w[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    q = fields.reshape(w.shape[0], -1).astype(np.float64)
    return q * scales.repeat(group, 1) + biases.repeat(group, 1)


@pytest.mark.parametrize("group", [32, 64])
def test_one_row_by_a_4_bit_weight(group: int) -> None:
    """On a GPU the kernel, elsewhere MLX's operator; the answer is NumPy's."""
    n, k = 24, 256
    rng = np.random.default_rng(group)
    w = rng.integers(0, 2**32, (n, k // 8), dtype=np.uint32)
    scales, biases = normal(n, k // group), normal(n, k // group, seed=1)
    x = normal(1, k, seed=2)

    def run() -> Array:
        arrays = [mx.array(a) for a in (x, w, scales, biases)]
        return np.array(quantized_row.quantized_row(*arrays, group))

    want = x @ dequantised(w, scales, biases, group).T
    np.testing.assert_allclose(owner().call(run), want, rtol=1e-4, atol=1e-3)
