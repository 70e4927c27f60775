"""What a linear attention kernel is asked to compute, and how it is cut.

A unit of work is a sequence, a state and a block of its columns. The columns lie in slabs of two
vectors; a chunk of tokens is as long as a slab is wide, so that keys against queries are a product
of the same shape as queries against a slab of the state.
"""

from __future__ import annotations

from typing import Literal

from ....codegen.llvm.target import Target
from ....codegen.llvm.text import F32, Type
from ....ir.dims import Size, cdiv, dmin, evaluate
from ....records import dataclass

VECTORS = 2
"""Vectors of a slab."""
_LINE = 16
"""Numbers between slabs, so that the lines of a row of the state are not all rivals in a cache."""
_WIDEST = 128
"""Most columns of a unit: more would leave cores without work, fewer repeat what columns share."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 17, 256
_SPAN = 256
"""Fewest tokens of a span: the state costs as much memory traffic as 128 tokens."""
_MOST_SPANS, _MOST_UNKNOWN = 64, 16
"""Most spans of a known number of tokens, and of one that a run brings."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear attention over known head counts and sizes; N and T are run-time words.

    `decay` is absent, one number a head or one a key; `beta` absent, one for all heads or one each.
    `element` is the dtype of what has a time axis, `state` that of the states in memory. `length`
    says what is known of T, so that code for other numbers of tokens is left out.
    """

    q_heads: int
    k_heads: int
    heads: int
    dk: int
    dv: int
    scale: float
    decay: Literal["none", "head", "key"]
    beta: Literal["none", "one", "head"]
    past: bool
    window: int
    element: Type
    state: Type
    length: Literal["any", "one", "several"] = "any"

    @property
    def delta(self) -> bool:
        """Whether a token corrects what the state gives for its key."""
        return self.beta != "none"

    @property
    def group(self) -> int:
        """Query heads that read one state."""
        return max(self.q_heads // self.heads, 1)

    @property
    def out_heads(self) -> int:
        """Heads of the output."""
        return max(self.q_heads, self.heads)

    @property
    def operands(self) -> list[str]:
        """What is read beside the states, in the order of the words."""
        return ["q", "k", "v", *["g"] * (self.decay != "none"), *["b"] * self.delta]


class Cut:
    """Sizes that follow from a specification and the target, and where scratch memory lies."""

    def __init__(self, spec: Linear, target: Target) -> None:
        self.lanes = target.lanes(F32)
        self.columns = self.chunk = VECTORS * self.lanes
        self.rows = target.vector_registers * 3 // 8
        self.depth = -(-spec.dk // self.lanes) * self.lanes
        slabs = -(-spec.dv // self.columns)
        self.blocks = -(-slabs * self.columns // _WIDEST)
        self.slabs = -(-slabs // self.blocks)
        self.blocks = -(-slabs // self.slabs)
        self.width = self.slabs * self.columns
        self.slab = self.depth * self.columns + _LINE
        self.places: dict[str, int] = {}
        self.size = 0
        chunk, tokens = self.chunk, self.chunk * spec.group
        for name, count in (
                ("state", self.slabs * self.slab), ("k", chunk * self.depth),
                ("turned", chunk * self.depth), ("q", tokens * self.depth),
                ("scores", tokens * chunk), ("overlap", chunk * chunk),
                ("v", chunk * self.width), ("y", tokens * self.width),
                ("found", chunk * self.columns), ("decay", chunk * self.depth),
                ("kept", self.depth), ("line", chunk), ("beta", chunk)):
            self.places[name] = self.size
            self.size += -(-count // 16) * 16

    def covers(self, dv: int) -> bool:
        """Whether the blocks of columns hold `dv` columns exactly."""
        return self.blocks * self.width == dv


def scratch_bytes(spec: Linear, target: Target) -> int:
    """Scratch memory of a lane."""
    return 4 * Cut(spec, target).size + 64


def spans(spec: Linear, tokens: Size) -> list[tuple[Size, Size]]:
    """Ranges of tokens that all states go through before any goes on.

    The rows of neighbouring heads share pages and what a processor fetches ahead, so they are read
    soon after each other. One range where a state's own dtype would round it in between.
    """
    most = _MOST_SPANS if isinstance(tokens, int) else _MOST_UNKNOWN
    if spec.state != F32 or spec.window or spec.out_heads == 1 or isinstance(tokens, int) and (
            tokens <= _SPAN):
        return [(0, tokens)]
    each = cdiv(tokens, most * _SPAN) * _SPAN
    count = most if not isinstance(tokens, int) else evaluate(cdiv(tokens, each), {})
    return [(dmin(at * each, tokens), dmin((at + 1) * each, tokens)) for at in range(count)]


def chunks_for(spec: Linear, target: Target, n: int, tokens: int) -> int:
    """How many chunks a plan cuts the kernel into."""
    cut = Cut(spec, target)
    units = n * spec.heads * cut.blocks
    work = units * spec.dk * min(cut.width, spec.dv) * (tokens + 1) * 4
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))
