"""Guarded steps and sizes: what a branch does not admit matters only if the branch is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...errors import RunError
from ...ir.dims import symbols
from ...ir.graph import Node, Value
from .assembly import GuardStep, HostStep, NativeStep, Stage
from .extents import depends
from .leaves import dry_run, leaf
from .limits import Limits
from .words import AnyNative, Numbered


class Guarded:
    """The guards of a stage by their numbers, with what their steps ask of sizes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.guards = {n: s for n, s in enumerate(stage.steps) if isinstance(s, GuardStep)}
        self._limits = {n: Limits(g.nodes) for n, g in self.guards.items()}

    def nodes(self) -> list[Node]:
        """All nodes of guarded steps."""
        return [n for g in self.guards.values() for n in g.nodes]

    def symbols(self) -> set[str]:
        """The symbols that guarded steps ask about."""
        found = {s for limits in self._limits.values() for n in limits.sizes() for s in symbols(n)}
        for g in self.guards.values():
            for node in (*g.leaves, *g.checks):
                found |= depends(node)
        return found

    def refused(self, binding: Mapping[str, int]) -> set[int]:
        """The outermost guards whose steps cannot run under a binding."""
        found, end = set[int](), 0
        for n, guard in self.guards.items():
            if n >= end and guard.refuse is not None and self.refusal(n, binding) is not None:
                found.add(n)
                end = n + 1 + guard.steps
        return found

    def refusal(self, number: int, binding: Mapping[str, int]) -> RunError | None:
        """Why the steps of a guard cannot run."""
        guard = self.guards[number]
        try:
            self._limits[number].check(binding)
            for node in guard.checks:
                dry_run(node, binding)
            for node in guard.leaves:
                leaf(node, binding)
        except RunError as e:
            return e
        return None

    def leaves(self, refused: set[int]) -> Iterator[Node]:
        """The leaves of guarded steps that can run."""
        out = self._without(refused)
        for n, guard in self.guards.items():
            if n not in out and n not in refused:
                yield from guard.leaves

    def unused(self, refused: set[int]) -> set[Value]:
        """The bases that only steps of refused guards write."""
        if not refused:
            return set()
        out, lost, kept = self._without(refused), set[Value](), set[Value]()
        for n, step in enumerate(self.stage.steps):
            if not isinstance(step, GuardStep | HostStep):
                made = [b for c in step.calls() for b in c.lowered.writes]
                (lost if n in out else kept).update(made)
        return lost - kept

    def replaced(self, steps: Sequence[Numbered], refused: set[int]) -> list[Numbered]:
        """Steps without those that refused guards hold; if they are to run, the run fails."""
        out, found = self._without(refused), list[Numbered]()
        for n, step in steps:
            if n in refused and isinstance(step, GuardStep) and step.refuse is not None:
                found += [(n, replace(step, steps=1)), (n, step.refuse)]
            elif n not in out:
                found.append((n, step))
        return found

    @staticmethod
    def refusals(step: AnyNative) -> Sequence[NativeStep]:
        """The call that stands for refused steps."""
        refuse = step.refuse if isinstance(step, GuardStep) else None
        return () if refuse is None else (refuse,)

    def _without(self, refused: set[int]) -> set[int]:
        return {n for r in refused for n in range(r + 1, r + 1 + self.guards[r].steps)}
