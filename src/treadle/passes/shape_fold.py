"""Compute shapes before the run: tensors of sizes become numbers or size expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, cast

from ..declare.content import content, sizes_of
from ..ir.graph import Graph, Node, Value
from ..ir.types import BOOL, TensorType
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Pass, at
from .known import LEAVES, record_content, record_number

SORTS = ("int", "uint", "bool")


@dataclass(frozen=True, slots=True)
class ShapeFold(Pass):
    """Replaces integers that follow from sizes by `constant`, `full` or `sizes`.

    The elements may be symbolic. `shape_of` goes, and a `witness` of known elements too: the size
    it made gets its expression wherever it was used.
    """

    name: ClassVar[str] = "shape_fold"

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Copy the graph, following every small integer value to its source."""
        work = _ShapeFold()
        out = work.graph(graph)
        ctx.counts(work.did, work.halted, self)
        return out if work.changed else graph


class _ShapeFold(Rebuild):
    __slots__ = ("did", "halted")

    def __init__(self) -> None:
        super().__init__(self.fold)
        self.did: Counter[str] = Counter()
        self.halted: Counter[str] = Counter()

    def fold(self, node: Node) -> Sequence[Value] | None:
        """Known values for the outputs of `node`, all of them or none."""
        if node.op == "witness":
            return self._witness(node)
        if node.op in LEAVES and (node.op != "sizes" or node.reads()):
            return None
        if not all([v.dtype.sort in SORTS for v in node.outputs]):
            return None
        arrays = [content(v) for v in node.outputs]
        if any([a is None for a in arrays]):
            return None
        self.did[node.op] += 1
        return tuple([record_content(a, v.dtype) for a, v in zip(arrays, node.outputs, strict=True)
                      if a is not None])

    def _witness(self, node: Node) -> Sequence[Value] | None:
        if (found := sizes_of(node.inputs[0])) is None:
            return None
        if any([isinstance(n, int) and n < 0 for n in found]):
            self.halted[f"{at(node)}: the computed size {min(cast('tuple[int]', found))} "
                        "is negative"] += 1
            return None
        self.did["witness"] += 1
        return (record_number(False, TensorType(found, BOOL)),)
