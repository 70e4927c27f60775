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
PARTS = 3
"""Tests among which the mutants of a seed are dealt out."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def _numbers(kind: str, part: int, minutes: float) -> Iterator[int]:
    """The mutants of a part to try: a fixed number, or as many as there is time for."""
    if not minutes:
        yield from range(part, BYTES if kind == "bytes" else STRUCTURE, PARTS)
        return
    number, end = part, time.monotonic() + minutes * 30 / PARTS
    while time.monotonic() < end:
        yield number
        number += PARTS


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", ["bytes", "structure"])
@pytest.mark.parametrize("seed", [*SEEDS, *SUITES])
def test_mutants(seed: str, kind: str, part: int, worker: Worker, fuzz_minutes: float) -> None:
    failed: list[str] = []
    for number in _numbers(kind, part, fuzz_minutes):
        verdict = worker.ask(f"{seed} {kind} {number}")
        if not verdict.startswith("ok"):
            failed.append(f"{save(seed, kind, number)}: {verdict}")
    assert not failed, "\n".join(failed)
