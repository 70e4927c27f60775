"""The `treadle` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from .. import __version__
from ..errors import TreadleError
from .bench import bench
from .devices import devices
from .explain import explain
from .inspect import inspect
from .passes import passes
from .run import run

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile and run machine-learning graphs: ONNX models and traced Python.")


@app.callback()
def _options(version: bool = typer.Option(  # noqa: ARG001 - its callback acts
        False, "--version", is_eager=True, help="Show the version and exit.",
        callback=lambda wanted: _show_version() if wanted else None)) -> None:
    pass


def _show_version() -> None:
    print(f"treadle {__version__}")
    raise typer.Exit


def _guarded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the library's errors into one message and exit status 1."""

    @wraps(fn)
    def command(*args: Any, **kw: Any) -> Any:  # noqa: ANN401 - a pass-through
        try:
            return fn(*args, **kw)
        except TreadleError as e:
            print(f"error: {e}", file=sys.stderr)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise typer.Exit(1) from None

    return command


for _command in (run, inspect, explain, bench, devices, passes):
    app.command(name=_command.__name__)(_guarded(_command))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
