"""Run passes in order, by name, with hooks to look in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..config import Config
from ..declare.opdef import infer
from ..errors import ConfigError, VerifyError
from ..files import write_text
from ..ir.graph import Graph
from ..ir.printer import print_graph
from ..ir.verify import verify
from ..records import dataclass, field
from .algebraic import Algebraic
from .base import Context, Pass
from .constant_fold import ConstantFold
from .cse import CommonSubexpressions
from .dce import DeadCode
from .decompose import Decompose
from .dedupe_params import DedupeParams
from .fold_affine import FoldAffine
from .fuse import Fuse
from .join_products import JoinProducts
from .open_resize import OpenResize
from .raise_activation import RaiseActivation
from .raise_attention import RaiseAttention
from .raise_layer_norm import RaiseLayerNorm
from .raise_quantized import RaiseQuantized
from .raise_residual_norm import RaiseResidualNorm
from .raise_rms_norm import RaiseRmsNorm
from .raise_rope import RaiseRope
from .raise_softmax import RaiseSoftmax
from .raise_swiglu import RaiseSwiglu
from .shape_fold import ShapeFold
from .widen import Widen

PASSES: dict[str, type[Pass]] = {p.name: p for p in (
    DedupeParams, ShapeFold, ConstantFold, Algebraic, CommonSubexpressions, DeadCode,
    RaiseQuantized, RaiseActivation, RaiseSoftmax, RaiseLayerNorm, RaiseRmsNorm, RaiseRope,
    RaiseAttention, RaiseSwiglu, RaiseResidualNorm, JoinProducts, FoldAffine, Decompose, Widen,
    OpenResize, Fuse)}
"""Every pass by name."""
SIMPLIFY = ("shape_fold", "constant_fold", "algebraic", "cse", "dce")
RAISE = ("raise_activation", "raise_softmax", "raise_layer_norm", "raise_rms_norm",
         "raise_rope", "raise_attention", "raise_swiglu", "raise_residual_norm", "join_products")
WEIGHTS = ("fold_affine", "constant_fold", "dce")
ROUNDS = 4
"""Most times a phase repeats; each round feeds the next one's folding."""


class Phase(NamedTuple):
    """Passes that run in order, again and again while the graph changes, or once."""

    passes: tuple[str, ...]
    repeat: bool = False


PHASES = (Phase(("dedupe_params", "raise_quantized")), Phase(SIMPLIFY, True), Phase(RAISE),
          Phase(WEIGHTS, True), Phase(SIMPLIFY, True),
          Phase(("decompose", "open_resize", "widen")), Phase(SIMPLIFY, True), Phase(("fuse",)))
"""The default order."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one pass."""

    name: str
    seconds: float
    nodes: int
    changed: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The graph after the passes, and what each of them did; `stopped` says where it ended."""

    graph: Graph
    context: Context
    records: list[Record]
    stopped: str = ""


Observer = Callable[[Record, Graph], None]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An order of passes with their options.

    `print_after` names passes whose graph goes into the record as text ("all" for every one);
    `stop_after` ends the run after the first run of that pass. `verify` checks the graph after
    every pass. `dump` is a folder that receives the graph after every pass that changed it.
    """

    phases: Sequence[Phase] = PHASES
    options: Mapping[str, Pass] = field(default_factory=dict[str, Pass])
    print_after: Collection[str] = ()
    stop_after: str = ""
    verify: bool = False
    dump: Path | None = None
    observe: Observer | None = None

    def __post_init__(self) -> None:
        for name in (*self.print_after, *filter(None, [self.stop_after]), *self.options):
            if name != "all":
                find(name)

    def run(self, graph: Graph, ctx: Context | None = None) -> Result:
        """Run the passes on `graph`, which is left as it is."""
        done = Result(graph, ctx or Context(), [])
        done.context.saw(graph)
        if self.verify:
            _check(graph, "before the passes")
        settled: dict[Phase, Graph] = {}
        for phase in self.phases:
            if settled.get(phase) is done.graph:
                continue
            for _ in range(ROUNDS if phase.repeat else 1):
                before = done.graph
                done = self._round(phase, done)
                if done.stopped:
                    return done
                if done.graph is before:
                    if phase.repeat:
                        settled[phase] = before
                    break
        return done

    def _round(self, phase: Phase, done: Result) -> Result:
        for name in phase.passes:
            step = self.options.get(name) or find(name)()
            graph = self._run_pass(step, done)
            done = Result(graph, done.context, done.records,
                          name if name == self.stop_after else "")
            if done.stopped:
                break
        return done

    def _run_pass(self, step: Pass, done: Result) -> Graph:
        start = time.perf_counter()
        graph = step.run(done.graph, done.context)
        seconds = time.perf_counter() - start
        changed = graph is not done.graph
        if changed:
            done.context.saw(graph, step.name)
        if self.verify and changed:
            _check(graph, f"after {step.name}")
        shown = {"all", step.name} & {*self.print_after}
        record = Record(step.name, seconds, len(graph.nodes), changed,
                        print_graph(graph, blob_limit=256, locs=True) if shown else "")
        if self.dump is not None and changed:
            self.dump.mkdir(parents=True, exist_ok=True)
            file = self.dump / f"{len(done.records):02d}_{step.name}.ir"
            write_text(file, print_graph(graph, locs=True))
        done.records.append(record)
        if self.observe is not None:
            self.observe(record, graph)
        return graph


def _check(graph: Graph, when: str) -> None:
    try:
        verify(graph, infer)
    except VerifyError as e:
        raise VerifyError(f"{when}: {e.message}",
                          hint="this is a defect of the pass: report it with the graph's text "
                               "(--print-after all)") from None


def find(name: str) -> type[Pass]:
    """The pass of this name."""
    if (found := PASSES.get(name)) is None:
        raise ConfigError(f"there is no pass '{name}'", hint=f"the passes are {', '.join(PASSES)}")
    return found


def from_config(config: Config | None = None, *, phases: Sequence[Phase] = PHASES,
                options: Mapping[str, Pass] | None = None, print_after: Collection[str] = (),
                stop_after: str = "", observe: Observer | None = None) -> Pipeline:
    """A pipeline under the settings of the environment: `TREADLE_VERIFY` and `TREADLE_DUMP`."""
    config = config or Config.from_environment()
    return Pipeline(phases, options or {}, print_after, stop_after, config.verify,
                    config.dump / "passes" if config.dump else None, observe)


class Description(NamedTuple):
    """What `treadle passes` lists: a pass, its place in the default order, its options."""

    name: str
    summary: str
    options: Mapping[str, object]
    phases: tuple[int, ...]


def describe() -> list[Description]:
    """Every pass in the default order."""
    out: list[Description] = []
    for name, kind in PASSES.items():
        summary = (kind.__doc__ or "").split("\n\n")[0]
        phases = tuple([i for i, p in enumerate(PHASES) if name in p.passes])
        out.append(Description(name, " ".join(summary.split()), kind().options(), phases))
    return out


def seconds_by_pass(records: Sequence[Record]) -> dict[str, float]:
    """Total time by pass, in the order of first runs."""
    out: dict[str, float] = {}
    for r in records:
        out[r.name] = out.get(r.name, 0.0) + r.seconds
    return out
