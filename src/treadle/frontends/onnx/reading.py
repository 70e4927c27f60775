"""From a path, bytes or a ModelProto to a checked ModelProto and its tensors as arrays."""

from __future__ import annotations

import math
import os
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ...declare.arrays import Array, np_dtype
from ...errors import ImportFailure
from ...ir.types import DTYPES, MOST_AXES, DType
from .protocol import onnx
from .wire import OWN, separate

SIZE_LIMIT = 2**31
"""Protobuf's own limit on one message, in bytes."""
ELEMENT_LIMIT = 2**40
"""Most elements a tensor in a file may claim."""
_P = onnx.TensorProto
DTYPE_OF: dict[int, DType] = {code: DTYPES[name] for code, name in {
    _P.FLOAT: "f32", _P.UINT8: "u8", _P.INT8: "i8", _P.UINT16: "u16", _P.INT16: "i16",
    _P.INT32: "i32", _P.INT64: "i64", _P.STRING: "string", _P.BOOL: "bool", _P.FLOAT16: "f16",
    _P.DOUBLE: "f64", _P.UINT32: "u32", _P.UINT64: "u64", _P.COMPLEX64: "c64",
    _P.COMPLEX128: "c128", _P.BFLOAT16: "bf16", _P.FLOAT8E4M3FN: "f8e4m3fn",
    _P.FLOAT8E4M3FNUZ: "f8e4m3fnuz", _P.FLOAT8E5M2: "f8e5m2", _P.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
    _P.UINT4: "u4", _P.INT4: "i4", _P.FLOAT4E2M1: "f4e2m1fn", _P.FLOAT8E8M0: "f8e8m0fnu",
    _P.UINT2: "u2", _P.INT2: "i2", **({_P.FLOAT6E2M3: "f6e2m3fn", _P.FLOAT6E3M2: "f6e3m2fn"}
                                     if hasattr(_P, "FLOAT6E2M3") else {})}.items()}
"""Our dtype for each TensorProto.DataType."""


class Beside(NamedTuple):
    """Where tensors lie that are not in the message.

    `folder` is that of external data; `own` are the large tensors of the model's file.
    """

    folder: Path | None = None
    own: Array | None = None


def read_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto
               ) -> tuple[onnx.ModelProto, Beside, str]:
    """The model, where its tensors are that are not in it, and a name for messages."""
    if isinstance(source, onnx.ModelProto):
        return source, Beside(), "model"
    if isinstance(source, bytes | bytearray | memoryview):
        data, own = separate(BytesIO(source), memoryview(source).nbytes)
        return _parse(data, "model bytes"), Beside(None, own), "model bytes"
    path = Path(source)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ImportFailure(f"{path} is not a regular file")
        if size >= SIZE_LIMIT:
            raise ImportFailure(f"{path} has {size} bytes; an ONNX file holds at most 2 GiB",
                                hint="save the tensors as external data")
        with path.open("rb") as file:
            data, own = separate(file, size)
    except OSError as e:
        raise ImportFailure(f"cannot read {path}: {e.strerror}",
                            hint="check the path") from None
    return _parse(data, path.name), Beside(path.parent.resolve(), own), path.name


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as e:
        kind = "empty" if not data else f"{len(data)} bytes that start with {data[:8]!r}"
        raise ImportFailure(f"{name} is not a complete ONNX model ({kind}): {e}",
                            hint="the file is truncated or of another format") from None
    if not model.HasField("graph") or not model.opset_import:
        what = "no ONNX graph" if data else "nothing: it is empty"
        raise ImportFailure(f"{name} holds {what}",
                            hint="the file is truncated or of another format")
    check_text(model, name)
    return model


def check_text(model: onnx.ModelProto, name: str) -> None:
    """Raise ImportFailure unless every name is text: protobuf hands broken UTF-8 on as bytes."""
    bodies: list[Any] = [model.graph, *model.functions]
    texts: list[Any] = [o.domain for o in model.opset_import]
    for body in bodies:
        texts.append(body.name)
        texts.extend(body.input if isinstance(body, onnx.FunctionProto) else
                     [v.name for v in (*body.input, *body.output, *body.initializer)])
        for node in body.node:
            texts.extend((node.op_type, node.domain, node.name, *node.input, *node.output))
            for a in node.attribute:
                texts.extend((a.name, a.ref_attr_name))
                if a.type == onnx.AttributeProto.GRAPH:
                    bodies.append(a.g)
    if wrong := next((t for t in texts if not isinstance(t, str)), None):
        raise ImportFailure(f"{name}: the name {wrong[:40]!r} is no text",
                            hint="the file is damaged")


def dtype_of(code: int, where: str) -> DType:
    """Our dtype for a TensorProto.DataType."""
    if (found := DTYPE_OF.get(code)) is None:
        raise ImportFailure(f"{where}: unknown tensor data type {code}")
    return found


def tensor_array(proto: onnx.TensorProto, beside: Beside, where: str) -> Array:
    """The contents of a TensorProto; sizes are checked before anything is read or allocated."""
    dtype, shape = dtype_of(proto.data_type, where), tuple(proto.dims)
    if len(shape) > MOST_AXES:
        raise ImportFailure(f"{where}: {len(shape)} dimensions; at most {MOST_AXES} are possible")
    if any(n < 0 for n in shape) or math.prod(shape) > ELEMENT_LIMIT:
        raise ImportFailure(f"{where}: impossible dimensions {list(shape)}")
    total = math.prod(shape)
    stored = proto.data_location == onnx.TensorProto.EXTERNAL or proto.HasField("raw_data")
    if stored and dtype.sort == "string":
        raise ImportFailure(f"{where}: strings do not lie in raw or external data",
                            hint="the file is damaged")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        raw: Any = _external(proto, beside, where, _packed_bytes(dtype, total))
    elif proto.HasField("raw_data"):
        raw = proto.raw_data
    else:
        return _typed_fields(proto, dtype, shape, total, where)
    want = _packed_bytes(dtype, total)
    if len(raw) != want:
        raise ImportFailure(f"{where}: {dtype}{list(shape)} takes {want} bytes, the file has "
                            f"{len(raw)}", hint="the file is truncated or damaged")
    return _from_bytes(raw, dtype, shape, total)


