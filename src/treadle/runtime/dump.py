"""What `TREADLE_DUMP` leaves of a compiled model, and how to run it again from there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from ..backends.base import Buffer, Data, Program
from ..backends.compare import compare
from ..declare.arrays import Array, Encoded, np_dtype
from ..declare.evaluate import Binding, Watch
from ..errors import BindingError, ConfigError
from ..files import replacing, write_text
from ..ir.dims import evaluate, symbols
from ..ir.graph import Graph, Value
from ..ir.parser import parse_graph
from ..ir.printer import print_graph

SCRIPT = '''"""Runs the program of this folder on a device and on `reference`, and compares them.

python reproduce.py [DEVICE] [NAME=SIZE ...]

The inputs are those of its first run, or random ones of the given sizes.
"""

import sys
from pathlib import Path

from treadle.runtime.dump import rerun

sys.exit(rerun(Path(__file__).parent, sys.argv[1:]))
'''


@runtime_checkable
class Dumping(Protocol):
    """A program that has text of its own to leave."""

    def dump(self, folder: Path) -> None:
        """Write it."""
        ...


def new_folder(root: Path, source: str) -> Path:
    """A folder for a model that nothing else has, named after it."""
    stem = re.sub(r"\W+", "_", Path(source).stem).strip("_") or "model"
    for n in itertools.count(1):
        folder = root / (stem if n == 1 else f"{stem}-{n}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as e:
            raise ConfigError(f"environment variable TREADLE_DUMP is '{root}', no folder can be "
                              f"made there: {e.strerror}",
                              hint="name a directory that can be written, or unset it") from None
        return folder
    raise AssertionError


def dumped(folder: Path, program: Program, params: Mapping[str, Data]) -> Program:
    """Write what is known of a program; what is given back also writes its first run's inputs."""
    graph = program.graph
    with writing(folder):
        write_text(folder / "graph.ir", print_graph(graph, locs=True) + "\n")
        save(folder / "params.npz", graph.params, [params[v.name] for v in graph.params])
        write_text(folder / "reproduce.py", SCRIPT)
        if isinstance(program, Dumping):
            program.dump(folder)
    return cast(Program, Recording(program, folder))


class Recording:
    """A program whose first run leaves its inputs and what the program then knows."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder, self._done = program, folder, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._program, name)

    def run(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None = None,
            kept: Collection[int] = ()) -> Sequence[Buffer]:
        """Run, the inputs saved before: a run that fails can be repeated too."""
        first, self._done = not self._done, True
        if first and all(isinstance(a, np.ndarray) for a in inputs):
            with writing(self._folder):
                save(self._folder / "inputs.npz", self._program.graph.inputs, inputs)
        try:
            return self._program.run(inputs, binding, watch, kept)
        finally:
            if first and isinstance(self._program, Dumping):
                with writing(self._folder):
                    self._program.dump(self._folder)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Word what goes wrong with the files of a folder."""
    try:
        yield
    except OSError as e:
        raise ConfigError(f"TREADLE_DUMP: '{folder}' cannot be written: {e.strerror}",
                          hint="free its disk, leave the folder alone, or unset it") from None


def save(path: Path, values: Sequence[Value], arrays: Sequence[Data]) -> None:
    """Arrays as bytes and shapes by number; their dtypes are those of the values."""
    found: dict[str, Any] = {}
    for i, (v, a) in enumerate(zip(values, arrays, strict=True)):
        if isinstance(a, Encoded):
            found[f"data{i}"], found[f"shape{i}"] = a.data, a.shape
        elif v.dtype.sort == "string":
            found[f"text{i}"] = a.astype(str)
        elif v.dtype.sort != "host":
            found[f"data{i}"] = np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8)
            found[f"shape{i}"] = np.array(a.shape, np.int64)
    with replacing(path) as made:
        np.savez(made, **found)


def restore(path: Path, values: Sequence[Value]) -> list[Data]:
    """What `save` wrote."""
    out: list[Data] = []
    with np.load(path) as held:
        for i, v in enumerate(values):
            if f"text{i}" in held:
                out.append(held[f"text{i}"].astype(object))
                continue
            if f"data{i}" not in held:
                raise BindingError(f"{path} has no {v.type} for '{v.name}'",
                                   hint="sequences and optionals are not saved")
            shape = tuple(map(int, held[f"shape{i}"]))
            data = held[f"data{i}"]
            out.append(Encoded(v.dtype, shape, data) if v.dtype.sort == "block" else (
                data.view(np_dtype(v.dtype)).reshape(shape)))
    return out


def rerun(folder: Path, words: Sequence[str]) -> int:
    """Compile a dumped graph as it is for a device and for `reference`; 0 if they agree."""
    from ..passes.pipeline import Pipeline
    from .model import Built, Model

    graph = parse_graph((folder / "graph.ir").read_text("utf-8"))
    names = [v.name for v in graph.params]
    params = dict(zip(names, restore(folder / "params.npz", graph.params), strict=True))
    model = Model(folder.name, Built(graph, cast("dict[str, Array]", params)))
    sizes = dict(w.split("=", 1) for w in words if "=" in w)
    device = next((w for w in words if "=" not in w), "cpu")
    saved = folder / "inputs.npz"
    inputs = cast("list[Array]", restore(saved, graph.inputs)) if saved.exists() and not sizes \
        else _random(graph, {k: int(n) for k, n in sizes.items()})
    as_it_is = Pipeline(phases=())
    found, wanted = (model.compile(d, pipeline=as_it_is)(*inputs) for d in (device, "reference"))
    same = [compare(name, found[name], wanted[name]) for name in wanted]
    return 0 if all(same) else 1


def _random(graph: Graph, sizes: Mapping[str, int]) -> list[Array]:
    """Normal numbers for floats, zeros for the rest; sizes that are not given are 2."""
    rng, out = np.random.default_rng(0), list[Array]()
    for v in graph.inputs:
        known = {**{s: 2 for d in v.shape for s in symbols(d)}, **sizes}
        shape = [evaluate(d, known) for d in v.shape]
        made = rng.normal(size=shape) if v.dtype.sort == "float" else np.zeros(shape)
        out.append(np.asarray(made).astype(np_dtype(v.dtype)))
    return out
