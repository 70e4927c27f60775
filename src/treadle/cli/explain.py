"""`treadle explain`: what a compiled model does, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..api import load
from ..runtime.late import LateExecutable
from .hooks import watched
from .inputs import make_inputs, parse_dims, parse_pairs


def explain(model: Annotated[Path, typer.Argument(help="an ONNX file")],
            device: Annotated[str, typer.Option(
                help="see `treadle devices`; cpu unless given")] = "",
            mode: Annotated[str, typer.Option(
                help="eager, lazy, async or compiled, on mlx")] = "",
            input: Annotated[list[str] | None, typer.Option(  # noqa: A002 - the option's name
                help="NAME=VALUE, for models that are built at their first run")] = None,
            dim: Annotated[list[str] | None, typer.Option(help="NAME=N")] = None,
            as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Show each node's source, the device's claim with its reason, and sizes.

    Example: treadle explain model.onnx --json
    """
    loaded = load(model)
    exe = loaded.compile(device or None, mode=mode or None, pipeline=watched([]))
    arrays, _ = make_inputs(loaded.signature, parse_pairs(input or [], "--input"),
                            parse_dims(dim or []), 0)
    if isinstance(exe, LateExecutable):
        exe(arrays)
    found = exe.explain()
    print(found.json() if as_json else found)
