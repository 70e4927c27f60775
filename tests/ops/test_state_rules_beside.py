"""Rules of gates, caches and scans, and what rules and operators make of symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import treadle
from tests.oracles import state_space as oracle
from treadle.declare.arrays import np_dtype
from treadle.errors import OperatorError
from treadle.ir.dims import Size, sym
from treadle.ir.graph import trace
from treadle.ir.types import DTYPES, TensorType
from treadle.ops.positions import kv_append
from treadle.ops.state_rules import CausalConv, LinearAttention, Request, problem
from treadle.ops.state_rules_beside import (
    AttentionGate,
    CacheUpdate,
    GatedAdd,
    GatedDeltaNet,
    GatedNorm,
    Mamba2Scan,
    SelectiveScan,
)
from treadle.ops.state_space import gated_delta_net, linear_attention, mamba2_scan
from treadle.ops.state_space_conv import causal_conv_with_state
from treadle.ops.state_space_gates import gated_add, gated_rms_norm, linear_attention_gate
from treadle.ops.state_space_scan import selective_scan
from treadle.runtime.model import Built, Model

DEVICES = [name for name, what in treadle.devices().items() if not what.startswith("not ")]
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 4e-2}
Pick = np.random.Generator
Arrays = Mapping[str, np.ndarray]


@dataclass
class Case:
    """An operator, its request, the axes of its operands by letter, and what it must give."""

    op: Any
    request: Any
    axes: dict[str, str]
    answer: Any
    required: int
    one: Mapping[str, object]
    kinds: Mapping[str, str]


def gates(a: np.ndarray, dt_bias: np.ndarray, decay_scale: np.ndarray, b: np.ndarray | None = None
          ) -> list[np.ndarray]:
    decay = np.logaddexp(0, a.astype(float) + dt_bias) * decay_scale
    return [decay] if b is None else [decay, 1 / (1 + np.exp(-b.astype(float)))]


def appended(cache: np.ndarray, update: np.ndarray, at: np.ndarray) -> list[np.ndarray]:
    out = cache.copy()
    for n, row in np.ndindex(update.shape[0], update.shape[2]):
        out[n, :, (int(at[n]) + row) % cache.shape[2]] = update[n, :, row]
    return [out]


def case(op: Any, request: Any, axes: str, answer: Any, required: int,  # noqa: ANN401
         one: Mapping[str, object] | None = None, **kinds: str) -> Case:
    pairs = [word.split(":") for word in axes.split()]
    return Case(op, request, {n: a for n, a in pairs}, answer, required, one or {}, kinds)


CASES = {
    "gate": case(linear_attention_gate, AttentionGate, "a:NTH dt_bias:H decay_scale:H b:NTH",
                 gates, 3, dt_bias="f32", decay_scale="f32"),
    "add": case(gated_add, GatedAdd, "x:NTC y:NTC gate:NT1", lambda x, y, gate: [
        x.astype(float) + y.astype(float) * gate.astype(float)], 3),
    "norm": case(gated_rms_norm, GatedNorm, "x:NTW scale:C gate:NTW",
                 lambda **xs: [oracle.gated_rms_norm(**xs, activation="sigmoid")], 3,
                 {"activation": "sigmoid"}),
    "cache": case(kv_append, CacheUpdate, "cache:NHLD update:NHTD at:N", appended, 3,
                  {"axis": 2, "mode": "circular"}, at="i64"),
    "selective": case(selective_scan, SelectiveScan, "x:NTC dt:NTC a:CD b:NTD c:NTD state:NCD",
                      oracle.selective_scan, 5, a="f32", state="f32", dt="f32"),
    "mamba2": case(mamba2_scan, Mamba2Scan, "x:NTHP dt:NTH a:H b:NTGD c:NTGD state:NHDP",
                   oracle.mamba2_scan, 5, a="f32", state="f16", dt="f32"),
    "delta": case(gated_delta_net, GatedDeltaNet, "q:NTHD k:NTHD v:NTHP g:NTH beta:NTH state:NHDP",
                  oracle.gated_delta_net, 5, state="f32")}


def drawn(c: Case, pick: Pick, every: bool = False) -> dict[str, TensorType]:
    """Operands that fit."""
    size = {a: int(pick.integers(1, 6)) for a in "NTCDGP"} | {"1": 1}
    size |= {"H": 2 * size["G"], "W": 3 * size["C"], "L": size["T"] + int(pick.integers(3))}
    kind = str(pick.choice(["f32", "f32", "f16", "bf16"]))
    names = list(c.axes)[:None if every or pick.random() < 0.6 else c.required]
    return {n: TensorType(tuple([size[a] for a in c.axes[n]]), DTYPES[c.kinds.get(n, kind)])
            for n in names}


def spoiled(types: dict[str, TensorType], pick: Pick) -> dict[str, TensorType]:
    """One operand of another shape or dtype."""
    name = str(pick.choice(list(types)))
    t, how = types[name], int(pick.integers(4))
    shape = list(t.shape)
    if how == 0:
        shape[int(pick.integers(t.rank))] += int(pick.choice([1, 2, 7]))  # type: ignore[operator]
    elif how < 3:
        shape = shape[1:] if how == 1 else [2, *shape]
    dtype = t.dtype if how < 3 else DTYPES[str(pick.choice(["f16", "i64", "bool", "c64"]))]
    return {**types, name: TensorType(tuple(shape), dtype)}


def asked(c: Case, types: Mapping[str, TensorType]) -> Request:
    last = [None] * (len(c.axes) - len(types))
    return c.request(*types.values(), *last, *c.one.values())


def graph(op: Any, types: Mapping[str, TensorType], first: int, attrs: Mapping[str, object]  # noqa: ANN401
          ) -> Any:  # noqa: ANN401
    names = list(types)[first:]
    return trace(lambda *xs: op(*xs[:first], **dict(zip(names, xs[first:], strict=True)), **attrs),
                 *types.values(), name="one")


def arrays_of(types: Mapping[str, TensorType], pick: Pick) -> Arrays:
    out = dict[str, np.ndarray]()
    for name, t in types.items():
        shape = tuple([int(str(s)) for s in t.shape])
        x = pick.uniform(-1, 0 if name in ("a", "g") else 1, shape)
        out[name] = (x * 99 if name == "at" else x).astype(np_dtype(t.dtype))
    return out


@pytest.mark.parametrize("name", CASES)
def test_accepted_requests_run_on_every_device_and_others_cannot(name: str) -> None:
    c, pick, ran, refused = CASES[name], np.random.default_rng(5), 0, 0
    for turn in range(30):
        types = drawn(c, pick)
        if turn % 2:
            types = spoiled(types, pick)
        if why := problem(asked(c, types)):
            refused += 1
            with pytest.raises(OperatorError) as caught:
                graph(c.op, types, c.required, c.one)
            assert why in str(caught.value)
            continue
        ran += 1
        arrays = arrays_of(types, pick)
        want = c.answer(**arrays)
        model = Model("one", Built(graph(c.op, types, c.required, c.one), {}))
        for device in DEVICES if turn % 14 == 0 else ("reference",):
            got = model.compile(device).run(list(arrays.values())).values()
            for g, w in zip(got, want if isinstance(want, list) else [want], strict=True):
                bound = TOLERANCE.get(g.dtype.name, 0)
                np.testing.assert_allclose(g.astype(float), w.astype(float), rtol=bound,
                                           atol=bound, err_msg=f"{device}: {types}")
    assert ran > 12 and refused > 5


def origin(error: BaseException) -> OperatorError:
    """The error that names two sizes."""
    while not getattr(error, "sizes", ()):
        assert error.__cause__ is not None
        error = error.__cause__
    assert isinstance(error, OperatorError)
    return error


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_may_be_equal_must_be_one_symbol(name: str) -> None:
    c, pick = CASES[name], np.random.default_rng(6)
    types = drawn(c, pick, every=True)
    for letter in "NT":
        held = [n for n in types if letter in c.axes[n]]

        def named(n: str, size: Size, letter: str = letter) -> TensorType:
            shape = tuple([size if a == letter else s
                           for a, s in zip(c.axes[n], types[n].shape, strict=True)])
            return types[n].with_(shape=shape)

        same = types | {n: named(n, sym(letter)) for n in held}
        assert not problem(asked(c, same))
        if letter == "N" or name != "cache":
            graph(c.op, same, c.required, c.one)
            other = same | {held[-1]: named(held[-1], sym("M"))}
            assert not problem(asked(c, other))  # a run may bring equal sizes
            with pytest.raises(OperatorError, match="is needed") as caught:
                graph(c.op, other, c.required, c.one)
            cause = origin(caught.value)
            assert {*map(str, cause.sizes)} == {letter, "M"} and "one symbol" in str(cause)


def f32(*shape: Size) -> TensorType:
    return TensorType(shape, DTYPES["f32"])


N, C = sym("N"), sym("C")


@pytest.mark.parametrize(("request_", "op", "types", "attrs", "sizes"), [
    (LinearAttention(f32(N, 3, 8), f32(N, 3, 8), f32(N, 3, 8), f32(1, 2, 4, 4), None, None,
                     "linear", 2, 2), linear_attention,
     {"q": f32(N, 3, 8), "k": f32(N, 3, 8), "v": f32(N, 3, 8), "past": f32(1, 2, 4, 4)},
     {"rule": "linear", "q_heads": 2, "kv_heads": 2}, {"N", "1"}),
    (CausalConv(f32(1, C, 5), f32(4, 1, 3), None, None), causal_conv_with_state,
     {"x": f32(1, C, 5), "w": f32(4, 1, 3)}, {}, {"C", "4"}),
    (GatedNorm(f32(1, C), f32(4), f32(1, C), "silu"), gated_rms_norm,
     {"x": f32(1, C), "scale": f32(4), "gate": f32(1, C)}, {}, {"C", "4*((C)//(4))"})],
    ids=["past", "channels", "groups"])
def test_a_symbol_is_no_number(request_: Request, op: object, types: dict[str, TensorType],
                               attrs: dict[str, object], sizes: set[str]) -> None:
    assert not problem(request_)
    with pytest.raises(OperatorError) as caught:
        graph(op, types, min(len(types), 3), attrs)
    assert {*map(str, origin(caught.value).sizes)} == sizes
