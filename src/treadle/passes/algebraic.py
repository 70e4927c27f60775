"""Apply the equations of `rewrite/`."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from ..ir.graph import Graph
from ..records import dataclass
from ..rewrite.driver import Driver
from ..rewrite.equations import load
from ..rewrite.pattern import Domain
from ..transforms.clone import rebuild
from .base import Context, Pass


@dataclass(frozen=True, slots=True)
class Algebraic(Pass):
    """Rewrites by named equations that hold in `domain`, until none applies.

    `exact` equations hold bit for bit, NaN, infinities and -0 included; `finite` ones where all
    values are finite; `fast` ones up to rounding. At most `sweeps` times over the graph; `without`
    names equations to leave out.
    """

    name: ClassVar[str] = "algebraic"
    domain: Domain = "exact"
    sweeps: int = 4
    without: tuple[str, ...] = ()

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Sweep over the graph while an equation applies."""
        equations = [e for e in load().values() if e.name not in self.without]
        fired: Counter[str] = Counter()
        stopped: Counter[str] = Counter()
        for _ in range(self.sweeps):
            driver = Driver(equations, self.domain)
            graph = rebuild(graph, driver.visit)
            fired += driver.fired
            stopped |= driver.stopped
            if not driver.fired:
                break
        else:
            stopped[f"still changing after {self.sweeps} sweeps"] += 1
        ctx.counts(fired, stopped, self)
        return graph
