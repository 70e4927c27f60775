"""Every published model against ONNX Runtime, at two sizes of every dynamic dim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.models.handed import MODELS, Handed
from tests.models.judge import DEVICES, agree, session
from tests.models.steady import check_layouts, check_steady


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("handed", [m for m in MODELS if not m.quantised],
                         ids=lambda m: m.name.replace("/", "-"))
def test_model_agrees_with_onnxruntime(handed: Handed, device: str) -> None:
    path = handed.path()
    exe, judge = treadle.load(path).compile(device=device), session(path)
    for size in (0, 1):
        inputs = handed.make(np.random.default_rng(size), size)
        names = [leaf.name for leaf in exe.signature.outputs]
        wanted = dict(zip(names, judge.run(None, inputs), strict=True))
        for name, array in exe(inputs).items():
            agree(f"{handed.name} {name} size {size}", array, np.asarray(wanted[name]),
                  handed.errors)
    if device == "cpu":
        check_steady(exe, inputs)
        assert check_layouts(exe)


@pytest.mark.parametrize("device", DEVICES)
def test_silero_carries_its_state(device: str) -> None:
    """100 chunks of 16 kHz audio, each run on the state of the last one."""
    path = next(m for m in MODELS if m.name == "silero-vad/silero_vad.onnx").path()
    exe, judge = treadle.load(path).compile(device=device), session(path)
    rng, rate = np.random.default_rng(7), np.array(16000)
    time = np.arange(576) / 16000
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    for i in range(100):
        tone = np.sin(2 * np.pi * (120 + 3 * i) * time) * (0.3 if i % 20 < 10 else 0.0)
        chunk = (tone + 0.02 * rng.normal(size=576)).astype(np.float32)[None]
        out = exe(input=chunk, state=ours, sr=rate)
        probability, theirs = judge.run(None, {"input": chunk, "state": theirs, "sr": rate})
        ours = out["stateN"]
        agree(f"chunk {i}", out["output"], probability)
        agree(f"state {i}", ours, theirs)


def test_magika_names_file_types() -> None:
    """The labels that a person would give."""
    import json

    from examples.quickstart import features
    from tools.fetch import model

    labels = json.loads(model("magika/config.min.json").read_text())["target_labels_space"]
    classify = treadle.load(model("magika/model.onnx")).compile()
    root = Path(__file__).parents[2]
    files = {root / "src/treadle/ir/graph.py": "python", root / "docs/architecture.md": "markdown",
             model("magika/config.min.json"): "json", root / "tools/fetch.py": "python",
             root / "CHANGELOG.md": "markdown"}
    scores = classify(np.stack([features(p.read_bytes()) for p in files]))["target_label"]
    found = [labels[int(row.argmax())] for row in scores]
    assert found == list(files.values())
