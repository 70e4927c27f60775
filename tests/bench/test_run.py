"""`treadle bench` and `python -m bench.run`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench import micro
from bench import run as bench_run
from tests.onnx.build import F32, add_model, model, node
from treadle.cli.main import app


def bench(*args: object) -> Result:
    """The result of a command line."""
    return CliRunner().invoke(app, ["bench", *(str(a) for a in args)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """y = x + x over a symbolic axis n."""
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model().SerializeToString())
    return path


def test_bench_prints_and_writes(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = bench(file, "--device", "reference", "--peers", "onnxruntime", "--dim", "n=2",
                   "--seconds", 0.02, "--json", out)
    assert result.exit_code == 0, result.output
    assert "add.onnx, 1 thread: 6 FLOP" in result.output and "two-node graph" in result.output
    report = json.loads(out.read_text())
    rows = report["cases"][0]["rows"]
    assert [r["engine"] for r in rows] == ["treadle:reference", "onnxruntime"]
    assert rows[1]["agrees"] and rows[0]["warm"] and report["scores"][0]["cases"] == 2


@pytest.mark.parametrize(("args", "message"), [
    (["--peers", "tvm"], "no engine 'tvm'"), (["--device", "quantum"], "no device 'quantum'"),
    (["--threads", "0"], "whole numbers"), (["--threads", ""], "whole numbers"),
    (["--dim", "m=1"], "no such size"), (["--input", "z=1"], "no such input"),
    (["--input", "x=absent.npy"], "cannot read")])
def test_errors(file: Path, args: list[str], message: str) -> None:
    result = bench(file, *args)
    assert result.exit_code == 1 and message in result.output, result.output
    assert "Traceback" not in result.output


def test_errors_come_before_any_measurement(file: Path, tmp_path: Path) -> None:
    result = bench(file, "--json", tmp_path / "absent" / "out.json")
    assert result.exit_code == 1 and "no folder" in result.output


def test_several_models_share_the_options(file: Path, tmp_path: Path) -> None:
    from treadle.cli.bench import make_cases
    from treadle.errors import BindingError

    other = tmp_path / "neg.onnx"
    other.write_bytes(model([node("Neg", ["z"], ["y"])], [("z", F32, ["m"])], [("y", F32, ["m"])]
                            ).SerializeToString())
    cases = make_cases([file, other], {"z": "zeros"}, {"n": 2, "m": 4}, 0)
    assert cases[0].inputs["x"].shape == (2, 3) and cases[1].inputs["z"].tolist() == [0] * 4
    with pytest.raises(BindingError, match="no model has it"):
        make_cases([file, other], {}, {"k": 1}, 0)


def test_every_small_model_loads_and_its_numpy_twin_agrees() -> None:
    import importlib

    import treadle
    from treadle.measure.agree import all_agree

    for case in micro.cases():
        found = list(treadle.load(case.source).compile("reference")(dict(case.inputs)).values())
        if function := case.functions.get("numpy"):
            module, _, name = function.partition(":")
            twin = getattr(importlib.import_module(module), name)
            agreed = all_agree(found, twin(case.inputs, case.weights)(), case.relative)
            assert agreed.agrees, f"{case.name}: {agreed.reason}"


def test_every_torch_twin_agrees() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    import treadle
    from bench import recurrence, torch_twins
    from treadle.measure.agree import all_agree

    for case in (*micro.cases(), *(recurrence.case(r, 2, 8, 5) for r in recurrence.LENGTHS)):
        if function := case.functions.get("torch"):
            found = treadle.load(case.source).compile("reference")(dict(case.inputs))
            twin = getattr(torch_twins, function.partition(":")[2])
            agreed = all_agree(list(found.values()), twin(case.inputs, case.weights)(),
                               case.relative)
            assert agreed.agrees, f"{case.name}: {agreed.reason}"


def test_twins_exist() -> None:
    from bench import numpy_twins, torch_twins

    modules = {"numpy": numpy_twins, "torch": torch_twins}
    for case in micro.cases():
        for name, function in case.functions.items():
            assert callable(getattr(modules[name], function.partition(":")[2])), function


def test_run_writes_both_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_run, "RESULTS", tmp_path / "results")
    assert bench_run.main(["--only", "two-node", "--peers", "", "--device", "reference",
                           "--threads", "1", "--seconds", "0.02", "--starts", "1"]) == 0
    (written,) = (tmp_path / "results").glob("*.json")
    assert json.loads(written.read_text())["cases"][0]["name"] == "two-node graph"
    assert written.with_suffix(".md").read_text().rstrip() == capsys.readouterr().out.rstrip()


def test_run_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_run.main(["--list", "--parts", "micro", "--only", "rows:"]) == 0
    assert "rows: softmax 1536x128" in capsys.readouterr().out.splitlines()
