"""Gradients against finite differences in f64, and against formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest

from treadle.declare import evaluate
from treadle.declare.arrays import Array
from treadle.declare.opdef import infer
from treadle.errors import Declined, OperatorError
from treadle.ir.graph import Value, trace
from treadle.ir.types import F32, parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY as OPS
from treadle.passes.pipeline import Pipeline
from treadle.transforms.grad import grad, vjp


def total(x: Value) -> Value:
    return OPS["sum"](x, axes=tuple(range(x.type.rank)))  # type: ignore[return-value]


def check(fn: Callable[..., Value], *types: str, low: float = 0.2, high: float = 1.5) -> None:
    """Compare every element of every gradient with a central difference."""
    rng = np.random.default_rng(3)
    graph = trace(fn, *[parse_type(t) for t in types])
    arrays = [rng.uniform(low, high, [d if isinstance(d, int) else 3 for d in v.shape])
              for v in graph.inputs]
    made = grad(graph)
    verify(made, infer)
    for g in (made, Pipeline(verify=True).run(made).graph):
        compare(g, arrays)


def compare(made: object, arrays: Sequence[Array], step: float = 1e-6) -> None:
    def loss() -> float:
        return float(evaluate.run(made, arrays, {}, {})[0])  # type: ignore[arg-type]

    found = evaluate.run(made, arrays, {}, {})[1:]  # type: ignore[arg-type]
    for x, g in zip(arrays, found, strict=True):
        assert g.shape == x.shape and g.dtype == x.dtype
        for i in np.ndindex(x.shape):
            keep = x[i]
            x[i] = keep + step
            up = loss()
            x[i] = keep - step
            down = loss()
            x[i] = keep
            np.testing.assert_allclose(g[i], (up - down) / (2 * step), rtol=1e-5, atol=1e-7)


def test_elementwise_chain_with_broadcasting() -> None:
    check(lambda x, y: total(OPS["exp"](x * y) / (x + 2.0) - OPS["log"](y)),
          "f64[n,4]", "f64[4]")


def test_composites_and_contractions() -> None:
    check(lambda x, w: total(OPS["softmax"](OPS["matmul"](x, w), axis=-1)
                             * OPS["gelu"](OPS["matmul"](x, w))), "f64[3,4]", "f64[4,2]")


def test_movement() -> None:
    def fn(x: Value, y: Value) -> Value:
        both = OPS["concat"]([OPS["transpose"](x, perm=(1, 0)), y], axis=0)
        part = OPS["slice"](both, starts=(1,), ends=(5,), steps=(2,), axes=(0,))
        return total(part * part * OPS["reshape"](y, shape=(2, 3)))  # type: ignore[operator]

    check(fn, "f64[3,3]", "f64[2,3]")


def test_several_outputs_of_one_node() -> None:
    def fn(x: Value) -> Value:
        a, b = OPS["map"]([x, x * 2.0], expr="t0=exp(x0);mul(t0,x1);add(t0,x1)")  # type: ignore[misc]
        return total(a * b)

    check(fn, "f64[5]")


def test_both_branches() -> None:
    def fn(x: Value, y: Value) -> Value:
        big = total(x) > 3.0
        out = OPS["if"](big, then=lambda: (x * x * y,), orelse=lambda: (OPS["exp"](y),))
        return total(out * y)  # type: ignore[operator]

    for low, high in ((0.2, 0.8), (1.2, 1.5)):
        check(fn, "f64[3]", "f64[3]", low=low, high=high)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("out_reverse", [False, True])
def test_scan(reverse: bool, out_reverse: bool) -> None:
    def fn(init: Value, xs: Value, w: Value) -> Value:
        def body(h: Value, x: Value) -> tuple[Value, Value]:
            new = OPS["tanh"](h * w + x)
            return new, new * x  # type: ignore[return-value,operator]

        last, ys = OPS["scan"]([init, xs], body=body, carried=1, axes=(1,),  # type: ignore[misc]
                               reverse=(reverse,), out_axes=(1,), out_reverse=(out_reverse,))
        return total(last * last) + total(ys * xs)

    check(fn, "f64[2]", "f64[2,4]", "f64[2]")


def test_second_derivative() -> None:
    def fn(x: Value) -> Value:
        return total(OPS["sigmoid"](x * x))

    first = grad(trace(fn, parse_type("f64[3]")))

    def again(x: Value) -> Value:
        from treadle.transforms.inline import inline

        return total(inline(first, [x])[1] * x)

    check(again, "f64[3]")


def test_half_precision_rounds_once() -> None:
    graph = grad(trace(lambda x: OPS["cast"](total(OPS["silu"](x)), dtype=F32),
                       parse_type("bf16[64]")))
    half = np.linspace(-4, 4, 64).astype(ml_dtypes.bfloat16)
    found = evaluate.run(graph, [half], {}, {})[1]
    wide = half.astype(np.float64)
    s = 1 / (1 + np.exp(-wide))
    want = (s * (1 + wide * (1 - s))).astype(ml_dtypes.bfloat16)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found, want)


def test_vjp_has_a_cotangent_for_each_floating_output() -> None:
    made = vjp(trace(lambda x: (x * x, OPS["gt"](x, 0.0), x + 1.0), parse_type("f64[2]")))
    assert [v.name for v in made.inputs] == ["x", "cotangent_0", "cotangent_2"]
    x = np.array([1.0, 3.0])
    out = evaluate.run(made, [x, np.array([1.0, 10.0]), np.array([5.0, 7.0])], {}, {})
    np.testing.assert_allclose(out[3], [2 + 5, 60 + 7])


def test_names_and_zero_gradients() -> None:
    graph = trace(lambda x, i, y: total(x), *map(parse_type, ("f32[2]", "i64[2]", "f32[3]")))
    made = grad(graph)
    assert made.output_names == ("output_0", "grad_x", "grad_y")
    out = evaluate.run(made, [np.ones(2, "f4"), np.ones(2, "i8"), np.ones(3, "f4")], {}, {})
    np.testing.assert_array_equal(out[2], np.zeros(3))


def test_errors_say_what_is_missing() -> None:
    square = trace(lambda x: x * x, parse_type("f32[2]"))
    with pytest.raises(OperatorError, match="floating scalar"):
        grad(square)
    with pytest.raises(OperatorError, match="no input or parameter 'z'"):
        vjp(square, ["z"])
    whole = trace(lambda x: total(OPS["while"](
        [x], body=lambda v: (v * 2.0,), cond=lambda v: total(v) < 9.0)), parse_type("f32[2]"))
    with pytest.raises(Declined, match="while has no derivative rule"):
        grad(whole)
