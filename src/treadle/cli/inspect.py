"""`treadle inspect`: what is in a model, without running it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..backends.devices import DEVICES, device
from ..declare.arrays import type_of
from ..errors import ImportFailure
from ..frontends.onnx.load import load_onnx
from ..frontends.onnx.reading import read_model
from ..frontends.onnx.survey import survey
from ..ir.dims import substitute
from ..runtime.cost import graph_flops, peak_bytes
from ..runtime.model import LateModel, Model
from .inputs import make_inputs, parse_dims, parse_pairs


def inspect(model: Annotated[Path, typer.Argument(help="an ONNX file")],
            dim: Annotated[list[str] | None, typer.Option(help="NAME=N, for bytes and FLOPs")
                           ] = None,
            input: Annotated[list[str] | None, typer.Option(  # noqa: A002 - the option's name
                help="NAME=VALUE, for models that are built at their first run")] = None,
            as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Show signature, operators, parameters, FLOPs, memory and what each device would do.

    Example: treadle inspect model.onnx --dim batch=1 --dim sequence=128
    """
    proto, _, name = read_model(model)
    report: dict[str, Any] = {"model": name, "operators": [
        {"op": r.name, "version": r.version, "count": r.count, "supported": r.supported}
        for r in survey(proto)]}
    try:
        dims = parse_dims(dim or [])
        loaded = load_onnx(model)
        if isinstance(loaded, LateModel):
            report["built_at_first_run"] = loaded.binder.reason
            given = parse_pairs(input or [], "--input")
            loaded = loaded.bind(make_inputs(loaded.signature, given, dims, 0)[0])
        report.update(describe(loaded, dims))
    except ImportFailure as e:
        report["error"] = str(e)
    print(json.dumps(report, indent=1)) if as_json else _show(report)
    if "error" in report:
        raise typer.Exit(1)


def describe(model: Model, dims: Mapping[str, int]) -> dict[str, Any]:
    """The facts about a loaded model; symbolic sizes that `dims` lacks count as 1."""
    signature, graph = model.signature, model.graph
    arrays, notes = make_inputs(signature, {}, dims, 0)
    binding = signature.bind(list(arrays.values()))
    by_dtype: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for a in model.params.values():
        cell = by_dtype[type_of(a).dtype.name]
        cell[0] += a.size
        cell[1] += a.nbytes
    work = graph_flops(graph)
    return {
        "signature": str(signature), "notes": [*model.built.notes, *notes],
        "nodes": sum(1 for _ in graph.walk()),
        "parameters": {d: {"count": c, "bytes": b} for d, (c, b) in by_dtype.items()},
        "flops": str(work), "flops_bound": str(substitute(work, dict(binding))),
        "peak_activation_bytes": peak_bytes(graph, binding),
        "devices": {n: _claims(model, n) for n in DEVICES}}


def _claims(model: Model, name: str) -> dict[str, Any]:
    backend = device(name)
    if why := backend.unavailable():
        return {"unavailable": why}
    claims = [backend.claim(node) for node in model.graph.walk()]
    reasons = Counter(c.reason for c in claims if c.reason and c.how in ("host", "unsupported"))
    return {**Counter(c.how for c in claims), "reasons": dict(reasons)}


def _show(report: Mapping[str, Any]) -> None:
    console = Console()
    console.print(f"[bold]{escape(report['model'])}[/bold]  {escape(report.get('signature', ''))}",
                  highlight=False, soft_wrap=True)
    for note in report.get("notes", ()):
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)
    table = Table("operator", "version", "count", "imported")
    for r in report["operators"]:
        table.add_row(escape(r["op"]), str(r["version"]), str(r["count"]),
                      "yes" if r["supported"] else "NO")
    console.print(table)
    if "error" in report:
        console.print(f"error: {escape(report['error'])}", style="red", highlight=False,
                      soft_wrap=True)
        return
    for dtype, cell in report["parameters"].items():
        console.print(f"parameters {dtype}: {cell['count']:,} ({cell['bytes'] / 1e6:,.1f} MB)")
    console.print(f"FLOPs a run: {report['flops_bound']}", highlight=False)
    console.print(f"peak activations: {report['peak_activation_bytes'] / 1e6:,.2f} MB")
    for name, claims in report["devices"].items():
        shown = ", ".join(f"{n} {how}" for how, n in claims.items() if how != "reasons")
        console.print(f"device {name}: {shown}", highlight=False)
