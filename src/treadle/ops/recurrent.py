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

All are composites of a `scan` over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64
from .arithmetic import max_, min_
from .compare import gt, lt, where
from .contract import matmul
from .control import scan
from .extents import surely_differ
from .generate import range_
from .leaves import full
from .movement import concat, narrow, reshape, split, transpose
from .recurrent_activations import Activation, activations_of

State: TypeAlias = "tuple[Value, ...]"
Step: TypeAlias = "Callable[[Value, State], State]"
Make: TypeAlias = "Callable[[int, Sequence[Activation]], tuple[Value, Step]]"
Products: TypeAlias = "Callable[[int], tuple[Activation, Activation]]"
"""A direction's products: of the input, and of the hidden state, with their weights."""
ORACLE = "tests.oracles.recurrent:"


def _directions(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


def _check(x: Value, given: dict[str, tuple[Value | None, tuple[Size, ...]]]) -> None:
    for name, (v, want) in given.items():
        if v is None:
            continue
        if v.type.rank != len(want) or any(map(surely_differ, v.shape, want)):
            raise OperatorError(f"{name} must be [{', '.join(map(str, want))}], got {v.type}")
        if name == "sequence_lens":
            if v.dtype.sort not in ("int", "uint"):
                raise OperatorError(f"sequence_lens must be integers, got {v.type}")
        elif v.dtype is not x.dtype:
            raise OperatorError(f"{name} is {v.dtype} and x is {x.dtype}",
                                hint="cast one of them")


def _check_layer(gates: int, x: Value, w: Value, r: Value, bias: Value | None,
                 sequence_lens: Value | None, states: dict[str, Value | None], direction: str,
                 layout: int) -> None:
    """Check the operands that all layers share."""
    if x.type.rank != 3 or r.type.rank != 3 or x.dtype.sort != "float":
        raise OperatorError(f"x and r must be floats of rank 3, got {x.type} and {r.type}")
    if layout not in (0, 1):
        raise OperatorError(f"layout is 0 or 1, got {layout}")
    n, d, hidden = x.shape[1 - layout], _directions(direction), r.shape[2]
    state = (n, d, hidden) if layout else (d, n, hidden)
    _check(x, {"w": (w, (d, gates * hidden, x.shape[2])),
               "r": (r, (d, gates * hidden, hidden)),
               "bias": (bias, (d, 2 * gates * hidden)),
               "sequence_lens": (sequence_lens, (n,)),
               **{k: (v, state) for k, v in states.items()}})


def _one(x: Value, d: int, axis: int = 0) -> Value:
    """Index d of an axis, which goes."""
    shape = (*x.shape[:axis], *x.shape[axis + 1:])
    return reshape(narrow(x, axis=axis, start=d, length=1), shape=shape)


def _matrix(w: Value, d: int) -> Value:
    """One direction's weights, transposed to [inputs, gates * H]."""
    return transpose(_one(wide(w), d), perm=(1, 0))


def _halves(bias: Value | None, d: int) -> tuple[Value, Value] | None:
    """The input and recurrent halves of one direction's bias."""
    if bias is None:
        return None
    one = _one(wide(bias), d)
    half = one.shape[0] // 2
    return (narrow(one, axis=0, start=0, length=half),
            narrow(one, axis=0, start=half, length=half))


def _walk(xw: Value, lens: Value | None, state: State, step: Step, *, backward: bool
          ) -> tuple[Value, ...]:
    """The last states, then y[S, N, H]; rows past their length keep their state."""
    n, steps = len(state), xw.shape[0]
    operands = [*state, xw]
    if lens is not None:
        count = range_(start=0, step=1, length=steps, dtype=I64)
        rows = reshape(lens, shape=(1, lens.shape[0], 1))
        operands.append(lt(reshape(count, shape=(steps, 1, 1)), rows))

    def body(*args: Value) -> State:
        old, new = args[:n], step(args[n], args[:n])
        if lens is None:
            return (*new, new[0])
        live = args[n + 1]
        return (*[where(live, a, b) for a, b in zip(new, old, strict=True)],
                where(live, new[0], 0.0))

    out = scan(operands, body=body, carried=n, reverse=(backward,) * (len(operands) - n),
               out_reverse=(backward,))
    if lens is None:
        return out
    some = reshape(gt(lens, 0), shape=(lens.shape[0], 1))
    return (*[where(some, s, 0.0) for s in out[:n]], out[n])


def _layers(make: Make, x: Value, lens: Value | None, initial: Sequence[Value | None],
            hidden: Size, direction: str, functions: Sequence[Sequence[Activation]], layout: int
            ) -> tuple[Value, ...]:
    """Run every direction; `make(d, functions)` gives its x @ w and its step."""
    n, k, dtype = x.shape[1 - layout], len(initial), wide(x).dtype
    ends = list[tuple[Value, ...]]()
    lens = None if lens is None else cast_value(lens, I64)
    for d, fns in enumerate(functions):
        xw, step = make(d, fns)
        xw = transpose(xw, perm=(1, 0, 2)) if layout else xw
        state = tuple([_one(wide(s), d, layout) if s is not None else
                       full(value=0.0, shape=(n, hidden), dtype=dtype) for s in initial])
        ends.append(_walk(xw, lens, state, step, backward=d == 1 or direction == "reverse"))
    y = concat([reshape(e[k], shape=(x.shape[layout], 1, n, hidden)) for e in ends], axis=1)
    y = transpose(y, perm=(2, 0, 1, 3)) if layout else y
    one = (n, 1, hidden) if layout else (1, n, hidden)
    last = [concat([reshape(e[i], shape=one) for e in ends], axis=layout) for i in range(k)]
    return tuple([cast_value(v, x.dtype) for v in (y, *last)])


def _clipped(clip: float | None) -> Activation:
    return (lambda x: x) if clip is None else (lambda x: min_(max_(x, -clip), clip))


@composite(samples=[
    sample("f32[4,2,3]", "f32[1,8,3]", "f32[1,8,2]", expect=ORACLE + "lstm", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,8,3]", "f32[2,8,2]", bias="f32[2,16]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", initial_c="f32[2,3,2]", peephole="f32[2,6]", low=1.0,
           high=4.0, direction="bidirectional", clip=0.7, expect=ORACLE + "lstm", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,8,3]", "f32[1,8,2]", bias="f32[1,16]", layout=1,
           direction="reverse", input_forget=True, initial_c="f32[2,1,2]",
           activations=("HardSigmoid", "ScaledTanh", "LeakyRelu"), alpha=(0.3, 1.5, 0.2),
           beta=(0.4, 0.7), expect=ORACLE + "lstm", rtol=1e-5),
    sample("f16[2,1,2]", "f16[1,8,2]", "f16[1,8,2]", expect=ORACLE + "lstm", rtol=2e-3)])
