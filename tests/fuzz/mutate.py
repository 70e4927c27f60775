"""Damage to models: of their bytes, and of their structure through the protobuf.

Everything is drawn from the given `random.Random`, so that a mutant is its seed and its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import onnx
import onnx.defs
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper

HUGE = (2**31, 2**32, 2**40, 2**62, 2**63 - 1, -1, -(2**31), -(2**63))
NUMBERS = (0, 0, 1, 1, 2, 3, 4, 5, 7, 16, 100, 1000, 65536, 2**28, *HUGE)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 3e38, float("inf"), float("-inf"), float("nan"))
CODES = (0, 1, 2, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 99, -1)
TEXTS = (b"", b"a", b"\xff\xfe", b"reflect", b"NOTSET", b"SAME_UPPER", b"nearest", b"none",
         b"x" * 300, b"ij,jk->ik", b"(a+)+$", b"\x00", b"sum", b"f32[2]")
_T = AttributeProto
Change = Callable[[Any, Random], None]


def mutate_bytes(data: bytes, places: Sequence[int], rng: Random) -> bytes:
    """A few changes of bytes; `places` are the offsets worth changing."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        if not out:
            break
        at = min(rng.choice(places) if places else rng.randrange(len(out)), len(out) - 1)
        rng.choice(_BYTE_CHANGES)(out, at, rng)
    return bytes(out)


def _flip(out: bytearray, at: int, rng: Random) -> None:
    out[at] ^= 1 << rng.randrange(8)


