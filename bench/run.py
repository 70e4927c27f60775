"""All published models and one small model a kernel family, on treadle and its peers; `make bench`.

Writes bench/results/<time>.json and .md and prints the Markdown. docs/benchmarks.md says how to
read it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import micro
from tests.models.handed import MODELS, Handed
from tools.fetch import FetchError
from treadle.backends.devices import default
from treadle.cli.bench import write
from treadle.errors import TreadleError
from treadle.measure.cases import Case, overhead
from treadle.measure.comparison import Settings, run_all
from treadle.measure.engines import engine
from treadle.measure.render import markdown

RESULTS = Path(__file__).resolve().parent / "results"
_QUANTISED = 0.1
"""Engines round differently in every step of a quantised recurrence; this only finds nonsense."""


def model_case(handed: Handed, size: int) -> Case:
    """A published model; its inputs come from a fixed seed."""
    inputs = handed.make(np.random.default_rng(size), size)
    made = Case(handed.name, handed.path().absolute(), inputs)
    return made if not handed.quantised else Case(made.name, made.source, inputs,
                                                  relative=_QUANTISED)


def collect(only: str, parts: Sequence[str], size: int) -> list[Case]:
    """The cases whose name or family matches; a model that cannot be fetched is named and left."""
    found = [overhead(), *micro.cases()] if "micro" in parts else []
    wanted = re.compile(only)
    found = [c for c in found if wanted.search(f"{c.family}: {c.name}")]
    for handed in MODELS if "models" in parts else ():
        if not wanted.search(f"models: {handed.name}"):
            continue
        try:
            found.append(model_case(handed, size))
        except FetchError as e:
            print(f"{handed.name}: left out: {e.message}", file=sys.stderr)
    return found


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    p.add_argument("--only", default="", metavar="REGEX", help="of `family: name`")
    p.add_argument("--parts", default="micro,models", help="micro, models or both")
    p.add_argument("--device", default=default(), help="treadle's devices, the first compares")
    p.add_argument("--peers", default="onnxruntime,openvino,torch,numpy")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--size", type=int, choices=(0, 1), default=0,
                   help="size variant of the models' inputs")
    p.add_argument("--seconds", type=float, default=2.0, help="of each engine on each case")
    p.add_argument("--starts", type=int, default=2, help="processes started for each engine")
    p.add_argument("--list", action="store_true", help="name the cases and stop")
    return p.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    given = options(argv)
    cases = collect(given.only, given.parts.split(","), given.size)
    if given.list:
        print(*(f"{c.family}: {c.name}" for c in cases), sep="\n")
        return 0
    engines = [*(f"treadle:{d}" for d in given.device.split(",")),
               *(p for p in given.peers.split(",") if p)]
    for name in engines:
        engine(name)
    settings = Settings(tuple(engines), tuple(int(t) for t in given.threads.split(",")),
                        given.seconds, given.starts)
    report = run_all(cases, settings, lambda text: print(text, file=sys.stderr, flush=True))
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / report.machine.started.replace(":", "").partition("+")[0]
    text = markdown(report)
    write(stem.with_suffix(".json"), report.json())
    write(stem.with_suffix(".md"), text)
    print(text)
    print(f"written to {stem}.json and .md", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TreadleError as e:
        sys.exit(f"error: {e}")
