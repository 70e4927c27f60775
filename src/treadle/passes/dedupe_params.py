"""Keep one of several frozen parameters with the same data."""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar, TypeAlias

import numpy as np

from ..declare.arrays import Array, Encoded
from ..ir.graph import Graph, Value
from ..ir.types import STRING
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Data, Pass

Key: TypeAlias = "tuple[object, ...]"
PROBES = 64
"""Elements looked at before whole arrays are compared."""


@dataclass(frozen=True, slots=True)
class DedupeParams(Pass):
    """Lets every use of a parameter read the first one of the same type and bytes.

    Only parameters of at least `minimum` bytes are compared.
    """

    name: ClassVar[str] = "dedupe_params"
    minimum: int = 1024

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Group by type and a few elements, then compare bytes."""
        if not ctx.params:
            return graph
        work = _Dedupe(ctx, self.minimum)
        out = work.graph(graph)
        if not work.gone:
            return graph
        out.params = [v for v in out.params if v not in work.gone]
        for v in work.gone:
            del ctx.params[v.name]
        ctx.did(self, "parameters shared", len(work.gone))
        ctx.did(self, "bytes saved", work.saved)
        return out


class _Dedupe(Rebuild):
    __slots__ = ("ctx", "gone", "groups", "minimum", "saved")

    def __init__(self, ctx: Context, minimum: int) -> None:
        super().__init__(lambda _: None)
        self.ctx, self.minimum, self.saved = ctx, minimum, 0
        self.groups: dict[Key, list[Value]] = {}
        self.gone: set[Value] = set()

    def param(self, value: Value) -> Value:
        """The first parameter of these bytes."""
        data = self.ctx.params.get(value.name)
        if data is None or value.dtype is STRING or value.dtype.sort == "host":
            return value
        raw = _bytes(data)
        if raw.nbytes < self.minimum:
            return value
        probe = raw[:: max(1, raw.size // PROBES)][:PROBES]
        key: Key = (value.type, blake2b(probe.tobytes(), digest_size=16).digest())
        group = self.groups.setdefault(key, [])
        for first in group:
            if np.array_equal(raw, _bytes(self.ctx.params[first.name])):
                self.gone.add(value)
                self.saved += raw.nbytes
                return first
        group.append(value)
        return value


def _bytes(data: Data) -> Array:
    array = data.data if isinstance(data, Encoded) else data
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
