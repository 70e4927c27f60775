"""Block-quantised weights of ONNX Runtime: unpacked here, dequantised by the graph.

The weight stays in its narrow integers and meets its scales in `dequantize_linear`, which
backends fuse with the product that reads it.
"""

from __future__ import annotations

import math

import numpy as np

from ....declare.arrays import Array, np_dtype
from ....declare.opdef import cast_value, wide
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import DTYPES, DType, axis_of
from ....ops.contract import matmul, swap_last
from ....ops.gather import gather
from ....ops.movement import expand, narrow, reshape, unsqueeze
from ....ops.quantize import dequantize_linear
from ..context import Context
from ..registry import MICROSOFT, importer

_UNSIGNED = {2: DTYPES["u2"], 4: DTYPES["u4"], 8: DTYPES["u8"]}


def _fields(packed: Array, bits: int) -> Array:
    """Bytes along the last axis as fields of 2, 4 or 8 bits, the low ones first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def _unsigned(bits: int) -> DType:
    if (dtype := _UNSIGNED.get(bits)) is None:
        raise Declined(f"weights of {bits} bits; 2, 4 and 8 are known")
    return dtype


def _unpacked(ctx: Context, packed: Value, bits: int, shape: tuple[int, ...], what: str
              ) -> Array:
    """The fields of a packed tensor as shape[..., columns]; each row may end in unused fields."""
    dtype = np_dtype(_unsigned(bits))
    held = ctx.array(packed, what)
    if held.dtype != np.uint8:
        raise Declined(f"{what} is {packed.type}; packed fields lie in u8")
    fields = _fields(held, bits)
    rows = fields.reshape(*shape[:-1], -1) if fields.size and not (
        fields.size % max(math.prod(shape[:-1]), 1)) else fields
    if rows.shape[:-1] != shape[:-1] or rows.shape[-1] < shape[-1]:
        raise Declined(f"{what} {packed.type} does not hold {list(shape)} fields of {bits} bits")
    return np.ascontiguousarray(rows[..., :shape[-1]]).astype(dtype)


def _zero_points(ctx: Context, zero: Value | None, bits: int, shape: tuple[int, ...]) -> Value:
    """Zero points, one for a block; the middle of the range without any."""
    if zero is None:
        middle = np.full(shape, 2 ** (bits - 1), np_dtype(_unsigned(bits)))
        return ctx.constant(middle, "zero_points")
    return ctx.constant(_unpacked(ctx, zero, bits, shape, "zero_points"), "zero_points")


@importer("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(ctx: Context, a: Value, b: Value, scales: Value, zero: Value | None,
                 group: Value | None, bias: Value | None, *, K: int, N: int, block_size: int,  # noqa: N803 - ONNX names
                 accuracy_level: int = 0, bits: int = 4, weight_prepacked: int = 0) -> Value:
    """a times the transpose of a weight [N,K]; `accuracy_level` allows less than is done here."""
    if group is not None or weight_prepacked:
        raise Declined("MatMulNBits with g_idx or a prepacked weight",
                       hint="quantise without activation order")
    if min(N, K, block_size) < 1:
        raise Declined(f"a weight of N={N} and K={K} in blocks of {block_size}")
    blocks = -(-K // block_size)
    weight = ctx.constant(_unpacked(ctx, b, bits, (N, K), "B"), b.name or "weight")
    by = reshape(scales, shape=(N, blocks))
    if zero is not None and zero.dtype.sort == "float":
        real = _float_zeros(weight, by, reshape(zero, shape=(N, blocks)), block_size)
    else:
        offset = _zero_points(ctx, zero, bits, (N, blocks))
        real = dequantize_linear(weight, by, zero=offset, axis=1, block_size=block_size)
    y = matmul(wide(a), swap_last(wide(real)))
    return cast_value(y if bias is None else y + wide(bias), a.dtype)


def _float_zeros(weight: Value, scales: Value, zeros: Value, block: int) -> Value:
    """(weight - zero) * scale with a floating zero point for each block."""
    n, k = weight.shape
    ones = dequantize_linear(weight, cast_value(scales, DTYPES["f32"]), axis=1, block_size=block)
    blocks = scales.shape[1]
    shift = unsqueeze(wide(zeros) * wide(scales), axes=(2,))
    spread = reshape(expand(shift, shape=(n, blocks, block)), shape=(n, blocks * block))
    return ones - narrow(spread, axis=1, start=0, length=k)


@importer("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(ctx: Context, data: Value, indices: Value, scales: Value,
                           zero: Value | None, *, bits: int = 4, block_size: int = 128,
                           gather_axis: int = 0, quantize_axis: int = 1) -> Value:
    """Slices of a quantised tensor, dequantised after they are gathered."""
    at, along = axis_of(gather_axis, data.type.rank), axis_of(quantize_axis, data.type.rank)
    if at == along:
        raise Declined("GatherBlockQuantized that gathers along the blocks")
    if data.dtype is DTYPES["u8"]:
        data, zero = _bytes(ctx, data, scales, zero, bits, along)
    parts = [gather(x, indices, axis=at) for x in (data, scales)]
    offset = None if zero is None else gather(zero, indices, axis=at)
    axis = along + indices.type.rank - 1 if along > at else along
    return dequantize_linear(parts[0], parts[1], zero=offset, axis=axis, block_size=block_size)


def _bytes(ctx: Context, data: Value, scales: Value, zero: Value | None, bits: int, along: int
           ) -> tuple[Value, Value]:
    """Fields that lie packed in bytes along the last axis, and their zero points."""
    last = data.type.rank - 1
    if along != last:
        raise Declined("GatherBlockQuantized of bytes whose blocks are not on the last axis")
    sizes = [ctx.known(s, "a size of the weight") for s in data.shape]
    shape = (*sizes[:-1], sizes[-1] * 8 // bits)
    unpacked = ctx.constant(_unpacked(ctx, data, bits, shape, "data"), data.name or "weight")
    blocks = tuple([ctx.known(s, "a size of the scales") for s in scales.shape])
    return unpacked, _zero_points(ctx, zero, bits, blocks)
