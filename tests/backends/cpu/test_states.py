"""Resident state on the CPU device: what is done in place, and what stops it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
from tests.backends.cpu.test_random import TYPES, inputs, random_graph
from tests.onnx.build import F32 as F32_ONNX
from tests.onnx.build import model, node
from tests.runtime.surface import compiled, names, random
from treadle.backends.base import State
from treadle.backends.cpu import assembly
from treadle.backends.cpu.backend import Cpu
from treadle.backends.cpu.lowered import Packed
from treadle.backends.cpu.plan import Planner
from treadle.backends.cpu.program import CpuProgram
from treadle.declare.opdef import cast_value
from treadle.errors import RunError
from treadle.ir.graph import Value, trace
from treadle.ir.types import F32, I64, parse_type
from treadle.ops import (
    argmax,
    concat,
    cumsum,
    exp,
    flip,
    gather,
    inverse,
    layer_norm,
    matmul,
    narrow,
    nonzero,
    range_,
    reshape,
    scan,
    softmax,
    sum_,
    transpose,
)
from treadle.passes.base import Context
from treadle.passes.pipeline import from_config
from treadle.runtime.executable import Executable
from treadle.runtime.resident import Resident

IN_PLACE = "kernels write the output in its place"


def note(exe: Executable) -> str:
    return next(line for line in exe.explain().notes if "Resident" in line)


def place(state: Resident) -> int:
    return int(state.buffer.ctypes.data)


@pytest.mark.parametrize(("fn", "reason"), [
    (lambda s, x: (s * 0.5 + x, sum_(x, axes=(0,))), IN_PLACE),
    (lambda s, x: (exp(s * x), matmul(s, x)), "matmul reads it when"),
    (lambda s, x: (x * 2.0, s), "it is an output too"),
    (lambda s, x: (transpose(s * x, perm=(1, 0)), x), IN_PLACE),
    (lambda s, x: (inverse(s * x), x), "a view, or computed on the host"),
    (lambda s, x: (matmul(s, x), x * 1.0), "matmul reads it when"),
], ids=["elementwise", "read later", "output", "turned", "host", "matmul"])
def test_in_place_where_liveness_allows(fn: Callable[..., Any], reason: str) -> None:
    exe, judge = (compiled(on, fn, "f32[4,4]", "f32[4,4]") for on in ("cpu", "reference"))
    (s, x), (new, _) = names(exe)
    state, other = (e.resident(s, random(4, 4)).feed(new) for e in (exe, judge))
    assert reason in note(exe)
    before = place(state)
    for k in range(3):
        given = random(4, 4, seed=k)
        for got, want in zip(exe({x: given}).values(), judge({x: given}).values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.read(), other.read(), rtol=1e-4, atol=1e-5)
    assert place(state) == before or reason != IN_PLACE


def test_a_cache_is_read_and_grows_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy, one compilation, also beside other readers and an operator on the host."""
    def fn(past: Value, new: Value, q: Value) -> tuple[Value, ...]:
        keys = concat([past, new * 2.0], axis=2)
        scores = matmul(q, transpose(keys, perm=(0, 1, 3, 2)))
        return keys, matmul(softmax(scores, axis=-1), keys), sum_(past, axes=(2,)), exp(keys)

    types = ("f32[batch,2,past,8]", "f32[batch,2,new,8]", "f32[batch,2,1,8]")
    built: list[str] = []
    build = assembly.build_all
    monkeypatch.setattr(assembly, "build_all", lambda parts, *more: built.extend(
        text() for text, _ in parts) or build(parts, *more))
    exe, judge = compiled("cpu", fn, *types), compiled("reference", fn, *types)
    (past, new, q), (keys, *_) = names(exe)
    state = exe.resident(past, shape=(3, 2, 0, 8), axis=2, capacity=40).feed(keys)
    assert "read and appended to where it lies" in note(exe)
    before = place(state)
    want = np.zeros((3, 2, 0, 8), np.float32)
    for k in range(12):
        given = [random(3, 2, 1 + k % 3, 8, seed=k), random(3, 2, 1, 8, seed=k + 50)]
        got = exe({new: given[0], q: given[1]})
        want, *rest = judge(want, *given).values()
        for a, b in zip(got.values(), rest, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(state.read(), want)
    assert place(state) == before and len(built) == 2
    first, second = (text.count("define ") for text in built)
    assert second < first  # kernels that do not touch the cache are the plain program's


@pytest.mark.parametrize(("fn", "reason"), [
    (lambda p, n: concat([n, p], axis=0), "one copy of the output, which is concat"),
    (lambda p, n: concat([p, p], axis=0) + sum_(n, axes=(0, 1)), "copy of the output, which is"),
    (lambda p, n: concat([p, n], axis=0) * 1.5, "one copy of the output, which is"),
], ids=["before", "twice", "computed"])
def test_what_does_not_grow_in_place_is_copied(fn: Callable[..., Any], reason: str) -> None:
    exe, judge = (compiled(on, fn, "f32[past,3]", "f32[new,3]") for on in ("cpu", "reference"))
    (past, _), (out,) = names(exe)
    first = random(2, 3)
    state = exe.resident(past, first, capacity=30, axis=0).feed(out)
    other = judge.resident(past, first, capacity=30, axis=0).feed(out)
    assert reason in note(exe)
    for k in range(3):
        exe(random(2, 3, seed=k))
        judge(random(2, 3, seed=k))
        np.testing.assert_allclose(state.read(), other.read(), rtol=1e-5)


def test_a_failed_run_in_place_loses_the_state() -> None:
    exe = compiled("cpu", lambda s, x, i: (s * 2.0, gather(x, i, axis=0)), "f32[3]", "f32[n]",
                   "i64[1]")
    (s, x, i), (new, _) = names(exe)
    state = exe.resident(s, np.ones(3, np.float32)).feed(new)
    assert IN_PLACE in note(exe)
    given = random(4)
    exe({x: given, i: np.array([1])})
    with pytest.raises(RunError, match="out of range"):
        exe({x: given, i: np.array([9])})
    with pytest.raises(RunError, match=f"contents of {s} are lost"):
        exe({x: given, i: np.array([1])})
    state.write(np.ones(3, np.float32))
    exe({x: given, i: np.array([1])})
    assert state.read().tolist() == [2, 2, 2]


def test_host_steps_see_the_rows_in_use() -> None:
    def fn(past: Value, new: Value) -> tuple[Value, Value]:
        return concat([past, new], axis=1), nonzero(past, names=("k",))

    exe = compiled("cpu", fn, "i64[2,past]", "i64[2,1]")
    (past, new), (out, found) = names(exe)
    exe.resident(past, np.array([[0, 1], [2, 0]]), capacity=5).feed(out)
    seen: list[str] = []
    for _ in range(2):
        got = exe.run([np.array([[3], [0]])], watch=lambda n, outs: seen.append(
            f"{n.op} {[list(a.shape) for a in outs]}"))
    want = np.array([[0, 1, 3], [2, 0, 0]]).nonzero()
    np.testing.assert_array_equal(np.sort(got[found].T if got[found].shape[0] == 2 else got[found],
                                          0), np.sort(np.stack(want, 1), 0))
    assert any("[2, 3]" in line or "[2, 4]" in line for line in seen) and new


LENGTHS = [0, 1, 15, 16, 17, 40, 250, 33, 64, 299, 2]
OPERATORS: dict[str, tuple[Callable[[Value], Any], str]] = {
    "pointwise": (lambda v: exp(v * 0.1) + 1.0, "one plan"),
    "softmax": (lambda v: softmax(v, axis=0), "one plan"),
    "rows": (lambda v: softmax(v, axis=1), "one plan"),
    "sum": (lambda v: sum_(v, axes=(0,)), "one plan"),
    "argmax": (lambda v: argmax(v, axis=0), "one plan"),
    "cumsum": (lambda v: cumsum(v, axis=0), "one plan"),
    "matmul over it": (lambda v: matmul(transpose(v, perm=(1, 0)), v), "one plan"),
    "matmul twice it": (lambda v: matmul(v, transpose(v, perm=(1, 0))), "one plan"),
    "norm": (lambda v: layer_norm(v, sum_(v, axes=(0,)), axis=1), "one plan"),
    "reversed": (lambda v: flip(v, axes=(0,)) * 2.0, "one plan"),
    "last row": (lambda v: narrow(v, axis=0, start=v.shape[0] - 1, length=1) * 2.0, "one plan"),
    "positions": (lambda v: v + cast_value(reshape(range_(
        start=0, step=1, length=v.shape[0], dtype=I64), shape=(-1, 1)), F32), "one plan"),
    "host": (lambda v: (nonzero(v, names=("k",)), v * 1.0), "nonzero runs on the host"),
    "halves": (lambda v: narrow(v, axis=0, start=v.shape[0] // 2, length=1) * 2.0,
               "addresses elements by more than"),
    "all but two rows": (lambda v: narrow(v, axis=0, start=1, length=v.shape[0] - 2) * 2.0,
                         "which some lengths do not allow"),
    "scan": (lambda v: scan([sum_(v, axes=(0,)) * 0.0, v], body=lambda h, x: (
        h * 0.5 + x, h * 1.0), carried=1), "scan repeats along it"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_one_plan_serves_many_lengths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing, shrinking, beyond chunks; where one plan cannot, explain() says what stops it."""
    body, reason = OPERATORS[name]

    def fn(past: Value, new: Value) -> tuple[Value, ...]:
        keys = concat([past, new], axis=0)
        made = body(keys)
        return keys, *(made if isinstance(made, tuple | list) else (made,))

    exe, judge = (compiled(on, fn, "f32[past,64]", "f32[new,64]") for on in ("cpu", "reference"))
    (past, new), (keys, *_) = names(exe)
    content = random(302, 64)
    state = exe.resident(past, content, capacity=310).feed(keys)
    assert reason in note(exe)
    planned: list[int] = []
    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", lambda self, *a: planned.append(1) or plan(self, *a))
    for n in LENGTHS:
        state.length = n
        given = random(3, 64, seed=n)
        want = list(judge(content[:n], given).values())[1:]
        for a, b in zip(exe({new: given}).values(), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
        content[n:n + 3] = given
        assert state.length == n + 3
    np.testing.assert_array_equal(state.read(), content[:state.length])
    assert len(planned) == (5 if reason == "one plan" else len(planned))


def test_packed_parameters_are_shared() -> None:
    """Executables of one model, clones, and those that share parameters pack once."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F32_ONNX, ["n", 64])],
                  [("y", F32_ONNX, None)], weights={"w": random(64, 64)})
    loaded = treadle.load(proto)

    def packed(exe: Executable) -> list[int]:
        program = exe._program  # noqa: SLF001
        assert isinstance(program, CpuProgram)
        return [id(a) for b, a in program.held.items() if isinstance(b, Packed)]

    one, two = (loaded.compile("cpu", freeze=False) for _ in range(2))
    assert isinstance(one, Executable) and isinstance(two, Executable)
    assert packed(one) == packed(two) == packed(one.clone()) and packed(one)
    before, x = packed(two), random(3, 64)
    one.set_param("w", 2 * random(64, 64))
    assert packed(one) != before and packed(two) == before
    np.testing.assert_allclose(two(x)["y"], x @ random(64, 64), rtol=1e-4, atol=1e-4)
    two.share_params(one)
    assert packed(two) == packed(one)
    np.testing.assert_allclose(two(x)["y"], 2 * (x @ random(64, 64)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_random_graphs_on_storage_with_gaps(seed: int) -> None:
    """The lengths of an inner axis, with NaN beyond them and in dead memory."""
    def fn(x: Value, y: Value, w: Value, filters: Value, at: Value) -> list[Value]:
        rng = np.random.default_rng(1000 + seed)
        a, b = (transpose(v, perm=(1, 0, 2)) for v in (x, y))
        return [v for _ in range(12) for v in random_graph(rng, a, b, w, filters, at)]

    types = ("f32[6,n,10]", "f32[6,n,10]", *TYPES[2:])
    graph = from_config().run(trace(fn, *map(parse_type, types)), Context(legaliser=Cpu())).graph
    plain = CpuProgram(graph, {}, threads=2, backend=Cpu())
    program, grants = plain.with_states([State(0, 1, 130), State(1, 1, 130)])
    assert "one plan serves many lengths" in grants[0].reason
    for n in (20, 1, 16, 33, 100, 129, 3):
        xs, binding = inputs(n), {"n": n}
        room = [np.full((6, 130, 10), np.nan, np.float32) for _ in range(2)]
        dense = [np.ascontiguousarray(x.transpose(1, 0, 2)) for x in xs[:2]]
        for storage, x in zip(room, dense, strict=True):
            storage[:, :n] = x
        found = []
        for poison in (False, True):
            program.poison = poison
            found.append(program.run([*room, *xs[2:]], dict(binding)))
        want = plain.run([*dense, *xs[2:]], dict(binding))
        for i, (a, b, w) in enumerate(zip(*found, want, strict=True)):
            assert a.tobytes() == b.tobytes(), f"output {i} reads what is dead"
            np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-4, err_msg=f"output {i}")
