"""First-class LLVM types and the spelling of their constants."""

from __future__ import annotations

import struct

from ...records import dataclass

_BITS = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ptr": 64,
    "half": 16, "bfloat": 16, "float": 32, "double": 64, "void": 0,
}
_FLOATS = frozenset({"half", "bfloat", "float", "double"})
_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar, or a vector of `lanes` scalars; `lanes` is 0 for a scalar."""

    name: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.name}>" if self.lanes else self.name

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return _BITS[self.name]

    @property
    def size(self) -> int:
        """Bytes of one lane in memory."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        """Whether a lane is a floating-point number."""
        return self.name in _FLOATS

    @property
    def scalar(self) -> Type:
        """The type of one lane."""
        return Type(self.name)

    @property
    def mangled(self) -> str:
        """The spelling inside an intrinsic's name: `v8f32`, `i64`, `p0`."""
        code = _MANGLED.get(self.name, self.name)
        return f"v{self.lanes}{code}" if self.lanes else code

    def vector(self, lanes: int) -> Type:
        """`lanes` of this scalar; one lane, or none, is the scalar itself."""
        return Type(self.name, lanes if lanes > 1 else 0)

    def with_scalar(self, scalar: Type) -> Type:
        """As many lanes of another scalar."""
        return Type(scalar.name, self.lanes)

    def constant(self, value: float) -> str:
        """The text of a constant, the same in every lane; a pointer constant must be 0.

        Floating-point values round to nearest, ties to even. Integers must fit, signed or
        unsigned.
        """
        text = self._scalar_constant(value)
        return f"splat ({self.name} {text})" if self.lanes else text

    def _scalar_constant(self, value: float) -> str:
        if self.is_float:
            return _float_text(self.name, float(value))
        if value != int(value):
            raise ValueError(f"{value!r} is no constant of {self}")
        number = int(value)
        if self.name == "ptr":
            if number:
                raise ValueError(f"{number} is no pointer constant; only 0 is")
            return "null"
        if not -(1 << max(self.bits - 1, 0)) <= number < 1 << self.bits:
            raise ValueError(f"{number} does not fit {self.name}")
        if self.name == "i1":
            return "true" if number else "false"
        return str(number)


def _float_text(name: str, value: float) -> str:
    """LLVM's hexadecimal spelling: a double's bits for float and double, own bits for halves."""
    if name == "half":
        try:
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        except OverflowError:
            return "0xH7C00" if value > 0 else "0xHFC00"
    if name == "double":
        return _double_text(value)
    try:
        single = struct.pack("<f", value)
    except OverflowError:
        single = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    if name == "bfloat":
        return f"0xR{_bfloat_bits(struct.unpack('<I', single)[0]):04X}"
    return _double_text(struct.unpack("<f", single)[0])


def _double_text(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _bfloat_bits(single: int) -> int:
    if single & 0x7FFFFFFF > 0x7F800000:
        return single >> 16 | 0x40
    return (single + 0x7FFF + (single >> 16 & 1)) >> 16


VOID, PTR = Type("void"), Type("ptr")
I1, I8, I16, I32, I64 = (Type(f"i{bits}") for bits in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = Type("half"), Type("bfloat"), Type("float"), Type("double")
