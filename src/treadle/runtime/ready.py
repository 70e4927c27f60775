"""Runs with resident state whose shapes have been bound before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ..backends.base import Buffer, Call
from ..declare.arrays import Array
from ..records import dataclass
from .calls import solid
from .resident import Feed, Resident
from .results import Outputs

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
KEPT = 64
"""Shapes whose runs an executable keeps."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A bound call, the outputs that are fed with their shapes, and the results by number."""

    call: Call
    fed: Sequence[tuple[Resident, Feed, tuple[int, ...]]]
    names: Sequence[tuple[str, int]]

    def run(self, inputs: Sequence[Array], given: Mapping[str, Array]) -> Outputs:
        """One run; what is fed is written back if it succeeds."""
        spans = [resident.span(rule, shape, given) for resident, rule, shape in self.fed]
        try:
            found = self.call(inputs)
        except BaseException:
            for resident, _, _ in self.fed:
                resident.lost = resident.grant.in_place
            raise
        assert found is not None
        taken = {id(a) for a in inputs}
        for (resident, rule, _), span in zip(self.fed, spans, strict=True):
            value = None if resident.grant.in_place else found[rule.output]
            resident.take(rule, value, span, taken)
        return {name: found[i] for name, i in self.names}


class Readies:
    """Ready runs by the shapes of what the program takes."""

    def __init__(self) -> None:
        self._kept: dict[Shapes, Ready] = {}

    def find(self, inputs: Sequence[Buffer]) -> Ready | None:
        """The run for these inputs, if it was kept and they need no copy."""
        if not self._kept or not all(map(solid, inputs)):
            return None
        return self._kept.get(tuple([a.shape for a in inputs]))

    def keep(self, inputs: Sequence[Buffer], ready: Ready) -> None:
        """Run like this for inputs of these shapes from now on."""
        if all(isinstance(a, np.ndarray) for a in inputs):
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[tuple([a.shape for a in inputs])] = ready
