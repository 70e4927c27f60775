"""Attributes as entries take them: read from their protobuf, and of the annotated type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ImportFailure
from ...ir.types import TensorType
from .protocol import AttributeProto

Check = Callable[[object], bool]


def _all(kind: type) -> Check:
    return lambda v: isinstance(v, tuple) and all(isinstance(x, kind) for x in v)


_NAMES: dict[str, tuple[str, Check]] = {
    "int": ("INT", lambda v: isinstance(v, int)),
    "float": ("FLOAT", lambda v: isinstance(v, float)),
    "str": ("STRING", lambda v: isinstance(v, str)),
    "Array": ("TENSOR", lambda v: isinstance(v, np.ndarray)),
    "TensorType": ("TYPE_PROTO", lambda v: isinstance(v, TensorType)),
    "RegionImporter": ("GRAPH", callable),
    **{n: ("INTS", _all(int)) for n in ("tuple[int, ...]", "Ints")},
    **{n: ("FLOATS", _all(float)) for n in ("tuple[float, ...]", "Floats")},
    **{n: ("STRINGS", _all(str)) for n in ("tuple[str, ...]", "Texts", "Names")}}
"""ONNX's name for each annotation, and the values that it admits."""


def check_type(value: object, annotation: str, where: str) -> None:
    """Raise ImportFailure for an attribute of another type than its entry is written for."""
    name, check = _NAMES.get(annotation.removesuffix(" | None"), ("", None))
    if check is not None and not check(value):
        raise ImportFailure(f"{where} is no {name}", hint="the file is damaged")


def plain(proto: AttributeProto, where: str) -> object:
    """The value of a number, text or list of them."""
    t = AttributeProto
    match proto.type:
        case t.FLOAT:
            return float(proto.f)
        case t.INT:
            return int(proto.i)
        case t.STRING:
            return proto.s.decode("utf-8", "surrogateescape")
        case t.FLOATS:
            return tuple(map(float, proto.floats))
        case t.INTS:
            return tuple(map(int, proto.ints))
        case t.STRINGS:
            return tuple(s.decode("utf-8", "surrogateescape") for s in proto.strings)
        case _:
            raise ImportFailure(f"{where} has an unknown type {proto.type}")
