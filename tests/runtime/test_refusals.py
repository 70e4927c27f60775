"""Bad input to the runtime is an error of the library that says what to do."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, I64, model, node
from tests.runtime.surface import compiled, names, random
from treadle.errors import BindingError, ConfigError, DeviceError, RunError
from treadle.ops import concat


def weighted() -> Any:  # noqa: ANN401 - a model of the front end
    return treadle.load(model([node("Mul", ["x", "w"], ["y"])], [("x", F32, [4])],
                              [("y", F32, None)], weights={"w": random(4)}))


def late() -> Any:  # noqa: ANN401 - a model of the front end
    return treadle.load(model([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
                              [("x", F32, ["n", 4]), ("axes", I64, ["k"])], [("y", F32, None)]))


@pytest.mark.parametrize("options", [
    {"threads": "2"}, {"threads": 1.5}, {"threads": 0}, {"threads": 999_999}, {"random": "a"},
    {"random": 1.5}, {"specialise": "a"}, {"specialise": -1}, {"specialise": 1.5},
    {"precision": "f8"}])
@pytest.mark.parametrize("source", [weighted, late])
def test_options_of_compile(source: Callable[[], Any], options: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, DeviceError), match=r"(?s)help: .*|whole number"):
        source().compile("cpu", **options)


def test_threads_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_THREADS", "999999")
    with pytest.raises(ConfigError, match="from 1 to 1024"):
        weighted().compile("cpu")


def test_a_dump_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.write_text("")
    for path in (there, there / "inner"):
        monkeypatch.setenv("TREADLE_DUMP", str(path))
        with pytest.raises(ConfigError, match="TREADLE_DUMP is .*no folder"):
            weighted().compile("cpu")


def test_parameters(on: str) -> None:
    exe = weighted().compile(on, freeze=False)
    x = random(4)
    for name, given, message in [
            ("w", object(), "object is no array"), ("w", np.zeros(4), "has dtype f64"),
            ("w", np.zeros(3, np.float32), r"w is f32\[4\]"), ("w", "text", "values are"),
            ("q", x, "no parameter 'q'")]:
        with pytest.raises(BindingError, match=message):
            exe.set_param(name, given)
    for given in (None, [1.0], x):
        with pytest.raises(BindingError, match="names of parameters"):
            exe.set_params(given)
    np.testing.assert_array_equal(exe(x)["y"], x * x)


def test_parameters_of_another_byte_order(on: str) -> None:
    exe = weighted().compile(on, freeze=False)
    x, w = random(4), random(4, seed=1)
    exe.set_param("w", w.astype(">f4"))
    np.testing.assert_array_equal(exe(x)["y"], x * w)
    exe.set_params({"w": w[::-1].astype(">f4")[::-1]})
    np.testing.assert_array_equal(exe(x)["y"], x * w)


def cache(on: str) -> tuple[Any, Any, str, str]:
    exe = compiled(on, lambda s, x: concat([s, x], axis=0), "f32[n,2]", "f32[1,2]")
    (s, x), (grown,) = names(exe)
    return exe, exe.resident(s, shape=(0, 2), axis=0, capacity=4), x, grown


@pytest.mark.parametrize("rows", [1.5, "a", None, -1, 5])
def test_lengths(on: str, rows: Any) -> None:  # noqa: ANN401 - what callers have
    _, state, _, _ = cache(on)
    with pytest.raises(BindingError, match="has room for 4 rows"):
        state.length = rows
    assert state.length == 0
    state.length = np.int64(2)
    assert state.read().shape == (2, 2)


@pytest.mark.parametrize("options, message", [
    ({"capacity": "a"}, "capacity='a' is no whole number"), ({"capacity": 4.5}, "4.5 is no whole"),
    ({"capacity": -1}, "starts with 0"), ({"axis": "a"}, "axis='a' is no whole"),
    ({"shape": (-1, 2)}, "whole numbers from 0"), ({"shape": (1.5, 2)}, "whole numbers from 0"),
    ({"shape": 4}, "whole numbers from 0"), ({"capacity": 10**15}, "GiB"),
    ({"shape": (10**15, 2)}, "GiB"), ({"value": random(3, 2)}, "not that of the value")])
def test_storage(on: str, options: dict[str, Any], message: str) -> None:
    exe = compiled(on, lambda s, x: concat([s, x], axis=0), "f32[n,2]", "f32[1,2]")
    (s, _), _ = names(exe)
    with pytest.raises(BindingError, match=message):
        exe.resident(s, **{"shape": (0, 2), **options})
    numbers: Any = [np.int64(n) for n in (0, 2, 4)]
    assert exe.resident(s, shape=numbers[:2], capacity=numbers[2]).capacity == 4


@pytest.mark.parametrize("other", [3, None, weighted])
def test_parameters_of_what_is_no_executable(other: Any) -> None:  # noqa: ANN401 - what callers have
    exe = weighted().compile("reference", freeze=False)
    with pytest.raises(BindingError, match="parameters of an executable are needed"):
        exe.share_params(other() if callable(other) else other)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("source", [weighted, late])
def test_what_cannot_be_pickled(source: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
    with pytest.raises(RunError, match=r"(?s)cannot be pickled.*clone\(\)"):
        copied(source().compile("reference"))


@pytest.mark.parametrize("name", ["MLX", 3, ["mlx"]])
def test_names_of_devices(name: Any) -> None:  # noqa: ANN401 - what callers have
    with pytest.raises(DeviceError, match=r"there is no device .*\n.*reference, cpu, mlx"):
        weighted().compile(name)


@pytest.mark.parametrize("at", [2.5, -3, [1], "nowhere"])
def test_positions(on: str, at: Any) -> None:  # noqa: ANN401 - what callers have
    _, state, _, grown = cache(on)
    with pytest.raises(BindingError, match="no row|no input 'nowhere'"):
        state.feed(grown, at=at)
    assert state.rule is None


class Foreign:
    """An array that NumPy cannot take."""

    def __dlpack__(self, **_: object) -> object:
        raise RuntimeError("Unsupported dtype in DLTensor")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_foreign_arrays_that_numpy_cannot_read(on: str) -> None:
    with pytest.raises(BindingError, match=r"(?s)Unsupported dtype.*move it to the CPU.*bf16"):
        compiled(on, lambda x: x * 2.0, "bf16[n]")(Foreign())


def test_positions_that_an_input_cannot_give(on: str) -> None:
    """Integers alone are positions, one of them, and what the caller gives."""
    exe = compiled(on, lambda s, x, at: (concat([s, x], axis=0), at * 2), "f32[n,2]", "f32[1,2]",
                   "i64[k]")
    (s, x, at), (grown, _) = names(exe)
    state = exe.resident(s, shape=(0, 2), axis=0, capacity=4)
    for name in (x, s):
        with pytest.raises(BindingError, match=f"no input '{name}' that holds.*\n.*{at}"):
            state.feed(grown, at=name)
    state.feed(grown, at=at)
    row = np.ones((1, 2), np.float32)
    with pytest.raises(RunError, match="gives no position in .*: it has 2 elements"):
        exe({x: row, at: np.zeros(2, np.int64)})
    exe({x: row, at: np.zeros(1, np.int64)})
    assert state.length == 1
    exe.resident(at, np.zeros(1, np.int64))
    with pytest.raises(RunError, match="it is resident itself"):
        exe({x: row})
    assert state.length == 1


def test_a_released_handle(on: str) -> None:
    exe, state, _, grown = cache(on)
    exe.release(state.leaf.name)
    uses: list[Callable[[], object]] = [
        lambda: state.feed(grown), lambda: state.feed(None), state.read, lambda: state.shape,
        lambda: state.length, lambda: state.write(np.zeros((1, 2), np.float32)),
        lambda: setattr(state, "length", 1)]
    for use in uses:
        with pytest.raises(BindingError, match="was released"):
            use()


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "treadle", "--version"], capture_output=True,
                          text=True, check=True)
    assert done.stdout.startswith("treadle ")