def lstm(x: Value, w: Value, r: Value, *, bias: Value | None = None,
         sequence_lens: Value | None = None, initial_h: Value | None = None,
         initial_c: Value | None = None, peephole: Value | None = None,
         direction: Literal["forward", "reverse", "bidirectional"] = "forward",
         activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
         beta: tuple[float, ...] = (), clip: float | None = None, input_forget: bool = False,
         layout: int = 0) -> tuple[Value, ...]:
    """Long short-term memory; gates in the order i, o, f, c. Gives y, y_h and y_c.

    i = f(xW + hR + p_i c), f alike (1 - i with `input_forget`), c' = f c + i g(..),
    o = f(.. + p_o c'), h' = o h(c'). Default activations: sigmoid, tanh, tanh.
    """
    _check_layer(4, x, w, r, bias, sequence_lens, {"initial_h": initial_h,
                                                   "initial_c": initial_c}, direction, layout)

    def products(d: int) -> tuple[Activation, Activation]:
        wt, rt = _matrix(w, d), _matrix(r, d)
        return lambda v: matmul(v, wt), lambda h: matmul(h, rt)

    return lstm_layers(x, r.shape[2], products, bias, sequence_lens, (initial_h, initial_c),
                       peephole, direction, (activations, alpha, beta), clip, input_forget, layout)


def lstm_layers(x: Value, hidden: Size, products: Products, bias: Value | None,
                lens: Value | None, initial: tuple[Value | None, Value | None],
                peephole: Value | None, direction: str,
                named: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]],
                clip: float | None, input_forget: bool, layout: int) -> tuple[Value, ...]:
    """An LSTM whose products with the weights are given for each direction."""
    count, bound = _directions(direction), _clipped(clip)
    _check(x, {"peephole": (peephole, (count, 3 * hidden))})

    def make(d: int, fns: Sequence[Activation]) -> tuple[Value, Step]:
        (f, g, h), halves, (into, again) = fns, _halves(bias, d), products(d)
        xw = into(wide(x))
        xw = xw + (halves[0] + halves[1]) if halves else xw
        peeps = () if peephole is None else split(_one(wide(peephole), d), axis=0,
                                                  sizes=(hidden,) * 3)

        def gate(at: int, total: Value, cell: Value) -> Value:
            return f(bound(total + peeps[at] * cell if peeps else total))

        def step(xt: Value, state: State) -> State:
            i, o, forget, c = split(xt + again(state[0]), axis=1, sizes=(hidden,) * 4)
            i = gate(0, i, state[1])
            forget = 1.0 - i if input_forget else gate(2, forget, state[1])
            cell = forget * state[1] + i * g(bound(c))
            return gate(1, o, cell) * h(cell), cell

        return xw, step

    names, alpha, beta = named
    functions = activations_of(names, ("sigmoid", "tanh", "tanh"), count, alpha, beta)
    return _layers(make, x, lens, initial, hidden, direction, functions, layout)


