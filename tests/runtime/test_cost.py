"""FLOPs counted by hand."""

from __future__ import annotations

import pytest

from treadle import ops
from treadle.api import trace
from treadle.runtime.cost import graph_flops


@pytest.mark.parametrize(("fn", "specs", "flops"), [
    (ops.matmul, ("f32[3,4]", "f32[4,5]"), 2 * 3 * 4 * 5),
    (ops.matmul_integer, ("u8[3,4]", "i8[4,5]"), 2 * 3 * 4 * 5),
    (lambda x, w: ops.convolution(x, w, pads=(1, 1, 1, 1)), ("f32[2,3,8,8]", "f32[5,3,3,3]"),
     2 * (2 * 5 * 8 * 8) * (3 * 3 * 3)),
    (lambda x, w: ops.convolution(x, w, groups=3), ("f32[1,3,8,8]", "f32[3,1,3,3]"),
     2 * (3 * 6 * 6) * (3 * 3)),
    (lambda a, b: ops.dot_general(a, b, contract_a=(0, 1), contract_b=(1, 0)),
     ("f32[2,3,4]", "f32[3,2,5]"), 2 * (4 * 5) * (2 * 3)),
    (lambda q, k, v, g: ops.linear_attention(
        q, k, v, decay=g, rule="gated", q_heads=4, kv_heads=2),
     ("f32[2,5,12]", "f32[2,5,6]", "f32[2,5,8]", "f32[2,5,2]"),
     2 * 5 * (3 * 4) * (2 * 3 + 4 * 2)),
    (lambda x, w: ops.causal_conv_with_state(x, w), ("f32[2,3,5]", "f32[3,1,4]"),
     2 * 4 * (2 * 3 * 5)),
    (lambda x, y: x + y, ("f32[6,7]", "f32[7]"), 6 * 7)])
def test_flops(fn: object, specs: tuple[str, ...], flops: int) -> None:
    assert graph_flops(trace(fn, *specs).graph) == flops  # type: ignore[arg-type]
