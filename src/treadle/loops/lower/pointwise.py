"""Maps: every output element from the operands' elements at the same place.

Movement is a map whose expression is the operand itself; gathers and pads are operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...declare.scalar import Scalar, fold, rebuild, walk
from ...ir.dims import Size
from ..build import Draft, Operand, Space, collapse, density, nest
from ..ir import Kernel


def place(roots: Sequence[Scalar], values: Sequence[Scalar]) -> list[Scalar]:
    """`roots` over operands, with the operands' values in place."""
    return fold(roots, lambda s: values[cast(int, s.value)] if s.op == "var" else s, rebuild)


def pointwise(draft: Draft, shape: Sequence[Size], ins: Sequence[Operand],
              outs: Sequence[Operand], roots: Sequence[Scalar]) -> Kernel:
    """`outs[j] = roots[j](*ins)` over `shape`; variable i of a root is operand i."""
    sizes, operands, _ = collapse(shape, [*ins, *outs])
    axes = [draft.axis(f"i{d}", n) for d, n in enumerate(sizes)]
    lead = operands[len(ins)].strides
    order = sorted(range(len(sizes)), key=lambda d: density(lead[d], d))
    lanes = axes[order[0]] if order else draft.axis("i0", 1)
    space = Space(draft, axes, operands)
    used = {cast(int, s.value) for r in roots for s in _variables(r)}
    loads = [space.load(i) if i in used else roots[0] for i in range(len(ins))]
    values = place(roots, loads)
    stores = tuple([space.store(len(ins) + j, v) for j, v in enumerate(values)])
    rest = [("par", axes[d]) for d in sorted(order[1:])]
    return draft.kernel(*nest([*rest, ("lanes", lanes)], (*space.checks.values(), *stores)))


def _variables(root: Scalar) -> list[Scalar]:
    return [s for s in walk(root) if s.op == "var"]
