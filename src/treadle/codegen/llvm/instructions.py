"""Instructions without control flow: arithmetic, vectors, memory, atomics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .types import BF16, F32, F64, I1, I8, I16, I32, I64, PTR, VOID, Type
from .value import Index, Operand, Value

_FLOAT_ORDER = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED_ORDER = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}


class Instructions:
    """Appends instructions to a function; `Function` supplies `emit`, `line` and `declare`."""

    def emit(self, kind: Type, text: str) -> Value:
        """Append an instruction that gives a value of type `kind`."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        raise NotImplementedError

    def declare(self, name: str, result: Type, parameters: Sequence[str]) -> None:
        """Declare an external function or intrinsic; repeated declarations are one."""
        raise NotImplementedError

    def constant(self, kind: Type, value: Operand) -> Value:
        """A constant in every lane; a value of that type passes through."""
        raise NotImplementedError

    # Arithmetic

    def binary(self, op: str, a: Value, b: Operand) -> Value:
        """An LLVM binary instruction by name, as in `binary("udiv", a, b)`."""
        b = self.constant(a.type, b)
        return self.emit(a.type, f"{op} {a.type} {a.name}, {b.name}")

    def call(self, name: str, result: Type, *args: Value) -> Value:
        """Call an external function or intrinsic with these arguments' types."""
        self.declare(name, result, [str(a.type) for a in args])
        text = f"call {result} @{name}({', '.join(f'{a.type} {a.name}' for a in args)})"
        if result == VOID:
            self.line(text)
            return self.constant(I64, 0)
        return self.emit(result, text)

    def unary(self, name: str, a: Value) -> Value:
        """An intrinsic of one operand: `fabs`, `sqrt`, `floor`, `ceil`, `rint`, `ctpop`..."""
        return self.call(f"llvm.{name}.{a.type.mangled}", a.type, a)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """`a * b + c`, rounded once."""
        b, c = self.constant(a.type, b), self.constant(a.type, c)
        return self.call(f"llvm.fma.{a.type.mangled}", a.type, a, b, c)

    def compare(self, op: str, a: Value, b: Operand) -> Value:
        """Lanes of `i1`: `lt le gt ge eq ne`, signed; unordered floats give `ne` alone.

        Other predicates are LLVM's own names, such as `ult`.
        """
        b = self.constant(a.type, b)
        kind, names = ("fcmp", _FLOAT_ORDER) if a.type.is_float else ("icmp", _SIGNED_ORDER)
        return self.emit(a.type.with_scalar(I1),
                         f"{kind} {names.get(op, op)} {a.type} {a.name}, {b.name}")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """`a` where the condition holds, else `b`; one of them must be a value."""
        kind = next(x.type for x in (a, b) if isinstance(x, Value))
        a, b = self.constant(kind, a), self.constant(kind, b)
        return self.emit(kind, f"select {condition.type} {condition.name}, "
                               f"{kind} {a.name}, {kind} {b.name}")

    def maximum(self, a: Value, b: Operand) -> Value:
        """The larger; `b` if either is NaN, which is what one x86 instruction computes."""
        b = self.constant(a.type, b)
        return self.select(self.compare("gt", a, b), a, b)

    def minimum(self, a: Value, b: Operand) -> Value:
        """The smaller; `b` if either is NaN."""
        b = self.constant(a.type, b)
        return self.select(self.compare("lt", a, b), a, b)

    def cast(self, op: str, a: Value, kind: Type) -> Value:
        """An LLVM conversion by name (`sext zext trunc fpext fptrunc sitofp bitcast`...)."""
        return a if a.type == kind else self.emit(kind, f"{op} {a.type} {a.name} to {kind}")

    def bitcast(self, a: Value, kind: Type) -> Value:
        """The same bits as another type of equal size."""
        return self.cast("bitcast", a, kind)

    def convert(self, a: Value, scalar: Type, *, signed: bool = True) -> Value:
        """A numeric conversion of every lane; float to integer truncates and must fit."""
        kind = a.type.with_scalar(scalar)
        sign = "s" if signed else "u"
        if a.type.is_float and scalar.is_float:
            op = "fpext" if scalar.bits > a.type.bits else "fptrunc"
            if kind != a.type and (scalar == BF16 or scalar.bits == a.type.bits):
                return self._to_half(a, kind)
            if a.type.name == "bfloat" and op == "fpext":
                return self._from_bfloat(a, scalar)
        elif a.type.is_float:
            op = f"fpto{sign}i"
        elif scalar.is_float:
            op = f"{sign}itofp"
        else:
            wider = "sext" if signed else "zext"
            op = wider if scalar.bits > a.type.bits else "trunc"
        return self.cast(op, a, kind)

    def _to_half(self, a: Value, kind: Type) -> Value:
        """To bfloat16, or from one half to the other, through f32.

        Without an instruction for it LLVM calls a library routine per lane to make a bfloat16, so
        this rounds to nearest even in integers and keeps NaN quiet.
        """
        single = a if a.type.name == "float" else self.convert(a, F32)
        if kind.name != "bfloat":
            return self.cast("fptrunc", single, kind)
        bits = self.bitcast(single, single.type.with_scalar(I32))
        even = self.binary("lshr", bits, 16) & 1
        rounded = self.binary("lshr", bits + even + 0x7FFF, 16)
        quiet = self.binary("lshr", bits, 16) | 0x40
        chosen = self.select(self.compare("uno", single, single), quiet, rounded)
        return self.bitcast(self.convert(chosen, I16), kind)

    def _from_bfloat(self, a: Value, scalar: Type) -> Value:
        """The upper half of an f32, in integers.

        LLVM would fold an extension that is rounded back, and what it keeps from one block to
        another as bfloat16 it makes by the library routine that is not there.
        """
        bits = self.convert(self.bitcast(a, a.type.with_scalar(I16)), I32, signed=False)
        single = self.bitcast(self.binary("shl", bits, 16), a.type.with_scalar(F32))
        return single if scalar == F32 else self.convert(single, scalar)

    # Vectors

    def splat(self, a: Value, lanes: int) -> Value:
        """A scalar in every lane; `lanes` of 1 or less leaves it a scalar."""
        if lanes <= 1:
            return a
        kind = a.type.vector(lanes)
        first = self.emit(kind, f"insertelement {kind} poison, {a.type} {a.name}, i64 0")
        return self.emit(kind, f"shufflevector {kind} {first.name}, {kind} poison, "
                               f"<{lanes} x i32> zeroinitializer")

    def iota(self, kind: Type) -> Value:
        """The constant 0, 1, 2, ... of an integer vector type."""
        items = ", ".join(f"{kind.name} {j}" for j in range(kind.lanes))
        return Value(self.constant(I64, 0).function, f"<{items}>", kind)

    def extract(self, a: Value, lane: Index) -> Value:
        """One lane."""
        at = self.constant(I64, lane)
        return self.emit(a.type.scalar, f"extractelement {a.type} {a.name}, i64 {at.name}")

    def insert(self, a: Value, item: Value, lane: Index) -> Value:
        """`a` with one lane replaced."""
        at = self.constant(I64, lane)
        return self.emit(a.type, f"insertelement {a.type} {a.name}, "
                                 f"{item.type} {item.name}, i64 {at.name}")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes picked from `a` followed by `b`; a negative number leaves a lane undefined."""
        kind = a.type.scalar.vector(len(lanes))
        mask = ", ".join(f"i32 {j}" if j >= 0 else "i32 poison" for j in lanes)
        second = b.name if b is not None else "poison"
        return self.emit(kind, f"shufflevector {a.type} {a.name}, {a.type} {second}, "
                               f"<{len(lanes)} x i32> <{mask}>")

    def part(self, a: Value, start: int, count: int) -> Value:
        """`count` neighbouring lanes; one lane is a scalar."""
        if count == 1:
            return self.extract(a, start)
        return self.shuffle(a, None, range(start, start + count))

    def reduce(self, a: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """A scalar from all lanes, halving the vector: the same order on every target."""
        while (lanes := a.type.lanes) > 1:
            half = lanes // 2
            a = combine(self.part(a, 0, half), self.part(a, half, half))
        return a

    def tail_mask(self, remaining: Index, lanes: int) -> Value:
        """Lanes below `remaining`, which may be negative or more than `lanes`."""
        left = self.constant(I64, remaining)
        left = self.minimum(self.maximum(left, 0), lanes)
        wide = self.splat(self.cast("trunc", left, I32), lanes)
        return self.compare("lt", self.iota(I32.vector(lanes)), wide)

    # Memory

    def address(self, pointer: Value, index: Index, element: Type = F32) -> Value:
        """`pointer` moved by `index` elements; the index may be a vector."""
        if isinstance(index, int) and index == 0:
            return pointer
        at = index if isinstance(index, Value) else self.constant(I64, index)
        result = PTR.vector(at.type.lanes)
        return self.emit(result, f"getelementptr {element}, ptr {pointer.name}, "
                                 f"{at.type} {at.name}")

    def load(self, kind: Type, pointer: Value, index: Index = 0, *, align: int = 0) -> Value:
        """Load from `pointer` moved by `index` elements; aligned to the element by default."""
        at = self.address(pointer, index, kind.scalar)
        return self.emit(kind, f"load {kind}, ptr {at.name}, align {align or kind.size}")

    def store(self, a: Value, pointer: Value, index: Index = 0, *, align: int = 0) -> None:
        """Store at `pointer` moved by `index` elements; aligned to the element by default."""
        at = self.address(pointer, index, a.type.scalar)
        self.line(f"store {a.type} {a.name}, ptr {at.name}, align {align or a.type.size}")

    def masked_load(self, kind: Type, pointer: Value, mask: Value, fill: Operand = 0) -> Value:
        """Lanes of the mask from memory, the others `fill`; others are not touched."""
        if kind.name == "bfloat":
            bits = self.masked_load(kind.with_scalar(I16), pointer, mask, _bits(fill))
            return self.bitcast(bits, kind)
        rest = self.constant(kind, fill)
        name = f"llvm.masked.load.{kind.mangled}.p0"
        self.declare(name, kind, ["ptr", "i32", str(mask.type), str(kind)])
        return self.emit(kind, f"call {kind} @{name}(ptr {pointer.name}, i32 {kind.size}, "
                               f"{mask.type} {mask.name}, {kind} {rest.name})")

    def masked_store(self, a: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of the mask; others are not touched."""
        if a.type.name == "bfloat":
            return self.masked_store(self.bitcast(a, a.type.with_scalar(I16)), pointer, mask)
        name = f"llvm.masked.store.{a.type.mangled}.p0"
        self.declare(name, VOID, [str(a.type), "ptr", "i32", str(mask.type)])
        self.line(f"call void @{name}({a.type} {a.name}, ptr {pointer.name}, "
                  f"i32 {a.type.size}, {mask.type} {mask.name})")

    def gather(self, kind: Type, pointers: Value, mask: Value, fill: Operand = 0) -> Value:
        """Lanes of the mask from a vector of pointers, the others `fill`."""
        if kind.name == "bfloat":
            bits = self.gather(kind.with_scalar(I16), pointers, mask, _bits(fill))
            return self.bitcast(bits, kind)
        rest = self.constant(kind, fill)
        name = f"llvm.masked.gather.{kind.mangled}.{pointers.type.mangled}"
        self.declare(name, kind, [str(pointers.type), "i32", str(mask.type), str(kind)])
        return self.emit(kind, f"call {kind} @{name}({pointers.type} {pointers.name}, "
                               f"i32 {kind.size}, {mask.type} {mask.name}, {kind} {rest.name})")

    def scatter(self, a: Value, pointers: Value, mask: Value) -> None:
        """Store the lanes of the mask through a vector of pointers, in lane order."""
        if a.type.name == "bfloat":
            return self.scatter(self.bitcast(a, a.type.with_scalar(I16)), pointers, mask)
        name = f"llvm.masked.scatter.{a.type.mangled}.{pointers.type.mangled}"
        self.declare(name, VOID, [str(a.type), str(pointers.type), "i32", str(mask.type)])
        self.line(f"call void @{name}({a.type} {a.name}, {pointers.type} {pointers.name}, "
                  f"i32 {a.type.size}, {mask.type} {mask.name})")

    def prefetch(self, pointer: Value, locality: int = 3, *, write: bool = False) -> None:
        """Ask for the cache line of an address that is read or written soon; never faults."""
        self.declare("llvm.prefetch.p0", VOID, ["ptr", "i32", "i32", "i32"])
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer.name}, i32 {int(write)}, "
                  f"i32 {locality}, i32 1)")

    def copy(self, target: Value, source: Value, count: Index) -> None:
        """Copy `count` bytes between places that do not overlap."""
        n = self.constant(I64, count)
        self.declare("llvm.memcpy.p0.p0.i64", VOID, ["ptr", "ptr", "i64", "i1"])
        self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.name}, ptr {source.name}, "
                  f"i64 {n.name}, i1 false)")

    def fill(self, target: Value, byte: int, count: Index) -> None:
        """Set `count` bytes to `byte`."""
        n = self.constant(I64, count)
        self.declare("llvm.memset.p0.i64", VOID, ["ptr", "i8", "i64", "i1"])
        self.line(f"call void @llvm.memset.p0.i64(ptr {target.name}, "
                  f"i8 {I8.constant(byte)}, i64 {n.name}, i1 false)")

    # Atomics. An order is LLVM's name: monotonic, acquire, release, acq_rel, seq_cst.

    def atomic_load(self, kind: Type, pointer: Value, order: str) -> Value:
        """An atomic load of an aligned integer or pointer."""
        return self.emit(kind, f"load atomic {kind}, ptr {pointer.name} {order}, "
                               f"align {kind.size}")

    def atomic_store(self, a: Value, pointer: Value, order: str) -> None:
        """An atomic store of an aligned integer or pointer."""
        self.line(f"store atomic {a.type} {a.name}, ptr {pointer.name} {order}, "
                  f"align {a.type.size}")

    def atomic_update(self, op: str, pointer: Value, a: Value, order: str) -> Value:
        """An atomic read-modify-write (`add sub or xchg max`...); gives the old value."""
        return self.emit(a.type, f"atomicrmw {op} ptr {pointer.name}, {a.type} {a.name} {order}, "
                                 f"align {a.type.size}")

    def compare_exchange(self, pointer: Value, expected: Value, new: Value, order: str,
                         failure: str = "monotonic") -> Value:
        """Replace `expected` by `new`; gives whether that happened (`i1`)."""
        pair = Type(f"{{ {expected.type}, i1 }}")
        got = self.emit(pair, f"cmpxchg ptr {pointer.name}, {expected.type} {expected.name}, "
                              f"{new.type} {new.name} {order} {failure}, "
                              f"align {expected.type.size}")
        return self.emit(I1, f"extractvalue {pair} {got.name}, 1")

    def fence(self, order: str) -> None:
        """A memory fence."""
        self.line(f"fence {order}")


def _bits(fill: Operand) -> int:
    """The bits of a bfloat16 number.

    LLVM may turn masked moves of bfloat16 into arithmetic of single lanes, and that into calls of a
    library that is not there; as integers they stay moves.
    """
    if isinstance(fill, Value):
        raise TypeError("masked bfloat lanes are filled with a number")
    return int(BF16.constant(fill).removeprefix("0xR"), 16)


def widest(element: Type) -> Type:
    """The type in which sums of an element type accumulate: f32 of halves, i32 of small ints."""
    if element.is_float:
        return F64 if element == F64 else F32
    return I64 if element == I64 else I32
