"""What a measurement gives: plain records that become JSON as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from .machine import Limits, Machine
from .samples import Latency, Verdict, geometric_mean, verdict

SCHEMA = 1
"""Changes when a field changes its meaning or goes away."""


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds from a bare interpreter to the first outputs: import, creation, first run."""

    import_ms: float
    create_ms: float
    first_ms: float

    @property
    def ready_ms(self) -> float:
        """All three together."""
        return self.import_ms + self.create_ms + self.first_ms


@dataclass(slots=True)
class Row:
    """One engine on one case.

    `cold` is the first start, with an empty program cache and a file that may not be in memory;
    `warm` is the quickest of the others. `reason` says why the engine is `missing` or `failed`,
    or how its outputs differ; an engine without a form of the case is `absent`. `agrees` compares
    with the first engine that ran. `roofline` is the share of the machine's limit.
    """

    engine: str
    status: Literal["ok", "missing", "absent", "failed"]
    reason: str = ""
    version: str = ""
    latency_ms: Latency | None = None
    cold: Start | None = None
    warm: Start | None = None
    peak_bytes: int | None = None
    base_bytes: int | None = None
    gflops: float | None = None
    roofline: float | None = None
    agrees: bool | None = None
    max_difference: float | None = None
    preemptions: int = 0


@dataclass(slots=True)
class CaseResult:
    """All engines on one case; the first row is the subject, with which the others compare."""

    name: str
    family: str
    threads: int
    inputs: dict[str, str]
    flops: int | None = None
    bytes: int | None = None
    bound_ms: float | None = None
    bound_by: str = ""
    rows: list[Row] = field(default_factory=list[Row])

    def ratio(self, row: Row) -> float | None:
        """The other engine's median over the subject's: above 1 the subject is faster."""
        pair = self._comparable(row)
        return pair[1].median / pair[0].median if pair else None

    def verdict(self, row: Row) -> Verdict | None:
        """The subject against `row`; None when one did not run or the outputs differ."""
        pair = self._comparable(row)
        return verdict(*pair) if pair else None

    def _comparable(self, row: Row) -> tuple[Latency, Latency] | None:
        subject = self.rows[0]
        if row is subject or row.agrees is False:
            return None
        if subject.latency_ms is None or row.latency_ms is None:
            return None
        return subject.latency_ms, row.latency_ms


@dataclass(frozen=True, slots=True)
class Score:
    """The subject against one engine over all cases that both ran with equal outputs."""

    engine: str
    threads: int
    cases: int
    faster: int
    even: int
    slower: int
    geometric_mean: float


@dataclass(slots=True)
class Report:
    """Everything that one session measured."""

    machine: Machine
    settings: dict[str, object]
    limits: list[Limits] = field(default_factory=list[Limits])
    cases: list[CaseResult] = field(default_factory=list[CaseResult])
    schema: int = SCHEMA

    def scores(self) -> list[Score]:
        """One line for each engine and thread count, in the order in which they appear."""
        keys = dict.fromkeys((r.engine, c.threads) for c in self.cases for r in c.rows[1:])
        return [s for s in (score(self.cases, *key) for key in keys) if s.cases]

    def json(self) -> str:
        """The records, with the ratios and verdicts that follow from them."""
        out = asdict(self)
        for case, shown in zip(self.cases, out["cases"], strict=True):
            for row, cells in zip(case.rows, shown["rows"], strict=True):
                cells.update(ratio=case.ratio(row), verdict=case.verdict(row))
        out["scores"] = [asdict(s) for s in self.scores()]
        return json.dumps(out, indent=1, allow_nan=False)


def score(cases: Sequence[CaseResult], engine: str, threads: int) -> Score:
    """Count wins and losses against one engine."""
    pairs = [(c, r) for c in cases if c.threads == threads for r in c.rows[1:]
             if r.engine == engine and c.verdict(r)]
    counts = [c.verdict(r) for c, r in pairs]
    ratios = [x for c, r in pairs if (x := c.ratio(r)) is not None]
    return Score(engine, threads, len(pairs), counts.count("faster"), counts.count("even"),
                 counts.count("slower"), geometric_mean(ratios))
