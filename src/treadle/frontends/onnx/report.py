"""What cannot be imported, reported all at once."""

from __future__ import annotations

from ...errors import Declined, UnsupportedError
from ...records import dataclass, field


@dataclass(slots=True)
class Row:
    """One kind of failure: an operator with a reason, and where it was first met."""

    op: str
    version: int
    reason: str
    hint: str
    first: str
    count: int = 1


@dataclass(slots=True)
class Failures:
    """Collected while the rest of the graph is still imported."""

    file: str
    rows: dict[tuple[str, str], Row] = field(default_factory=dict[tuple[str, str], Row])

    def add(self, domain: str, op: str, version: int, where: str, error: Declined) -> None:
        """Count one node that cannot be imported."""
        name = f"{domain}::{op}" if domain else op
        row = self.rows.get((name, error.message))
        if row is None:
            self.rows[name, error.message] = Row(name, version, error.message, error.hint, where)
        else:
            row.count += 1

    def check(self) -> None:
        """Raise when anything was collected."""
        if not self.rows:
            return
        head = ("operator", "opset", "nodes", "first", "reason")
        lines = [head, *((r.op, str(r.version), str(r.count), r.first, r.reason)
                         for r in self.rows.values())]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        table = "\n".join("  " + "  ".join([*(c.ljust(w) for c, w in zip(
            line, widths, strict=False)), line[4]]) for line in lines)
        hints = {r.hint for r in self.rows.values() if r.hint}
        raise UnsupportedError(
            f"{self.file} uses what is not supported:\n{table}",
            hint="; ".join(sorted(hints)) or "re-export with another opset or replace these "
                 "operators; `treadle inspect` lists all operators of a model")
