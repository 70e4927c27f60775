"""The kernel: scores of a block by register tiles, an online softmax, the product with the values.

After T. Dao and others, "FlashAttention" (2022), and M. Milakov and N. Gimelshein, "Online
normalizer calculation for softmax" (2018). Blocks of keys go in order, so that the bits do not
depend on the number of chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.text import I1, I8, I64, PTR, Function, Index, Module, Value
from ....declare.scalar import Scalar
from ..contraction.micro import Micro, emit_micro
from ..contraction.spec import Extent
from ..contraction.staging import pack_function, vector_loop
from ..contraction.tiles import UNROLL, tile_for
from .few import FEW, Few
from .rows import Softening
from .spec import Attention, Operand, blocks


class Block(NamedTuple):
    """A block of queries: batch entry, key head, rows, how far queries are shifted, keys there are.

    The queries of all heads that read one key head are rows, head after head.
    """

    batch: Value
    head: Value
    first: Value
    rows: Value
    shift: Value
    limit: Value


def emit_attention(module: Module, spec: Attention, cap: Scalar | None, name: str) -> Kernel:
    """Write the kernel. Its words: the operands, the output, the sizes. `cap` caps a score."""
    words = [*((x.name, PTR) for x in spec.operands()), *((n, I64) for n in spec.run_time_words())]
    kernel = Kernel(module, name, words)
    _Macro(kernel, module, spec, cap).run()
    kernel.finish()
    return kernel


class _Macro:
    """Writes one kernel: the loops over blocks."""

    def __init__(self, kernel: Kernel, module: Module, spec: Attention, cap: Scalar | None
                 ) -> None:
        self.kernel, self.module, self.spec = kernel, module, spec
        self.f: Function = kernel.function
        self.tile = tile_for(module.target, spec.accumulator)
        self.blocks = blocks(spec, self.tile)
        self.soften = Softening(self.f, spec, self.blocks, self.tile.lanes, cap)
        base = kernel.scratch()
        self.part = {name: self.f.address(base, at, spec.accumulator)
                     for name, at in self.blocks.places.items()}
        self.few = Few(self.f, spec, self.blocks, self.tile.lanes, self.part, self.size)

    def size(self, size: Extent) -> Value:
        """A size as a value."""
        return self.kernel[size] if isinstance(size, str) else self.f.constant(I64, size)

    def at(self, x: Operand, *places: Index) -> Value:
        """The address of an element, by its positions along the leading axes."""
        offset = self.f.constant(I64, 0)
        for place, stride in zip(places, x.strides, strict=False):
            offset = offset + self.f.constant(I64, place) * self.size(stride)
        return self.f.address(self.kernel[x.name], offset, x.element)

    def run(self) -> None:
        """The loop over blocks of queries."""
        f, spec = self.f, self.spec
        rows, heads = self.size(spec.rows) * spec.group, self.size(spec.heads)
        count = f.binary("udiv", rows + (self.blocks.rows - 1), f.constant(I64, self.blocks.rows))
        low, high = self.kernel.share(self.size(spec.batch) * heads * count)
        with f.loop(low, high) as item:
            first = f.binary("urem", item.index, count) * self.blocks.rows
            head = f.binary("udiv", item.index, count)
            batch, head = f.binary("udiv", head, heads), f.binary("urem", head, heads)
            shift, limit = self.size(spec.start), self.size(spec.keys)
            if (offset := spec.operand("offset")) is not None:
                shift = shift + self._integer(offset, batch)
            if (valid := spec.operand("valid_length")) is not None:
                limit = f.minimum(limit, self._integer(valid, batch))
            block = Block(batch, head, first, f.minimum(rows - first, self.blocks.rows), shift,
                          limit)
            self._stage(block)
            self._start(block)
            self._keys(block)
            self._finish(block)

    def _query(self, block: Block, row: Value) -> tuple[Value, Value]:
        """The head and the query of a row."""
        at = block.first + row
        if self.spec.group == 1:
            return block.head, at
        f, count = self.f, self.size(self.spec.rows)
        return (block.head * self.spec.group + f.binary("udiv", at, count),
                f.binary("urem", at, count))

    def _integer(self, x: Operand, batch: Value) -> Value:
        return self.f.convert(self.f.load(x.element, self.at(x, batch)), I64, signed=x.signed)

    def _stage(self, block: Block) -> None:
        """The queries, scaled, one after another."""
        f, spec, acc = self.f, self.spec, self.spec.accumulator
        with f.loop(0, block.rows) as row:
            at = self.at(spec.q, block.batch, *self._query(block, row.index))
            to = f.address(self.part["q"], row.index * self.blocks.q_line, acc)

            def item(index: Value, width: int, at: Value = at, to: Value = to) -> None:
                value = f.convert(f.load(spec.q.element.vector(width), at, index), acc)
                f.store(value * spec.scale, to, index)

            vector_loop(f, spec.depth, self.tile.lanes, item)

    def _start(self, block: Block) -> None:
        """Nothing seen: the sums are those of the sink alone."""
        f, acc, sink = self.f, self.spec.accumulator, self.spec.operand("sink")
        with f.loop(0, block.rows) as row:
            top, total = f.constant(acc, float("-inf")), f.constant(acc, 0.0)
            if sink is not None:
                head, _ = self._query(block, row.index)
                top = f.convert(f.load(sink.element, self.at(sink, head)), acc)
                total = f.select(f.compare("eq", top, float("-inf")), total, 1.0)
            f.store(top, self.part["top"], row.index)
            f.store(total, self.part["sum"], row.index)
        f.fill(self.part["seen"], 0, self.blocks.rows * acc.size)
        f.fill(self.part["o"], 0, block.rows * (self.blocks.o_line * acc.size))

    # Keys

    def _keys(self, block: Block) -> None:
        """The blocks of keys that a row of the block sees."""
        f, spec = self.f, self.spec
        low, high = f.constant(I64, 0), block.limit
        first, last = self._span(block)
        if spec.left is not None:
            low = f.maximum(first + block.shift - spec.left, 0) & -self.blocks.keys
        if spec.right is not None:
            high = f.minimum(high, last + block.shift + (spec.right + 1))
        k, v = (self.at(x, block.batch, block.head) for x in (spec.k, spec.v))
        with f.loop(low, high, self.blocks.keys) as at:
            width = f.minimum(high - at.index, self.blocks.keys)
            few = self._is_few(block)
            with f.when(few):
                self.few.scores(block.rows, f.address(
                    k, at.index * self.size(spec.k.strides[2]), spec.k.element), width)
            with f.when(~few):
                self._scores(block, k, at.index, width)
            self._rows(block, at.index, width)
            with f.when(few):
                self.few.values(block.rows, f.address(
                    v, at.index * self.size(spec.v.strides[2]), spec.v.element), width)
            with f.when(~few):
                self._values(block, v, at.index, width)

    def _is_few(self, block: Block) -> Value:
        """Whether keys and values are better read in place."""
        if self.spec.k_columns:
            return self.f.constant(I1, 0)
        return self.f.compare("le", block.rows, FEW)

    def _span(self, block: Block) -> tuple[Value, Value]:
        """The first and the last query of the block; all if it has rows of two heads."""
        f, last = self.f, block.first + block.rows - 1
        if self.spec.group == 1:
            return block.first, last
        count = self.size(self.spec.rows)
        same = f.compare("eq", f.binary("udiv", block.first, count), f.binary("udiv", last, count))
        return (f.select(same, f.binary("urem", block.first, count), 0),
                f.select(same, f.binary("urem", last, count), count - 1))

    def _scores(self, block: Block, k: Value, first: Value, width: Value) -> None:
        f, spec, columns = self.f, self.spec, self.tile.columns
        line = self.size(spec.k.strides[3 if spec.k_columns else 2])
        step = self.f.constant(I64, 1) if spec.k_columns else line
        pack = pack_function(self.module, spec.k.element, spec.accumulator, self.tile,
                             not spec.k_columns)
        micro = self._micro(self.blocks.q_line, self.blocks.s_line, spec.depth, True)
        with f.loop(0, width, columns) as panel:
            left, panels = width - panel.index, self.part["k"]
            source = f.address(k, (first + panel.index) * step, spec.k.element)
            f.invoke(pack, source, panels, f.constant(I64, spec.depth), line, left)
            self._tiles(block, micro, self.part["q"], panels, f.address(
                self.part["s"], panel.index, spec.accumulator), f.constant(I64, spec.depth))

    def _values(self, block: Block, v: Value, first: Value, width: Value) -> None:
        f, spec, columns = self.f, self.spec, self.tile.columns
        line = self.size(spec.v.strides[2])
        pack = pack_function(self.module, spec.v.element, spec.accumulator, self.tile, False)
        micro = self._micro(self.blocks.s_line, self.blocks.o_line, None, False)
        base = f.address(v, first * line, spec.v.element)
        with f.loop(0, spec.width, columns) as panel:
            source = f.address(base, panel.index, spec.v.element)
            f.invoke(pack, source, self.part["v"], width, line, spec.width - panel.index)
            self._tiles(block, micro, self.part["s"], self.part["v"], f.address(
                self.part["o"], panel.index, spec.accumulator), width)

    def _micro(self, a_line: int, c_line: int, depth: int | None, first: bool) -> Micro:
        acc = self.spec.accumulator
        return Micro(
            tile=self.tile, unroll=UNROLL, rows=0, vectors=self.tile.vectors, accumulator=acc,
            a=acc, a_row=a_line, a_step=1, b=acc, b_step=self.tile.columns, c=acc, ldc=c_line,
            first=first, last=True, tail=None if depth is None else depth % UNROLL, masked=False,
            ahead=0, spread=0, streams=1, epilogue=None)

    def _tiles(self, block: Block, micro: Micro, a: Value, b: Value, c: Value, k: Value) -> None:
        """A panel's tiles; the last one is as high as need be, or somewhat more."""
        f, acc = self.f, self.spec.accumulator
        zero = f.constant(I64, 0)
        with f.loop(0, block.rows, self.tile.rows) as at:
            args = [f.address(a, at.index * (micro.a_row or 0), acc), b,
                    f.address(c, at.index * (micro.ldc or 0), acc), b, b, k, *[zero] * 6]
            labels = {height: f.label("high") for height in self._heights()}
            done, cases = f.label("done"), dict[int, str]()
            for rows in range(1, self.tile.rows + 1):
                fits = [label for height, label in labels.items() if height >= rows]
                cases |= {rows: fits[0]} if fits else {}
            f.switch(f.minimum(block.rows - at.index, self.tile.rows), cases, done)
            for height, label in labels.items():
                f.start(label)
                f.invoke(emit_micro(self.module, replace(micro, rows=height)), *args)
                f.jump(done)
            f.start(done)

    def _heights(self) -> list[int]:
        """Heights of tiles, rising: powers of two and the highest."""
        most = self.tile.rows
        some = [h for h in (1, 2, 4, 8) if h < most]
        if isinstance(self.spec.rows, int):
            rows = self.spec.rows * self.spec.group
            rest = rows % most
            some = [h for h in some if h >= rest][:1] if rest else []
            return [*some, most] if rows >= most or not some else some
        return [*some, most]

    # Rows

    def _rows(self, block: Block, first: Value, width: Value) -> None:
        """The softmax of a block of scores, row by row."""
        f, spec = self.f, self.spec
        with f.loop(0, block.rows) as row:
            head, query = self._query(block, row.index)
            stands = query + block.shift
            low = None if spec.left is None else stands - spec.left
            high = first + width
            if spec.right is not None:
                high = f.minimum(high, stands + (spec.right + 1))
            mask, bias = (self._line(name, block.batch, head, query, first)
                          for name in ("mask", "bias"))
            self.soften.row(self.part, row.index, first, low, high, width, mask, bias)

    def _line(self, name: str, *places: Value) -> tuple[Operand, Value] | None:
        """Where the row of a mask or a bias begins."""
        x = self.spec.operand(name)
        return None if x is None else (x, self.at(x, *places))

    def _finish(self, block: Block) -> None:
        """Sums divided; zeros for rows that saw no key."""
        f, spec, acc = self.f, self.spec, self.spec.accumulator
        with f.loop(0, block.rows) as row:
            to = self.at(spec.y, block.batch, *self._query(block, row.index))
            source = f.address(self.part["o"], row.index * self.blocks.o_line, acc)
            total = f.load(acc, self.part["sum"], row.index)
            seen = f.compare("ne", f.load(I8, self.part["seen"], row.index * acc.size), 0)

            def item(index: Value, width: int, to: Value = to, source: Value = source,
                     total: Value = total, seen: Value = seen) -> None:
                value = f.load(acc.vector(width), source, index) / f.splat(total, width)
                value = f.select(f.splat(seen, width), value, 0.0)
                f.store(f.convert(value, spec.y.element), to, index)

            vector_loop(f, spec.width, self.tile.lanes, item)
