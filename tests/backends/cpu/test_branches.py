"""Branches as native steps: what runs, what it costs in memory, which sizes and errors count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.backends.cpu import assembly
from treadle.backends.cpu.direct import Direct
from treadle.backends.cpu.program import CpuProgram
from treadle.codegen.llvm.runtime import shared_pool
from treadle.declare import evaluate
from treadle.errors import RunError
from treadle.ir.graph import Builder, Node, trace
from treadle.ir.types import parse_type
from treadle.ops.library import REGISTRY
from treadle.runtime.executable import Executable
from treadle.runtime.model import Built, Model
from treadle.transforms.grad import grad

V = Any  # a graph value, as closures see it
OPS: V = REGISTRY
if_ = OPS["if"]


def compiled(fn: Callable[..., object], *types: str, on: str = "cpu") -> Executable:
    exe = treadle.trace(fn, *types).compile(on)
    assert isinstance(exe, Executable)
    return exe


def claims(exe: Executable, op: str = "if") -> list[tuple[str, str]]:
    return [(r.claim, r.reason) for r in exe.explain().rows if r.op == op]


def program(exe: Executable) -> CpuProgram:
    assert isinstance(exe._program, CpuProgram)
    return exe._program


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tree(x: V, w: V, at: V) -> Sequence[V]:
    """Nested branches that share nothing, pass values through, and read values from around them."""
    y = OPS["exp"](x * 0.1)

    def scanned() -> Sequence[V]:
        def turn(h: V, row: V) -> Sequence[V]:
            new = if_(OPS["sum"](row, axes=(0, 1)) > 0.0, then=lambda: h * 0.5 + row,
                      orelse=lambda: h)
            return new, new + y

        return OPS["scan"]([y, OPS["expand"](OPS["unsqueeze"](x, axes=(0,)), shape=(
            5, *x.shape)) * OPS["reshape"](w, shape=(5, 1, 5))], body=turn, carried=1)

    def inner() -> Sequence[V]:
        return if_(at > 1, then=lambda: (OPS["matmul"](y, w), x),
                   orelse=lambda: (x, OPS["softmax"](OPS["matmul"](x, w), axis=-1)))

    def outer() -> Sequence[V]:
        last, rows = scanned()
        return last, OPS["sum"](rows, axes=(0,))

    a, b = if_(at > 0, then=inner, orelse=outer)
    return a * 2.0, b, OPS["concat"]([a, y], axis=1)


TREE = ("f32[n,5]", "f32[5,5]", "i64[]")


def test_nested_branches_run_in_one_call() -> None:
    exe, judge = compiled(tree, *TREE), compiled(tree, *TREE, on="reference")
    assert {how for how, _ in claims(exe)} == {"native"}
    w = random(5, 5, seed=1)
    for n in (1, 40, 0, 7):
        for at in (0, 1, 2, 1, 0):
            given = [random(n, 5, seed=at), w, np.array(at)]
            want = list(judge(*given).values())
            for got in (exe(*given).values(), exe.run(given, watch=lambda *_: None).values()):
                for a, b in zip(got, want, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert isinstance(program(exe).direct({"n": 7}), Direct)


def test_the_bits_are_those_of_one_thread_and_of_poisoned_memory() -> None:
    exe = compiled(tree, *TREE)
    own = CpuProgram(exe.graph, {}, poison=True, backend=exe.backend)
    for at in (0, 1, 2):
        given = [random(6000, 5, seed=at), random(5, 5), np.array(at)]
        want = [a.tobytes() for a in exe(*given).values()]
        for threads in (1, 2, 3, 4):
            program(exe).pool = shared_pool(threads)
            assert [a.tobytes() for a in exe.run(given).values()] == want
        own.arenas[0][...] = 0xFF
        assert [a.tobytes() for a in own.run(given, {"n": 6000})] == want
    for planner, plans in zip(own.stages, own._plans, strict=True):
        for plan in plans.values():
            planner.arena.check(plan.layout)


def test_watch_sees_the_node_and_what_comes_after() -> None:
    exe = compiled(tree, *TREE)
    given = [random(4, 5), random(5, 5), np.array(1)]
    for device in (exe, compiled(tree, *TREE, on="reference")):
        seen: dict[Node, list[np.ndarray]] = {}
        device.run(given, watch=lambda node, out: seen.update({node: list(out)}))  # noqa: B023
        assert list(seen) == device.graph.nodes
    wanted: dict[Node, list[np.ndarray]] = {}
    evaluate.run(exe.graph, given, {}, {}, lambda node, out: wanted.update({node: list(out)}))
    seen = {}
    exe.run(given, watch=lambda node, out: seen.update({node: list(out)}))
    for node, out in seen.items():
        for a, b in zip(out, wanted[node], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_branches_share_memory() -> None:
    def branch(x: V) -> V:
        return OPS["exp"](OPS["cumsum"](OPS["cumsum"](OPS["cumsum"](x, axis=1), axis=0), axis=1))

    def one(x: V, p: V) -> V:
        return branch(x) * 2.0 + OPS["sum"](x, axes=(0, 1))

    def two(x: V, p: V) -> V:
        return if_(p, then=lambda: branch(x), orelse=lambda: branch(x * 3.0)) * 2.0

    sizes = []
    for fn in (one, two):
        exe = compiled(fn, "f32[64,64]", "bool[]")
        exe(random(64, 64), np.array(True))
        plan = program(exe).recent(0)
        assert plan is not None
        sizes.append(plan.layout.total)
    assert sizes[1] <= sizes[0] + 2 * 64 * 64 * 4


def test_what_is_not_taken_is_not_run() -> None:
    """An index out of range, and a size that a reshape does not admit, where nothing looks."""
    def fn(x: V, at: V, p: V) -> V:
        def three() -> V:
            return OPS["exp"](OPS["reshape"](OPS["sum"](OPS["reshape"](x, shape=(-1, 3)), axes=(
                1,)), shape=(-1,)))

        def taken() -> V:
            return OPS["gather"](x, at, axis=0)

        def some(v: V) -> V:
            return OPS["sum"](v, axes=(0,), keepdims=True)

        return if_(p, then=lambda: some(three()), orelse=lambda: some(taken())) + 1.0

    exe, judge = (compiled(fn, "f32[n]", "i64[m]", "bool[]", on=on) for on in ("cpu", "reference"))
    assert claims(exe)[0][0] == "native"
    yes, no, good, bad = np.array(True), np.array(False), np.array([0, -1]), np.array([0, 77])
    for _ in range(2):
        for n, at, p in ((6, good, yes), (6, bad, yes), (7, good, no), (6, good, no)):
            got, want = (list(e(random(n), at, p).values())[0] for e in (exe, judge))
            np.testing.assert_allclose(got, want, rtol=1e-5)
        with pytest.raises(RunError, match=r"gather.*index 77 is out of range"):
            exe(random(6), bad, no)
        with pytest.raises(RunError, match="reshape"):
            exe(random(7), good, yes)
    small = CpuProgram(exe.graph, {}, poison=True, backend=exe.backend)
    small.run([random(7), good, no], {"n": 7, "m": 2})


def test_a_window_that_does_not_fit_the_branch_that_is_not_taken() -> None:
    """Sixteen kHz or eight: each branch takes only some lengths; a size compiles nothing."""
    def fn(x: V, w: V, v: V, rate: V) -> V:
        def pooled(filters: V) -> V:
            return OPS["reduce_max"](OPS["conv"](x, filters), axes=(2,))

        return if_(OPS["eq"](rate, 16000), then=lambda: pooled(w), orelse=lambda: pooled(v))

    types = ("f32[b,1,n]", "f32[2,1,64]", "f32[2,1,8]", "i64[]")
    exe, judge = (compiled(fn, *types, on=on) for on in ("cpu", "reference"))
    w, v = random(2, 1, 64), random(2, 1, 8)
    for b, n, rate in ((1, 100, 16000), (2, 100, 8000), (1, 9, 8000), (3, 64, 16000)):
        got, want = (list(e(random(b, 1, n), w, v, np.array(rate)).values())[0]
                     for e in (exe, judge))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for _ in range(2):
        with pytest.raises(RunError, match="a window of 64 does not fit an axis of 9"):
            exe(random(1, 1, 9), w, v, np.array(16000))
    assert list(exe(random(1, 1, 9), w, v, np.array(8000)).values())[0].shape == (1, 2)


def test_a_predicate_on_sizes_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = assembly.build_all
    monkeypatch.setattr(assembly, "build_all",
                        lambda parts, *more: built.append(len(parts)) or build(parts, *more))

    def fn(x: V) -> V:
        n = OPS["gather"](OPS["shape_of"](x), OPS["full"](value=0, shape=(), dtype=parse_type(
            "i64[]").dtype), axis=0)
        return if_(n > 4, then=lambda: OPS["exp"](x), orelse=lambda: x)

    exe = compiled(fn, "f32[n,3]")
    for n in (2, 5, 9, 2, 0, 5):
        x = random(n, 3)
        np.testing.assert_allclose(list(exe(x).values())[0], np.exp(x) if n > 4 else x, rtol=1e-6)
    assert len(built) == 1 and claims(exe)[0][0] == "native"


def test_what_keeps_a_branch_on_the_host_is_said() -> None:
    def sized(x: V, p: V) -> V:
        return if_(p, then=lambda: x, orelse=lambda: OPS["narrow"](
            x, axis=0, start=0, length=1), fresh="k")

    def hosted(x: V, p: V) -> V:
        return if_(p, then=lambda: OPS["sum"](OPS["cast"](OPS["nonzero"](
            x, names=("found",)), dtype=x.dtype), axes=(0, 1)), orelse=lambda: OPS["sum"](
                x, axes=(0,)))

    def listed(x: V, p: V) -> V:
        both = if_(p, then=lambda: OPS["sequence_construct"]([x, x]),
                   orelse=lambda: OPS["sequence_construct"]([x * 2.0, x]))
        return OPS["concat_from_sequence"](both, axis=0, fresh="m")

    for fn, why in ((sized, "its branches give different sizes, k_0_0"),
                    (listed, "no kernel reads seq"),
                    (hosted, "a branch runs nonzero on the host: ")):
        exe, judge = (compiled(fn, "f32[n]", "bool[]", on=on) for on in ("cpu", "reference"))
        how, reason = claims(exe)[0]
        assert how == "host" and reason.startswith(why)
        for p in (True, False):
            got, want = (list(e(random(5), np.array(p)).values())[0] for e in (exe, judge))
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_gradients_go_through_the_branch_that_was_taken() -> None:
    def loss(x: V, p: V) -> V:
        y = if_(p, then=lambda: OPS["exp"](x), orelse=lambda: x * x * 3.0)
        return OPS["sum"](y, axes=(0,))

    graph = grad(trace(loss, parse_type("f32[n]"), parse_type("bool[]")), ["x"])
    own = CpuProgram(graph, {}, backend=compiled(loss, "f32[n]", "bool[]").backend)
    x = random(9)
    for p, want in ((True, np.exp(x)), (False, 6 * x)):
        *_, got = own.run([x, np.array(p)], {"n": 9})
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert all(not s.node.regions for stage in own.whole.stages for s in stage.steps
               if isinstance(s, assembly.HostStep))


def test_any_byte_but_zero_is_true() -> None:
    exe = compiled(lambda x, p: if_(p, then=lambda: x * 2.0, orelse=lambda: x), "f32[n]", "bool[1]")
    odd = np.array([2], np.uint8).view(np.bool_)
    assert list(exe(np.ones(2, np.float32), odd).values())[0].tolist() == [2, 2]


def test_parameters_inside_branches_are_replaced() -> None:
    def fn(x: V, p: V, w: V) -> V:
        return if_(p, then=lambda: OPS["matmul"](x, w), orelse=lambda: x)

    from treadle.runtime.model import Built, Model

    graph = trace(fn, *map(parse_type, ("f32[n,8]", "bool[]", "f32[8,8]")))
    graph.params.append(graph.inputs.pop())
    exe = Model("m", Built(graph, {"w": random(8, 8)})).compile("cpu", freeze=False)
    x = random(3, 8, seed=2)
    for w in (random(8, 8), random(8, 8, seed=5)):
        exe.set_param("w", w)
        got = list(exe(x, np.array(True)).values())[0]
        np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-5)


def test_what_parameters_alone_make_fail_matters_where_the_branch_is_taken() -> None:
    rows, wrong = np.arange(3, dtype=np.float32), np.array([0, 7, 1])
    with Builder("g") as b:
        flag = b.input("flag", parse_type("bool[]"))
        w = b.input("w", parse_type("f32[3]"), param=True)
        i = b.input("i", parse_type("i64[3]"), param=True)
        made: V = if_(flag, then=lambda: OPS["exp"](w),
                      orelse=lambda: OPS["gather"](w, i, axis=0))
        graph = b.finish(made)
    exe = Model("g", Built(graph, {"w": rows, "i": wrong})).compile("cpu", freeze=False)
    assert claims(exe)[0][0] == "native"
    np.testing.assert_allclose(next(iter(exe(np.array(True)).values())), np.exp(rows), rtol=1e-6)
    with pytest.raises(RunError, match="index 7 is out of range"):
        exe(np.array(False))


def test_loops_of_known_length_are_native() -> None:
    """The number of the turn, a branch in the body, stacked rows; a number, a size, none at all."""
    def fn(x: V, w: V) -> Sequence[V]:
        def turn(i: V, go: V, h: V, k: V) -> Sequence[V]:
            step = OPS["cast"](i, dtype=x.dtype)
            new = if_(OPS["eq"](i % 2, 0), then=lambda: OPS["tanh"](OPS["matmul"](h, w)) + step,
                      orelse=lambda: h * 0.5)
            return go, new, k + i, OPS["sum"](new, axes=(1,))

        zero, five = (OPS["full"](value=v, shape=(), dtype=parse_type("i64[]").dtype)
                      for v in (0, 5))
        rows = OPS["gather"](OPS["shape_of"](x), zero, axis=0)
        one = OPS["loop"]([x, zero], trip=five, body=turn, length=5)
        return *one, *OPS["loop"]([x, zero], trip=rows, body=turn, length=x.shape[0])

    exe, judge = (compiled(fn, "f32[n,4]", "f32[4,4]", on=on) for on in ("cpu", "reference"))
    assert claims(exe, "loop") == [
        ("native", "the kernels of its body, called again for every turn")] * 2
    for n in (1, 0, 6, 3):
        given = [random(n, 4), random(4, 4)]
        want = list(judge(*given).values())
        for got in (exe(*given).values(), exe.run(given, watch=lambda *_: None).values()):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_what_keeps_a_loop_on_the_host_is_said() -> None:
    def turn(i: V, go: V, h: V) -> Sequence[V]:
        return OPS["sum"](h, axes=(0,)) < 100.0, h * 2.0

    def ended(x: V, trip: V) -> V:
        go = OPS["full"](value=True, shape=(), dtype=parse_type("bool[]").dtype)
        return OPS["loop"]([x], trip=trip, keep_going=go, body=turn)

    def counted(x: V, trip: V) -> V:
        return OPS["loop"]([x], trip=trip, body=turn)

    def long(x: V, trip: V) -> V:
        turns = OPS["full"](value=20_000, shape=(), dtype=trip.dtype)
        return OPS["loop"]([x], trip=turns, body=lambda i, go, h: (go, h * 0.5), length=20_000)

    for fn, why in ((ended, "its condition depends on the run"),
                    (counted, "its trip count depends on the run"),
                    (long, "its 20000 turns are more than the 16384 that are listed")):
        exe, judge = (compiled(fn, "f32[n]", "i64[]", on=on) for on in ("cpu", "reference"))
        assert claims(exe, "loop") == [("host", why)]
        for trip in (0, 3, 90):
            got, want = (list(e(np.ones(5, np.float32), np.array(trip)).values())[0]
                         for e in (exe, judge))
            np.testing.assert_allclose(got, want, rtol=1e-6)
