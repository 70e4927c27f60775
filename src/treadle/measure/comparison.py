"""Runs cases on engines: starts, checks outputs against each other, then times in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ..declare.arrays import Array, type_of
from ..errors import TreadleError
from .agree import all_agree
from .cases import Case
from .engines import engine
from .machine import limits, load, machine
from .processes import EngineFailure, Worker
from .results import CaseResult, Report, Row, Start
from .samples import summarise
from .work import bound, work_of
from .worker import Block, Opened

_LEAST_ROUNDS = 3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Each engine is timed for about `seconds` a case, in at most `rounds` blocks that alternate
    with the other engines' blocks. It is started `starts` times, each time in a new process.
    """

    engines: tuple[str, ...]
    threads: tuple[int, ...] = (1,)
    seconds: float = 2.0
    starts: int = 2
    rounds: int = 9
    timeout_s: float = 300.0


@dataclass(slots=True)
class Lane:
    """One engine on its way through a case."""

    row: Row
    worker: Worker | None = None
    outputs: list[Array] = field(default_factory=list[Array])
    blocks: list[Block] = field(default_factory=list[Block])

    def attempt(self, step: Callable[[Worker], None]) -> None:
        """Take a step of a lane that still runs; a failure ends the lane, not the session."""
        if self.worker is None:
            return
        try:
            step(self.worker)
        except EngineFailure as e:
            self.fail(e)

    def fail(self, why: EngineFailure) -> None:
        """Keep the reason in the row and end the process."""
        self.row.status, self.row.reason = "failed", _short(why.message)
        if self.worker is not None:
            self.worker.close()
        self.worker = None

    @property
    def spent_s(self) -> float:
        """Seconds of timed calls so far, at least."""
        return sum(sum(b.times_ms) for b in self.blocks) / 1e3


def run_all(cases: Sequence[Case], settings: Settings, say: Say = print) -> Report:
    """Measure every case at every thread count."""
    report = Report(machine(), asdict(settings))
    for threads in settings.threads:
        report.limits.append(limits(threads))
        for case in cases:
            say(f"{case.name}, {threads} thread{'s' * (threads > 1)}")
            report.cases.append(measure(case, threads, settings))
    report.machine.load_after = load()
    return report


def measure(case: Case, threads: int, settings: Settings) -> CaseResult:
    """One case on every engine; engines that cannot run it keep a row that says why."""
    shown = {n: str(type_of(a)) for n, a in case.inputs.items()}
    result = CaseResult(case.name, case.family, threads, shown)
    _count_work(result, case)
    with ExitStack() as stack:
        lanes = [_start(case, name, threads, settings, stack) for name in settings.engines]
        _check(lanes, case.relative)
        _take_turns(lanes, settings)
        for lane in lanes:
            _finish(lane, result)
    result.rows = [lane.row for lane in lanes]
    return result


def _count_work(result: CaseResult, case: Case) -> None:
    """FLOPs and the roofline; a model that treadle cannot import has neither."""
    try:
        work = work_of(case.source, case.inputs)
    except TreadleError:
        return
    least = bound(work, result.threads)
    result.flops, result.bytes = work.flops, work.bytes
    result.bound_ms, result.bound_by = least.ms, least.by


def _start(case: Case, name: str, threads: int, settings: Settings, stack: ExitStack) -> Lane:
    """Open the case in new processes one after another; the last one stays."""
    if why := engine(name).missing():
        return Lane(Row(name, "missing", why))
    if not case.runs_on(name):
        return Lane(Row(name, "absent", "reads no ONNX files"))
    lane, starts = Lane(Row(name, "ok")), list[Opened]()
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    job, cache = case.job(name, case.file(scratch), threads), str(scratch / "cache")
    for _ in range(settings.starts):
        if lane.worker is not None:
            lane.worker.close()
        lane.worker = stack.enter_context(
            Worker(threads, {"TREADLE_CACHE_DIR": cache}, settings.timeout_s))
        lane.attempt(lambda w: starts.append(w.open(job)))
        if lane.worker is None:
            return lane
    spans = [Start(s.import_ms, s.create_ms, s.first_ms) for s in starts]
    lane.row.cold = spans[0]
    lane.row.warm = min(spans[1:], key=lambda s: s.ready_ms, default=None)
    lane.row.version, lane.row.base_bytes = starts[-1].version, starts[-1].base_bytes
    lane.outputs = starts[-1].outputs
    return lane


def _check(lanes: Sequence[Lane], relative: float) -> None:
    """Compare every engine's outputs with those of the first that ran."""
    first = next((lane for lane in lanes if lane.outputs), None)
    for lane in lanes:
        if first is None or lane is first or lane.row.status != "ok":
            continue
        found = all_agree(first.outputs, lane.outputs, relative)
        lane.row.agrees, lane.row.reason = found.agrees, found.reason
        if np.isfinite(found.max_difference):
            lane.row.max_difference = found.max_difference


def _take_turns(lanes: Sequence[Lane], settings: Settings) -> None:
    """Blocks in turns, A B A B, until the slowest engine has had its seconds."""
    for turn in range(settings.rounds):
        for lane in lanes:
            lane.attempt(lambda w, lane=lane: lane.blocks.append(
                w.block(settings.seconds / settings.rounds)))
        slowest = max((lane.spent_s for lane in lanes), default=0.0)
        if turn + 1 >= _LEAST_ROUNDS and slowest >= settings.seconds:
            break


def _finish(lane: Lane, result: CaseResult) -> None:
    def keep(worker: Worker) -> None:
        lane.row.peak_bytes = worker.peak_memory()

    lane.attempt(keep)
    if lane.row.status != "ok":
        return
    lane.row.latency_ms = found = summarise([b.times_ms for b in lane.blocks])
    lane.row.preemptions = sum(b.preemptions for b in lane.blocks)
    if result.flops:
        lane.row.gflops = result.flops / found.median / 1e6
    if result.bound_ms:
        lane.row.roofline = result.bound_ms / found.median


def _short(text: str) -> str:
    """The first line of what an engine said, cut to a table's width."""
    line = next((x.strip() for x in text.splitlines() if x.strip()), "it gave no reason")
    return line if len(line) <= 160 else line[:157] + "..."
