"""Options and fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true",
                     help="rewrite the files of tests/golden with what the code gives now")
    parser.addoption("--fuzz-calls", type=int, default=30,
                     help="calls that tests/fuzz tries for each operator")
    parser.addoption("--fuzz-minutes", type=float, default=0.0,
                     help="minutes that tests/fuzz mutates each model, instead of a fixed number")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("cse.ir", text)` compares text with tests/golden/cse.ir, or rewrites the file."""
    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.exists(), f"{path} is missing: run pytest with --update-golden"
        assert text == path.read_text("utf-8")

    return check
