"""The commands, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import treadle
from tests.onnx.build import F32, I64, add_model, model, node
from treadle.cli.main import app


def run(*args: object) -> Result:
    """The result of a command line."""
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small model with a symbolic size."""
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model().SerializeToString())
    return path


def test_run_shows_outputs(file: Path) -> None:
    result = run("run", file, "--dim", "n=2", "--input", "x=1,2,3,4,5,6")
    assert result.exit_code == 0, result.output
    assert "f32[2, 3]" in result.output and "2 4 6 8 10 12" in " ".join(result.output.split())


def test_run_with_resident_state(tmp_path: Path) -> None:
    path = tmp_path / "grow.onnx"
    path.write_bytes(model(
        [node("Concat", ["past", "x"], ["present"], axis=0),
         node("ReduceSum", ["present"], ["total"], keepdims=0)],
        [("past", F32, ["past", 2]), ("x", F32, [1, 2])],
        [("present", F32, None), ("total", F32, None)]).SerializeToString())
    options = ["run", path, "--input", "x=1,2", "--dim", "past=0", "--repeat", 4]
    result = run(*options, "--resident", "past=present", "--capacity", 8, "--json")
    assert result.exit_code == 0, result.output
    assert "[5, 2] of 8 along axis 0, fed by present" in result.output.replace("\n", " ")
    assert run(*options, "--resident", "past=present@3").exit_code == 1
    for more in ("--capacity", "--axis"):
        alone = run(*options, more, 8)
        assert alone.exit_code == 1 and "resident inputs" in alone.output
    full = run(*options, "--resident", "past=present", "--capacity", 2)
    assert full.exit_code == 1 and "does not fit past" in full.output


@pytest.mark.parametrize("at", ["2", "at", "end"])
def test_run_feeds_rows_back(at: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.onnx"
    path.write_bytes(model(
        [node("Add", ["x", "x"], ["row"]), node("ReduceSum", ["s"], ["total"], keepdims=0),
         node("Neg", ["at"], ["back"])],
        [("s", F32, [4, "n"]), ("x", F32, [4, 1]), ("at", I64, [1])],
        [("row", F32, None), ("total", F32, None), ("back", I64, None)]).SerializeToString())
    room = ["--capacity", 8] if at == "end" else ["--axis", 1]
    result = run("run", path, "--dim", "n=3", "--input", "s=zeros", "--input", "x=1,2,3,4",
                 "--input", "at=2", "--resident", f"s=row@{at}", "--output", tmp_path / "o.npz",
                 "--repeat", 2, *room)
    assert result.exit_code == 0, result.output
    assert f"fed by row at {at}" in result.output
    wrong = run("run", path, "--resident", "s=row@nowhere", "--axis", 1)
    assert wrong.exit_code == 1 and "no input 'nowhere'" in wrong.output


def test_run_with_random_numbers(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(model([node("RandomNormal", [], ["y"], shape=[2])], [],
                           [("y", F32, None)]).SerializeToString())
    one, two = (run("run", path, "--random", seed).output for seed in (1, 2))
    assert one != two and one == run("run", path, "--random", 1).output


def test_run_json_and_npz(file: Path, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    result = run("run", file, "--input", f"x={tmp_path / 'x.npy'}", "--json", "--repeat", 3,
                 "--output", tmp_path / "out.npz", "--compare", "onnxruntime")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["outputs"][0]["shape"] == [2, 3] and report["ms"]["runs"] == 3
    assert report["compare"][0]["agrees"]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], 2 * x)
    assert not list(tmp_path.glob("*.part"))


def test_run_is_repeatable_by_seed(file: Path) -> None:
    first, again, other = (run("run", file, "--dim", "n=4", "--seed", s, "--json").stdout
                           for s in (1, 1, 2))
    assert first == again != other


def test_run_prints_the_graph_after_a_pass(file: Path) -> None:
    result = run("run", file, "--print-after", "dce", "--time-passes")
    assert "-- after dce" in result.output and "add(%x, %x)" in result.output


@pytest.mark.parametrize(("args", "message"), [
    (["--input", "z=1"], "no such input"),
    (["--dim", "m=1"], "no such size"),
    (["--dim", "n=-1"], "whole number"),
    (["--dim", "n"], "NAME=VALUE"),
    (["--input", "x=one"], "not a file"),
    (["--input", "x=absent.npy"], "cannot read"),
    (["--input", "x=1,2"], "2 numbers"),
    (["--device", "quantum"], "no device"),
    (["--compare", "numpy"], "cannot compare"),
    (["--print-after", "nothing"], "no pass 'nothing'")])
def test_run_errors(file: Path, args: list[str], message: str) -> None:
    result = run("run", file, *args)
    assert result.exit_code == 1 and message in result.output, result.output
    assert "Traceback" not in result.output


def test_inspect(file: Path) -> None:
    result = run("inspect", file, "--dim", "n=10")
    assert result.exit_code == 0, result.output
    assert "Add" in result.output and "FLOPs a run: 30" in result.output
    report = json.loads(run("inspect", file, "--json").stdout)
    assert report["operators"] == [{"op": "Add", "version": 14, "count": 1, "supported": True}]
    assert report["flops"] == "3*n" and report["devices"]["reference"]["native"] == 1


def test_inspect_of_what_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(model([node("Frobnicate", ["x"], ["y"])], [("x", F32, [2])],
                           [("y", F32, [2])]).SerializeToString())
    result = run("inspect", path)
    assert result.exit_code == 1
    assert "Frobnicate" in result.output and "NO" in result.output


def test_explain(file: Path) -> None:
    result = run("explain", file)
    assert result.exit_code == 0 and "add" in result.output and "native" in result.output
    rows = json.loads(run("explain", file, "--json").stdout)["nodes"]
    assert rows[0]["op"] == "add" and "add.onnx" in rows[0]["source"]


def test_explain_of_a_late_bound_model(tmp_path: Path) -> None:
    path = tmp_path / "sum.onnx"
    path.write_bytes(model([node("ReduceSum", ["x", "axes"], ["y"])],
                           [("x", F32, [2, 3]), ("axes", I64, [1])], [("y", F32, None)]
                           ).SerializeToString())
    result = run("explain", path, "--input", "axes=1")
    assert result.exit_code == 0 and "specialised at each new binding" in result.output


def test_devices_and_passes() -> None:
    assert "reference" in run("devices").output
    assert "constant_fold" in run("passes").output


@pytest.mark.parametrize("command", ["run", "inspect", "explain", "bench", "devices", "passes"])
def test_help_has_an_explanation(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0 and len(result.output.splitlines()) > 5


def test_version() -> None:
    assert run("--version").stdout.split() == ["treadle", treadle.__version__]
