"""The test cases of the onnx package, run on any device of treadle.

`python tests/onnx/node_suite.py [--device cpu] [--filter RE] [--summary]` prints what fails
and why; `tests/onnx/test_node_suite.py` asserts it. What may fail stands in `exceptions.toml`.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import pickle
import re
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import treadle
from treadle.config import Config
from treadle.errors import TreadleError

HERE = Path(__file__).parent
REQUIRED_OPSET = 26
"""Cases of a newer default opset are extra."""
FORMAT = 1
"""Counts up when the layout of the cache changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model with inputs and the outputs that the onnx package expects."""

    name: str
    kind: str
    operator: str
    opset: int
    model: bytes
    runs: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def required(self) -> bool:
        """Whether the case belongs to the opsets that must work."""
        return self.opset <= REQUIRED_OPSET


@dataclass(frozen=True, slots=True)
class Exemption:
    """Cases that may, and must, fail on a device."""

    pattern: str
    devices: tuple[str, ...]
    reason: str

    def covers(self, name: str, device: str) -> bool:
        """Whether it speaks of this case on this device."""
        return fnmatch.fnmatchcase(name, self.pattern) and (
            "*" in self.devices or device in self.devices)


@cache
def cases() -> tuple[Case, ...]:
    """Every case: the generated ones, then those on disk in the onnx package."""
    folder = Config.from_environment().cache_root() / "onnx-suite"
    file = folder / f"{onnx.__version__}-{np.__version__}-{FORMAT}.pickle"
    if file.exists():
        return tuple(Case(*row) for row in pickle.loads(file.read_bytes()))
    found = (*_generated(), *_stored(), *_light())
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as out:
        rows = [tuple(getattr(c, f.name) for f in fields(Case)) for c in found]
        pickle.dump(rows, out, protocol=5)  # rows: the class has two names when run as a script
    os.replace(name, file)  # another worker may be writing the same
    return found


def _generated() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {c.name: c for c in collect_testcases("")}
    operators = {n: c.model.graph.node[0].op_type for n, c in found.items()}
    for name, c in found.items():
        base = name.split("_expanded")[0]
        runs = [([_array(x) for x in given], [_array(x) for x in want])
                for given, want in c.data_sets]
        yield _case(name, "node", operators.get(base, operators[name]), c.model, runs,
                    c.rtol, c.atol)


def _case(name: str, kind: str, operator: str, model: onnx.ModelProto, runs: Sequence[Any],
          rtol: float, atol: float) -> Case:
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    return Case(name, kind, operator, opset, model.SerializeToString(), runs, rtol, atol)


def _array(value: Any) -> Any:  # noqa: ANN401 - an array, a list of them, or None
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_array(x) for x in value]
    return value if value is None else np.asarray(value)


def _stored() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for test in sorted(load_model_tests(kind=kind), key=lambda t: t.name):
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            held = {t.name for t in model.graph.initializer}
            inputs = [v for v in model.graph.input if v.name not in held]
            runs = [(_read(d, "input", inputs), _read(d, "output", model.graph.output))
                    for d in sorted(folder.glob("test_data_set_*"))]
            yield _case(test.name, kind, kind, model, runs, test.rtol, test.atol)


def _read(folder: Path, stem: str, infos: Iterable[onnx.ValueInfoProto]) -> list[Any]:
    out: list[Any] = []
    for i, info in enumerate(infos):
        data = (folder / f"{stem}_{i}.pb").read_bytes()
        if info.type.HasField("sequence_type"):
            out.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        else:
            out.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return out


def _light() -> Iterator[Case]:
    """Well-known networks with weights made up inside the graph; the input is a ramp."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for file in sorted(folder.glob("*.onnx")):
        model = onnx.load(file)
        held = {t.name for t in model.graph.initializer}
        info = next(v for v in model.graph.input if v.name not in held)
        shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
        total = int(np.prod(shape))
        ramp = (np.arange(total).reshape(shape) / total).astype(np.float32)
        data = file.with_name(f"{file.stem}_output_0.pb").read_bytes()
        want = numpy_helper.to_array(onnx.TensorProto.FromString(data))
        yield _case(f"test_{file.stem}", "light", file.stem, model, [([ramp], [want])], 1e-3, 1e-7)


