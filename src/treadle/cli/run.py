"""`treadle run`: run a model once or many times and show what comes out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..api import load
from ..declare.arrays import Array
from ..errors import DeviceError
from ..passes.pipeline import Pipeline, Record
from ..runtime.executable import Outputs
from .hooks import print_times, watched
from .inputs import make_inputs, parse_dims, parse_pairs
from .options import Options
from .report import compare_with_onnxruntime, report_of, save, show


def run(  # budget: options, each with its help
        model: Annotated[Path, typer.Argument(help="an ONNX file")],
        device: Annotated[str, typer.Option(help="see `treadle devices`; cpu unless given")] = "",
        mode: Annotated[str, typer.Option(help="eager, lazy, async or compiled, on mlx")] = "",
        input: Annotated[list[str] | None, typer.Option(  # noqa: A002 - the option's name
            help="NAME=file.npy | random | zeros | 1,2,3 (repeatable)")] = None,
        dim: Annotated[list[str] | None, typer.Option(help="NAME=N for a symbolic size")] = None,
        seed: Annotated[int, typer.Option(min=0, help="seed of random inputs")] = 0,
        random: Annotated[int | None, typer.Option(
            help="seed of the model's own random numbers: every run draws new ones")] = None,
        resident: Annotated[list[str] | None, typer.Option(
            help="INPUT=OUTPUT: keep an input on the device and feed an output back to it; "
                 "INPUT=OUTPUT@AT: feed its rows back at the end, at a number, or where an input "
                 "says (repeatable)")] = None,
        capacity: Annotated[int | None, typer.Option(
            min=1, help="rows that resident inputs have room for")] = None,
        axis: Annotated[int | None, typer.Option(
            help="axis of the rows of resident inputs, where it is not the one of unknown size")
            ] = None,
        repeat: Annotated[int, typer.Option(
            min=1, help="runs to time, if more than one, after a first")] = 1,
        compare: Annotated[str | None, typer.Option(help="onnxruntime: check the outputs")] = None,
        output: Annotated[Path | None, typer.Option(help="write the outputs to an .npz")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
        print_after: Annotated[list[str] | None, typer.Option(
            help="print the graph after a pass, see `treadle passes`")] = None,
        stop_after: Annotated[str, typer.Option(help="run no pass after this one")] = "",
        time_passes: Annotated[bool, typer.Option(help="show the time of each pass")] = False
        ) -> None:
    """Run a model on given or random inputs.

    Example: treadle run model.onnx --dim batch=2 --input ids=ids.npy --compare onnxruntime
    """
    if compare not in (None, "onnxruntime"):
        raise DeviceError(f"cannot compare with '{compare}'", hint="--compare onnxruntime")
    if compare and resident:
        raise DeviceError("--compare runs the model alone: it cannot follow --resident state",
                          hint="leave one of the two out")
    records: list[Record] = []
    pipeline = watched(print_after or [], stop_after, records,
                       to=sys.stderr if as_json else sys.stdout)
    name, arrays, outputs, times = _run(model, (device, mode), pipeline, parse_pairs(
        input or [], "--input"), parse_dims(dim or []), seed, repeat,
        Options(random, resident or [], capacity, axis))
    if time_passes:
        print_times(records)
    if output is not None:
        save(output, outputs)
    report = report_of(model.name, name, outputs, times)
    if compare:
        report["compare"] = compare_with_onnxruntime(model, arrays, outputs)
    print(json.dumps(report, indent=1)) if as_json else show(report)
    if compare and not all(c["agrees"] for c in report["compare"]):
        raise typer.Exit(1)


def _run(model: Path, device: tuple[str, str], pipeline: Pipeline, given: Mapping[str, str],
         dims: Mapping[str, int], seed: int, repeat: int, options: Options
         ) -> tuple[str, Outputs, Outputs, list[float]]:
    """The device, inputs, outputs and the milliseconds of `repeat` further runs.

    `device` is its name and mode, either of which may be empty.
    """
    console = Console(stderr=True)
    with console.status(f"loading {model.name}"):
        loaded = load(model)
        arrays, notes = make_inputs(loaded.signature, given, dims, seed)
        exe = loaded.compile(device[0] or None, mode=device[1] or None, pipeline=pipeline,
                             **options.for_compile())
        states = options.keep(exe, arrays)
    for note in notes:
        console.print(f"[dim]{escape(note)}[/dim]")
    with console.status("running"):
        found = exe.backend.name, arrays, exe(arrays), _timed(exe, arrays, repeat)
    for state in states:
        console.print(f"[dim]{escape(repr(state))}[/dim]")
    return found


def _timed(exe: Any, arrays: Mapping[str, Array], repeat: int) -> list[float]:  # noqa: ANN401 - either executable
    """Milliseconds of each of `repeat` further runs."""
    times: list[float] = []
    for _ in range(repeat if repeat > 1 else 0):
        start = time.perf_counter()
        exe(arrays)
        times.append(1e3 * (time.perf_counter() - start))
    return times
