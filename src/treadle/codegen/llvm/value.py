"""SSA values: a name, a type, and Python operators that append instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from ...records import dataclass
from .types import Type

if TYPE_CHECKING:
    from .text import Function

Operand: TypeAlias = Union["Value", float]
"""A value, or a Python number that takes the type of the value beside it."""
Index: TypeAlias = Union["Value", int]
"""An `i64` value or a Python integer."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The result of an instruction, an argument, or a constant of a function.

    Operators need equal types. `+ - *` follow the type; `/` is for floats, `//` and `%` are signed
    and truncate toward zero, `>>` is arithmetic. Nothing is contracted or reassociated: a fused
    multiply-add is asked for by `Function.fma`.
    """

    function: Function
    name: str
    type: Type

    def _do(self, op: str, other: Operand) -> Value:
        return self.function.binary(op, self, other)

    def _do_reflected(self, op: str, other: float) -> Value:
        return self.function.binary(op, self.function.constant(self.type, other), self)

    def _either(self, real: str, whole: str) -> str:
        return real if self.type.is_float else whole

    def __add__(self, other: Operand) -> Value:
        return self._do(self._either("fadd", "add"), other)

    def __radd__(self, other: float) -> Value:
        return self._do(self._either("fadd", "add"), other)

    def __sub__(self, other: Operand) -> Value:
        return self._do(self._either("fsub", "sub"), other)

    def __rsub__(self, other: float) -> Value:
        return self._do_reflected(self._either("fsub", "sub"), other)

    def __mul__(self, other: Operand) -> Value:
        return self._do(self._either("fmul", "mul"), other)

    def __rmul__(self, other: float) -> Value:
        return self._do(self._either("fmul", "mul"), other)

    def __truediv__(self, other: Operand) -> Value:
        return self._do("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._do_reflected("fdiv", other)

    def __floordiv__(self, other: Operand) -> Value:
        return self._do("sdiv", other)

    def __mod__(self, other: Operand) -> Value:
        return self._do(self._either("frem", "srem"), other)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.emit(self.type, f"fneg {self.type} {self.name}")
        return self._do_reflected("sub", 0)

    def __and__(self, other: Operand) -> Value:
        return self._do("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._do("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._do("xor", other)

    def __invert__(self) -> Value:
        return self._do("xor", 1 if self.type.name == "i1" else -1)

    def __lshift__(self, other: Operand) -> Value:
        return self._do("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        return self._do("ashr", other)