def _set(out: bytearray, at: int, rng: Random) -> None:
    out[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(out: bytearray, at: int, rng: Random) -> None:
    del out[at:]


def _drop(out: bytearray, at: int, rng: Random) -> None:
    del out[at:at + rng.randrange(1, 40)]


def _repeat(out: bytearray, at: int, rng: Random) -> None:
    out[at:at] = out[at:at + rng.randrange(1, 200)] * rng.choice((1, 2, 50))


def _splice(out: bytearray, at: int, rng: Random) -> None:
    start, n = rng.randrange(len(out)), rng.randrange(1, 100)
    out[at:at + n] = out[start:start + n]


def _varint(out: bytearray, at: int, rng: Random) -> None:
    out[at:at + 1] = rng.choice((b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x07", b"\x80" * 10,
                                 b"\xff" * 8 + b"\x7f", b"\x80\x80\x80\x80\x10"))


_BYTE_CHANGES = (_flip, _flip, _set, _set, _cut, _drop, _repeat, _splice, _varint, _varint)


def structure_places(data: bytes) -> list[int]:
    """Offsets outside the raw data of tensors."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    inside = bytearray(len(data))
    for t in model.graph.initializer:
        if len(t.raw_data) > 64 and (at := data.find(t.raw_data)) >= 0:
            inside[at:at + len(t.raw_data)] = b"\1" * len(t.raw_data)
    return [i for i, gone in enumerate(inside) if not gone]


def mutate_structure(data: bytes, rng: Random) -> bytes:
    """A few changes through the protobuf; what cannot be written again is left as it was."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(_CHANGES)
        try:
            change(model, rng)
        except (ValueError, TypeError, IndexError, AttributeError, DecodeError):
            continue  # nothing there to change
    try:
        return model.SerializeToString()
    except (EncodeError, DecodeError, ValueError):
        return data


def graphs(model: onnx.ModelProto) -> list[GraphProto]:
    """The main graph and every graph attribute."""
    out = [model.graph]
    for g in out:
        out.extend([a.g for n in g.node for a in n.attribute if a.type == _T.GRAPH])
    for f in model.functions:
        out.extend([a.g for n in f.node for a in n.attribute if a.type == _T.GRAPH])
    return out


def _nodes(model: onnx.ModelProto) -> list[NodeProto]:
    return [n for body in (*graphs(model), *model.functions) for n in body.node]


def _types(model: onnx.ModelProto) -> list[TypeProto]:
    return [v.type for g in graphs(model) for v in (*g.input, *g.output, *g.value_info)]


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    held = [t for g in graphs(model) for t in g.initializer]
    return held + [a.t for n in _nodes(model) for a in n.attribute if a.type == _T.TENSOR]


def _names(model: onnx.ModelProto) -> list[str]:
    return ["", "no such value", *(x for n in _nodes(model) for x in (*n.input, *n.output))]


def _dim(model: onnx.ModelProto, rng: Random) -> None:
    shape = rng.choice(_types(model)).tensor_type.shape
    if rng.random() < 0.2:
        (shape.dim.add if rng.random() < 0.5 else shape.dim.pop)()
        return
    dim = rng.choice(shape.dim)
    if rng.random() < 0.4:
        dim.dim_param = rng.choice(("n", "m", "n+1", "2*n", "n//0", "-n", "9**9**9", "(" * 500, ""))
    else:
        dim.dim_value = rng.choice(NUMBERS)


def _elem(model: onnx.ModelProto, rng: Random) -> None:
    kind = rng.choice(_types(model))
    if rng.random() < 0.2:
        kind.sequence_type.elem_type.tensor_type.elem_type = 1
    elif rng.random() < 0.1:
        kind.tensor_type.ClearField("shape")
    else:
        kind.tensor_type.elem_type = rng.choice(CODES)


def _attribute(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice([n for n in _nodes(model) if n.attribute])
    a = rng.choice(node.attribute)
    what = rng.randrange(8)
    if what == 0:
        node.attribute.remove(a)
    elif what == 1:
        a.type = rng.randrange(16)
    elif what == 2:
        node.attribute.add().CopyFrom(a)
    elif what == 3:
        a.name = rng.choice(("axis", "axes", "alpha", "mode", "", "to", a.name + "x"))
    else:
        _value(a, rng)


def _value(a: AttributeProto, rng: Random) -> None:
    if a.type == _T.INT:
        a.i = rng.choice(NUMBERS)
    elif a.type == _T.FLOAT:
        a.f = rng.choice(FLOATS)
    elif a.type == _T.STRING:
        a.s = rng.choice(TEXTS)
    elif a.type in (_T.INTS, _T.FLOATS, _T.STRINGS):
        values, choices = {_T.INTS: (a.ints, NUMBERS), _T.FLOATS: (a.floats, FLOATS),
                           _T.STRINGS: (a.strings, TEXTS)}[a.type]
        if not values or rng.random() < 0.2:
            values.append(rng.choice(choices))
        elif rng.random() < 0.2:
            values.pop()
        else:
            values[rng.randrange(len(values))] = rng.choice(choices)


def _new_attribute(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model))
    try:
        known = list(onnx.defs.get_schema(node.op_type, domain=node.domain).attributes)
    except onnx.defs.SchemaError:
        known = []
    value = rng.choice((rng.choice(NUMBERS), rng.choice(FLOATS), rng.choice(TEXTS),
                        [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 4))]))
    node.attribute.append(helper.make_attribute(rng.choice((*known, "axis")), value))


def _edge(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model))
    names = _names(model)
    side = node.output if rng.random() < 0.2 else node.input
    what = rng.randrange(4)
    if what == 0:
        side.append(rng.choice(names))
    elif what == 1:
        side.pop()
    else:
        side[rng.randrange(len(side))] = rng.choice(names)


def _operator(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model))
    what = rng.random()
    if what < 0.7:
        node.op_type = rng.choice(_operator_names())
    elif what < 0.85:
        node.op_type = rng.choice(_nodes(model)).op_type
    else:
        node.domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nowhere"))


_known: list[str] = []


def _operator_names() -> list[str]:
    if not _known:
        _known.extend(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))
        _known.append("Nothing")
    return _known


def _node(model: onnx.ModelProto, rng: Random) -> None:
    body = rng.choice([*graphs(model), *model.functions]).node
    at = rng.randrange(len(body))
    what = rng.randrange(3)
    if what == 0:
        del body[at]
    elif what == 1:
        body.add().CopyFrom(body[at])
    else:
        other = rng.randrange(len(body))
        held = NodeProto()
        held.CopyFrom(body[at])
        body[at].CopyFrom(body[other])
        body[other].CopyFrom(held)


