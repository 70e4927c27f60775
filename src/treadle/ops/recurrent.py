"""LSTM, GRU and simple recurrent layers, as ONNX defines them.

Shapes, with D directions (2 when bidirectional), S steps, N sequences, I inputs, H hidden units:
x[S, N, I], w[D, gates * H, I], r[D, gates * H, H], bias[D, 2 * gates * H] (input half, recurrent
half), initial_h and initial_c [D, N, H], sequence_lens[N], peephole[D, 3 * H] (i, o, f). Outputs
are y[S, D, N, H], then y_h[D, N, H] and, for LSTM, y_c[D, N, H]. With `layout` 1 the batch comes
first: x[N, S, I], states [N, D, H], y[N, S, D, H].

Steps at or after a sequence's length write zeros to y and leave its state; a backward pass starts
at its last step; an empty sequence ends in zeros (as in ONNX Runtime). `clip` bounds the sums
that enter the gates' activations. `activations` names those of each direction in turn, in any
case, the defaults when empty; those that take alpha or beta use up `alpha` and `beta` in order.
Halves run in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from ..declare.arrays import Array, widen
from ..declare.kinds import structured
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.types import TensorType
from .extents import surely_differ
from .recurrent_activations import Activation, activations_of, check_activations

State: TypeAlias = tuple[Array, ...]
Step: TypeAlias = "Callable[[Array, State], State]"
ORACLE = "tests.oracles.recurrent:"


def _directions(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


def _check(x: TensorType, given: dict[str, tuple[TensorType | None, tuple[Size, ...]]]) -> None:
    for name, (t, want) in given.items():
        if t is None:
            continue
        if t.rank != len(want) or any(map(surely_differ, t.shape, want)):
            raise OperatorError(f"{name} must be [{', '.join(map(str, want))}], got {t}")
        if name == "sequence_lens":
            if t.dtype.sort not in ("int", "uint"):
                raise OperatorError(f"sequence_lens must be integers, got {t}")
        elif t.dtype is not x.dtype:
            raise OperatorError(f"{name} is {t.dtype} and x is {x.dtype}",
                                hint="cast one of them")


def _layer(gates: int, x: TensorType, w: TensorType, r: TensorType, bias: TensorType | None,
           sequence_lens: TensorType | None, states: dict[str, TensorType | None],
           direction: str, layout: int) -> tuple[TensorType, TensorType]:
    """Check the operands that all layers share; gives the types of y and of a state."""
    if x.rank != 3 or r.rank != 3 or x.dtype.sort != "float":
        raise OperatorError(f"x and r must be floats of rank 3, got {x} and {r}")
    n, steps, d = x.shape[1 - layout], x.shape[layout], _directions(direction)
    hidden = r.shape[2]
    state = (n, d, hidden) if layout else (d, n, hidden)
    _check(x, {"w": (w, (d, gates * hidden, x.shape[2])),
               "r": (r, (d, gates * hidden, hidden)),
               "bias": (bias, (d, 2 * gates * hidden)),
               "sequence_lens": (sequence_lens, (n,)),
               **{k: (t, state) for k, t in states.items()}})
    y = (n, steps, d, hidden) if layout else (steps, d, n, hidden)
    return x.with_(shape=y), x.with_(shape=state)


def _check_names(names: Sequence[str], per: int, direction: str) -> None:
    check_activations(names, per * _directions(direction))


def _lengths(lens: Array | None, steps: int) -> Array | None:
    if lens is not None and lens.size and not (lens.min() >= 0 and lens.max() <= steps):
        raise OperatorError(f"sequence_lens lie in {lens.min()}..{lens.max()}, "
                            f"x has {steps} steps")
    return lens


def _walk(xw: Array, lens: Array | None, state: State, step: Step, *, backward: bool
          ) -> tuple[Array, State]:
    """Apply `step` along axis 0 of xw[S, N, ..]; rows past their length keep their state."""
    y = np.zeros((len(xw), *state[0].shape), xw.dtype)
    for t in range(len(xw))[::-1 if backward else 1]:
        new = step(xw[t], state)
        if lens is None:
            y[t], state = new[0], new
            continue
        live = (t < lens)[:, None]
        y[t] = np.where(live, new[0], 0)
        state = tuple([np.where(live, a, b) for a, b in zip(new, state, strict=True)])
    if lens is not None:
        state = tuple([np.where(lens[:, None] > 0, s, 0) for s in state])
    return y, state


Make: TypeAlias = "Callable[[int, Sequence[Activation]], tuple[Array, Step]]"


def _layers(make: Make, x: Array, lens: Array | None, initial: Sequence[Array | None],
            hidden: int, direction: str, functions: Sequence[Activation], layout: int
            ) -> tuple[Array, ...]:
    """Run every direction; `make(d, functions)` gives its x @ w and its step."""
    count, n = _directions(direction), x.shape[1 - layout]
    per, dtype = len(functions) // count, widen(x).dtype
    starts = [np.zeros((count, n, hidden), dtype) if s is None else
              widen(s).swapaxes(0, 1) if layout else widen(s) for s in initial]
    ys, ends = list[Array](), list[State]()
    for d in range(count):
        xw, step = make(d, functions[d * per:(d + 1) * per])
        xw = xw.swapaxes(0, 1) if layout else xw
        y, end = _walk(xw, _lengths(lens, len(xw)), tuple([s[d] for s in starts]), step,
                       backward=d == 1 or direction == "reverse")
        ys.append(y)
        ends.append(end)
    y = np.stack(ys, 1)
    y = y.transpose(2, 0, 1, 3) if layout else y
    last = [np.stack([e[i] for e in ends], layout) for i in range(len(initial))]
    return tuple([a.astype(x.dtype, copy=False) for a in (y, *last)])


def _biases(bias: Array | None, d: int, w: Array) -> tuple[Array, Array]:
    """The input and recurrent halves of one direction's bias."""
    if bias is None:
        zero = np.zeros(w.shape[1], widen(w).dtype)
        return zero, zero
    wb, rb = np.split(widen(bias)[d], 2)
    return wb, rb


