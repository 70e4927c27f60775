"""Rotary positions and the key/value cache."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from ..declare.arrays import Array
from ..declare.kinds import composite, structured
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64, Shape, TensorType, axis_of
from .arithmetic import mod
from .extents import surely_differ, surely_exceeds, zeros
from .gather import gather, take_along
from .generate import iota
from .movement import concat, narrow, reshape, unsqueeze
from .state_rules import refuse
from .state_rules_beside import CacheUpdate

ORACLE = "tests.oracles.attention"


def _angles(table: Value, positions: Value | None, n: Size, length: Size, name: str) -> Value:
    """cos or sin as [N,S,R/2] or [1,S,R/2]."""
    if positions is not None:
        if table.type.rank != 2 or positions.shape not in ((length,), (n, length)):
            raise OperatorError(f"{name} {table.type} with positions {positions.type}",
                                hint=f"{name}[T,R/2] and positions[S] or [N,S]")
        picked = gather(table, positions, axis=0)
        return picked if positions.type.rank == 2 else unsqueeze(picked, axes=(0,))
    if table.type.rank == 3 and table.shape[:2] == (n, length):
        return table
    if table.type.rank != 2 or surely_exceeds(length, table.shape[0]):
        raise OperatorError(f"{name} {table.type} has no row for each of {length} positions",
                            hint=f"{name}[T,R/2] with T >= S, or {name}[N,S,R/2]")
    rows = table if table.shape[0] == length else narrow(table, axis=0, start=0, length=length)
    return unsqueeze(rows, axes=(0,))


def _rotated(x: Value, cos: Value, sin: Value, n_rot: Size, interleaved: bool) -> Value:
    """The first `n_rot` of the last axis rotated by angles that broadcast, the rest as it is."""
    d, half = x.shape[-1], n_rot // 2
    head = x if n_rot == d else narrow(x, axis=-1, start=0, length=n_rot)
    if interleaved:
        pairs = reshape(head, shape=(*x.shape[:-1], half, 2))
        a, b = (reshape(narrow(pairs, axis=-1, start=i, length=1), shape=(*x.shape[:-1], half))
                for i in (0, 1))
    else:
        a, b = (narrow(head, axis=-1, start=s, length=half) for s in (0, half))
    real, imag = a * cos - b * sin, a * sin + b * cos
    if interleaved:
        both = concat([unsqueeze(real, axes=(-1,)), unsqueeze(imag, axes=(-1,))], axis=-1)
        turned = [reshape(both, shape=head.shape)]
    else:
        turned = [real, imag]
    rest = [] if n_rot == d else [narrow(x, axis=-1, start=n_rot, length=d - n_rot)]
    return concat([*turned, *rest], axis=-1) if len(turned) + len(rest) > 1 else turned[0]


def _unpacked(x: Value, layout: str, heads: int) -> Value:
    """Packed [N,S,H*D] as [N,S,H,D]; other layouts as they are."""
    want = 3 if layout == "packed" else 4
    if x.type.rank != want or x.dtype.sort != "float":
        raise OperatorError(f"{x.type} is no floating tensor of layout {layout!r}",
                            hint="nhsd is [N,H,S,D], nshd [N,S,H,D], packed [N,S,H*D] with heads=H")
    if layout != "packed":
        return x
    width = x.shape[2]
    if heads < 1 or isinstance(width, int) and width % heads:
        raise OperatorError(f"heads={heads} does not divide the last axis of {x.type}",
                            hint="layout='packed' needs the number of heads")
    return reshape(x, shape=(*x.shape[:2], heads, width // heads))


@composite(samples=[
    sample("f32[2,3,4,6]", "f32[9,3]", "f32[9,3]", positions="i64[2,4]", low=0, high=5,
           expect=f"{ORACLE}:rope", rtol=1e-5),
    sample("f32[2,3,4,6]", "f32[2,4,2]", "f32[2,4,2]", n_rot=4, interleaved=True,
           expect=f"{ORACLE}:rope", rtol=1e-5),
    sample("f32[2,4,12]", "f32[4,3]", "f32[4,3]", layout="packed", heads=2,
           expect=f"{ORACLE}:rope", rtol=1e-5),
    sample("f32[2,4,3,6]", "f32[7,1]", "f32[7,1]", positions="i32[4]", n_rot=2, layout="nshd",
           low=0, high=6),
    known(arr([[[[1.0, 2.0]]]], "f16"), arr([[0.0]], "f16"), arr([[1.0]], "f16"),
          expect=[arr([[[[-2.0, 1.0]]]], "f16")])])
def rope(x: Value, cos: Value, sin: Value, *, positions: Value | None = None, n_rot: Size = 0,
         interleaved: bool = False, layout: Literal["nhsd", "nshd", "packed"] = "nhsd",
         heads: int = 0) -> Value:
    """Rotate pairs of the first `n_rot` elements of each head by their position's angle.

    Pairs are (i, i + n_rot/2), or (2i, 2i+1) when interleaved; n_rot=0 is the whole head. cos and
    sin are [T,n_rot/2], read at positions[S] or [N,S] or else at 0..S-1, or [N,S,n_rot/2]. The
    layout is [N,H,S,D], [N,S,H,D] or, packed, [N,S,heads*D] (2104.09864, ONNX RotaryEmbedding).
    """
    full = _unpacked(x, layout, heads)
    seq = 2 if layout == "nhsd" else 1
    d, n, length = full.shape[3], full.shape[0], full.shape[seq]
    turn = d if n_rot == 0 else n_rot
    if surely_exceeds(turn, d) or any(surely_differ(t.shape[-1] * 2, turn) for t in (cos, sin)):
        raise OperatorError(f"cos {cos.type} and sin {sin.type} do not hold half of {turn} "
                            f"rotated elements of {d}")
    by = [unsqueeze(wide(_angles(t, positions, n, length, name)), axes=(3 - seq,))
          for name, t in (("cos", cos), ("sin", sin))]
    y = cast_value(_rotated(wide(full), by[0], by[1], turn, interleaved), x.dtype)
    return reshape(y, shape=x.shape) if layout == "packed" else y


@composite(samples=[
    known([[[[1.0, 2.0, 3.0, 4.0]]]], [[1.0], [0.0]], [[0.0], [1.0]], [[1]], [[0]],
          expect=[[[[[-2.0, 1.0, 3.0, 4.0]]]]]),
    sample("f32[2,2,6,8]", "f32[4,2]", "f32[4,2]", "i64[6]", "i64[6]", low=0, high=3)])
def axial_rope(x: Value, cos: Value, sin: Value, rows: Value, columns: Value, *,
               interleaved: bool = False) -> Value:
    """Rotary positions of an image: the first half of each head turns by row, the rest by column.

    x[N,H,S,D] holds a patch per position; rows and columns are [S] or [N,S] (2403.13298).
    """
    if x.type.rank != 4:
        raise OperatorError(f"x is {x.type}, [N,H,S,D] was expected")
    d = x.shape[-1]
    if isinstance(d, int) and d % 4:
        raise OperatorError(f"a head of {d} elements has no two halves of pairs")
    half = d // 2
    parts = [rope(narrow(x, axis=-1, start=start, length=half), cos, sin, positions=at,
                  interleaved=interleaved) for start, at in ((0, rows), (half, columns))]
    return concat(parts, axis=-1)


def _append_types(cache: TensorType, update: TensorType, at: TensorType, *, axis: int,
                  mode: str) -> TensorType:
    refuse(CacheUpdate(cache, update, at, axis, mode))
    return cache


def _append_back(g: Value, cache: Value, update: Value, at: Value, *, axis: int,
                 mode: Literal["linear", "circular"]) -> tuple[Value | None, ...]:
    i, rank = axis_of(axis, cache.type.rank), cache.type.rank
    size = full_value(cache.shape[i], I64)
    step = iota(shape=(1, update.shape[i]), axis=1, dtype=I64)
    index = mod(unsqueeze(mod(cast_value(at, I64), size), axes=(1,)) + step, size)
    shape: Shape = (cache.shape[0], *(update.shape[j] if j == i else 1 for j in range(1, rank)))
    return (kv_append(g, zeros(update.type), at, axis=axis, mode=mode),
            take_along(g, reshape(index, shape=shape), axis=i), None)


@structured(types=_append_types, vjp=_append_back, samples=[
    known([[[1.0], [2.0], [3.0]]], [[[7.0], [8.0]]], [1], expect=[[[[1.0], [7.0], [8.0]]]]),
    known([[[1.0], [2.0], [3.0]]], [[[7.0], [8.0]]], [-4], mode="circular",
          expect=[[[[8.0], [2.0], [7.0]]]]),
    known([[1, 2, 3]], [[9]], [2**63 - 1], axis=1, mode="circular", expect=[[[1, 9, 3]]]),
    known([[1, 2, 3], [4, 5, 6]], [[9, 9], [8, 8]], [0, 1], axis=-1,
          expect=[[[9, 9, 3], [4, 8, 8]]]),
    sample("f32[2,2,4,3]", "f32[2,2,2,3]", "i64[2]", low=0, high=2),
    sample("f16[2,2,4,3]", "f16[2,2,0,3]", "i32[2]", mode="circular")])
def kv_append(cache: Array, update: Array, at: Array, *, axis: int = -2,
              mode: Literal["linear", "circular"] = "linear") -> Array:
    """The cache with `update` written along `axis` from at[n] on, for each batch entry n.

    cache[N,..,C,..], update[N,..,T,..] with T <= C, at[N]. linear: 0 <= at and at + T <= C, or an
    error; circular: positions are taken modulo C (ONNX TensorScatter).
    """
    axis %= cache.ndim
    size, count = cache.shape[axis], update.shape[axis]
    if count > size:
        raise OperatorError(f"{count} entries do not fit {size}")
    out = cache.copy()
    for n in range(at.shape[0]):
        first = int(at[n])
        if mode == "linear" and not 0 <= first <= size - count:
            raise OperatorError(f"at[{n}] = {first}: {count} entries do not fit {size}",
                                hint="mode='circular' wraps around")
        rows = cast(Array, (first % max(size, 1) + np.arange(count)) % max(size, 1))
        np.moveaxis(out[n], axis - 1, 0)[rows] = np.moveaxis(update[n], axis - 1, 0)
    return out