@composite(samples=[
    sample("f32[4,2,3]", "f32[1,6,3]", "f32[1,6,2]", expect=ORACLE + "gru", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,6,3]", "f32[2,6,2]", bias="f32[2,12]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", low=1.0, high=4.0, direction="bidirectional", clip=0.7,
           linear_before_reset=True, expect=ORACLE + "gru", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,6,3]", "f32[1,6,2]", bias="f32[1,12]", layout=1,
           direction="reverse", activations=("softsign", "Affine"), alpha=(0.3,), beta=(0.4,),
           expect=ORACLE + "gru", rtol=1e-5)])
def gru(x: Value, w: Value, r: Value, *, bias: Value | None = None,
        sequence_lens: Value | None = None, initial_h: Value | None = None,
        direction: Literal["forward", "reverse", "bidirectional"] = "forward",
        activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
        beta: tuple[float, ...] = (), clip: float | None = None,
        linear_before_reset: bool = False, layout: int = 0) -> tuple[Value, ...]:
    """Gated recurrent unit; gates in the order z, r, h. Gives y and y_h.

    z = f(xW + hR), r alike, n = g(xW + (r h)R + b), or g(xW + b_w + r (hR + b_r)) with
    `linear_before_reset`; h' = (1 - z) n + z h. Default activations: sigmoid, tanh.
    """
    _check_layer(3, x, w, r, bias, sequence_lens, {"initial_h": initial_h}, direction, layout)
    hidden, bound = r.shape[2], _clipped(clip)

    def make(d: int, fns: Sequence[Activation]) -> tuple[Value, Step]:
        (f, g), halves = fns, _halves(bias, d)
        sizes = (hidden * 2, hidden)
        gates, new = split(_matrix(r, d), axis=1, sizes=sizes)
        xw = matmul(wide(x), _matrix(w, d))
        xw = xw + halves[0] if halves else xw
        rb, nb = split(halves[1], axis=0, sizes=sizes) if halves else (None, None)

        def step(xt: Value, state: State) -> State:
            (h,), (xg, xn) = state, split(xt, axis=1, sizes=sizes)
            z, reset = split(f(bound(_plus(xg + matmul(h, gates), rb))), axis=1,
                             sizes=(hidden,) * 2)
            inner = (reset * _plus(matmul(h, new), nb) if linear_before_reset
                     else _plus(matmul(reset * h, new), nb))
            return ((1.0 - z) * g(bound(xn + inner)) + z * h,)

        return xw, step

    functions = activations_of(activations, ("sigmoid", "tanh"), _directions(direction), alpha,
                               beta)
    return _layers(make, x, sequence_lens, (initial_h,), hidden, direction, functions, layout)


def _plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias


@composite(samples=[
    sample("f32[4,2,3]", "f32[1,2,3]", "f32[1,2,2]", expect=ORACLE + "rnn", rtol=1e-5),
    sample("f32[4,3,3]", "f32[2,2,3]", "f32[2,2,2]", bias="f32[2,4]", sequence_lens="i32[3]",
           initial_h="f32[2,3,2]", low=0.0, high=3.0, direction="bidirectional", clip=0.7,
           activations=("Relu", "Elu"), alpha=(0.5,), expect=ORACLE + "rnn", rtol=1e-5),
    sample("f32[2,3,3]", "f32[1,2,3]", "f32[1,2,2]", layout=1, direction="reverse",
           expect=ORACLE + "rnn", rtol=1e-5)])
def rnn(x: Value, w: Value, r: Value, *, bias: Value | None = None,
        sequence_lens: Value | None = None, initial_h: Value | None = None,
        direction: Literal["forward", "reverse", "bidirectional"] = "forward",
        activations: tuple[str, ...] = (), alpha: tuple[float, ...] = (),
        beta: tuple[float, ...] = (), clip: float | None = None, layout: int = 0
        ) -> tuple[Value, ...]:
    """Simple recurrent layer: h' = f(xW + hR + b). Gives y and y_h. Default activation: tanh."""
    _check_layer(1, x, w, r, bias, sequence_lens, {"initial_h": initial_h}, direction, layout)
    bound = _clipped(clip)

    def make(d: int, fns: Sequence[Activation]) -> tuple[Value, Step]:
        (f,), rt, halves = fns, _matrix(r, d), _halves(bias, d)
        xw = matmul(wide(x), _matrix(w, d))

        def step(xt: Value, state: State) -> State:
            return (f(bound(xt + matmul(state[0], rt))),)

        return xw + (halves[0] + halves[1]) if halves else xw, step

    functions = activations_of(activations, ("tanh",), _directions(direction), alpha, beta)
    return _layers(make, x, sequence_lens, (initial_h,), r.shape[2], direction, functions, layout)
