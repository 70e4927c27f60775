"""Damaged models: each loads and runs, or is refused by an error of the project.

A process of their own takes the mutants, with limits of memory and time; a mutant that fails is
kept as a file. `--fuzz-minutes` looks for longer, at further mutants.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.fuzz.driver import Worker, save
from tests.fuzz.seeds import SEEDS, SUITES

BYTES, STRUCTURE = 250, 300
"""Mutants of each kind that every seed gets in the normal run."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def _numbers(kind: str, minutes: float) -> Iterator[int]:
    """The mutants to try: a fixed number, or as many as there is time for."""
    if not minutes:
        yield from range(BYTES if kind == "bytes" else STRUCTURE)
        return
    number, end = 0, time.monotonic() + minutes * 30
    while time.monotonic() < end:
        yield number
        number += 1


@pytest.mark.parametrize("kind", ["bytes", "structure"])
@pytest.mark.parametrize("seed", [*SEEDS, *SUITES])
def test_mutants(seed: str, kind: str, worker: Worker, fuzz_minutes: float) -> None:
    failed: list[str] = []
    for number in _numbers(kind, fuzz_minutes):
        verdict = worker.ask(f"{seed} {kind} {number}")
        if not verdict.startswith("ok"):
            failed.append(f"{save(seed, kind, number)}: {verdict}")
    assert not failed, "\n".join(failed)
