"""Initializers of one element: constants of the code, which `set_param` replaces all the same."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from scipy.special import erf

import treadle
from tests.onnx.build import F32, model, node
from tests.runtime.surface import random
from treadle.errors import BindingError, ImportFailure
from treadle.runtime.executable import Executable
from treadle.runtime.model import Model

W = random(8, 8)


def scaled(root: float = math.sqrt(2), scale: float = 3.0) -> onnx.ModelProto:
    """GELU(x @ w) * scale as exporters spell it, and a state that grows by scale."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Div", ["a", "root"], ["b"]),
             node("Erf", ["b"], ["c"]), node("Add", ["c", "one"], ["d"]),
             node("Mul", ["a", "d"], ["e"]), node("Mul", ["e", "half"], ["f"]),
             node("Mul", ["f", "scale"], ["y"]), node("Add", ["s", "scale"], ["t"])]
    numbers = {"root": root, "one": 1.0, "half": 0.5, "scale": scale}
    weights = {name: np.array([v] if name == "scale" else v, np.float32)
               for name, v in numbers.items()}
    return model(nodes, [("x", F32, ["n", 8]), ("s", F32, [1])],
                 [("y", F32, None), ("t", F32, None)], weights={"w": W, **weights})


def loaded(source: object) -> Model:
    found = treadle.load(source)
    assert isinstance(found, Model)
    return found


def check(exe: Executable, w: np.ndarray = W, scale: float = 3.0) -> None:
    x = random(3, 8, seed=5)
    a = x.astype(np.float64) @ w
    want = a * 0.5 * (1 + erf(a / math.sqrt(2))) * scale
    np.testing.assert_allclose(exe(x, np.zeros(1, np.float32))["y"], want, rtol=1e-4, atol=1e-5)


def number(value: float) -> np.ndarray:
    return np.array([value], np.float32)


def test_a_number_is_replaced_and_the_rest_stays(on: str) -> None:
    exe = loaded(scaled()).compile(on, freeze=False)
    assert "gelu" in str(exe.explain())  # the numbers are known to the passes
    new = random(8, 8, seed=2)
    exe.set_param("w", new)
    exe.set_param("scale", number(2.0))
    check(exe, new, 2.0)
    copy = exe.clone()
    exe.set_params({"scale": number(-1.0), "w": W})
    check(exe, W, -1.0)
    check(copy, new, 2.0)
    copy.share_params(exe)
    check(copy, W, -1.0)
    assert "gelu" in str(copy.explain())
    copy.set_param("root", np.float32(1.0))  # no GELU any more
    x = random(3, 8, seed=5)
    a = x.astype(np.float64) @ W
    np.testing.assert_allclose(copy(x, number(0))["y"], a * 0.5 * (1 + erf(a)) * -1.0, rtol=1e-4,
                               atol=1e-5)


def test_equal_numbers_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = loaded(scaled()).compile("cpu", freeze=False)
    program = exe._program  # noqa: SLF001 - that it is the same one
    exe.set_params({"scale": number(3.0), "half": np.float32(0.5), "w": W})
    assert exe._program is program  # noqa: SLF001
    check(exe)


def test_state_and_specialised_programs_follow(on: str) -> None:
    exe = loaded(scaled()).compile(on, freeze=False, specialise=1)
    x = random(3, 8, seed=5)
    for _ in range(9):
        check(exe)
    exe.set_param("scale", number(2.0))
    for _ in range(9):
        check(exe, scale=2.0)
    state = exe.resident("s", number(0)).feed("t")
    exe(x)
    exe.set_param("scale", number(5.0))
    exe(x)
    assert state.read().tolist() == [7]


def test_files_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(scaled(), path)
    for source in (path, str(path), path.read_bytes()):
        exe = loaded(source).compile("reference", freeze=False)
        exe.set_param("scale", number(2.0))
        check(exe, scale=2.0)
    exe = loaded(path).compile("reference", freeze=False)
    onnx.save(scaled(scale=12345.0, root=2.0), tmp_path / "other.onnx")
    path.write_bytes((tmp_path / "other.onnx").read_bytes() + b"")
    with pytest.raises(ImportFailure, match="has changed since it was loaded"):
        exe.set_params({"scale": number(4.0), "w": 0 * W})
    check(exe)


def test_refusals(on: str) -> None:
    exe = loaded(scaled()).compile(on, freeze=False)
    with pytest.raises(BindingError, match="the parameter scale is f32"):
        exe.set_param("scale", np.zeros(2, np.float32))
    with pytest.raises(BindingError, match="frozen"):
        loaded(scaled()).compile(on).set_param("scale", number(1.0))


def test_an_initializer_of_no_elements_is_one_too(on: str) -> None:
    proto = model([node("Concat", ["x", "w"], ["y"], axis=0)], [("x", F32, ["n", 3])],
                  [("y", F32, None)], weights={"w": np.zeros((0, 3), np.float32)})
    exe = loaded(proto).compile(on, freeze=False)
    exe.set_param("w", np.zeros((0, 3), np.float32))
    with pytest.raises(BindingError, match="w"):
        exe.set_param("w", np.zeros((1, 3), np.float32))
    np.testing.assert_array_equal(exe(random(2, 3))["y"], random(2, 3))
