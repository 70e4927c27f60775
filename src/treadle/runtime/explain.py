"""What a compiled graph does, node by node, as data, text and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from ..backends.base import Backend
from ..ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Row:
    """One node: what it is, where it came from, how the device runs it."""

    op: str
    source: str
    outputs: str
    claim: str
    reason: str
    bytes_out: str


@dataclass(slots=True)
class Explanation:
    """The answer of `explain()`; print it, or take `rows` or `json()`."""

    device: str
    rows: list[Row]
    passes: list[str]
    notes: list[str] = field(default_factory=list[str])

    @property
    def counts(self) -> dict[str, int]:
        """Nodes by claim."""
        return dict(Counter(r.claim for r in self.rows))

    def json(self) -> str:
        """The same as JSON."""
        return json.dumps({"device": self.device, "counts": self.counts, "passes": self.passes,
                           "notes": self.notes, "nodes": [asdict(r) for r in self.rows]}, indent=1)

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {how}" for how, n in sorted(self.counts.items()))
        head = [f"{len(self.rows)} nodes on {self.device}: {counts}", *self.notes, *self.passes]
        width = max((len(r.op) for r in self.rows), default=0)
        lines = [f"  {r.op.ljust(width)}  {r.claim:10}  {r.outputs}"
                 + (f"  -- {r.reason}" if r.reason else "")
                 + (f"  @ {r.source}" if r.source else "") for r in self.rows]
        return "\n".join([*head, *lines])


def explain(graph: Graph, backend: Backend, passes: Sequence[str]) -> Explanation:
    """The claims of a device over a graph; the regions of a native node are part of its kernel."""
    rows: list[Row] = []
    _visit(graph, backend, rows)
    return Explanation(backend.name, rows, list(passes))


def _visit(graph: Graph, backend: Backend, rows: list[Row]) -> None:
    for node in graph.nodes:
        claim = backend.claim(node)
        kernel = claim.how == "native" and node.op == "fused"
        reason = claim.reason
        if kernel and not reason:
            reason = ", ".join(n.op for g in node.regions.values() for n in g.nodes)
        rows.append(Row(node.op, node.loc, ", ".join(str(v.type) for v in node.outputs), claim.how,
                        reason, " + ".join(str(v.type.nbytes()) for v in node.outputs)))
        for region in () if kernel else node.regions.values():
            _visit(region, backend, rows)