def _clipped(clip: float | None) -> Activation:
    return (lambda x: x) if clip is None else (lambda x: np.clip(x, -clip, clip))


def _lstm_types(x: TensorType, w: TensorType, r: TensorType, *, bias: TensorType | None = None,
                sequence_lens: TensorType | None = None, initial_h: TensorType | None = None,
                initial_c: TensorType | None = None, peephole: TensorType | None = None,
                direction: str, activations: tuple[str, ...], alpha: tuple[float, ...],
                beta: tuple[float, ...], clip: float | None, input_forget: bool, layout: int
                ) -> tuple[TensorType, ...]:
    y, state = _layer(4, x, w, r, bias, sequence_lens,
                      {"initial_h": initial_h, "initial_c": initial_c}, direction, layout)
    _check(x, {"peephole": (peephole, (_directions(direction), 3 * r.shape[2]))})
    _check_names(activations, 3, direction)
    return y, state, state


@structured(types=_lstm_types, samples=[
    sample("f32[4,2,3]", "f32[1,8,3]", "f32[1,8,2]", expect=ORACLE + "lstm", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,8,3]", "f32[2,8,2]", bias="f32[2,16]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", initial_c="f32[2,3,2]", peephole="f32[2,6]", low=1.0,
           high=4.0, direction="bidirectional", clip=0.7, expect=ORACLE + "lstm", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,8,3]", "f32[1,8,2]", bias="f32[1,16]", layout=1,
           direction="reverse", input_forget=True, initial_c="f32[2,1,2]",
           activations=("HardSigmoid", "ScaledTanh", "LeakyRelu"), alpha=(0.3, 1.5, 0.2),
           beta=(0.4, 0.7), expect=ORACLE + "lstm", rtol=1e-5),
    sample("f16[2,1,2]", "f16[1,8,2]", "f16[1,8,2]", expect=ORACLE + "lstm", rtol=2e-3)])
def lstm(x: Array, w: Array, r: Array, *, bias: Array | None = None,
         sequence_lens: Array | None = None, initial_h: Array | None = None,
         initial_c: Array | None = None, peephole: Array | None = None,
         direction: Literal["forward", "reverse", "bidirectional"] = "forward",
         activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
         beta: tuple[float, ...] = (), clip: float | None = None, input_forget: bool = False,
         layout: int = 0) -> tuple[Array, Array, Array]:
    """Long short-term memory; gates in the order i, o, f, c. Gives y, y_h and y_c.

    i = f(xW + hR + p_i c), f alike (1 - i with `input_forget`), c' = f c + i g(..),
    o = f(.. + p_o c'), h' = o h(c'). Default activations: sigmoid, tanh, tanh.
    """
    names = activations or ("sigmoid", "tanh", "tanh") * _directions(direction)
    wide_x, bound = widen(x), _clipped(clip)

    def make(d: int, fns: Sequence[Activation]) -> tuple[Array, Step]:
        wb, rb = _biases(bias, d, w)
        rt = widen(r)[d].T
        pi, po, pf = np.split(widen(peephole)[d], 3) if peephole is not None else (0.0, 0.0, 0.0)
        f, g, h = fns

        def step(xt: Array, state: State) -> State:
            i, o, forget, c = np.split(xt + state[0] @ rt, 4, axis=1)
            i = f(bound(i + pi * state[1]))
            forget = 1 - i if input_forget else f(bound(forget + pf * state[1]))
            cell = forget * state[1] + i * g(bound(c))
            return f(bound(o + po * cell)) * h(cell), cell

        return wide_x @ widen(w)[d].T + (wb + rb), step

    return _layers(make, x, sequence_lens, (initial_h, initial_c), r.shape[2], direction,
                   activations_of(names, alpha, beta), layout)  # type: ignore[return-value]


