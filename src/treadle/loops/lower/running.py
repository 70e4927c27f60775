"""Running folds: every element from those before it along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ...declare.scalar import Scalar, cast_to
from ...ir.dims import Size
from ..build import Draft, Operand, Space, collapse, density, nest
from ..ir import Acc, Kernel, Loop
from ..monoids import Monoid


def running(draft: Draft, shape: Sequence[Size], axis: int, source: Operand, target: Operand,
            monoid: Monoid, exclusive: bool) -> Kernel:
    """`target` becomes the fold of `source` up to each position, without the own one if exclusive.

    Elements are combined in order, so the bits are those of a plain loop. The lanes run along the
    densest of the other axes.
    """
    sizes, operands, groups = collapse(shape, [source, target], fixed=(axis,))
    axes = [draft.axis(f"i{d}", n) for d, n in enumerate(sizes)]
    along = next(d for d, group in enumerate(groups) if group == [axis])
    others = sorted((d for d in range(len(axes)) if d != along),
                    key=lambda d: density(operands[1].strides[d], d))
    lanes = axes[others[0]] if others else draft.axis("r", 1)
    space = Space(draft, axes, operands)
    x: Scalar = cast_to(space.load(0), monoid.dtypes[0])
    acc = Acc("so_far", monoid, (x,))
    before = draft.result(acc)
    value = before if exclusive else monoid.combine((before,), (x,))[0]
    store = space.store(1, cast_to(value, target.buffer.dtype))
    body = (Loop("lanes", lanes, (Loop("seq", axes[along], (store,), (acc,)),)),)
    return draft.kernel(*nest([("par", axes[d]) for d in sorted(others[1:])], body))