def _opset(model: onnx.ModelProto, rng: Random) -> None:
    if rng.random() < 0.1:
        model.ir_version = rng.choice((0, 3, 8, 14, 15, -1))
    elif rng.random() < 0.1:
        model.opset_import.add(domain=rng.choice(("", "ai.onnx.ml", "nowhere")),
                               version=rng.randrange(30))
    else:
        rng.choice(model.opset_import).version = rng.choice((*range(29), 999, -1, 2**62))


def _tensor(model: onnx.ModelProto, rng: Random) -> None:
    t = rng.choice(_tensors(model))
    what = rng.randrange(7)
    if what == 0:
        t.dims.append(rng.choice(NUMBERS))
    elif what == 1:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
    elif what == 2:
        t.data_type = rng.choice((0, 1, 2, 6, 7, 8, 9, 11, 14, 16, 21, 22, 23, 99))
    elif what == 3:
        t.raw_data = t.raw_data[:rng.randrange(len(t.raw_data) + 1)] + rng.choice((b"", b"\0" * 8))
    elif what == 4:
        t.ClearField("raw_data")
    elif what == 5:
        _external(t, rng)
    else:
        t.dims.pop()


def _external(t: TensorProto, rng: Random) -> None:
    t.data_location = TensorProto.EXTERNAL
    for key, choices in (("location", ("w.bin", "../w.bin", "/etc/passwd", "", "/dev/zero")),
                         ("offset", ("0", "-1", "x", str(2**62))),
                         ("length", ("8", "-8", "9" * 5000))):
        if rng.random() < 0.8:
            t.external_data.add(key=key, value=rng.choice(choices))


def _content(model: onnx.ModelProto, rng: Random) -> None:
    """Another number in a small integer tensor: a shape, a pad, an index."""
    small = [t for t in _tensors(model) if t.data_type == TensorProto.INT64
             and 0 < len(t.raw_data) <= 256]
    t = rng.choice(small)
    at = 8 * rng.randrange(len(t.raw_data) // 8)
    new = rng.choice(NUMBERS).to_bytes(8, "little", signed=True)
    t.raw_data = t.raw_data[:at] + new + t.raw_data[at + 8:]


def _nest(model: onnx.ModelProto, rng: Random) -> None:
    """A node inside branches inside branches."""
    graph = rng.choice(graphs(model))
    node = rng.choice(graph.node)
    model.graph.initializer.append(helper.make_tensor("fuzz_true", TensorProto.BOOL, [], [True]))
    for _ in range(rng.choice((1, 2, 20, 40))):
        inner = helper.make_graph([node], "nested", [], [
            helper.make_empty_tensor_value_info(o) for o in node.output])
        branch = helper.make_node("If", ["fuzz_true"], list(node.output))
        for name in ("then_branch", "else_branch")[:rng.choice((1, 2))]:
            branch.attribute.append(helper.make_attribute(name, inner))
        if branch.ByteSize() > 200_000:
            break
        held = NodeProto()
        held.CopyFrom(branch)
        node = held
    rng.choice(graph.node).CopyFrom(node)


def _graph_ends(model: onnx.ModelProto, rng: Random) -> None:
    graph = rng.choice(graphs(model))
    side = rng.choice((graph.input, graph.output))
    what = rng.randrange(4)
    if what == 0:
        side.pop(rng.randrange(len(side)))
    elif what == 1:
        side.add().CopyFrom(rng.choice([*side]))
    else:
        rng.choice([*side]).name = rng.choice(_names(model))


def _function(model: onnx.ModelProto, rng: Random) -> None:
    f = rng.choice(model.functions)
    what = rng.randrange(4)
    if what == 0:
        node = rng.choice(f.node)
        node.op_type, node.domain = f.name, f.domain
    elif what == 1:
        rng.choice((f.input, f.output)).append(rng.choice(_names(model)))
    elif what == 2:
        model.functions.add().CopyFrom(f)
    else:
        f.name = rng.choice([n.op_type for n in _nodes(model)])


_CHANGES: tuple[Change, ...] = (
    _dim, _elem, _attribute, _attribute, _attribute, _new_attribute, _edge, _edge, _operator,
    _operator, _node, _opset, _tensor, _tensor, _content, _content, _nest, _graph_ends, _function)
