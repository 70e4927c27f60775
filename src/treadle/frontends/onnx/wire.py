"""Takes large tensors out of an ONNX file's message before protobuf sees it.

Protobuf copies the bytes of every tensor twice, once out of the file and once more for each reader.
Here each is read once, to where its array will lie, and the message says so in the terms of the
format: its data are external, in the place `OWN`. Encoding: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...declare.arrays import Array

OWN = "\0"
"""The location of data that are taken out; no file has such a name."""
LEAST = 4096
"""Bytes of a tensor that is worth the trouble."""
_ALIGNED = 64
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
_PLAIN = frozenset({1, 2, 8, 12})
"""Fields of a tensor that may stand beside its raw data: sizes, type, name, description."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class _Unusual(Exception):
    """What is better left to protobuf, which knows what is wrong with it, if anything."""


class _Field(NamedTuple):
    """A field of a message: its number and kind, where it starts, and where its contents lie."""

    start: int
    number: int
    kind: int
    begin: int
    end: int


def separate(file: io.BufferedIOBase, size: int) -> tuple[bytes, Array | None]:
    """The message in a file of `size` bytes without its large tensors, and their bytes.

    None, and the whole message, where there are no such tensors or the message is not as usual.
    """
    walk = _Walk(file)
    try:
        message = walk.model(size)
        return message, walk.read_tensors() if walk.taken else None
    except _Unusual:
        file.seek(0)
        return file.read(), None


class _Walk:
    def __init__(self, file: io.BufferedIOBase) -> None:
        self.file = file
        self.taken: list[tuple[int, int, int]] = []
        """Tensors by their place in the file, length, and place in memory."""
        self.room = 0

    def model(self, size: int) -> bytes:
        """The message with a graph whose large tensors are elsewhere."""
        graphs = [f for f in self.fields(0, size) if f.number == _GRAPH and f.kind == _LENGTH]
        if len(graphs) != 1:
            raise _Unusual
        graph = self._graph(graphs[0])
        return (self._bytes(0, graphs[0].start) + _wrapped(_GRAPH, graph)
                + self._bytes(graphs[0].end, size))

    def _graph(self, graph: _Field) -> bytes:
        parts: list[bytes] = []
        since = graph.begin
        for f in list(self.fields(graph.begin, graph.end)):
            if f.number != _INITIALIZER or f.kind != _LENGTH or f.end - f.begin < LEAST:
                continue
            if (tensor := self._tensor(f)) is not None:
                parts += (self._bytes(since, f.start), _wrapped(_INITIALIZER, tensor))
                since = f.end
        return b"".join([*parts, self._bytes(since, graph.end)])

    def _tensor(self, tensor: _Field) -> bytes | None:
        fields = list(self.fields(tensor.begin, tensor.end))
        raw = [f for f in fields if f.number == _RAW and f.kind == _LENGTH]
        others = [f for f in fields if f.number in _PLAIN]
        if len(raw) != 1 or len(raw) + len(others) != len(fields):
            return None
        length = raw[0].end - raw[0].begin
        self.taken.append((raw[0].begin, length, self.room))
        told = {"location": OWN, "offset": str(self.room), "length": str(length)}
        self.room += -(-length // _ALIGNED) * _ALIGNED
        entries = [_wrapped(13, _wrapped(1, k.encode()) + _wrapped(2, v.encode()))
                   for k, v in told.items()]
        external = bytes([14 << 3 | _VARINT, 1])
        return b"".join([*(self._bytes(f.start, f.end) for f in others), *entries, external])

    def read_tensors(self) -> Array:
        """The bytes of what was taken out, each tensor at its place."""
        memory = np.empty(self.room + _ALIGNED, np.uint8)
        memory = memory[-memory.ctypes.data % _ALIGNED:][:self.room]
        for begin, length, place in self.taken:
            self.file.seek(begin)
            view = memory.data[place:place + length]
            while len(view):
                if not (n := self.file.readinto(view)):
                    raise OSError(0, "the file became shorter while it was read")
                view = view[n:]
        memory.flags.writeable = False
        return memory

    def fields(self, at: int, end: int) -> Iterator[_Field]:
        """The fields of the message in bytes `at` to `end`."""
        file = self.file
        while at < end:
            file.seek(at)
            tag = self._varint()
            kind, begin = tag & 7, file.tell()
            if kind == _LENGTH:
                length = self._varint()
                begin = file.tell()
                stop = begin + length
            elif kind == _VARINT:
                self._varint()
                stop = file.tell()
            elif kind in (_FIXED32, _FIXED64):
                stop = begin + (4 if kind == _FIXED32 else 8)
            else:
                raise _Unusual
            if stop > end or tag >> 3 == 0:
                raise _Unusual
            yield _Field(at, tag >> 3, kind, begin, stop)
            at = stop

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            if not (byte := self.file.read(1)):
                raise _Unusual
            value |= (byte[0] & 127) << shift
            if byte[0] < 128:
                return value
        raise _Unusual

    def _bytes(self, begin: int, end: int) -> bytes:
        self.file.seek(begin)
        return self.file.read(end - begin)


def _wrapped(number: int, contents: bytes) -> bytes:
    """Contents as a field of a message."""
    out = bytearray([number << 3 | _LENGTH])
    length = len(contents)
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out) + contents
