"""Tables of results made by hand."""

from __future__ import annotations

import pytest

from treadle.measure.machine import Limits, Machine
from treadle.measure.render import amount, cells, markdown, number
from treadle.measure.results import CaseResult, Report, Row, Start
from treadle.measure.samples import Latency

ROWS = [
    Row("treadle:cpu", "ok", version="0.1", latency_ms=Latency(2.0, 1.9, 2.1, 1.8, 90, 9),
        cold=Start(10, 100, 15), warm=Start(10, 40, 5), peak_bytes=120_000_000, gflops=50.0,
        roofline=0.5),
    Row("onnxruntime", "ok", version="1.32", latency_ms=Latency(3.0, 2.9, 3.1, 2.8, 90, 9),
        cold=Start(50, 20, 4), peak_bytes=90_000_000, gflops=33.3, roofline=0.333, agrees=True),
    Row("openvino", "ok", version="2026", latency_ms=Latency(2.05, 2.0, 2.2, 1.9, 90, 9),
        agrees=True),
    Row("torch", "missing", "torch is not installed"),
    Row("numpy", "absent", "reads no ONNX files"),
    Row("other", "failed", "RuntimeError: a | b")]
CASE = CaseResult("tiny.onnx", "models", 2, {}, 100_000_000, 4_000, 1.0, "compute", ROWS)
HERE = Machine("Processor", 2, "Linux", "3.11", "0.1", "2026-01-01T00:00:00+00:00", 0.25, 0.5)


def report(load: float = 0.25) -> Report:
    here = Machine(**{n: getattr(HERE, n) for n in HERE.__slots__} | {"load_before": load})
    return Report(here, {}, [Limits(2, 190.4, 40.25)], [CASE])


def test_cells() -> None:
    assert cells(CASE, ROWS[0]) == ["treadle:cpu", "2", "1.9-2.1", "subject", "50", "50%",
                                    "125/55", "120", ""]
    assert cells(CASE, ROWS[1]) == ["onnxruntime", "3", "2.9-3.1", "1.5x", "33.3", "33%", "74/-",
                                    "90", "agree"]
    assert cells(CASE, ROWS[2])[3] == "(1.02x)"


def test_markdown_has_a_line_for_what_took_part_or_failed() -> None:
    text = markdown(report())
    assert "| other | - | - | - | - | - | - | - | failed: RuntimeError: a \\| b |" in text
    assert "| torch |" not in text and "- Left out: torch is not installed." in text
    assert "| numpy |" not in text
    assert "**tiny.onnx, 2 threads: 100 MFLOP, 4 kB, at least 1 ms by compute**" in text
    assert ("- onnxruntime, 2 threads: 1 cases, 1 faster, 0 even, 0 slower, geometric mean 1.5x"
            in text)
    assert "1 cases, 0 faster, 1 even, 0 slower, geometric mean 1.02x" in text
    lines = [x for x in text.splitlines() if x.startswith("|")]
    assert len({x.replace("\\|", "").count("|") for x in lines}) == 1


def test_a_busy_machine_is_said() -> None:
    assert "do not quote" not in markdown(report())
    assert "do not quote" in markdown(report(1.5))


@pytest.mark.parametrize(("x", "text"), [
    (None, "-"), (0, "0"), (1234.5, "1234"), (99.94, "99.9"), (0.0123456, "0.0123"),
    (1.5e-6, "1.5e-06")])
def test_number(x: float | None, text: str) -> None:
    assert number(x) == text


@pytest.mark.parametrize(("x", "text"), [
    (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (94_400_000, "94.4 MB"), (2e9, "2 GB"),
    (3.21e15, "3210 TB")])
def test_amount(x: float, text: str) -> None:
    assert amount(x, "B") == text
