"""Models that once broke something: each is refused or runs now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.driver import Worker

FILES = sorted((Path(__file__).parent / "corpus").glob("*.onnx"))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_once_broken(path: Path, worker: Worker) -> None:
    verdict = worker.ask(f"file {path}")
    assert verdict.startswith("ok"), verdict
