"""A report as Markdown, and the cells that other tables share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from .results import CaseResult, Report, Row, Start

COLUMNS = ("engine", "ms", "quartiles", "speed", "GFLOP/s", "limit", "start ms", "MB", "outputs")
_PREFIXES = ("", "k", "M", "G", "T")
BUSY = 0.5
"""Load for each processor above which the report warns."""


def cells(case: CaseResult, row: Row) -> list[str]:
    """One row under `COLUMNS`."""
    if row.latency_ms is None:
        return [row.engine, *["-"] * (len(COLUMNS) - 2), f"{row.status}: {row.reason}"]
    found = row.latency_ms
    return [row.engine, number(found.median), f"{number(found.q1)}-{number(found.q3)}",
            speed(case, row), number(row.gflops),
            "-" if row.roofline is None else f"{row.roofline:.0%}",
            f"{_start(row.cold)}/{_start(row.warm)}", _memory(row), _outputs(row)]


def speed(case: CaseResult, row: Row) -> str:
    """How many times the subject is faster than this engine; in brackets inside the spread."""
    if row is case.rows[0]:
        return "subject"
    ratio = case.ratio(row)
    if ratio is None:
        return "-"
    return f"{number(ratio)}x" if case.verdict(row) != "even" else f"({number(ratio)}x)"


def number(x: float | None) -> str:
    """Three digits, or a dash for what was not measured."""
    if x is None:
        return "-"
    if x == 0:
        return "0"
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}" if abs(x) >= 1e-3 else f"{x:.1e}"


def amount(x: float, unit: str) -> str:
    """Three digits with the prefix that keeps them small: `94.4 MFLOP`."""
    power = min(len(_PREFIXES), (len(f"{x:.0f}") + 2) // 3) - 1
    return f"{number(x / 1000 ** power)} {_PREFIXES[power]}{unit}"


def _start(start: Start | None) -> str:
    return number(start.ready_ms if start else None)


def _memory(row: Row) -> str:
    return number(None if row.peak_bytes is None else row.peak_bytes / 1e6)


def _outputs(row: Row) -> str:
    if row.agrees is None:
        return ""
    return "agree" if row.agrees else f"DIFFER: {row.reason}"


def shown(case: CaseResult) -> list[Row]:
    """The rows worth a line: engines that took part, and those that failed."""
    return [r for r in case.rows if r.status in ("ok", "failed")]


def title(case: CaseResult) -> str:
    """Name, work and limit of a case."""
    text = f"{case.name}, {case.threads} thread{'s' * (case.threads > 1)}"
    if case.flops is None or case.bytes is None:
        return text
    return (f"{text}: {amount(case.flops, 'FLOP')}, {amount(case.bytes, 'B')}, "
            f"at least {number(case.bound_ms)} ms by {case.bound_by}")


def heading(report: Report) -> list[str]:
    """Where the numbers come from, line by line."""
    m = report.machine
    lines = [f"{m.processor}, {m.cores} cores, {m.system}, Python {m.python}, treadle {m.treadle}, "
             f"{m.started}."]
    versions = {r.engine: r.version for c in report.cases for r in c.rows if r.version}
    lines += ["Engines: " + ", ".join(f"{n} {v}" for n, v in versions.items()) + "."]
    lines += [f"Left out: {x}." for x in dict.fromkeys(
        r.reason for c in report.cases for r in c.rows if r.status == "missing")]
    lines += [f"Limits measured with {x.threads} thread{'s' * (x.threads > 1)}: "
              f"{x.peak_gflops:.0f} GFLOP/s f32, {x.read_gbytes:.1f} GB/s read from memory."
              for x in report.limits]
    lines.append(f"Load average {m.load_before:.2f} before, {m.load_after:.2f} after.")
    if m.load_before > BUSY * m.cores:
        lines.append("The machine was busy when this began: do not quote these numbers.")
    return lines


def score_lines(report: Report) -> list[str]:
    """The subject against each engine, in words."""
    return [f"{s.engine}, {s.threads} thread{'s' * (s.threads > 1)}: {s.cases} cases, "
            f"{s.faster} faster, {s.even} even, {s.slower} slower, geometric mean "
            f"{number(s.geometric_mean)}x" for s in report.scores()]


def markdown(report: Report) -> str:
    """The whole report; docs/benchmarks.md says how to read it."""
    subject = report.cases[0].rows[0].engine if report.cases else "treadle"
    out = [f"# {subject} side by side", "", *_list(heading(report)), ""]
    if scores := score_lines(report):
        out += [f"## {subject} against", "", *_list(scores), ""]
    for family, cases in groupby(report.cases, lambda c: c.family):
        out += [f"## {family}", ""]
        for case in cases:
            out += [f"**{title(case)}**", "", *_table(case), ""]
    return "\n".join(out)


def _list(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _table(case: CaseResult) -> list[str]:
    rows = [list(COLUMNS), ["---", *["--:"] * (len(COLUMNS) - 2), "---"]]
    rows += [[c.replace("|", "\\|") for c in cells(case, row)] for row in shown(case)]
    return ["| " + " | ".join(row) + " |" for row in rows]
