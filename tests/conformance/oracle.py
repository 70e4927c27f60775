"""Independent answers: written in the sample, or computed by the oracle that it names."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import ml_dtypes
import numpy as np

from tests.conformance.harness import Array, Case, array, widest
from treadle.declare.schema import Typed


def answer(case: Case) -> list[object]:
    """What the outputs must be, one entry each."""
    expect = case.sample.expect
    assert expect is not None
    return ask(case, expect) if isinstance(expect, str) else list(expect)


def ask(case: Case, name: str) -> list[object]:
    """Call `module:function` as `declare.schema.Sample` documents."""
    module, _, function = name.partition(":")
    fn = getattr(import_module(module), function)
    operands, named = case.operands, case.named
    if not module.startswith("tests."):  # other libraries know no bf16
        operands = [_known(a) for a in operands]
        named = {k: _known(a) for k, a in named.items()}
    out = fn(*operands, **named, **case.attrs)
    return list(out) if isinstance(out, list | tuple) else [out]


def _known(a: Array) -> Array:
    return a.astype(np.float64) if a.dtype.kind in "fV" else a


def assert_close(case: Case, got: Sequence[Array], want: Sequence[object]) -> None:
    """Within `rtol`, or the rounding of a narrower output; integers and text exactly."""
    assert len(got) == len(want), f"{len(got)} outputs, {len(want)} expected"
    for i, (a, w) in enumerate(zip(got, want, strict=True)):
        _assert_one(case, a, w, f"{case.id}, output {i}")


def _assert_one(case: Case, a: Array, w: object, where: str) -> None:
    if isinstance(w, Typed):
        assert a.dtype == array(w).dtype, f"{where}: {a.dtype}, not {w.dtype}"
    if a.dtype == object and a.shape == ():
        assert _plain(a.item()) == _plain(w.item() if isinstance(w, np.ndarray) else w), where
        return
    b = array(w) if isinstance(w, Typed) else np.asarray(w)
    assert a.shape == b.shape or a.size == b.size == 0, f"{where}: {a.shape}, not {b.shape}"
    if a.dtype.kind in "biuO" or "int" in a.dtype.name:
        np.testing.assert_array_equal(_plain_numbers(a), _plain_numbers(b), err_msg=where)
        return
    rtol = max(case.sample.rtol, _eps(a))
    b = widest(b)
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0) if case.op.kind != "elementwise" else 0.0
    np.testing.assert_allclose(widest(a), b, rtol=rtol, atol=rtol * scale, err_msg=where)


def _plain_numbers(a: Array) -> Array:
    """What NumPy compares by value: 4-bit integers as i64, text as objects."""
    kinds = {"V": np.int64, "U": np.object_}
    return a.astype(kinds.get(a.dtype.kind, a.dtype))


def _plain(x: object) -> object:
    """Host values as lists of numbers, which compare with ==."""
    if isinstance(x, np.ndarray):
        return x.tolist()
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    return {k: _plain(v) for k, v in x.items()} if isinstance(x, dict) else x


def _eps(a: Array) -> float:
    """One unit in the last place of an output narrower than f32."""
    if a.dtype.kind == "c" or a.dtype.itemsize >= 4:
        return 0.0
    return float(ml_dtypes.finfo(a.dtype).eps)
