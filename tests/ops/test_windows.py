"""Window geometry: automatic pads, symbolic sizes and gradients through them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from tests.oracles import ort
from treadle.declare import evaluate
from treadle.declare.opdef import infer
from treadle.errors import OperatorError
from treadle.ir.dims import sym
from treadle.ir.graph import trace
from treadle.ir.types import parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.ops.windows import same_pads, transposed_pads, windows

OPS: Any = REGISTRY
Mode = Literal["upper", "lower"]


@pytest.mark.parametrize("mode", ["upper", "lower"])
@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), [
    (7, 3, 2, 1), (8, 3, 2, 1), (8, 4, 3, 1), (9, 4, 1, 1), (5, 1, 2, 1)])
def test_same_pads(mode: Mode, size: int, kernel: int, stride: int, dilation: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, 2, size), (3, 2, kernel)))
    (want,) = ort.run("Conv", [x, w], {"auto_pad": f"SAME_{mode.upper()}", "strides": (stride,),
                                       "dilations": (dilation,)})
    attrs = {"strides": (stride,), "dilations": (dilation,)}
    pads = same_pads((size,), (kernel,), (stride,), (dilation,), mode=mode)
    np.testing.assert_allclose(OPS["conv"](x, w, pads=pads, **attrs), want, rtol=1e-4, atol=1e-5)


def test_same_pads_of_a_symbolic_size_give_its_quotient() -> None:
    n = sym("n")
    before, after = same_pads((n,), (3,), (2,))
    assert windows(n, 3, 2, 1, (before, after)) == (n - 1) // 2 + 1


@pytest.mark.parametrize("mode", ["upper", "lower"])
def test_pads_of_a_stated_output(mode: Mode) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, 2, 5), (2, 3, 4)))
    pads = transposed_pads((5,), (4,), (2,), (1,), (0,), (11,), mode=mode)
    got = OPS["conv_transpose"](x, w, strides=(2,), pads=pads)
    (full,) = ort.run("ConvTranspose", [x, w], {"strides": (2,)})
    start = 0 if mode == "upper" else 1
    np.testing.assert_allclose(got, full[..., start:start + 11], rtol=1e-4, atol=1e-5)


SHAPED = {
    "conv": (("f32[n,4,h]", "f32[6,2,3]"), {"strides": (2,), "pads": (1, 1), "groups": 2}),
    "conv_transpose": (("f32[n,4,h]", "f32[4,3,3]"), {"strides": (2,), "pads": (1, 0)}),
    "max_pool": (("f32[n,2,h]",), {"kernel": (3,), "strides": (2,), "ceil_mode": True}),
    "average_pool": (("f32[n,2,h]",), {"kernel": (3,), "strides": (2,), "pads": (1, 1),
                                       "ceil_mode": True, "count_include_pad": True})}


@pytest.mark.parametrize("op", SHAPED)
def test_one_graph_serves_every_size(op: str) -> None:
    types, attrs = SHAPED[op]
    graph = trace(lambda *xs: OPS[op](*xs, **attrs), *map(parse_type, types))
    verify(graph, infer)
    rng = np.random.default_rng(0)
    for n, h in ((1, 5), (3, 8), (2, 11)):
        arrays = [rng.normal(size=evaluate.bind_attr(parse_type(t).shape, {"n": n, "h": h}))
                  .astype(np.float32) for t in types]  # type: ignore[arg-type]
        (got,) = evaluate.run(graph, arrays, {}, {})
        np.testing.assert_array_equal(got, OPS[op](*arrays, **attrs))


REFUSED: dict[str, Any] = {
    "does not fit": lambda x, w: OPS["conv"](x, w, dilations=(9,)),
    "strides has 2 entries": lambda x, w: OPS["conv"](x, w, strides=(1, 1)),
    r"pads has 1 entries, not 2": lambda x, w: OPS["conv"](x, w, pads=(1,)),
    "must be at least 1": lambda x, w: OPS["conv"](x, w, strides=(0,)),
    "do not divide": lambda x, w: OPS["conv"](x[:, :1], w[:, :1], groups=1) if w.shape[0] % 2
    else OPS["conv"](x, w[:3, :1], groups=2),
    "channels": lambda x, w: OPS["conv"](x, w[:, :1]),
    "cast one of them": lambda x, w: OPS["conv"](x, w.astype(np.float64)),
    "the bias must be": lambda x, w: OPS["conv"](x, w, bias=np.zeros(5, np.float32)),
    "needs x of rank": lambda x, w: OPS["max_pool"](x, kernel=(2, 2))}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_refused(says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        REFUSED[says](np.zeros((1, 2, 6), np.float32), np.zeros((4, 2, 3), np.float32))
