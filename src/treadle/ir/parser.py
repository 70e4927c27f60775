"""Read the text that `printer` writes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Container
from typing import TypeVar

from ..errors import ParseError
from .dims import parse_size
from .graph import Attr, Blob, Graph, Node, Value
from .types import DTYPES, parse_dtype, parse_type

R = TypeVar("R")
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|blob<[^>]*>|<[^>]*>|%\w+'
    r"|(?:seq|opt|map)\([^\s]*\)\[\]|[A-Za-z_]\w*\[[^\]]*\]"
    r"|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|-inf|[A-Za-z_][\w.]*|[^\s]")
_WORDS: dict[str, Attr] = {"true": True, "false": False, "none": None,
                           "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_DEPTH = 64
"""Deepest nesting of regions and tuples that is read."""


def _parse_blob(token: str) -> Blob:
    head, _, body = token[5:-1].partition(" ")
    if body.startswith("sha256:"):
        raise ParseError(f"the blob {head} was printed without its bytes",
                         hint="print the graph with blob_limit=None")
    type_ = parse_type(head)
    shape = tuple([s for s in type_.shape if isinstance(s, int)])
    try:
        data = base64.b64decode(body, validate=True)
    except ValueError:
        raise ParseError(f"the bytes of blob {head} are not base64") from None
    if len(shape) != type_.rank:
        raise ParseError(f"the blob {head} has a symbolic size")
    return Blob(type_.dtype, shape, data)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [*_TOKEN.findall(text), "", "", ""]
        self.i = 0
        self.depth = 0
        self.values: dict[str, Value] = {}

    def fail(self, wanted: str) -> ParseError:
        return self.wrong(f"expected {wanted}, got {self.tokens[self.i]!r}")

    def wrong(self, what: str, hint: str = "") -> ParseError:
        """An error that shows the line; positions are found again only here."""
        starts = [m.start() for m in _TOKEN.finditer(self.text)] + [len(self.text)] * 3
        line = self.text.count("\n", 0, starts[self.i])
        shown = self.text.split("\n")[line].strip()
        return ParseError(f"line {line + 1}: {what}" + (f"\n  {shown}" if shown else ""),
                          hint=hint)

    def read(self, fn: Callable[[str], R], text: str) -> R:
        """Read part of the token here; an error gains the line."""
        try:
            return fn(text)
        except ParseError as e:
            raise self.wrong(e.message, e.hint) from None

    def next(self) -> str:
        self.i += 1
        return self.tokens[self.i - 1]

    def take(self, token: str) -> bool:
        if self.tokens[self.i] != token:
            return False
        self.i += 1
        return True

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"'{token}'")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.fail(f"at most {_DEPTH} levels of nesting")

    def group(self, item: Callable[[], R], opening: str = "(", closing: str = ")") -> list[R]:
        self.enter()
        self.need(opening)
        out: list[R] = []
        while not self.take(closing):
            out.append(item())
            if not self.take(","):
                self.need(closing)
                break
        self.depth -= 1
        return out

    def string(self) -> str | None:
        """The string token here, if there is one."""
        if self.tokens[self.i][:1] != '"':
            return None
        try:
            return str(json.loads(self.next()))
        except ValueError:
            self.i -= 1
            raise self.fail("a string") from None

    def word(self) -> str:
        text = self.string()
        return self.next() if text is None else text

    def ref(self) -> Value:
        if (value := self.values.get(self.tokens[self.i])) is None:
            raise self.fail("a value defined above")
        self.i += 1
        return value

    def output(self) -> tuple[Value, str | None]:
        return self.ref(), self.string()

    def define(self) -> Value:
        name = self.tokens[self.i]
        if name[:1] != "%" or name in self.values:
            raise self.fail("a new %name")
        self.i += 1
        self.need(":")
        short = "" if name[1:].isdigit() else name[1:]
        self.values[name] = value = Value(self.read(parse_type, self.tokens[self.i]), short)
        self.i += 1
        return value

    def leaf(self) -> Value:
        value = self.define()
        name = self.string()
        value.name = value.name if name is None else name
        return value

    def attr(self) -> Attr:
        token = self.tokens[self.i]
        if token == "(":
            return tuple(self.group(self.attr))
        if (text := self.string()) is not None:
            return text
        if token == "complex" and self.tokens[self.i + 1] == "(":
            return self.complex()
        value = _WORDS[token] if token in _WORDS else self.plain(token)
        self.i += 1
        return value

    def plain(self, token: str) -> Attr:
        if token in DTYPES:
            return DTYPES[token]
        if token[:5] == "blob<":
            return self.read(_parse_blob, token)
        if token[:1] == "<":
            host = token[1:5] in ("seq(", "opt(", "map(")
            return self.read(parse_dtype if host else parse_size, token[1:-1])
        try:
            return float(token) if any(c in token for c in ".en") else int(token)
        except ValueError:
            raise self.fail("an attribute value") from None

    def complex(self) -> complex:
        self.i += 1
        parts = [float(x) for x in self.group(self.attr) if isinstance(x, float)]
        if len(parts) != 2:
            raise self.wrong("a complex number has two floating parts")
        return complex(*parts)

    def attrs(self) -> dict[str, Attr]:
        out: dict[str, Attr] = {}

        def pair() -> None:
            key = self.key(out)
            out[key] = self.attr()

        self.group(pair, "{", "}")
        return out

    def key(self, taken: Container[str]) -> str:
        if (key := self.tokens[self.i]) in taken or not key.isidentifier():
            raise self.fail("name=, with a name not given before")
        self.i += 1
        self.need("=")
        return key

    def operands(self) -> tuple[tuple[Value, ...], tuple[str, ...]]:
        keys: list[str] = []

        def operand() -> Value:
            if keys or self.tokens[self.i][:1] != "%":
                keys.append(self.key(keys))
            return self.ref()

        return tuple(self.group(operand)), tuple(keys)

    def defined(self) -> list[Value]:
        outputs = [self.define()]
        while self.take(","):
            outputs.append(self.define())
        self.need("=")
        return outputs

    def node(self) -> Node:
        outputs = self.defined()
        op = self.next()
        inputs, keys = self.operands()
        node = Node(op, inputs, self.attrs() if self.tokens[self.i] == "{" else {}, keys=keys)
        if self.take("@"):
            node.loc = self.word()
        regions: dict[str, Graph] = {}
        while self.tokens[self.i + 1] == "=" and self.tokens[self.i + 2] == "graph":
            key = self.key(regions)
            regions[key] = self.graph()
        for i, value in enumerate(outputs):
            value.producer, value.index = node, i
        node.outputs, node.regions = tuple(outputs), regions
        return node

    def graph(self) -> Graph:
        self.enter()
        self.need("graph")
        g = Graph(self.word())
        g.inputs = self.group(self.leaf)
        g.params = self.group(self.leaf) if self.take("params") else []
        g.captures = tuple(self.group(self.ref)) if self.take("captures") else ()
        self.need("{")
        while not self.take("return"):
            g.nodes.append(self.node())
        outputs = [] if self.tokens[self.i] == "}" else [self.output()]
        while self.take(","):
            outputs.append(self.output())
        self.need("}")
        g.outputs = tuple([v for v, _ in outputs])
        g.output_names = tuple([n for _, n in outputs if n is not None])
        self.depth -= 1
        return g


def parse_graph(text: str) -> Graph:
    """The graph that `text` prints."""
    parser = _Parser(text)
    graph = parser.graph()
    if parser.tokens[parser.i]:
        raise parser.fail("the end")
    return graph
