"""The device "mlx" on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.onnx.build import F32, I64, add_model, model, node
from treadle.cli.main import app
from treadle.config import MLX_MODES


@pytest.mark.parametrize("mode", MLX_MODES)
def test_run_in_a_mode(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "add.onnx"
    file.write_bytes(add_model().SerializeToString())
    found = CliRunner().invoke(app, ["run", str(file), "--device", "mlx", "--mode", mode,
                                     "--dim", "n=2", "--input", "x=1,2,3,4,5,6"])
    assert found.exit_code == 0, found.output
    assert "2 4 6 8 10 12" in " ".join(found.output.split())


def test_explain_says_why_a_graph_is_not_compiled(tmp_path: Path) -> None:
    file = tmp_path / "some.onnx"
    file.write_bytes(model([node("NonZero", ["x"], ["y"])], [("x", F32, [4])],
                           [("y", I64, None)]).SerializeToString())
    found = CliRunner().invoke(app, ["explain", str(file), "--device", "mlx", "--mode", "compiled"])
    assert found.exit_code == 0, found.output
    assert "lazy, not compiled" in found.output and "nonzero needs host data" in found.output


def test_a_mode_is_for_mlx_alone(tmp_path: Path) -> None:
    file = tmp_path / "add.onnx"
    file.write_bytes(add_model().SerializeToString())
    found = CliRunner().invoke(app, ["run", str(file), "--device", "reference", "--mode", "lazy"])
    assert found.exit_code == 1 and "has no modes" in found.output


def test_devices_names_what_mlx_drives() -> None:
    found = CliRunner().invoke(app, ["devices"])
    assert re.search(r"MLX \d+\.\d+\.\d+, on (the CPU|\w+)", found.output), found.output
