"""Functions: a model's own, and the bodies that the ONNX standard publishes for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.types import TensorType
from .protocol import AttributeProto, onnx
from .reading import DTYPE_OF

if TYPE_CHECKING:
    from onnx.defs import OpSchema

_CODE_OF = {d: code for code, d in DTYPE_OF.items()}


def bind_attributes(fn: onnx.FunctionProto, node: onnx.NodeProto,
                    outer: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """What attribute references in the body of `fn` mean at this call."""
    given = {a.name: outer[a.ref_attr_name] if a.ref_attr_name else a for a in node.attribute
             if not a.ref_attr_name or a.ref_attr_name in outer}
    return {**{a.name: a for a in fn.attribute_proto}, **given}


def has_body(domain: str, op: str, version: int) -> bool:
    """Whether the standard publishes a body for an operator."""
    schema = _schema(op, version, domain)
    return bool(schema and (schema.has_function or schema.has_context_dependent_function))


def _schema(op: str, version: int, domain: str) -> Any:  # noqa: ANN401 - the stubs of onnx lack the methods that give function bodies
    """What the standard says of an operator, or None."""
    from onnx.defs import SchemaError, get_schema

    try:
        return get_schema(op, version, domain)
    except SchemaError:
        return None


def schema_function(node: onnx.NodeProto, domain: str, version: int,
                    types: Sequence[TensorType | None]) -> onnx.FunctionProto | None:
    """The standard's own body for an operator, or None."""
    schema = _schema(node.op_type, version, domain)
    if schema is None:
        return None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= version]
        data = schema.get_function_with_opset_version(max(versions)) if versions else b""
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        spelled = _type_protos(types)
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), spelled) if versions and spelled else b""
    else:
        return None
    if not data:
        return None
    fn = onnx.FunctionProto()
    fn.ParseFromString(data)
    return _with_defaults(fn, schema)


def _with_defaults(fn: onnx.FunctionProto, schema: OpSchema) -> onnx.FunctionProto:
    """Published bodies refer to attributes whose defaults stand in the schema alone."""
    have = {a.name for a in fn.attribute_proto}
    for name, attr in schema.attributes.items():
        if name not in have and attr.default_value.type != AttributeProto.UNDEFINED:
            fn.attribute_proto.append(attr.default_value)
    return fn


def _type_protos(types: Sequence[TensorType | None]) -> list[bytes] | None:
    """The operand types as the builders of bodies read them; None when one cannot be spelled.

    Those builders crash on types that they do not expect, so nothing is left out.
    """
    out: list[bytes] = []
    for t in types:
        proto = onnx.TypeProto()
        if t is not None and not _spell(proto, t):
            return None
        out.append(proto.SerializeToString())
    return out


def _spell(proto: onnx.TypeProto, t: TensorType) -> bool:
    if t.dtype.sort == "host":
        kind = {"seq": proto.sequence_type, "opt": proto.optional_type}.get(t.dtype.name[:3])
        elem = t.dtype.elem
        return kind is not None and elem is not None and _spell(kind.elem_type, elem)
    if t.dtype not in _CODE_OF:
        return False
    proto.tensor_type.elem_type = _CODE_OF[t.dtype]
    for size in t.shape:
        dim = proto.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        else:
            dim.dim_param = size.text
    return True
