"""Workers, engines and the session, on models of a few numbers. Nothing here asserts a time."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.onnx.build import F32, model, node
from treadle.errors import DeviceError
from treadle.measure.cases import Case, overhead
from treadle.measure.comparison import Settings, measure, run_all
from treadle.measure.engines import ENGINES, Engine, engine
from treadle.measure.processes import EngineFailure, Worker
from treadle.measure.render import markdown
from treadle.measure.results import CaseResult

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TWIN = "tests.bench.twin:"
QUICK = Settings(("treadle:reference",), seconds=0.02, starts=1, rounds=3, timeout_s=60)


def case(function: str = "doubles") -> Case:
    """y = x + x, with a NumPy function beside it."""
    made = model([node("Add", ["x", "x"], ["y"])], [("x", F32, [2, 3])], [("y", F32, [2, 3])])
    return Case("double", made.SerializeToString(), {"x": X}, functions={"numpy": TWIN + function})


def run(settings: Settings = QUICK, *engines: str, function: str = "doubles") -> CaseResult:
    """One small case."""
    return measure(case(function), 1, replace(settings, engines=engines or settings.engines))


PEERS = [pytest.param(n, marks=pytest.mark.skipif(not importlib.util.find_spec(n), reason=(
    f"{n} is not installed"))) for n in ("onnxruntime", "openvino", "numpy")]


@pytest.mark.parametrize("peer", PEERS)
def test_engines_agree_on_a_small_model(peer: str) -> None:
    found = run(QUICK, "treadle:reference", peer)
    ours, theirs = found.rows
    assert (ours.status, theirs.status) == ("ok", "ok"), (ours.reason, theirs.reason)
    assert theirs.agrees and theirs.max_difference == 0
    assert ours.latency_ms and theirs.latency_ms and theirs.latency_ms.blocks == 3
    assert ours.cold and ours.cold.create_ms > 0 and ours.warm is None
    assert ours.peak_bytes and ours.base_bytes and ours.peak_bytes > ours.base_bytes > 1 << 20
    assert found.flops == 6 and found.bytes == 2 * X.nbytes
    assert ours.gflops and ours.roofline and found.verdict(theirs)


def test_the_second_start_is_the_warm_one() -> None:
    row = run(replace(QUICK, starts=2), "numpy").rows[0]
    assert row.cold and row.warm and row.version == np.__version__


def test_outputs_that_differ_are_named_and_score_nothing() -> None:
    found = run(QUICK, "treadle:reference", "numpy", function="triples")
    row = found.rows[1]
    assert row.agrees is False and row.reason == "output 0: largest difference 5"
    assert found.ratio(row) is None and found.verdict(row) is None


@pytest.mark.parametrize(("function", "reason"), [
    ("raises", "ValueError: no such luck"), ("dies", "status 3: out of cheese"),
    ("hangs", "no answer within 0.5 s")])
def test_an_engine_that_fails_is_named_and_the_others_go_on(function: str, reason: str) -> None:
    timeout = 0.5 if function == "hangs" else 60.0
    found = measure(case(function), 1, replace(QUICK, engines=("numpy",), timeout_s=timeout))
    assert found.rows[0].status == "failed" and reason in found.rows[0].reason
    if function != "hangs":
        both = run(QUICK, "numpy", "treadle:reference", function=function)
        assert [r.status for r in both.rows] == ["failed", "ok"]


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "openvino", Engine("no_such_package", ENGINES["numpy"].open))
    row = run(QUICK, "openvino").rows[0]
    assert row.status == "missing" and row.reason == "no_such_package is not installed"


def test_an_engine_without_a_form_of_the_case_is_absent() -> None:
    found = measure(overhead(), 1, replace(QUICK, engines=("treadle:reference", "numpy")))
    assert [r.status for r in found.rows] == ["ok", "absent"]


def test_unknown_engines() -> None:
    with pytest.raises(DeviceError, match="no engine 'tvm'.*\n.*onnxruntime"):
        engine("tvm")


@pytest.mark.skipif(sys.platform != "linux", reason="process states are read from /proc")
def test_a_worker_stands_still_between_requests() -> None:
    with Worker(1, {}, 60) as worker:
        worker.open(replace_job("doubles"))
        assert worker.stopped
        assert len(worker.block(0.001).times_ms) >= 1
        assert worker.stopped and worker.peak_memory() > 1 << 20 and worker.stopped


def test_a_worker_sees_the_thread_count_and_no_blas_overrides(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    with Worker(2, {}, 60) as worker:
        assert worker.open(replace_job("environment")).outputs[0].tolist() == ["-", "-", "2", "2"]


def test_a_worker_lives_on_after_an_error() -> None:
    with Worker(1, {}, 60) as worker:
        with pytest.raises(EngineFailure, match="no such luck"):
            worker.open(replace_job("raises"))
        np.testing.assert_array_equal(worker.open(replace_job("doubles")).outputs[0], 2 * X)


def replace_job(function: str):  # noqa: ANN201 - a Job
    """A job for a function of twin.py."""
    from treadle.measure.engines import Job

    return Job("numpy", None, {"x": X}, 1, TWIN + function)  # type: ignore[arg-type]


def test_work_counts_only_the_rows_of_an_embedding_that_are_read() -> None:
    from treadle.measure.work import work_of

    table, rows = np.zeros((1000, 4), np.float32), np.array([1, 5], np.int64)
    made = model([node("Gather", ["t", "i"], ["y"])], [("i", 7, [2])], [("y", F32, [2, 4])],
                 weights={"t": table})
    assert work_of(made.SerializeToString(), {"i": rows}).bytes == rows.nbytes + 2 * (2 * 4 * 4)


def test_probes_give_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.measure import probe

    monkeypatch.setattr(probe, "_TRIES", 1)
    assert probe._read_gbytes.__wrapped__(1 << 16, 2) > 0
    assert probe.peak_gflops.__wrapped__(1) > 0


FIELDS: dict[str, Callable[[dict], set[str]]] = {
    "report": lambda r: set(r), "case": lambda r: set(r["cases"][0]),
    "row": lambda r: set(r["cases"][0]["rows"][0]),
    "latency": lambda r: set(r["cases"][0]["rows"][0]["latency_ms"]),
    "start": lambda r: set(r["cases"][0]["rows"][0]["cold"]),
    "score": lambda r: set(r["scores"][0])}
SCHEMA_1 = {
    "report": "schema machine settings limits cases scores",
    "case": "name family threads inputs flops bytes bound_ms bound_by rows",
    "row": "engine status reason version latency_ms cold warm peak_bytes base_bytes gflops "
           "roofline agrees max_difference preemptions ratio verdict",
    "latency": "median q1 q3 least samples blocks",
    "start": "import_ms create_ms first_ms",
    "score": "engine threads cases faster even slower geometric_mean"}


def test_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "torch", Engine("no_such_package", ENGINES["numpy"].open, False))
    said: list[str] = []
    settings = replace(QUICK, engines=("treadle:reference", "numpy", "torch"))
    report = run_all([case(), case("triples")], settings, said.append)
    assert said == ["double, 1 thread"] * 2
    data = json.loads(report.json())
    assert data["schema"] == 1
    for part, names in SCHEMA_1.items():
        assert FIELDS[part](data) == set(names.split()), part
    assert data["cases"][0]["inputs"] == {"x": "f32[2,3]"}
    assert data["scores"][0]["cases"] == 1 and data["limits"][0]["threads"] == 1
    text = markdown(report)
    assert "Left out: no_such_package is not installed." in text
    assert "**double, 1 thread: 6 FLOP, 48 B, at least" in text
    assert "DIFFER: output 0: largest difference 5" in text
    assert f"numpy {np.__version__}" in text and "numpy, 1 thread: 1 cases" in text