def failure(case: Case, device: str) -> str:
    """Why the case fails on the device; empty when it passes."""
    proto = onnx.ModelProto.FromString(case.model)
    held = {t.name for t in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in held]
    try:
        program = treadle.load(proto).compile(device=device)
        for given, want in case.runs:
            found = program(dict(zip(names, given, strict=False)))
            for name, expected in zip(found, want, strict=True):
                if why := difference(expected, found[name], case.rtol, case.atol):
                    return f"{why} in output {name}"
    except TreadleError as e:
        return f"{type(e).__name__}: {e.message}"
    except Exception as e:  # noqa: BLE001 - a crash is a result here
        return f"crash {type(e).__name__}: {e}"
    return ""


def difference(want: Any, found: Any, rtol: float, atol: float) -> str:  # noqa: ANN401 - arrays, lists or None
    """What sets two outputs apart, compared as the onnx package's own runner does."""
    if want is None or found is None:
        return "" if want is found else f"{_kind(found)}, not {_kind(want)}"
    if isinstance(want, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(want):
            return f"{_kind(found)}, not {_kind(want)}"
        return next((d for w, f in zip(want, found, strict=True)
                     if (d := difference(w, f, rtol, atol))), "")
    if not isinstance(found, np.ndarray):
        return f"{_kind(found)}, not {_kind(want)}"
    return _arrays(np.asarray(want), found, rtol, atol)


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _arrays(want: np.ndarray, found: np.ndarray, rtol: float, atol: float) -> str:
    if want.shape != found.shape:
        return f"shape {found.shape}, not {want.shape}"
    if want.dtype.kind in "OUS":
        texts = [[x.decode() if isinstance(x, bytes) else str(x) for x in a.flat]
                 for a in (want, found)]
        return "" if texts[0] == texts[1] else f"strings {texts[1][:4]}, not {texts[0][:4]}"
    if want.dtype != found.dtype:
        return f"dtype {found.dtype}, not {want.dtype}"
    if want.dtype.kind == "V" or want.dtype.name == "bfloat16" or want.dtype.itemsize == 1 and (
            want.dtype.kind == "f"):
        rtol = max(rtol, 2**-6) if want.dtype.name == "bfloat16" else rtol
        want, found = want.astype(np.float32), found.astype(np.float32)
    close = np.isclose(found, want, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        worst = np.nanmax(np.abs(np.subtract(found, want, dtype=np.float64)[~close])) if (
            want.dtype.kind in "fiu") else np.nan
    return f"values: {(~close).sum()} of {close.size} differ, by up to {worst:.3g}"


@cache
def exemptions() -> tuple[Exemption, ...]:
    """What `exceptions.toml` lists."""
    table = tomllib.loads((HERE / "exceptions.toml").read_text("utf-8"))
    return tuple(Exemption(pattern, tuple(e.get("devices", ["*"])), e["reason"])
                 for e in table.get("exception", []) for pattern in e["cases"])


def excused(name: str, device: str) -> str:
    """The reason for which a case may fail on a device; empty when it must pass."""
    return next((e.reason for e in exemptions() if e.covers(name, device)), "")


def _reason(text: str) -> str:
    """A failure without what differs from case to case, to count by."""
    text = re.sub(r"model: node .*? \((\w+)\)", r"\1", text)
    text = re.sub(r"\n  at .*", "", text)
    if "\n" in text:
        rows = [re.split(r"  +", line.strip()) for line in text.splitlines()[2:]]
        return "; ".join(f"{r[0]}: {r[-1]}" for r in rows if len(r) > 1) or text.splitlines()[0]
    return re.sub(r"in output \S+$|\d+ of \d+|by up to .*| at model: .*", "", text)[:160]


def main(argv: Sequence[str]) -> int:
    """Print failures, or their counts by reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--summary", action="store_true", help="count by reason only")
    parser.add_argument("--extra", action="store_true", help="newer opsets too")
    options = parser.parse_args(argv)
    pattern, start = re.compile(options.filter), time.perf_counter()
    chosen = [c for c in cases() if pattern.search(c.name) and (c.required or options.extra)]
    failed = {c: why for c in chosen if (why := failure(c, options.device))}
    if not options.summary:
        for c, why in failed.items():
            excuse = " (excused)" if excused(c.name, options.device) else ""
            flat = re.sub(r"\s+", " ", why)
            print(f"{c.name} [{c.operator} {c.opset}]{excuse}: {flat}")
    for why, n in Counter(map(_reason, failed.values())).most_common():
        print(f"{n:5} {why}")
    seconds = time.perf_counter() - start
    for kind, total in Counter(c.kind for c in chosen).items():
        bad = sum(c.kind == kind for c in failed)
        print(f"{kind}: {total - bad} of {total} pass ({100 * (total - bad) / total:.1f}%)")
    print(f"{seconds:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
