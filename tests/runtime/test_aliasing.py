"""No result, state, parameter or storage of the caller is the memory of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, model, node
from tests.runtime.surface import compiled, names, random
from treadle.declare.arrays import Array
from treadle.errors import BindingError
from treadle.ops import concat, transpose


def test_two_states_take_the_same_output(on: str) -> None:
    exe = compiled(on, lambda a, b, x: (a + b) + x, "f32[3]", "f32[3]", "f32[3]")
    (a, b, x), (new,) = names(exe)
    states = [exe.resident(n, np.zeros(3, np.float32)).feed(new) for n in (a, b)]
    want = np.zeros(3, np.float32)
    for k in range(3):
        exe({x: random(3, seed=k)})
        want = want + want + random(3, seed=k)
        for state in states:
            np.testing.assert_allclose(state.read(), want, rtol=1e-6)


def test_two_caches_take_the_same_output(on: str) -> None:
    exe = compiled(on, lambda a, b, x: concat([a, x], axis=0) + 0.0 * concat([b, x], axis=0),
                   "f32[n,2]", "f32[n,2]", "f32[1,2]")
    (a, b, x), (new,) = names(exe)
    one = exe.resident(a, shape=(0, 2), axis=0, capacity=4).feed(new)
    two = exe.resident(b, shape=(0, 2), axis=0, capacity=4).feed(new)
    for k in range(3):
        exe({x: random(1, 2, seed=k)})
    want = np.concatenate([random(1, 2, seed=k) for k in range(3)])
    np.testing.assert_array_equal(one.read(), want)
    np.testing.assert_array_equal(two.read(), want)


def test_one_appended_cache_and_a_second_one(on: str) -> None:
    exe = compiled(on, lambda a, b, x: (concat([a, x], axis=0), b * 1.0), "f32[n,2]", "f32[n,2]",
                   "f32[1,2]")
    (a, b, x), (grown, _) = names(exe)
    one = exe.resident(a, shape=(0, 2), axis=0, capacity=4).feed(grown)
    two = exe.resident(b, shape=(0, 2), axis=0, capacity=4).feed(grown)
    for k in range(3):
        exe({x: random(1, 2, seed=k)})
    want = np.concatenate([random(1, 2, seed=k) for k in range(3)])
    np.testing.assert_array_equal(one.read(), want)
    np.testing.assert_array_equal(two.read(), want)


def test_states_change_places(on: str) -> None:
    exe = compiled(on, lambda a, b: (a, b), "f32[2]", "f32[2]")
    (a, b), (first, second) = names(exe)
    one = exe.resident(a, np.float32([1, 2]), axis=0).feed(second, at=0)
    two = exe.resident(b, np.float32([3, 4]), axis=0).feed(first, at=0)
    exe()
    assert (one.read().tolist(), two.read().tolist()) == ([3, 4], [1, 2])


@pytest.mark.parametrize("fed", [0, 1])
def test_an_output_twice_one_of_them_fed(on: str, fed: int) -> None:
    def fn(s: Any, x: Any) -> tuple[Any, Any]:  # noqa: ANN401 - traced values
        y = s + x
        return y, y

    exe = compiled(on, fn, "f32[2]", "f32[2]")
    (s, x), outs = names(exe)
    state = exe.resident(s, np.zeros(2, np.float32)).feed(outs[fed])
    for k in range(3):
        out = exe({x: np.ones(2, np.float32)})[outs[1 - fed]]
        np.testing.assert_array_equal(state.read(), [k + 1] * 2)
        out[...] = -1
        np.testing.assert_array_equal(state.read(), [k + 1] * 2)


def test_a_result_that_is_a_replaced_parameter(on: str) -> None:
    proto = model([node("Identity", ["w"], ["y"]), node("Add", ["w", "x"], ["z"])],
                  [("x", F32, [4])], [("y", F32, None), ("z", F32, None)],
                  weights={"w": random(4)})
    exe = treadle.load(proto).compile(on, freeze=False)
    exe.set_param("w", random(4, seed=1))
    for _ in range(2):
        out = exe(np.zeros(4, np.float32))
        np.testing.assert_array_equal(out["z"], random(4, seed=1))
        out["y"][...] = 7


def test_storage_over_an_input_leaves_views_of_it_alone(on: str) -> None:
    exe = compiled(on, lambda x: (x + x, transpose(x, perm=(1, 0)), x), "f32[2,3]")
    doubled, turned, same = names(exe)[1]
    for target in (doubled, same, turned):
        x = random(2, 3)
        out = exe(x, out={target: x.reshape(3, 2) if target == turned else x})
        np.testing.assert_array_equal(out[doubled], 2 * random(2, 3))
        np.testing.assert_array_equal(out[turned], random(2, 3).T)
        np.testing.assert_array_equal(out[same], random(2, 3))


def overlapping(a: Array) -> dict[str, Array]:
    return {"first": a[:4], "second": a[2:6]}


def interleaved(a: Array) -> dict[str, Array]:
    return {"first": a[::2], "second": a[1::2]}


def repeated(a: Array) -> dict[str, Array]:
    return {"first": np.lib.stride_tricks.as_strided(a, (4,), (0,))}


@pytest.mark.parametrize("given, message", [
    (overlapping, "share memory"), (repeated, "share memory"),
    (lambda a: {"first": np.broadcast_to(a[:1], (4,))}, "read-only"),
    (lambda a: {"first": a[:4].astype(np.float64)}, "array of f32"),
    (lambda a: {"first": [0.0] * 4}, "a NumPy array"), (lambda a: a, "names of outputs")])
def test_storage_that_cannot_take_results(
        on: str, given: Callable[[Array], Any], message: str) -> None:
    exe = two_outputs(on)
    x, a = random(4), np.zeros(8, np.float32)
    with pytest.raises(BindingError, match=message):
        exe(x, out=given(a))
    with pytest.raises(BindingError, match=message):
        exe.submit(x, out=given(a))
    assert not a.any()


def test_storage_takes_results_at_any_address_in_every_call(on: str) -> None:
    exe = compiled(on, lambda x: (x + 1.0, transpose(x, perm=(1, 0)), x), "f32[n,3]")
    (_, (first, turned, _)), a = names(exe), np.zeros(64, np.float32)
    for k, n in enumerate((2, 2, 4, 2, 4)):
        x = random(n, 3, seed=k)
        target, other = a[1:1 + 3 * n].reshape(n, 3), a[20:20 + 3 * n].reshape(3, n)
        for out in ({first: target}, {first: target, turned: other}, {}):
            a[:] = 7
            found = exe(x, out=out)
            np.testing.assert_array_equal(found[first], x + 1)
            np.testing.assert_array_equal(found[turned], x.T)
            assert all(found[name] is given for name, given in out.items())
            assert (a == 7).sum() == 64 - sum(given.size for given in out.values())
        with pytest.raises(BindingError, match="shape"):
            exe(x, out={first: a[:3].reshape(1, 3)})


def test_storage_of_no_elements_is_taken(on: str) -> None:
    exe = compiled(on, lambda x: x + 1.0, "f32[n,5]")
    ((_,), (name,)), empty = names(exe), np.empty((0, 5), np.float32)
    for _ in range(2):
        assert exe(np.zeros((0, 5), np.float32), out={name: empty})[name] is empty
    with pytest.raises(BindingError, match="shape"):
        exe(np.zeros((0, 5), np.float32), out={name: np.empty((5, 0), np.float32)})


def test_storage_may_interleave(on: str) -> None:
    exe = two_outputs(on)
    x, a = random(4), np.zeros(8, np.float32)
    exe(x, out=interleaved(a))
    np.testing.assert_array_equal(a[::2], x + 1)
    np.testing.assert_array_equal(a[1::2], x + 2)


def two_outputs(on: str) -> Any:  # noqa: ANN401 - an executable of a loaded model
    one, two = np.ones(4, np.float32), np.full(4, 2, np.float32)
    return treadle.load(model(
        [node("Add", ["x", "one"], ["first"]), node("Add", ["x", "two"], ["second"])],
        [("x", F32, [4])], [("first", F32, None), ("second", F32, None)],
        weights={"one": one, "two": two})).compile(on)


def test_storage_of_a_wrong_shape_leaves_the_rest_as_it_is(on: str) -> None:
    exe = compiled(on, lambda x: (x * 2.0, x + 1.0), "f32[2]")
    double, more = names(exe)[1]
    target = np.zeros(2, np.float32)
    with pytest.raises(BindingError, match="the result is"):
        exe(np.ones(2, np.float32), out={double: target, more: np.zeros(3, np.float32)})
    assert not target.any()