def _packed_bytes(dtype: DType, total: int) -> int:
    return (total * dtype.bits + 7) // 8 if dtype.bits in (2, 4) else (
        total * ((dtype.bits + 7) // 8))


def _from_bytes(raw: Any, dtype: DType, shape: tuple[int, ...], total: int) -> Array:  # noqa: ANN401 - bytes or a memory map
    if dtype.bits in (2, 4):
        packed = np.frombuffer(raw, np.uint8)
        return _unpack(packed, dtype, total).reshape(shape)
    return np.frombuffer(raw, np_dtype(dtype)).reshape(shape)


def _unpack(packed: Array, dtype: DType, total: int) -> Array:
    """Sub-byte elements, low bits first, as one byte each in the type's NumPy form."""
    per = 8 // dtype.bits
    shifts = np.arange(per, dtype=np.uint8) * dtype.bits
    fields = ((packed[:, None] >> shifts) & (2**dtype.bits - 1)).reshape(-1)[:total]
    if dtype.sort == "int":
        high = 8 - dtype.bits
        signed = (fields << high).astype(np.uint8).view(np.int8) >> high
        return signed.astype(np_dtype(dtype))
    if dtype.sort == "uint":
        return fields.astype(np_dtype(dtype))
    return fields.view(np_dtype(dtype))


_FIELDS = {"float_data": ("f32", "c64"), "double_data": ("f64", "c128"), "int64_data": ("i64",),
           "uint64_data": ("u32", "u64"), "string_data": ("string",)}


def _typed_fields(proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], total: int,
                  where: str) -> Array:
    name = next((f for f, ds in _FIELDS.items() if dtype.name in ds), "int32_data")
    items = getattr(proto, name)
    parts = 2 if dtype.sort == "complex" else 1
    per = 8 // dtype.bits if dtype.bits in (2, 4) else 1
    want = -(-total // per) * parts
    if len(items) != want:
        raise ImportFailure(f"{where}: {dtype}{list(shape)} takes {want} entries of {name}, "
                            f"the file has {len(items)}", hint="the file is damaged")
    if dtype.name == "string":
        out = np.empty(total, object)
        out[:] = [x.decode("utf-8", "surrogateescape") for x in items]
        return out.reshape(shape)
    if per > 1:
        return _unpack(np.asarray(items, np.int64).astype(np.uint8), dtype, total).reshape(shape)
    if dtype.sort == "float" and dtype.bits <= 16:
        bits = np.asarray(items, np.int64).astype(np.uint16 if dtype.bits == 16 else np.uint8)
        return bits.view(np_dtype(dtype)).reshape(shape)
    if dtype.sort == "complex":
        flat = np.asarray(items, np.float32 if dtype.bits == 64 else np.float64)
        return flat.view(np_dtype(dtype)).reshape(shape)
    return np.asarray(items).astype(np_dtype(dtype)).reshape(shape)


def _external(proto: onnx.TensorProto, beside: Beside, where: str, nbytes: int) -> Any:  # noqa: ANN401 - a memory map
    entries = {e.key: e.value for e in proto.external_data}
    if not all([isinstance(x, str) for pair in entries.items() for x in pair]):
        raise ImportFailure(f"{where}: the place of its external data is no text",
                            hint="the file is damaged")
    own = beside.own if entries.get("location") == OWN else None
    path = None if own is not None else external_path(
        entries.get("location", ""), beside.folder, where)
    try:
        offset = int(entries.get("offset", "0") or 0)
        length = int(entries.get("length", "0") or nbytes)
    except ValueError:
        raise ImportFailure(f"{where}: external data offset or length is no number") from None
    if path is None:
        return b"" if own is None else own.data[offset:offset + length]
    size = path.stat().st_size
    if offset < 0 or length != nbytes or offset + length > size:
        raise ImportFailure(
            f"{where}: bytes {offset} to {offset + length} of {path.name} ({size} bytes) do not "
            f"hold the {nbytes} bytes of the tensor", hint="the data file does not fit the model")
    if not length:
        return b""
    return np.memmap(path, np.uint8, "r", offset, (length,))


def external_path(location: str, folder: Path | None, where: str) -> Path:
    """A regular file inside the model's folder; anything that leaves it is refused."""
    if folder is None:
        raise ImportFailure(f"{where}: external data {location!r}, but the model came as bytes",
                            hint="load it by its path, or embed the tensors")
    outside = ImportFailure(f"{where}: external data {location!r} is outside the model's folder",
                            hint="keep data files beside the model, without links or '..'")
    if not location or "\0" in location or Path(location).is_absolute() or (
            ".." in Path(location).parts):
        raise outside
    path = folder / location
    if not path.resolve().is_relative_to(folder):
        raise outside
    if not path.is_file():
        raise ImportFailure(f"{where}: external data file {location!r} is missing",
                            hint=f"expected in {folder}")
    return path


__all__ = ["DTYPE_OF", "dtype_of", "external_path", "read_model", "tensor_array"]
