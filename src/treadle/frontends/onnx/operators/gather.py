"""Gather, scatter and their relatives."""

from __future__ import annotations

from ....ir.graph import Value
from ..context import Context
from ..registry import importer
from .shape import op


@importer("Gather")
def gather(ctx: Context, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """Slices along one axis."""
    return op("gather", x, indices, axis=axis)


@importer("GatherElements")
def gather_elements(ctx: Context, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """One element per index."""
    return op("gather_elements", x, indices, axis=axis)


@importer("GatherND")
def gather_nd(ctx: Context, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """Slices named by index tuples."""
    return op("gather_nd", x, indices, batch_dims=batch_dims)


@importer("Scatter", "ScatterElements")
def scatter_elements(ctx: Context, x: Value, indices: Value, updates: Value, *, axis: int = 0,
                     reduction: str = "none") -> Value:
    """Write one element per index."""
    return op("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)


@importer("ScatterND")
def scatter_nd(ctx: Context, x: Value, indices: Value, updates: Value, *,
               reduction: str = "none") -> Value:
    """Write slices named by index tuples."""
    return op("scatter_nd", x, indices, updates, reduction=reduction)


@importer("ReverseSequence", since=10)
def reverse_sequence(ctx: Context, x: Value, lengths: Value, *, batch_axis: int = 1,
                     time_axis: int = 0) -> Value:
    """Each sequence of a batch backwards, up to its length."""
    return op("reverse_sequence", x, lengths, batch_axis=batch_axis, time_axis=time_axis)
