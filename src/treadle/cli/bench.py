"""`treadle bench`: a model on treadle and on other engines, side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..api import load
from ..backends.devices import default, usable
from ..errors import BindingError
from ..ir.dims import symbols
from ..measure.cases import Case, overhead
from ..measure.comparison import Settings, run_all
from ..measure.engines import engine
from ..measure.render import COLUMNS, cells, heading, score_lines, shown, title
from ..measure.results import Report
from ..runtime.signature import Signature
from .inputs import make_inputs, parse_dims, parse_pairs


def bench(models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX files")],
          peers: Annotated[str, typer.Option(
              help="engines to compare with, separated by commas")] = "onnxruntime,openvino",
          device: Annotated[str, typer.Option(
              help="treadle's devices, separated by commas; the first is the one compared. "
                   "Unless given: cpu where it can run, else reference")] = "",
          threads: Annotated[str, typer.Option(help="thread counts, separated by commas")] = "1",
          input: Annotated[list[str] | None, typer.Option(  # noqa: A002 - the option's name
              help="NAME=file.npy | random | zeros | 1,2,3 (repeatable)")] = None,
          dim: Annotated[list[str] | None, typer.Option(help="NAME=N for a symbolic size")] = None,
          seed: Annotated[int, typer.Option(help="seed of random inputs")] = 0,
          seconds: Annotated[float, typer.Option(
              min=0.01, help="time of each engine on each model")] = 2.0,
          json: Annotated[Path | None, typer.Option(help="write the report as JSON")] = None
          ) -> None:
    """Time models on treadle and its peers, in turns, and check their outputs.

    Example: treadle bench model.onnx --dim batch=1 --threads 1,2 --json out.json
    """
    engines = [f"treadle:{d}" for d in _devices(device)] + _names(peers)
    for name in engines:
        engine(name)
    counts = _threads(threads)
    if json is not None and not json.absolute().parent.is_dir():
        raise BindingError(f"cannot write {json}: there is no folder {json.parent}")
    cases = make_cases(models, parse_pairs(input or [], "--input"), parse_dims(dim or []), seed)
    settings = Settings(tuple(dict.fromkeys(engines)), counts, seconds)
    # lines, not a spinner: its thread would run beside the engines
    report = run_all([*cases, overhead()], settings,
                     lambda text: print(text, file=sys.stderr, flush=True))
    if json is not None:
        write(json, report.json())
    show(report)


def _devices(text: str) -> list[str]:
    names = _names(text) or [default()]
    for name in names:
        usable(name)
    return names


def _names(text: str) -> list[str]:
    return [x.strip() for x in text.split(",") if x.strip()]


def _threads(text: str) -> tuple[int, ...]:
    names = _names(text)
    if not names or not all(n.isdigit() and int(n) for n in names):
        raise BindingError(f"--threads {text}: not a list of whole numbers of at least 1",
                           hint="write --threads 1,2")
    return tuple(map(int, names))


def make_cases(models: Sequence[Path], given: Mapping[str, str], dims: Mapping[str, int],
               seed: int) -> list[Case]:
    """A case for each model; each takes the options that name its own inputs and sizes."""
    signatures = [load(m).signature for m in models]
    if len(models) > 1:
        _refuse_unknown(signatures, given, dims)
    cases: list[Case] = []
    for model, signature in zip(models, signatures, strict=True):
        own_inputs, own_dims = given, dims
        if len(models) > 1:
            own_inputs = {k: v for k, v in given.items() if k in _inputs(signature)}
            own_dims = {k: v for k, v in dims.items() if k in _sizes(signature)}
        arrays, notes = make_inputs(signature, own_inputs, own_dims, seed)
        for note in notes:
            Console(stderr=True).print(f"[dim]{model.name}: {note}[/dim]", highlight=False)
        cases.append(Case(model.name, model.absolute(), arrays))
    return cases


def _refuse_unknown(signatures: Sequence[Signature], given: Mapping[str, str],
                    dims: Mapping[str, int]) -> None:
    for what, names, known in (("--input", given, set[str]().union(*map(_inputs, signatures))),
                               ("--dim", dims, set[str]().union(*map(_sizes, signatures)))):
        if extra := [n for n in names if n not in known]:
            raise BindingError(f"{what} {extra[0]}: no model has it",
                               hint=f"there are {', '.join(sorted(known)) or 'none'}")


def _inputs(signature: Signature) -> set[str]:
    return {leaf.name for leaf in signature.inputs}


def _sizes(signature: Signature) -> set[str]:
    return {s for leaf in signature.inputs for d in leaf.shape or () for s in symbols(d)}


def write(path: Path, text: str) -> None:
    """Write a report."""
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as e:
        raise BindingError(f"cannot write {path}: {e.strerror}") from None


def show(report: Report) -> None:
    """Print a report for people."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    for line in heading(report):
        console.print(line, style="dim", highlight=False)
    for case in report.cases:
        table = Table(title=title(case), title_justify="left", title_style="bold", box=None)
        for at, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if at in (0, len(COLUMNS) - 1) else "right")
        for row in shown(case):
            table.add_row(*cells(case, row))
        console.print("", table)
    console.print("", *score_lines(report), sep="\n", highlight=False)