def _gru_types(x: TensorType, w: TensorType, r: TensorType, *, bias: TensorType | None = None,
               sequence_lens: TensorType | None = None, initial_h: TensorType | None = None,
               direction: str, activations: tuple[str, ...], alpha: tuple[float, ...],
               beta: tuple[float, ...], clip: float | None, linear_before_reset: bool, layout: int
               ) -> tuple[TensorType, ...]:
    _check_names(activations, 2, direction)
    return _layer(3, x, w, r, bias, sequence_lens, {"initial_h": initial_h}, direction, layout)


@structured(types=_gru_types, samples=[
    sample("f32[4,2,3]", "f32[1,6,3]", "f32[1,6,2]", expect=ORACLE + "gru", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,6,3]", "f32[2,6,2]", bias="f32[2,12]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", low=1.0, high=4.0, direction="bidirectional", clip=0.7,
           linear_before_reset=True, expect=ORACLE + "gru", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,6,3]", "f32[1,6,2]", bias="f32[1,12]", layout=1,
           direction="reverse", activations=("softsign", "Affine"), alpha=(0.3,), beta=(0.4,),
           expect=ORACLE + "gru", rtol=1e-5)])
def gru(x: Array, w: Array, r: Array, *, bias: Array | None = None,
        sequence_lens: Array | None = None, initial_h: Array | None = None,
        direction: Literal["forward", "reverse", "bidirectional"] = "forward",
        activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
        beta: tuple[float, ...] = (), clip: float | None = None,
        linear_before_reset: bool = False, layout: int = 0) -> tuple[Array, Array]:
    """Gated recurrent unit; gates in the order z, r, h. Gives y and y_h.

    z = f(xW + hR), r alike, n = g(xW + (r h)R + b), or g(xW + b_w + r (hR + b_r)) with
    `linear_before_reset`; h' = (1 - z) n + z h. Default activations: sigmoid, tanh.
    """
    names = activations or ("sigmoid", "tanh") * _directions(direction)
    wide_x, bound, hidden = widen(x), _clipped(clip), r.shape[2]

    def make(d: int, fns: Sequence[Activation]) -> tuple[Array, Step]:
        wb, rb = _biases(bias, d, w)
        rt, (f, g) = widen(r)[d].T, fns
        gates, new = rt[:, :2 * hidden], rt[:, 2 * hidden:]

        def step(xt: Array, state: State) -> State:
            (h,) = state
            z, reset = np.split(f(bound(xt[:, :2 * hidden] + h @ gates + rb[:2 * hidden])), 2, 1)
            if linear_before_reset:
                inner = reset * (h @ new + rb[2 * hidden:])
            else:
                inner = (reset * h) @ new + rb[2 * hidden:]
            n = g(bound(xt[:, 2 * hidden:] + inner))
            return ((1 - z) * n + z * h,)

        return wide_x @ widen(w)[d].T + wb, step

    return _layers(make, x, sequence_lens, (initial_h,), hidden, direction,
                   activations_of(names, alpha, beta), layout)  # type: ignore[return-value]


def _rnn_types(x: TensorType, w: TensorType, r: TensorType, *, bias: TensorType | None = None,
               sequence_lens: TensorType | None = None, initial_h: TensorType | None = None,
               direction: str, activations: tuple[str, ...], alpha: tuple[float, ...],
               beta: tuple[float, ...], clip: float | None, layout: int
               ) -> tuple[TensorType, ...]:
    _check_names(activations, 1, direction)
    return _layer(1, x, w, r, bias, sequence_lens, {"initial_h": initial_h}, direction, layout)


@structured(types=_rnn_types, samples=[
    sample("f32[4,2,3]", "f32[1,2,3]", "f32[1,2,2]", expect=ORACLE + "rnn", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,2,3]", "f32[2,2,2]", bias="f32[2,4]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", low=0.0, high=3.0, direction="bidirectional", clip=0.7,
           activations=("Relu", "Elu"), alpha=(0.5,), expect=ORACLE + "rnn", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,2,3]", "f32[1,2,2]", layout=1, direction="reverse",
           expect=ORACLE + "rnn", rtol=1e-5)])
def rnn(x: Array, w: Array, r: Array, *, bias: Array | None = None,
        sequence_lens: Array | None = None, initial_h: Array | None = None,
        direction: Literal["forward", "reverse", "bidirectional"] = "forward",
        activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
        beta: tuple[float, ...] = (), clip: float | None = None, layout: int = 0
        ) -> tuple[Array, Array]:
    """Simple recurrent layer: h' = f(xW + hR + b). Gives y and y_h. Default activation: tanh."""
    names = activations or ("tanh",) * _directions(direction)
    wide_x, bound = widen(x), _clipped(clip)

    def make(d: int, fns: Sequence[Activation]) -> tuple[Array, Step]:
        wb, rb = _biases(bias, d, w)
        rt, (f,) = widen(r)[d].T, fns

        def step(xt: Array, state: State) -> State:
            return (f(bound(xt + state[0] @ rt)),)

        return wide_x @ widen(w)[d].T + (wb + rb), step

    return _layers(make, x, sequence_lens, (initial_h,), r.shape[2], direction,
                   activations_of(names, alpha, beta), layout)  # type: ignore[return-value]
