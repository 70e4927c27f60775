"""Graphs as text; `parser` reads the same text back."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence

from .dims import Dim
from .graph import Attr, Blob, Graph, Node, Value
from .types import DType

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]|^(?=[0-9])")


def blob_text(blob: Blob, limit: int | None = None) -> str:
    """A blob with its bytes in base64, or with its digest alone when it is over `limit` bytes."""
    if limit is not None and len(blob.data) > limit:
        return f"blob<{blob.type} sha256:{blob.digest}>"
    return f"blob<{blob.type} {base64.b64encode(blob.data).decode()}>"


def attr_text(value: Attr, limit: int | None = None) -> str:
    """One attribute as text: `3 0.5 "s" true none <past+seq> f32 (1,2,) blob<..>`."""
    match value:
        case None | bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case Dim():
            return f"<{value}>"
        case DType():
            return f"<{value.name}>" if value.sort == "host" else value.name
        case Blob():
            return blob_text(value, limit)
        case tuple():
            return "(" + "".join(attr_text(v, limit) + "," for v in value) + ")"
        case complex():
            return f"complex({value.real!r},{value.imag!r},)"
        case _:
            return repr(value)


def _word(name: str) -> str:
    return name if _IDENTIFIER.match(name) else json.dumps(name)


class _Printer:
    def __init__(self, limit: int | None, locs: bool) -> None:
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.lines: list[str] = []
        self.limit, self.locs = limit, locs

    def define(self, value: Value) -> str:
        stem = _NOT_WORD.sub("_", value.name)  # bare numbers are for nameless values
        name, n = stem, len(self.names)
        while not name or name in self.taken:
            name, n = f"{stem}_{n}" if stem else str(n), n + 1
        self.taken.add(name)
        self.names[value] = "%" + name
        return f"%{name}: {value.type}"

    def leaf(self, value: Value) -> str:
        """An input; its exact name follows when the text cannot spell it."""
        shown = self.define(value)
        return shown if self.names[value] == "%" + value.name else (
            f"{shown} {json.dumps(value.name)}")

    def refs(self, values: Sequence[Value]) -> str:
        return ", ".join([self.names[v] for v in values])

    def node(self, node: Node, pad: str) -> None:
        operands, named = node.operands()
        keyed = [f"{k}={self.names[v]}" for k, v in named.items()]
        args = self.refs(operands)
        text = f"{node.op}({', '.join([args, *keyed] if args else keyed)})"
        if node.attrs:
            shown = [f"{k}={attr_text(v, self.limit)}" for k, v in node.attrs.items()]
            text += f" {{{', '.join(shown)}}}"
        if self.locs and node.loc:
            text += f" @ {json.dumps(node.loc)}"
        head = ", ".join([self.define(v) for v in node.outputs])
        self.lines.append(f"{pad}{head} = {text}")
        for key, region in node.regions.items():
            self.lines[-1] += f" {key}="
            self.graph(region, pad)

    def graph(self, g: Graph, pad: str = "") -> None:
        head = f"graph {_word(g.name)}({', '.join(map(self.leaf, g.inputs))})"
        if g.params:
            head += f" params({', '.join(map(self.leaf, g.params))})"
        if g.captures:
            head += f" captures({self.refs(g.captures)})"
        if pad or self.lines:
            self.lines[-1] += head + " {"
        else:
            self.lines.append(head + " {")
        for node in g.nodes:
            self.node(node, pad + "  ")
        named = [f"{self.names[v]} {json.dumps(n)}" for v, n in zip(
            g.outputs, g.output_names, strict=True)] if g.output_names else []
        self.lines += [f"{pad}  return {', '.join(named) or self.refs(g.outputs)}", pad + "}"]


def print_graph(graph: Graph, *, blob_limit: int | None = None, locs: bool = False) -> str:
    """The text of `graph`; blobs over `blob_limit` bytes show a digest, which does not parse."""
    printer = _Printer(blob_limit, locs)
    printer.graph(graph)
    return "\n".join(printer.lines) + "\n"
