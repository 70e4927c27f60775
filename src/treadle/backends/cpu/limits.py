"""Sizes that no array has, and memory that is not there: refused before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ...declare.room import LARGEST, SMALL, array_bytes, check_room
from ...errors import OperatorError, RunError
from ...ir.dims import Size, bounds, evaluate
from ...ir.graph import Node, Value
from .convolution import POOLS


class Limits:
    """The shapes that nodes make. Each distinct one is checked once for a binding."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._first: dict[tuple[Size, ...], tuple[Node, Value]] = {}
        for node in nodes:
            for v in node.outputs:
                self._first.setdefault(v.shape, (node, v))
        self._windows = {w: n for node in nodes for n in _inside(node) for w in _windows(n)}

    def check(self, binding: Mapping[str, int]) -> None:
        """Raise `RunError` for a shape that no array can have, or a window that does not fit."""
        self.check_windows(binding)
        for shape, (node, value) in self._first.items():
            sizes = [evaluate(d, binding) for d in shape]
            if min(sizes, default=0) < 0 or math.prod(filter(None, sizes)) > LARGEST:
                raise RunError(f"{node_text(node)}: the result {value.type} would have the shape "
                               f"{sizes}")

    def check_windows(self, binding: Mapping[str, int]) -> None:
        """Raise `RunError` for a window that does not fit its padded axis."""
        for window, node in self._windows.items():
            have, taken = (evaluate(n, binding) for n in window)
            if have < taken:
                raise RunError(f"{node_text(node)}: a window of {taken} does not fit an axis of "
                               f"{have}, pads included")

    def windows(self) -> Iterable[Size]:
        """Padded axes and the extents of the windows on them."""
        return [d for window in self._windows for d in window]

    def sizes(self) -> Iterable[Size]:
        """The sizes that are checked."""
        return [d for shapes in (self._first, self._windows) for shape in shapes for d in shape]


def _inside(node: Node) -> Iterable[Node]:
    yield node
    if node.op == "fused":
        yield from node.regions["body"].nodes


def _windows(node: Node) -> Iterable[tuple[Size, Size]]:
    """Padded axes with the extents of the windows on them, where only a binding tells a fit."""
    if node.op not in ("conv", "convolution", *POOLS):
        return
    attrs = cast("Mapping[str, Sequence[Size]]", node.attrs)
    space = node.inputs[0].shape[2:]
    n, kernel = len(space), attrs.get("kernel") or node.inputs[1].shape[2:]
    gaps, pads = attrs["dilations"] or (1,) * n, attrs["pads"] or (0,) * 2 * n
    for i, size in enumerate(space):
        have, taken = size + pads[i] + pads[n + i], (kernel[i] - 1) * gaps[i] + 1
        if bounds(have - taken)[0] < 0:
            yield have, taken


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
