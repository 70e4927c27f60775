"""Graphs traced by mx.compile, one for each binding of sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import mlx.core as mx

from .lowering import Fault, Form

if TYPE_CHECKING:
    from .walk import Held

KEPT = 16
"""Bindings whose traces a program keeps."""
_REFUSED = 1024
"""Bindings without traces that are remembered; beyond it they are tried again."""
Body = Callable[..., "list[mx.array]"]


class Trace:
    """A traced graph; parameters are arguments, since arrays that a trace captures go stale.

    `shapeless` traces are never made: MLX computes causal attention and shapes built inside wrongly
    in them.
    """

    def __init__(self, body: Body) -> None:
        self.count = 0
        self._outputs: list[Held | None] = []
        self._faults: list[Fault] = []
        self._bare = False  # whether the trace makes the outputs and nothing else
        self._fn = mx.compile(lambda inputs, weights, packed: body(self, inputs, weights, packed))

    def record(self, outputs: Sequence[Held], faults: Sequence[Fault]) -> list[mx.array]:
        """Remember which outputs the trace makes; those that follow from sizes are known."""
        self.count += 1
        self._outputs = [None if isinstance(x, mx.array) else x for x in outputs]
        self._faults = list(faults)
        self._bare = not faults and not any(x is not None for x in self._outputs)
        return [*[x for x in outputs if isinstance(x, mx.array)], *[f.state for f in faults]]

    def __call__(self, inputs: list[mx.array], weights: list[mx.array], packed: list[Form]
                 ) -> tuple[list[Held], list[Fault]]:
        """Outputs and checks for these arrays, not evaluated yet."""
        made = cast("list[mx.array]", self._fn(inputs, weights, packed))
        if self._bare:
            return cast("list[Held]", made), []
        arrays = iter(made)
        outputs = [next(arrays) if x is None else x for x in self._outputs]
        return outputs, [Fault(f.node, next(arrays), f.text) for f in self._faults]


class Traces:
    """Traces by binding, the least recently used ones dropped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], Trace] = OrderedDict()
        self._refused: set[tuple[int, ...]] = set()
        self.made = 0

    @property
    def count(self) -> int:
        """How often MLX traced, over all bindings that are kept."""
        return sum(t.count for t in self._kept.values())

    def may(self, key: tuple[int, ...]) -> bool:
        """Whether a binding can be traced as far as is known."""
        return key not in self._refused

    def find(self, key: tuple[int, ...]) -> Trace | None:
        """The trace for a binding."""
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
        return found

    def add(self, key: tuple[int, ...], trace: Trace) -> Trace:
        """Keep a trace."""
        self._kept[key] = trace
        self.made += 1
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return trace

    def give_up(self, key: tuple[int, ...]) -> None:
        """A binding that cannot be traced; its sizes are remembered."""
        self._kept.pop(key, None)
        if len(self._refused) >= _REFUSED:
            self._refused.clear()
        self._refused.add(key)
