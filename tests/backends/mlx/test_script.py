"""Scripts: what lazy and eager runs are from a binding's second run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.mlx.running import normal, program
from treadle.backends.mlx import arrays
from treadle.backends.mlx.program import MlxProgram
from treadle.backends.mlx.script import Script
from treadle.errors import RunError
from treadle.ir.graph import Builder, Graph, Value, trace
from treadle.ir.types import parse_type
from treadle.ops.activations import gelu, relu
from treadle.ops.arithmetic import add, mul
from treadle.ops.contract import matmul
from treadle.ops.control import if_
from treadle.ops.conv import conv
from treadle.ops.gather import gather
from treadle.ops.mathfn import exp
from treadle.ops.movement import narrow
from treadle.ops.reduce import sum_

MODES = ("lazy", "eager")


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Elementwise steps become one as on a GPU; what they are compiled to runs as it is."""
    monkeypatch.setattr(arrays, "on_gpu", lambda: True)
    mx.disable_compile()
    yield
    mx.enable_compile()


def dense() -> Graph:
    with Builder("dense") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        w = b.input("w", parse_type("f32[4,3]"), param=True)
        return b.finish(exp(matmul(x, w)))


def script(found: MlxProgram) -> Script:
    made = next(iter(found.scripts.values()))
    assert made is not None
    return made


@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_one_call(mode: str) -> None:
    x, w = normal(5, 4), normal(4, 3, seed=1)
    found = program(dense(), mode, {"w": w})
    first, second = (found.run([x], {"n": 5})[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    calls = [line for line in script(found).text.splitlines() if "(" in line]
    assert len(calls) == 1 + (4 if mode == "eager" else 2)  # the header; two steps, evaluated


@pytest.mark.parametrize("mode", MODES)
def test_new_parameters_and_sizes(mode: str) -> None:
    found = program(dense(), mode, {"w": normal(4, 3)})
    for n in (2, 5, 2, 5):
        w, x = normal(4, 3, seed=n), normal(n, 4)
        found.set_param("w", w)
        np.testing.assert_allclose(found.run([x], {"n": n})[0], np.exp(x @ w), rtol=1e-5)
    assert len(found.scripts) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_check_fails_its_run_alone(mode: str) -> None:
    def picks(x: Value, i: Value) -> Value:
        return exp(gather(x, i, axis=0))

    found = program(trace(picks, parse_type("f32[3,2]"), parse_type("i64[2]")), mode)
    x, good = normal(3, 2), np.array([-1, 0])
    for _ in range(2):
        np.testing.assert_allclose(found.run([x, good], {})[0], np.exp(x[good]), rtol=1e-5)
        with pytest.raises(RunError, match="gather.*the index 7 is out of range for axis 0"):
            found.run([x, np.array([0, 7])], {})
    assert script(found) and not found.notes


def test_what_asks_for_values_has_no_script() -> None:
    def chooses(p: Value, x: Value) -> tuple[Value, ...]:
        return if_(p, then=lambda: exp(x), orelse=lambda: relu(x))

    found = program(trace(chooses, parse_type("bool[]"), parse_type("f32[3]")), "lazy")
    x = normal(3)
    for p in (True, False, True):
        got = found.run([np.array(p), x], {})[0]
        np.testing.assert_allclose(got, np.exp(x) if p else np.maximum(x, 0), rtol=1e-5)
    assert list(found.scripts.values()) == [None]


def test_what_follows_a_convolution_is_one_kernel(fused: None) -> None:
    def net(x: Value, w: Value, b: Value) -> Value:
        for _ in range(2):
            x = relu(add(conv(x, w, pads=(1, 1, 1, 1)), b))
        return x

    given = [normal(2, 3, 6, 5), normal(3, 3, 3, 3, seed=1), normal(3, 1, 1, seed=2)]
    graph = trace(net, *[parse_type(f"f32[{','.join(map(str, a.shape))}]") for a in given])
    found = program(graph, "lazy")
    first, second = (found.run(given, {})[0] for _ in range(2))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    text = script(found).text
    assert text.count("(0, 3, 1, 2)") == 1, text  # channels come first once, at the end


def test_long_chains_are_parted(fused: None) -> None:
    def net(x: Value, *more: Value) -> Value:
        for v in more:
            x = add(x, v)
        return mul(gelu(narrow(x, axis=0, start=0, length=2)), narrow(x, axis=0, start=2, length=2))

    given = [normal(4, seed=i) for i in range(40)]
    found = program(trace(net, *[parse_type("f32[4]")] * 40), "lazy")
    first, second = (found.run(given, {})[0] for _ in range(2))
    np.testing.assert_allclose(first, second, rtol=1e-5)
    assert len(script(found).text.splitlines()) < 12


def test_a_value_read_twice_by_one_step_is_made_once(fused: None) -> None:
    def net(x: Value) -> Value:
        y = exp(x)
        return mul(y, y)

    found = program(trace(net, parse_type("f32[4]")), "lazy")
    x = normal(4)
    for _ in range(2):
        np.testing.assert_allclose(found.run([x], {})[0], np.exp(x) ** 2, rtol=1e-5)
    assert script(found)


def test_chains_of_any_length_have_a_script(fused: None) -> None:
    def net(x: Value) -> Value:
        for _ in range(300):
            x = exp(add(x, -1.0))
        return x

    found = program(trace(net, parse_type("f32[4]")), "lazy")
    first, second = (found.run([normal(4)], {})[0] for _ in range(2))
    np.testing.assert_allclose(first, second, rtol=1e-5)
    assert script(found)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_not_summed_by_mlx(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's CPU build reads the sizes of such a fold where there are none, and may never end."""
    with Builder("empty") as b:
        x = b.input("x", parse_type("f32[n,3]"))
        graph = b.finish(exp(sum_(x, axes=(0,))))
    real = mx.sum

    def checked(x: mx.array, axis: Sequence[int] | None = None, keepdims: bool = False
                ) -> mx.array:
        assert x.size
        return real(x, axis, keepdims)

    monkeypatch.setattr(mx, "sum", checked)
    found = program(graph, mode, {})
    for n in (0, 0, 2, 2, 0):
        got = found.run([np.ones((n, 3), np.float32)], {"n": n})[0]
        np.testing.assert_allclose(got, np.exp([n] * 3), rtol=1e-6)
