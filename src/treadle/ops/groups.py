"""Groups of operators that a backend runs as one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..declare.arrays import Array
from ..declare.kinds import structured
from ..declare.schema import Region, known
from ..errors import OperatorError
from ..ir.graph import Graph, Value
from ..ir.types import TensorType
from .reduce import sum_


def _args(operands: list[TensorType]) -> list[TensorType]:
    return operands


def _types(operands: list[TensorType], *, body: Graph) -> list[TensorType]:
    if body.captures:
        raise OperatorError(f"the body captures {body.captures[0]!r}",
                            hint="a group reads its operands alone")
    return [v.type for v in body.outputs]


def _shares(x: Value) -> tuple[Value, Value]:
    total = sum_(x, axes=(-1,), keepdims=True)
    return x / total, total


@structured(types=_types, args=_args, samples=[
    known([[[1.0, 3.0], [2.0, 2.0]]], body=_shares,
          expect=[[[0.25, 0.75], [0.5, 0.5]], [[4.0], [4.0]]])])
def fused(operands: Sequence[Array], *, body: Region) -> tuple[Array, ...]:
    """`body(*operands)`: what one kernel computes.

    Either elementwise operators and folds over the same axes of one shape, or a product or
    convolution and elementwise operators of its result. Fusion makes it.
    """
    return tuple(cast("Sequence[Array]", body(*operands)))
