"""What a compiled graph does, node by node, as data, text and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..backends.base import Backend, Claim, Fact
from ..ir.dims import Size
from ..ir.graph import Graph, Node, Value
from ..passes.base import Look, look
from ..records import asdict, dataclass, field
from .cost import flops, graph_flops


@dataclass(frozen=True, slots=True)
class Row:
    """One node: what it is, where it came from, how the device runs it.

    `dtype` is that of the first output. `moved` are the bytes of operands and results, none for a
    view; `flops` counts a multiply-add as 2. Both are sizes in the symbols of the model. `kernel`
    and `slot` (memory of the first output) are what the device tells. `made_by` is the pass that
    brought the node; it is empty for a node of the model.
    """

    op: str
    source: str
    outputs: str
    claim: str
    reason: str
    bytes_out: str
    dtype: str = ""
    moved: str = ""
    flops: str = ""
    kernel: str = ""
    slot: str = ""
    made_by: str = ""

    def text(self, width: int) -> str:
        """One line."""
        known = [self.kernel, f"{self.moved} bytes moved", f"{self.flops} FLOPs", self.slot,
                 self.made_by and f"by {self.made_by}"]
        told = "; ".join([x for x in known if x])
        return (f"  {self.op.ljust(width)}  {self.claim:10}  {self.outputs}  [{told}]"
                + (f"  -- {self.reason}" if self.reason else "")
                + (f"  @ {self.source}" if self.source else ""))


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
        return "\n".join([*head, *[r.text(width) for r in self.rows]])


def explain(graph: Graph, backend: Backend, passes: Sequence[str],
            origins: Mapping[Look, str] | None = None, program: object = None) -> Explanation:
    """The claims of a device over a graph; the regions of a native node are part of its kernel.

    `origins` are a context's; a `program` with a method `facts` tells kernels and memory, one with
    `notes` how it runs.
    """
    rows: list[Row] = []
    tell: Callable[[], Mapping[Node, Fact]] = getattr(program, "facts", dict)
    _visit(graph, backend, rows, origins or {}, tell())
    return Explanation(backend.name, rows, list(passes), list(getattr(program, "notes", ())))


def _visit(graph: Graph, backend: Backend, rows: list[Row], origins: Mapping[Look, str],
           facts: Mapping[Node, Fact]) -> None:
    for node in graph.nodes:
        fact = facts.get(node, Fact())
        claim = Claim("host", fact.host) if fact.host else backend.claim(node)
        kernel = claim.how == "native" and node.op == "fused"
        reason = claim.reason
        if kernel and not reason:
            reason = ", ".join(n.op for g in node.regions.values() for n in g.nodes)
        if reason == "a view" and fact.kernel:
            reason = "a copy: an output, or like no view of its operand's memory"
        work = graph_flops(node.regions["body"]) if kernel else flops(node)
        rows.append(Row(
            node.op, node.loc, ", ".join(str(v.type) for v in node.outputs), claim.how, reason,
            " + ".join(str(v.type.nbytes()) for v in node.outputs),
            node.outputs[0].dtype.name if node.outputs else "",
            str(_moved(node) if reason != "a view" else 0), str(work), fact.kernel,
            fact.slot, origins.get(look(node), "")))
        for region in () if kernel else node.regions.values():
            _visit(region, backend, rows, origins, facts)


def _moved(node: Node) -> Size:
    """Bytes of operands and results, each value once; those of host values are not known.

    Of what a gather reads from, only the elements that it takes count.
    """
    read = list(node.uses())
    if node.op == "gather":
        read = [*read[1:], Value(node.outputs[0].type)]
    total: Size = 0
    for v in dict.fromkeys((*read, *node.outputs)):
        total = total + (0 if v.dtype.sort in ("host", "string") else v.type.nbytes())
    return total
