"""How long to look for failures; the options are in tests/conftest.py."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def fuzz_calls(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fuzz-calls"))


@pytest.fixture(scope="session")
def fuzz_minutes(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--fuzz-minutes"))
