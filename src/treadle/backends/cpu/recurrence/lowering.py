"""Lowerings of recurrences: operands as strided views, states as they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from ....codegen.llvm.target import host
from ....codegen.llvm.text import BF16, F16, F32, Type
from ....errors import Declined
from ....ir.dims import Size, evaluate
from ....ir.graph import Node
from ....ir.types import count
from ....memory.views import View, reshape
from ..convolution.geometry import copied
from ..lowered import Binding, Lowered, Word
from . import causal, selective
from .causal import Causal, emit_causal
from .linear import emit_linear
from .selective import Selective, emit_selective
from .spec import Linear, chunks_for, scratch_bytes, spans

_FARTHEST = 1 << 16
"""Positions of history that scratch memory holds."""
_MOST_STATES = 256
ELEMENTS: dict[str, Type] = {"f16": F16, "bf16": BF16, "f32": F32}


def element(view: View) -> Type:
    """The element type in memory; raises `Declined` for what the templates do not compute."""
    dtype = view.base.dtype
    if dtype.name not in ELEMENTS:
        raise Declined(f"no recurrence template for {dtype}")
    return ELEMENTS[dtype.name]


def by_rows(view: View, before: list[Lowered]) -> View:
    """The view with neighbours of the last axis side by side; `before` gains a copy if need be."""
    if view.shape[-1] == 1 or view.strides[-1] == 1:
        return view
    made, lowered = copied(view)
    before.append(lowered)
    return made


def dense(view: View, before: list[Lowered]) -> View:
    """The view without gaps; `before` gains a copy if need be."""
    if view.dense:
        return view
    made, lowered = copied(view)
    before.append(lowered)
    return made


def in_place(pairs: Sequence[tuple[View, View | None]]) -> tuple[tuple[Any, Any], ...]:
    """Outputs that may take the memory of the operand they follow from."""
    return tuple([(out.base, x.base) for out, x in pairs if x is not None and x.whole
                  and out.whole and x.base.dtype is out.base.dtype])


def number(size: Size, what: str) -> int:
    """A size that templates must know."""
    if not isinstance(size, int):
        raise Declined(f"{what} is {size}; a template needs the number")
    return size


def linear_attention(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """A kernel for each span, after copies of operands that do not lie row by row."""
    before = list[Lowered]()
    named = dict(zip(node.keys, ins[3:], strict=True))
    q, k, v = (by_rows(x, before) for x in ins[:3])
    past = dense(named["past"], before) if "past" in named else None
    gates = {short: by_rows(named[name], before)
             for name, short in (("decay", "g"), ("beta", "b")) if name in named}
    y, state = outs
    spec = _spec(node, q, k, v, past, gates)
    operands = {"q": q, "k": k, "v": v, **gates}
    if any(x.shape[:2] != q.shape[:2] for x in operands.values()):
        raise Declined("batch or time has several names")
    if past is not None and past.shape != state.shape:
        raise Declined("the states' batch has another name")
    if not (y.dense and state.dense):
        raise Declined("outputs that do not lie row by row")
    n, t = q.shape[:2]
    strides = [s for name in spec.operands for s in operands[name].strides[:2]]
    return [*before, *[_span(spec, [operands[name] for name in spec.operands],
                             state if at and past is not None else past, (y, state),
                             (n, t, low, high, *strides))
                       for at, (low, high) in enumerate(spans(spec, t))]]


def _span(spec: Linear, read: Sequence[View], past: View | None, made: tuple[View, View],
          sizes: tuple[Size, ...]) -> Lowered:
    """One call; all but the first are left out where no tokens are left for them."""
    n, _, low, high, *_ = sizes
    target, (y, state) = host(), made

    def chunks(b: Binding) -> int:
        tokens = evaluate(high - low, b)
        return chunks_for(spec, target, evaluate(n, b), tokens) if tokens or low == 0 else 0

    return Lowered(
        f"linear attention {spec}", lambda module, name: emit_linear(module, spec, name),
        (*read, *([past] if past is not None else []), y, state, *sizes), (y.base, state.base),
        chunks, lambda _: scratch_bytes(spec, target), reuse=in_place([(state, past)]))


def _spec(node: Node, q: View, k: View, v: View, past: View | None, gates: dict[str, View]
          ) -> Linear:
    attrs = node.attrs
    q_heads, heads = cast(int, attrs["q_heads"]), cast(int, attrs["kv_heads"])
    widths = [number(x.shape[2], "a width") for x in (q, k, v)]
    dk, dv, kind = widths[0] // q_heads, widths[2] // heads, element(q)
    if max(dk, dv) > 1024:
        raise Declined(f"a state of [{dk},{dv}]; at most 1024 fit the template")
    decay = "none" if "g" not in gates else "head" if gates["g"].shape[2] == heads else "key"
    beta = "none" if "b" not in gates else "head" if gates["b"].shape[2] == heads else "one"
    state, tokens = kind if past is None else element(past), q.shape[1]
    length = "one" if tokens == 1 else "several" if isinstance(tokens, int) else "any"
    return Linear(q_heads, widths[1] // dk, heads, dk, dv,
                  cast(float, attrs["scale"]) or 1.0 / math.sqrt(dk), cast(Any, decay),
                  cast(Any, beta), past is not None, cast(int, attrs["state_window"]), kind, state,
                  cast(Any, length))


def causal_conv(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """One kernel, after copies of what does not lie row by row."""
    before = list[Lowered]()
    named = dict(zip(node.keys, (dense(x, before) for x in ins[2:]), strict=True))
    attrs, kind, last = node.attrs, element(ins[0]), bool(node.attrs["channels_last"])
    x, w, past = by_rows(ins[0], before), dense(ins[1], before), named.get("past")
    y, state = outs
    if last:
        flat = (*x.shape[:2], count(x.shape[2:]))
        x = reshape(x, flat) or cast(View, reshape(dense(x, before), flat))
    n, tokens, channels = x.shape[0], x.shape[1 if last else 2], x.shape[2 if last else 1]
    spec = Causal(number(channels, "the number of channels"), number(w.shape[2], "the kernel"),
                  cast(int, attrs["dilation"]), last, "bias" in named, past is not None,
                  "none" if attrs["activation"] == "none" else "silu",
                  cast(int, attrs["state_window"]), kind)
    if spec.reach > _FARTHEST:
        raise Declined(f"taps reach {spec.reach} positions back; at most {_FARTHEST} fit")
    if w.shape[0] != channels or past is not None and past.shape != state.shape:
        raise Declined("channels or batch have several names")
    if not (y.dense and state.dense):
        raise Declined("outputs that do not lie row by row")
    target = host()
    read: list[Word] = [x, w, *(named[key] for key in ("bias", "past") if key in named)]
    return [*before, Lowered(
        f"causal convolution {spec}", lambda module, name: emit_causal(module, spec, name),
        (*read, y, state, n, tokens, *x.strides[:2]), (y.base, state.base),
        lambda b: causal.chunks_for(spec, target, evaluate(n, b), evaluate(tokens, b)),
        lambda _: causal.scratch_bytes(spec, target), reuse=in_place([(state, past)]))]


def selective_scan(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """One kernel, after copies of what does not lie row by row."""
    before = list[Lowered]()
    x, dt, b, c = (by_rows(ins[i], before) for i in (0, 1, 3, 4))
    a = dense(ins[2], before)
    past = dense(ins[5], before) if node.keys else None
    y, state = outs
    n, tokens, channels = x.shape
    spec = Selective(number(channels, "the number of channels"),
                     number(a.shape[1], "the number of states"),
                     tuple([element(v) for v in (x, dt, b, c, a)]), past is not None,
                     element(state))
    if dt.shape != x.shape or a.shape[0] != channels or any(
            v.shape != (n, tokens, spec.states) for v in (b, c)) or (
            past is not None and past.shape != state.shape):
        raise Declined("batch, time or channels have several names")
    if spec.states > _MOST_STATES:
        raise Declined(f"{spec.states} states a channel; at most {_MOST_STATES} fit")
    if not (y.dense and state.dense):
        raise Declined("outputs that do not lie row by row")
    target = host()
    strides = [s for v in (x, dt, b, c) for s in v.strides[:2]]
    return [*before, Lowered(
        f"selective scan {spec}", lambda module, name: emit_selective(module, spec, name),
        (x, dt, b, c, a, *([past] if past is not None else []), y, state, n, tokens, *strides),
        (y.base, state.base),
        lambda bound: selective.chunks_for(spec, target, evaluate(n, bound),
                                           evaluate(tokens, bound)),
        lambda _: selective.scratch_bytes(spec, target), reuse=in_place([(state, past)]))]


LOWERINGS = {"linear_attention": linear_attention, "causal_conv_with_state": causal_conv,
             "selective_scan": selective_scan}
