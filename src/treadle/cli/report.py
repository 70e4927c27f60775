"""What `treadle run` reports: a summary of the outputs, timings, a comparison."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..declare.arrays import Array, dtype_of_array
from ..errors import BindingError, DeviceError
from ..measure.agree import agreement


def save(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write an .npz beside its final name first, so that a failure leaves no half file."""
    if any(not isinstance(a, np.ndarray) or a.dtype == object for a in outputs.values()):
        raise BindingError("strings and sequences cannot be saved as .npz", hint="use --json")
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as f:
            np.savez(f, **dict(outputs))  # type: ignore[arg-type]
        temporary.replace(path)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise BindingError(f"cannot write {path}: {e.strerror}") from None


def report_of(name: str, device: str, outputs: Mapping[str, Any], times: Sequence[float]
            ) -> dict[str, Any]:
    """The facts that are printed, or given as JSON."""
    report: dict[str, Any] = {"model": name, "device": device,
                              "outputs": [_summary(n, a) for n, a in outputs.items()]}
    if times:
        report["ms"] = {"median": statistics.median(times), "min": min(times), "max": max(times),
                        "runs": len(times)}
    return report


def _summary(name: str, array: Any) -> dict[str, Any]:  # noqa: ANN401 - or a host value
    if not isinstance(array, np.ndarray):
        items: Any = array if isinstance(array, list) else [array]
        return {"name": name, "dtype": type(array).__name__, "shape": [len(items)],
                "values": [" ".join(str(x).split()) for x in items[:8]]}
    out: dict[str, Any] = {"name": name, "dtype": str(dtype_of_array(array)),
                           "shape": list(array.shape)}
    flat = array.reshape(-1)
    if array.dtype == object:
        out["values"] = [str(x) for x in flat[:8]]
        return out
    shown = flat[:8].astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    out["values"] = [_number(x) for x in shown.tolist()]
    if array.size and array.dtype.kind != "c":
        wide = flat.astype(np.float64)
        out.update(min=_number(float(wide.min())), mean=_number(float(wide.mean())),
                   max=_number(float(wide.max())))
    return out


def _number(x: complex) -> float | str:
    """A number that JSON can hold; infinities, NaN and complex numbers become text."""
    return x if isinstance(x, float) and np.isfinite(x) else str(x)


def show(report: Mapping[str, Any]) -> None:
    """Print a report for people."""
    console = Console()
    table = Table("output", "type", "min", "mean", "max", "first values",
                  title=escape(f"{report['model']} on {report['device']}"), title_justify="left")
    for row in report["outputs"]:
        numbers = [_short(row.get(k, "")) for k in ("min", "mean", "max")]
        table.add_row(*map(escape, (row["name"], f"{row['dtype']}{row['shape']}", *numbers,
                                    " ".join(map(_short, row["values"])))))
    console.print(table)
    if ms := report.get("ms"):
        console.print(f"{ms['median']:.3f} ms median of {ms['runs']} runs "
                      f"({ms['min']:.3f} to {ms['max']:.3f})")
    for row in report.get("compare", ()):
        verdict = "agrees" if row["agrees"] else "DIFFERS"
        console.print(f"{escape(row['name'])}: {verdict} with onnxruntime, "
                      f"largest difference {row['max_difference']:.3g}")


def _short(x: object) -> str:
    return f"{x:.5g}" if isinstance(x, float) else str(x)


def compare_with_onnxruntime(model: Path, arrays: Mapping[str, Array],
                             outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each output against ONNX Runtime: |a-b| <= 1e-5 + 1e-4 max(|b|, mean|b|)."""
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError("onnxruntime is not installed",
                          hint="pip install onnxruntime") from None
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        wanted = session.run(list(outputs), dict(arrays))
    except Exception as e:  # noqa: BLE001 - its errors share no base class
        raise DeviceError(f"onnxruntime cannot run the model: {str(e).splitlines()[0]}") from None
    return [{"name": name, **_agreement(a, b)}
            for (name, a), b in zip(outputs.items(), wanted, strict=True)]


def _agreement(a: Any, b: Any) -> dict[str, Any]:  # noqa: ANN401 - arrays, or lists and dicts of them
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        parts = [_agreement(x, y) for x, y in zip(a, b, strict=True)]
        return {"agrees": all(p["agrees"] for p in parts),
                "max_difference": max((p["max_difference"] for p in parts), default=0.0)}
    if not isinstance(a, np.ndarray):
        same = bool(a == b)
        return {"agrees": same, "max_difference": 0.0 if same else float("inf")}
    found = agreement(a, np.asarray(b))
    return {"agrees": found.agrees, "max_difference": found.max_difference}
