"""Calls with shapes that were bound before: the same results and the same errors as the first."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, model, node
from treadle.backends.cpu.addresses import field_address, interface_address
from treadle.declare.arrays import Array
from treadle.errors import BindingError, RunError
from treadle.ir.graph import Value
from treadle.ops import exp, gather, matmul, reshape, softmax, sum_
from treadle.runtime.executable import Executable
from treadle.runtime.signature import Signature


def compiled(fn: Callable[..., Any], *types: str, threads: int = 2) -> Executable:
    exe = treadle.trace(fn, *types).compile("cpu", threads=threads)
    assert isinstance(exe, Executable)
    return exe


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every call that takes the long way."""
    found: list[int] = []
    bind = Signature.bind

    def counted(self: Signature, arrays: Sequence[Array]) -> dict[str, int]:
        found.append(1)
        return bind(self, arrays)

    monkeypatch.setattr(Signature, "bind", counted)
    return found


def test_every_way_to_call_finds_the_bound_call(binds: list[int]) -> None:
    exe = compiled(lambda x, y: x * 2.0 + y, "f32[n,4]", "f32[4]")
    names = [leaf.name for leaf in exe.signature.inputs]
    rng = np.random.default_rng(0)
    for n in (3, 5, 3, 5, 0, 0, 1):
        x, y = rng.normal(size=(n, 4)).astype("f4"), rng.normal(size=4).astype("f4")
        given = dict(zip(names, (x, y), strict=True))
        for out in (exe(x, y), exe(given), exe(**given), exe(dict(reversed(given.items())))):
            np.testing.assert_array_equal(next(iter(out.values())), x * np.float32(2) + y)
    assert len(binds) == 4
    exe(*(pickle.loads(pickle.dumps(a)) for a in (x, y)))  # noqa: S301 - another dtype object
    assert len(binds) == 4


def test_what_is_unusual_takes_the_long_way(binds: list[int]) -> None:
    exe = compiled(lambda x: x * 2.0, "f32[n,4]")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    unaligned = np.frombuffer(b"?" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    forms = [np.asfortranarray(x), x.astype(">f4"), unaligned, x.tolist(), x.view(np.matrix),
             np.repeat(x, 2, 1)[:, ::2]]
    exe(x)
    for form in forms:
        before = len(binds)
        np.testing.assert_array_equal(next(iter(exe(form).values())), 2 * x)
        assert len(binds) == before + 1
    readonly = x.copy()
    readonly.flags.writeable = False
    np.testing.assert_array_equal(next(iter(exe(readonly).values())), 2 * x)


def test_errors_are_those_of_the_first_call() -> None:
    exe = compiled(lambda x, y: x + y, "f32[n]", "f32[n]")
    x = np.ones(3, np.float32)
    names = [leaf.name for leaf in exe.signature.inputs]
    exe(x, x)
    for bad, match in [((x, np.ones(4, np.float32)), "size n is 3"), ((x,), "is missing"),
                       ((x, x, x), "3 inputs given"), ((x, x.astype("f8")), "dtype f64"),
                       ((x, x.reshape(1, 3)), "rank 1"), (({names[0]: x, "z": x},), "no input")]:
        with pytest.raises(BindingError, match=match):
            exe(*bad)
    with pytest.raises(BindingError, match="by position and by name"):
        exe(x, x, **{names[0]: x})
    np.testing.assert_array_equal(next(iter(exe(x, x).values())), 2 * x)


def test_a_fault_belongs_to_its_call() -> None:
    exe = compiled(lambda x, i: gather(x, i, axis=0) * 1.0, "f32[n,4]", "i64[m]")
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    for i in ((0, 1), (4, 7), (2, 3), (-6, 0), (-5, 4)):
        at = np.array(i)
        if min(i) >= -5 and max(i) < 5:
            np.testing.assert_array_equal(next(iter(exe(x, at).values())), x[at])
        else:
            with pytest.raises(RunError, match=r"index (7|-6) is out of range"):
                exe(x, at)


def test_larger_bindings_move_the_arena() -> None:
    exe = compiled(lambda x: softmax(exp(matmul(x, x)) * 0.5, axis=-1), "f32[b,n,n]")
    judge = treadle.trace(lambda x: softmax(exp(matmul(x, x)) * 0.5, axis=-1),
                          "f32[b,n,n]").compile("reference")
    rng = np.random.default_rng(1)
    for b, n in [(1, 2), (2, 8), (1, 2), (3, 40), (2, 8), (1, 2), (3, 40)]:
        x = rng.uniform(-1, 1, (b, n, n)).astype(np.float32)
        np.testing.assert_allclose(next(iter(exe(x).values())), next(iter(judge(x).values())),
                                   rtol=1e-4, atol=1e-6)


def test_replaced_parameters_reach_bound_calls() -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F32, ["n", 16])],
                  [("y", F32, None)], weights={"w": np.eye(16, dtype=np.float32)})
    exe = treadle.load(proto).compile("cpu", freeze=False)
    x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    for k in range(1, 4):
        exe.set_param("w", k * np.eye(16, dtype=np.float32))
        for _ in range(2):
            np.testing.assert_allclose(exe(x)["y"], k * x, rtol=1e-6)


def test_outputs_are_fresh_however_they_are_made(binds: list[int]) -> None:
    """Storage of its own, the same under another shape, twice, a part of a buffer, a constant."""
    def fn(x: Value) -> tuple[Value, ...]:
        y = x * 2.0
        return y, reshape(y, shape=(-1,)), y, sum_(y, axes=(1,))

    exe = compiled(fn, "f32[n,4]")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    want = [2 * x, (2 * x).reshape(-1), 2 * x, (2 * x).sum(1)]
    for _ in range(3):
        out = list(exe(x).values())
        for a, b in zip(out, want, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.flags.owndata and a.flags.writeable
            a[...] = -1  # no other output may change
    assert len(binds) == 1


def test_calls_from_several_threads() -> None:
    exe = compiled(lambda x: exp(x) * 2.0, "f32[n]", threads=2)
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for k in range(300):
                x = np.full(n, k / 300, np.float32)
                np.testing.assert_allclose(next(iter(exe(x).values())), 2 * np.exp(x), rtol=1e-5)
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 8, 100_000, 8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_addresses_of_arrays() -> None:
    x = np.zeros((4, 5), np.float32)
    for a in (x, x[1:], x[:, 3], x.T, x[2:2], x.reshape(20)[3:4].reshape(())):
        assert field_address(a) == interface_address(a) == a.ctypes.data
