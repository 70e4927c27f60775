"""Generated pages are those that the source gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import docs


def test_generated_pages_are_current() -> None:
    assert docs.stale() == [], "run `make docs`"


def test_check_reports_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "PAGES", {"docs/one.md": lambda: "text\n"})
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/one.md is stale; run `make docs`\n"
    assert docs.main([]) == 0
    assert (tmp_path / "docs/one.md").read_text() == "text\n"
    assert docs.main(["--check"]) == 0


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert docs.table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"
