"""The examples do what they say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import treadle

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


DEVICES = [name for name, what in treadle.devices().items() if not what.startswith("not ")]


@pytest.mark.parametrize("device", DEVICES)
def test_a_gated_delta_net_recalls_the_last_note_of_a_letter(
        device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gated_delta_net.py", device])
    runpy.run_path(str(EXAMPLES / "gated_delta_net.py"), run_name="__main__")
    text, predicted = (line[10:] for line in capsys.readouterr().out.splitlines()[:2])
    notes: dict[str, str] = {}
    assert len(text) == len(predicted) and len(text) > 40
    for before, c, guess in zip(" " + text, text, predicted, strict=False):
        if c.isdigit():
            notes[before] = c
        assert guess == (notes.get(c, "?") if c.isalpha() else " ")


def test_the_example_explains_itself(monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gated_delta_net.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "gated_delta_net.py"), run_name="__main__")
    assert ended.value.code == 0 and "{reference,cpu,mlx}" in capsys.readouterr().out
