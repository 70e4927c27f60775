"""Sizes that no array has, and memory that is not there: refused before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ...declare.room import LARGEST, SMALL, array_bytes, check_room
from ...errors import OperatorError, RunError
from ...ir.dims import Size, evaluate
from ...ir.graph import Node, Value


class Limits:
    """The shapes that nodes make. Each distinct one is checked once for a binding."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._first: dict[tuple[Size, ...], tuple[Node, Value]] = {}
        for node in nodes:
            for v in node.outputs:
                self._first.setdefault(v.shape, (node, v))

    def check(self, binding: Mapping[str, int]) -> None:
        """Raise `RunError` for a shape that no array can have."""
        for shape, (node, value) in self._first.items():
            sizes = [evaluate(d, binding) for d in shape]
            if min(sizes, default=0) < 0 or math.prod(filter(None, sizes)) > LARGEST:
                raise RunError(f"{node_text(node)}: the result {value.type} would have the shape "
                               f"{sizes}")

    def sizes(self) -> Iterable[Size]:
        """The sizes that are checked."""
        return [d for shape in self._first for d in shape]


def reserve(total: int, made: Sequence[Value], binding: Mapping[str, int]) -> None:
    """Raise `RunError` that names the largest of `made` when `total` bytes cannot be had."""
    if total < SMALL:
        return
    try:
        check_room(total)
    except OperatorError as e:
        largest = max(made, key=lambda v: evaluate(array_bytes(v.type), binding))
        where = "" if largest.producer is None else f"{node_text(largest.producer)}: "
        raise RunError(f"{where}memory for the run with {largest.type} as its largest value: "
                       f"{e.message}", hint=e.hint) from None


def node_text(node: Node) -> str:
    """A node as errors show it."""
    where = f" at {node.loc}" if node.loc else ""
    return f"{node.op}({', '.join([str(v.type) for v in node.inputs])}){where}"
