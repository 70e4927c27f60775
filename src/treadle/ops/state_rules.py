"""What the state-space operators accept: every rule is a predicate that gives the sentence to show.

A request holds the types of the operands, under the names that ONNX gives them, and the
attributes. A rule gives an empty string or one sentence that names the input, what it is and what
is needed. `problem(request)` is the first such sentence; operators, importers and whoever has to
decide whether a node can be taken ask the same function. Symbols that may be equal are no problem
yet; an operator, which has to know, refuses them by the same rules until they are one symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.types import TensorType, count, shape_text
from ..records import dataclass
from .extents import surely_differ

MOST_STATES = 8
"""The longest window of states."""
FARTHEST = 2**31
"""Positions that a convolution's receptive field stays below."""
ACTIVATIONS = ("none", "silu", "swish")
GATED, DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")
UPDATES = ("linear", "gated", "delta", "gated_delta")
Differ: TypeAlias = Callable[[Size, Size], bool]
"""Whether two sizes that must be equal are not, as far as one wants to know."""


class Request(Protocol):
    """What an operator is asked to do."""

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says, in order; a rule may count on those before it."""
        ...


def problem(request: Request, differ: Differ = surely_differ) -> str:
    """The first sentence about a request that cannot be run, or an empty string."""
    return next(filter(None, request.faults(differ)), "")


def refuse(request: Request) -> None:
    """Raise OperatorError with the sentence, if there is one; equal sizes must be one symbol."""
    if why := problem(request):
        raise OperatorError(why)
    last: tuple[Size, ...] = ()

    def unequal(a: Size, b: Size) -> bool:
        nonlocal last
        last = last if a == b else (a, b)
        return a != b

    if why := problem(request, unequal):
        raise OperatorError(why, hint="give equal sizes one symbol, or numbers", sizes=last)


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """query[N,T,Hq*dk], key[N,T,Hk*dk], value[N,T,H*dv], past_state[N,H,dk,dv], decay, beta.

    `standard` adds what ai.onnx demands beyond com.microsoft.
    """

    query: TensorType
    key: TensorType
    value: TensorType
    past_state: TensorType | None
    decay: TensorType | None
    beta: TensorType | None
    rule: str
    q_heads: int
    kv_heads: int
    window: int = 0
    standard: bool = False

    @property
    def operands(self) -> Mapping[str, TensorType | None]:
        """What has a time axis, by name."""
        return {"query": self.query, "key": self.key, "value": self.value, "decay": self.decay,
                "beta": self.beta}

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        return (rule(self, differ) for rule in LINEAR_ATTENTION)


@dataclass(frozen=True, slots=True)
class CausalConv:
    """input[N,C,L] or, channels last, [N,L,d1,..]; weight[C,1,k], bias[C], past_state."""

    input: TensorType
    weight: TensorType
    bias: TensorType | None
    past_state: TensorType | None
    activation: str = "none"
    dilation: int = 1
    channels_last: bool = False
    window: int = 0

    @property
    def state_length(self) -> int:
        """Positions that the state holds."""
        k = self.weight.shape[2]
        return (k - 1) * self.dilation if isinstance(k, int) else 0

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        return (rule(self, differ) for rule in CAUSAL_CONV)


Rule: TypeAlias = "Callable[[LinearAttention, Differ], str]"
ConvRule: TypeAlias = "Callable[[CausalConv, Differ], str]"


def floats(named: Mapping[str, TensorType | None]) -> str:
    """One floating dtype of at least 16 bits for all operands."""
    first, kind = next(iter(named.items()))
    assert kind is not None
    if kind.dtype.sort != "float" or kind.dtype.bits < 16:
        return f"{first} is {kind.dtype}; f16, bf16, f32 or f64 is needed"
    for name, t in named.items():
        if t is not None and t.dtype is not kind.dtype:
            return f"{name} is {t.dtype} and {first} is {kind.dtype}; they must be the same"
    return ""


def shaped(differ: Differ, name: str, t: TensorType | None, *wanted: Sequence[Size]) -> str:
    """The operand has one of these shapes, as far as `differ` tells sizes apart."""
    if t is None or any(t.rank == len(w) and not any(map(differ, t.shape, w)) for w in wanted):
        return ""
    shapes = " or ".join(shape_text(tuple(w)) for w in wanted)
    return f"{name} is {t}; {shapes} is needed"


def _window(window: int) -> str:
    if not 0 <= window <= MOST_STATES:
        return f"state_window is {window}; 0 to {MOST_STATES} is needed"
    return ""


# Linear attention


def _update(r: LinearAttention, _: Differ) -> str:
    return "" if r.rule in UPDATES else (
        f"update_rule is {r.rule!r}; one of {', '.join(UPDATES)} is needed")


def _heads(r: LinearAttention, _: Differ) -> str:
    q, kv = r.q_heads, r.kv_heads
    if q < 1 or kv < 1:
        return f"there are {q} query and {kv} key/value heads; at least one of each is needed"
    if r.standard and q % kv:
        return f"q_num_heads is {q}; a multiple of the {kv} kv_num_heads is needed"
    if q % kv and kv % q:
        return (f"there are {q} query and {kv} key/value heads; one number must be a multiple "
                "of the other")
    return ""


def _ranks(r: LinearAttention, _: Differ) -> str:
    for name, t in r.operands.items():
        if t is not None and t.rank != 3:
            return f"{name} is {t}; rank 3, [N,T,heads * size], is needed"
    return ""


def _widths(r: LinearAttention, _: Differ) -> str:
    for name, t, heads in (("query", r.query, r.q_heads), ("key", r.key, 0),
                           ("value", r.value, r.kv_heads)):
        width = t.shape[2]
        if not isinstance(width, int):
            return f"{name} is {t}; its last axis must be a known number"
        if width < 1 or heads and width % heads:
            return f"{name} is {t}; its last axis must hold {heads or 'some'} heads of equal size"
    return ""


def key_width(r: LinearAttention) -> int:
    """The size dk of a query head."""
    return int(r.query.shape[2]) // r.q_heads  # type: ignore[arg-type]


def _key_heads(r: LinearAttention, _: Differ) -> str:
    width, dk = r.key.shape[2], key_width(r)
    assert isinstance(width, int)
    if r.standard and width != dk * r.kv_heads:
        return f"key is {r.key}; {r.kv_heads} heads of {dk} are needed"
    if width % dk or r.kv_heads % (width // dk):
        return (f"key is {r.key}; it must hold heads of {dk}, in a number that divides the "
                f"{r.kv_heads} key/value heads")
    return ""


def _time(r: LinearAttention, differ: Differ) -> str:
    for name, t in r.operands.items():
        if t is not None and any(map(differ, t.shape[:2], r.query.shape[:2])):
            return f"{name} is {t} and query is {r.query}; batch and time must be the same"
    return ""


def _gates(r: LinearAttention, _: Differ) -> str:
    for name, t, rules in (("decay", r.decay, GATED), ("beta", r.beta, DELTA)):
        if (r.rule in rules) != (t is not None):
            return (f"update_rule {r.rule!r} {'needs' if r.rule in rules else 'takes no'} "
                    f"{name}")
    return ""


def _gate_shapes(r: LinearAttention, differ: Differ) -> str:
    n, t = r.query.shape[:2]
    h, dk = r.kv_heads, key_width(r)
    return (shaped(differ, "decay", r.decay, (n, t, h), (n, t, h * dk))
            or shaped(differ, "beta", r.beta, (n, t, h), (n, t, 1)))


def _past(r: LinearAttention, differ: Differ) -> str:
    if r.past_state is None:
        return ""
    lead = (r.window,) if r.window else ()
    dv = int(r.value.shape[2]) // r.kv_heads  # type: ignore[arg-type]
    if r.past_state.dtype.sort != "float" or r.past_state.dtype.bits < 16:
        return f"past_state is {r.past_state.dtype}; f16, bf16, f32 or f64 is needed"
    return shaped(differ, "past_state", r.past_state,
                  (*lead, r.query.shape[0], r.kv_heads, key_width(r), dv))


def _contrib_window(r: LinearAttention, _: Differ) -> str:
    if r.standard and r.window:
        return "ai.onnx has no state_window"
    return _window(r.window)


LINEAR_ATTENTION: tuple[Rule, ...] = (
    _update, _contrib_window, _heads, _ranks, lambda r, _: floats(r.operands), _widths, _key_heads,
    _time, _gates, _gate_shapes, _past)


# Causal convolution


def _activation(r: CausalConv, _: Differ) -> str:
    return "" if r.activation in ACTIVATIONS else (
        f"activation is {r.activation!r}; one of {', '.join(ACTIVATIONS)} is needed")


def _conv_ranks(r: CausalConv, _: Differ) -> str:
    if r.weight.rank != 3 or r.weight.shape[1] != 1:
        return f"weight is {r.weight}; [channels,1,kernel] is needed"
    if not all(isinstance(d, int) and d > 0 for d in r.weight.shape):
        return f"weight is {r.weight}; channels and kernel must be known and positive"
    if r.input.rank < 3 or r.input.rank > 3 and not r.channels_last:
        return f"input is {r.input}; " + (
            "[N,L,channels..] is needed" if r.channels_last else "[N,channels,L] is needed")
    return ""


def _channels(r: CausalConv, differ: Differ) -> str:
    channels = count(r.input.shape[2:]) if r.channels_last else r.input.shape[1]
    if differ(channels, r.weight.shape[0]):
        return f"input is {r.input} and weight is {r.weight}; the channels must be the same"
    return ""


def _dilation(r: CausalConv, _: Differ) -> str:
    if r.dilation < 1 or r.dilation >= FARTHEST:
        return f"dilation is {r.dilation}; a positive 32-bit number is needed"
    if r.state_length >= FARTHEST - 1:
        return (f"{r.weight.shape[2]} taps {r.dilation} apart reach {r.state_length} positions "
                "back; fewer than 2147483647 are needed")
    return ""


def state_shape(r: CausalConv) -> tuple[Size, ...]:
    """The shape of one state."""
    n, rest = r.input.shape[0], r.input.shape[1:]
    return ((n, r.state_length, *rest[1:]) if r.channels_last
            else (n, rest[0], r.state_length))


def _conv_past(r: CausalConv, differ: Differ) -> str:
    lead = (r.window,) if r.window else ()
    return shaped(differ, "past_state", r.past_state, (*lead, *state_shape(r)))


CAUSAL_CONV: tuple[ConvRule, ...] = (
    _activation, lambda r, _: _window(r.window), _conv_ranks,
    lambda r, _: floats({"input": r.input, "weight": r.weight, "bias": r.bias,
                         "past_state": r.past_state}),
    _channels, _dilation, lambda r, d: shaped(d, "bias", r.bias, (r.weight.shape[0],)), _conv_past)
