"""What the operators beside linear attention accept: gates, caches and scans.

Rules as `state_rules` explains them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.dims import Size
from ..ir.types import TensorType
from ..records import dataclass
from .extents import surely_exceeds
from .state_rules import Differ, floats, shaped


@dataclass(frozen=True, slots=True)
class AttentionGate:
    """a[N,T,H], dt_bias[H], decay_scale[H], b[N,T,H]."""

    a: TensorType
    dt_bias: TensorType
    decay_scale: TensorType
    b: TensorType | None

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        yield "" if self.a.rank == 3 else f"a is {self.a}; [N,T,heads] is needed"
        heads = (self.a.shape[2],)
        for name, t in (("dt_bias", self.dt_bias), ("decay_scale", self.decay_scale)):
            yield "" if t.dtype.name in ("f32", "f64") else f"{name} is {t.dtype}; f32 is needed"
            yield shaped(differ, name, t, heads)
        yield floats({"a": self.a, "b": self.b})
        yield shaped(differ, "b", self.b, self.a.shape)


@dataclass(frozen=True, slots=True)
class GatedAdd:
    """X[..,C], Y[..,C], gate[..,1]."""

    x: TensorType
    y: TensorType
    gate: TensorType

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        yield "" if self.x.rank else f"X is {self.x}; [..,C] is needed"
        yield floats({"X": self.x, "Y": self.y, "gate": self.gate})
        yield shaped(differ, "Y", self.y, self.x.shape)
        yield shaped(differ, "gate", self.gate, (*self.x.shape[:-1], 1))


@dataclass(frozen=True, slots=True)
class GatedNorm:
    """X[..,groups * C], scale[C], gate like X."""

    x: TensorType
    scale: TensorType
    gate: TensorType
    activation: str

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        x, scale = self.x, self.scale
        if self.activation not in ("silu", "swish", "sigmoid"):
            yield f"activation is {self.activation!r}; one of silu, swish, sigmoid is needed"
        if x.rank < 1 or scale.rank != 1:
            yield f"X is {x} and scale is {scale}; [..,groups * C] and [C] are needed"
        c, width = scale.shape[0], x.shape[-1]
        if c == 0 or differ(width // c * c, width):
            yield f"X is {x}; its last axis must be a multiple of the {c} entries of scale"
        yield floats({"X": x, "scale": scale, "gate": self.gate})
        yield shaped(differ, "gate", self.gate, x.shape)


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """past_cache[N,..,C,..], update[N,..,T,..], write_indices[N].

    `standard` adds what ai.onnx demands of the indices' dtype.
    """

    past_cache: TensorType
    update: TensorType
    write_indices: TensorType | None
    axis: int = -2
    mode: str = "linear"
    standard: bool = False

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        cache, update, rank = self.past_cache, self.update, self.past_cache.rank
        if self.mode not in ("linear", "circular"):
            yield f"mode is {self.mode!r}; linear or circular is needed"
        if not -rank <= self.axis < rank or self.axis % rank == 0:
            yield f"axis is {self.axis}; an axis of {cache} behind the batch is needed"
        if update.dtype is not cache.dtype:
            yield f"update is {update.dtype} and past_cache is {cache.dtype}; they must be the same"
        i = self.axis % rank
        own = update.shape[i] if update.rank == rank else 1
        yield shaped(differ, "update", update, (*cache.shape[:i], own, *cache.shape[i + 1:]))
        if surely_exceeds(own, cache.shape[i]):
            yield f"update is {update}; at most {cache.shape[i]} entries fit on axis {self.axis}"
        yield from self._indices(differ)

    def _indices(self, differ: Differ) -> Iterator[str]:
        at, n = self.write_indices, self.past_cache.shape[0]
        if at is not None and (at.dtype.name != "i64" if self.standard else
                               at.dtype.sort not in ("int", "uint")):
            yield f"write_indices is {at}; {'i64' if self.standard else 'integers '}[{n}] is needed"
        yield shaped(differ, "write_indices", at, (n,))


def _states(named: dict[str, tuple[TensorType | None, tuple[Size, ...]]], differ: Differ
            ) -> Iterator[str]:
    """Operands of a scan: floats of their shapes; f64 only if the first one is."""
    first, (kind, _) = next(iter(named.items()))
    assert kind is not None
    yield floats({first: kind})
    for name, (t, shape) in named.items():
        if t is None:
            continue
        yield "" if t.dtype.sort == "float" and t.dtype.bits >= 16 else (
            f"{name} is {t.dtype}; f16, bf16, f32 or f64 is needed")
        yield shaped(differ, name, t, shape)


@dataclass(frozen=True, slots=True)
class _Scan:
    """What selective and Mamba-2 scans take."""

    x: TensorType
    dt: TensorType
    a: TensorType
    b: TensorType
    c: TensorType
    state: TensorType | None


class SelectiveScan(_Scan):
    """x and dt [N,T,C], a[C,n], b and c [N,T,n], state[N,C,n]."""

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        x, a = self.x, self.a
        if x.rank != 3 or a.rank != 2:
            yield f"x is {x} and a is {a}; [N,T,C] and [C,n] are needed"
        rows = (*x.shape[:2], a.shape[1])
        yield from _states({
            "x": (x, x.shape), "dt": (self.dt, x.shape), "a": (a, (x.shape[2], a.shape[1])),
            "b": (self.b, rows), "c": (self.c, rows),
            "state": (self.state, (x.shape[0], x.shape[2], a.shape[1]))}, differ)


class Mamba2Scan(_Scan):
    """x[N,T,H,P], dt[N,T,H], a[H], b and c [N,T,G,n], state[N,H,n,P]."""

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        x, b = self.x, self.b
        if x.rank != 4 or b.rank != 4:
            yield f"x is {x} and b is {b}; [N,T,H,P] and [N,T,G,n] are needed"
        (n, t, heads, width), (groups, states) = x.shape, b.shape[2:]
        if not all(isinstance(s, int) and s > 0 for s in (heads, width, groups, states)):
            yield f"x is {x} and b is {b}; H, P, G and n must be known and positive"
        assert isinstance(heads, int) and isinstance(groups, int)
        if heads % groups:
            yield f"b is {b}; its {groups} groups must divide the {heads} heads of x"
        rows = (n, t, groups, states)
        yield from _states({
            "x": (x, x.shape), "dt": (self.dt, (n, t, heads)), "a": (self.a, (heads,)),
            "b": (b, rows), "c": (self.c, rows),
            "state": (self.state, (n, heads, states, width))}, differ)


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """q and k [N,T,H,dk], v[N,T,H,dv], g and beta [N,T,H], state[N,H,dk,dv]."""

    q: TensorType
    k: TensorType
    v: TensorType
    g: TensorType
    beta: TensorType
    state: TensorType | None

    def faults(self, differ: Differ) -> Iterator[str]:
        """What each rule says."""
        q, v = self.q, self.v
        if q.rank != 4 or v.rank != 4:
            yield f"q is {q} and v is {v}; [N,T,H,dk] and [N,T,H,dv] are needed"
        (n, t, heads, dk), dv = q.shape, v.shape[3]
        if not all(isinstance(s, int) and s > 0 for s in (heads, dk, dv)):
            yield f"q is {q} and v is {v}; H, dk and dv must be known and positive"
        yield floats({"q": q, "k": self.k, "v": v, "g": self.g, "beta": self.beta})
        gate = (n, t, heads)
        yield from _states({
            "q": (q, q.shape), "k": (self.k, q.shape), "v": (v, (*gate, dv)), "g": (self.g, gate),
            "beta": (self.beta, gate), "state": (self.state, (n, heads, dk, dv))}, differ)
