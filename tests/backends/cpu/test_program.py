"""Assembled programs: memory, bindings, threads, errors, host steps, hooks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import treadle
from treadle.backends.cpu import assembly
from treadle.backends.cpu.program import CpuProgram
from treadle.declare.arrays import blob
from treadle.declare.opdef import cast_value
from treadle.errors import RunError
from treadle.ir.graph import Builder, Node, Value
from treadle.ir.types import F32, parse_type
from treadle.ops.activations import gelu
from treadle.ops.contract import matmul, matmul_integer
from treadle.ops.control import if_, scan
from treadle.ops.dynamic import nonzero
from treadle.ops.gather import gather
from treadle.ops.host import sequence_construct
from treadle.ops.leaves import constant, full
from treadle.ops.mathfn import exp, sqrt
from treadle.ops.movement import concat, expand, reshape, slice_, transpose, unsqueeze
from treadle.ops.norm import layer_norm
from treadle.ops.reduce import mean, reduce_max, sum_
from treadle.ops.scan1d import softmax
from treadle.runtime.executable import Executable
from treadle.runtime.model import Built, Model

Arrays = list[np.ndarray]


def block(x: Value, w: Value, g: Value) -> Value:
    """A bit of everything: views, products, rows, maps, a concatenation."""
    h = layer_norm(matmul(x, w), g)
    scores = matmul(h, transpose(h, perm=(0, 2, 1)))
    mixed = matmul(softmax(scores, axis=-1), gelu(h))
    both = concat([mixed, slice_(h, starts=(0,), ends=(2**31,), steps=(1,), axes=(1,))], axis=-1)
    return both + mean(both, axes=(1,), keepdims=True)


TYPES = ("f32[b,n,24]", "f32[24,24]", "f32[24]")


def inputs(b: int, n: int) -> Arrays:
    rng = np.random.default_rng(b * 100 + n)
    return [rng.normal(size=s).astype(np.float32) for s in ((b, n, 24), (24, 24), (24,))]


def compiled(device: str = "cpu", threads: int | None = None) -> Executable:
    exe = treadle.trace(block, *TYPES).compile(device, threads=threads)
    assert isinstance(exe, Executable)
    return exe


def one(out: dict[str, np.ndarray]) -> np.ndarray:
    return next(iter(out.values()))


def test_new_bindings_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = assembly.build_all
    monkeypatch.setattr(assembly, "build_all",
                        lambda parts, *more: built.append(len(parts)) or build(parts, *more))
    exe, judge = compiled(), compiled("reference")
    for b, n in ((1, 1), (2, 5), (3, 33), (0, 4), (1, 130)):
        x = inputs(b, n)
        np.testing.assert_allclose(one(exe(*x)), one(judge(*x)), rtol=2e-5, atol=1e-5)
    assert len(built) == 1


def test_results_are_the_same_bits_on_any_number_of_threads() -> None:
    x = inputs(4, 200)
    first = one(compiled(threads=1)(*x))
    for threads in (2, 3, 5):
        exe = compiled(threads=threads)
        for _ in range(3):
            assert one(exe(*x)).tobytes() == first.tobytes()


def test_dead_memory_is_never_read() -> None:
    exe = compiled()
    poisoned = CpuProgram(exe.graph, {}, poison=True)
    for n in (3, 17):
        x = inputs(2, n)
        got = poisoned.run(x, {"b": 2, "n": n})[0]
        assert got.tobytes() == one(exe(*x)).tobytes()


def test_outputs_are_not_touched_by_later_runs() -> None:
    exe = treadle.trace(lambda x: (x * 2.0, reshape(x * 2.0, shape=(-1,)), x), "f32[n,4]").compile(
        "cpu")
    a = np.ones((3, 4), np.float32)
    first = exe(a)
    kept = {k: v.copy() for k, v in first.items()}
    exe(a * 5)
    for k in kept:
        np.testing.assert_array_equal(first[k], kept[k])
    assert not np.may_share_memory(list(first.values())[2], a)


def test_an_index_out_of_range_is_reported() -> None:
    exe = treadle.trace(lambda x, i: gather(x, i, axis=0) + 1.0, "f32[n,4]", "i64[m]").compile(
        "cpu")
    x = np.ones((5, 4), np.float32)
    ok = one(exe(x, np.array([0, -5, 4])))
    assert ok.shape == (3, 4)
    for bad in (5, -6, 1 << 40):
        with pytest.raises(RunError, match=rf"gather.*index {bad} is out of range.*size 5"):
            exe(x, np.array([0, bad, 77]))
    assert one(exe(x, np.array([0, -5, 4]))).tobytes() == ok.tobytes()


def test_sizes_that_data_decides() -> None:
    def fn(x: Value) -> Value:
        at = nonzero(x, names=("k",))
        return sum_(exp(gather(x * 3.0, reshape(at, shape=(-1,)), axis=0)) * 2.0, axes=(0,))

    exe = treadle.trace(fn, "f32[n]").compile("cpu")
    for x in ([0.0, 1.0, 0.0, 0.5], [0.0, 0.0], [1.0]):
        a = np.array(x, np.float32)
        want = (np.exp(a[a != 0] * 3) * 2).sum()
        np.testing.assert_allclose(one(exe(a)), want, rtol=1e-5)


def test_control_flow_runs_on_the_host_between_native_steps() -> None:
    def fn(x: Value, p: Value) -> Value:
        y = x * 2.0
        return if_(p, then=lambda: y + 1.0, orelse=lambda: concat([y - 1.0, y], axis=0),
                   fresh="k") * 10.0

    exe = treadle.trace(fn, "f32[n]", "bool[]").compile("cpu")
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(one(exe(x, np.array(True))), [30, 50])
    np.testing.assert_array_equal(one(exe(x, np.array(False))), [10, 30, 20, 40])
    rows = exe.explain().rows
    assert [r.claim for r in rows if r.op == "if"] == ["host"]
    assert all(r.claim == "native" for r in rows if r.op != "if")


def test_watch_sees_every_node_as_the_reference_does() -> None:
    x = inputs(2, 7)
    exe = compiled()
    seen: dict[Node, Sequence[np.ndarray]] = {}
    got = one(exe.run(x, watch=lambda node, out: seen.update({node: out})))
    assert got.tobytes() == one(exe(*x)).tobytes()
    assert list(seen) == exe.graph.nodes
    wanted: dict[Node, Sequence[np.ndarray]] = {}
    from treadle.declare import evaluate

    evaluate.run(exe.graph, x, {}, {}, lambda node, out: wanted.update({node: list(out)}))
    for node, out in wanted.items():
        for a, b in zip(seen[node], out, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=node.op)


def test_views_of_all_kinds_reach_host_steps() -> None:
    def fn(x: Value) -> Value:
        y = transpose(x + 1.0, perm=(1, 0))
        z = expand(unsqueeze(y, axes=(0,)), shape=(2, 3, 4))
        return concat([z, full(value=7.0, shape=(2, 3, 1), dtype=F32)], axis=2)

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    exe = treadle.trace(fn, "f32[4,3]").compile("cpu")
    want = np.concatenate([np.broadcast_to((x + 1).T, (2, 3, 4)), np.full((2, 3, 1), 7.0)], 2)
    np.testing.assert_array_equal(one(exe(x)), want)


def test_sequences_keep_what_they_were_given() -> None:
    """The buffer behind an element is used again by what follows."""
    def fn(x: Value) -> Sequence[Value]:
        kept = sequence_construct([exp(x), exp(x * 2.0)])
        y = x
        for _ in range(4):
            y = exp(reshape(transpose(y, perm=(1, 0)), shape=(4, 4)) * -0.5)
        return kept, y

    exe = treadle.trace(fn, "f32[4,4]").compile("cpu")
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    first = exe(x)
    exe(x * 0)
    for got, want in zip(next(iter(first.values())), (np.exp(x), np.exp(x * 2)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_rows_over_every_axis() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 37, 19)).astype(np.float32)
    for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for keepdims in (False, True):
            exe = treadle.trace(lambda v, a=axes, k=keepdims: (
                sum_(v, axes=a, keepdims=k), reduce_max(sqrt(v * v), axes=a, keepdims=k)),
                "f32[a,b,c]").compile("cpu")
            total, top = exe(x).values()
            np.testing.assert_allclose(total, x.sum(axes, keepdims=keepdims), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(top, np.abs(x).max(axes, keepdims=keepdims))


def test_operands_of_a_concatenation_are_computed_in_place() -> None:
    def fn(x: Value, y: Value) -> Value:
        a, b = exp(x), softmax(y, axis=-1)
        return concat([a, b, a * 2.0, x, b], axis=1) + 1.0

    exe = treadle.trace(fn, "f32[n,3,4]", "f32[n,2,4]").compile("cpu")
    program = exe._program  # noqa: SLF001
    assert isinstance(program, CpuProgram)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in ((5, 3, 4), (5, 2, 4)))
    e = np.exp(y - y.max(-1, keepdims=True))
    b = e / e.sum(-1, keepdims=True)
    want = np.concatenate([np.exp(x), b, np.exp(x) * 2, x, b], 1) + 1
    np.testing.assert_allclose(one(exe(x, y)), want, rtol=1e-5)
    copies = [s for s in program.whole.stages[0].steps if s.node.op == "concat"]
    assert len(copies) == 2  # x and the second b


def test_regions_run_as_programs() -> None:
    """A recurrence over time whose weights are captured; lengths and batches change."""
    def fn(xs: Value, w: Value, h: Value) -> Sequence[Value]:
        def step(h: Value, x: Value) -> tuple[Value, Value]:
            new = sqrt(exp(matmul(h, w) * 0.1 + x))
            return new, new * 2.0

        return scan([h, xs], body=step, carried=1)

    model = treadle.trace(fn, "f32[t,b,8]", "f32[8,8]", "f32[b,8]")
    exe, judge = model.compile("cpu"), model.compile()
    for t, b in ((1, 1), (5, 3), (0, 2), (40, 1)):
        rng = np.random.default_rng(t)
        x = [rng.normal(size=s).astype(np.float32) for s in ((t, b, 8), (8, 8), (b, 8))]
        for got, want in zip(exe(*x).values(), judge(*x).values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_scans_run_in_one_segment() -> None:
    """Backwards, over an inner axis, stacked on the last one; watched and poisoned too."""
    def fn(xs: Value, ys: Value, h: Value) -> Sequence[Value]:
        def step(h: Value, x: Value, y: Value) -> tuple[Value, Value, Value]:
            new = h * 0.5 + exp(x * 0.1) * y
            return new, new, reduce_max(new, axes=(1,))

        return scan([h, xs * 2.0, ys], body=step, carried=1, axes=(1, 0), reverse=(True, False),
                    out_axes=(-1, 0), out_reverse=(False, True))

    model = treadle.trace(fn, "f32[b,t,8]", "f32[t,b,1]", "f32[b,8]")
    exe, judge = model.compile("cpu", threads=2), model.compile()
    assert exe.explain().counts.get("host", 0) == 0
    assert isinstance(exe, Executable)
    poisoned = CpuProgram(exe.graph, {}, poison=True, backend=exe.backend)
    for b, t in ((1, 1), (3, 5), (2, 0), (1, 64), (400, 9)):
        rng = np.random.default_rng(t)
        x = [rng.normal(size=s).astype(np.float32) for s in ((b, t, 8), (t, b, 1), (b, 8))]
        want = list(judge(*x).values())
        for got in (exe(*x).values(), poisoned.run(x, {"b": b, "t": t}),
                    exe.run(x, watch=lambda *_: None).values()):
            for a, w in zip(got, want, strict=True):
                np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-5)


def test_what_parameters_decide_is_computed_once_and_again_when_set() -> None:
    from treadle.ir.graph import Builder
    from treadle.ir.types import parse_type
    from treadle.ops.convert import cast_
    from treadle.runtime.model import Built, Model

    with Builder("g") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        w = b.input("w", parse_type("i8[4,4]"), param=True)
        s = b.input("s", parse_type("f32[4]"), param=True)
        real = cast_(w, dtype=F32) * s
        graph = b.finish([matmul(x, transpose(real, perm=(1, 0))), real, s])
    rng = np.random.default_rng(0)
    params = {"w": rng.integers(-9, 9, (4, 4)).astype(np.int8), "s": np.ones(4, np.float32)}
    exe = Model("g", Built(graph, params)).compile("cpu", freeze=False)
    a = rng.normal(size=(3, 4)).astype(np.float32)
    for scale in (1.0, 2.0):
        exe.set_param("s", np.full(4, scale, np.float32))
        out, weights, given = exe(a).values()
        np.testing.assert_allclose(out, a @ (params["w"] * scale).T, rtol=1e-5, atol=1e-5)
        weights[:] = given[:] = 77  # outputs are the caller's
    assert not exe._program.whole.stages[0].steps[1:]  # noqa: SLF001


def test_reshapes_whose_sizes_only_a_binding_tells_are_views() -> None:
    def fn(x: Value) -> Value:
        return exp(reshape(x, shape=(4, 6)))

    exe = treadle.trace(fn, "f32[n,3]").compile("cpu")
    assert isinstance(exe, Executable)
    assert {r.claim for r in exe.explain().rows} == {"native"}
    x = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
    np.testing.assert_allclose(one(exe(x)), np.exp(x.reshape(4, 6)), rtol=1e-6)
    with pytest.raises(RunError, match="reshape"):
        exe(x[:7])


@pytest.mark.parametrize("freeze", [True, False])
def test_copies_and_partial_views_of_parameters_serve_what_follows(freeze: bool) -> None:
    """A view that needs a copy is made with the parameters; one of run-time size in each run."""
    from treadle.ir.graph import Builder
    from treadle.ir.types import parse_type
    from treadle.runtime.model import Built, Model

    with Builder("g") as b:
        x = b.input("x", parse_type("f32[n,4]"))
        s = b.input("s", parse_type("f32[4,2]"), param=True)
        wide = reshape(expand(unsqueeze(s, axes=(2,)), shape=(4, 2, 2)), shape=(4, 4))
        rows = slice_(s, starts=(0,), ends=(x.shape[0],), steps=(1,), axes=(0,))
        graph = b.finish([matmul(x, exp(wide)), sum_(exp(rows), axes=(0,))])
    held = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    exe = Model("g", Built(graph, {"s": held})).compile("cpu", freeze=freeze)
    for scale in (1.0, 0.5)[:1 if freeze else 2]:
        if not freeze:
            exe.set_param("s", held * np.float32(scale))
        for n in (1, 3, 9):
            a = np.ones((n, 4), np.float32)
            e = np.exp(held * scale)
            product, total = exe(a).values()
            np.testing.assert_allclose(product, a @ np.repeat(e, 2, 1), rtol=1e-5)
            np.testing.assert_allclose(total, e[:n].sum(0), rtol=1e-5)


def test_nothing_joined_to_nothing() -> None:
    exe = treadle.trace(lambda x, y: (concat([x, y], axis=1), concat([x, y], axis=1) + 1.0),
                        "f32[2,0,3]", "f32[2,0,3]").compile("cpu")
    none = np.zeros((2, 0, 3), np.float32)
    assert [a.shape for a in exe(none, none).values()] == [(2, 0, 3)] * 2


@pytest.mark.parametrize("host", [False, True])
def test_a_body_of_no_turns_does_not_fail(host: bool) -> None:
    """What follows from parameters alone is not made before, if making it may fail."""
    with Builder("g") as b:
        x, w, at = (b.input(name, parse_type(t), param=name != "x") for name, t in (
            ("x", "f32[t,3]"), ("w", "f32[3]"), ("at", "i64[3]")))

        def step(h: Value, v: Value) -> tuple[Value, Value]:
            e = gather(w, at, axis=0)
            found = sum_(cast_value(nonzero(v, names=("k",)), F32), axes=(0, 1)) if host else 0.0
            return h + v * e, h + found

        graph = b.finish(scan([full(value=0.0, shape=(3,), dtype=F32), x], body=step, carried=1))
    exe = Model("g", Built(graph, {"w": np.ones(3, np.float32), "at": np.array([0, 7, 1])})
                ).compile("cpu", freeze=False)
    assert not one(exe(np.zeros((0, 3), np.float32))).any()
    with pytest.raises(RunError, match="7"):
        exe(np.zeros((2, 3), np.float32))


def test_weights_of_each_turn_are_read_where_they_lie() -> None:
    """Constants that a scan cuts by turns: products of floats and of 8-bit integers."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 4, 5)).astype(np.float32)
    u = rng.integers(-9, 9, w.shape, np.int8)

    def fn(x: Value, n: Value) -> Sequence[Value]:
        def step(c: Value, a: Value, b: Value) -> tuple[Value, Value, Value]:
            return c, matmul(x, a), matmul_integer(n, b)

        return scan([x, constant(value=blob(w)), constant(value=blob(u))], body=step,
                    carried=1)[1:]

    exe = treadle.trace(fn, "f32[2,4]", "u8[2,4]").compile("cpu")
    x, n = rng.standard_normal((2, 4)).astype(np.float32), rng.integers(0, 9, (2, 4), np.uint8)
    floats, whole = exe(x, n).values()
    np.testing.assert_allclose(floats, x @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(whole, n.astype(np.int32) @ u.astype(np.int32))


def test_turns_that_memory_cannot_list_are_refused() -> None:
    def fn(x: Value) -> Value:
        zero = full(value=0.0, shape=(), dtype=F32)
        return scan([zero, x], body=lambda h, v: (h + v, h), carried=1)[0]

    exe = treadle.trace(fn, "f32[t]").compile("cpu")
    with pytest.raises(RunError, match="memory for the run"):
        exe(np.zeros(10**9, np.float32))
    assert one(exe(np.ones(9, np.float32))) == 9
