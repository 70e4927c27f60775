"""Python's operators, spelled once for graph values and scalar expressions."""

from __future__ import annotations

from typing import Generic, TypeVar

from ..errors import OperatorError

S = TypeVar("S")


class Arithmetic(Generic[S]):
    """`+ - * / // % ** & | ^ ~ << >>` and order comparisons; each names the operator it means.

    `==` stays identity, so that values can be dictionary keys: write `eq(a, b)`.
    """

    __slots__ = ("__weakref__",)
    __array_ufunc__ = None  # a NumPy array on the left must defer to the methods below

    def _apply(self, op: str, *args: object) -> S:
        raise NotImplementedError

    def __add__(self, other: S | float) -> S:
        return self._apply("add", self, other)

    def __radd__(self, other: float) -> S:
        return self._apply("add", other, self)

    def __sub__(self, other: S | float) -> S:
        return self._apply("sub", self, other)

    def __rsub__(self, other: float) -> S:
        return self._apply("sub", other, self)

    def __mul__(self, other: S | float) -> S:
        return self._apply("mul", self, other)

    def __rmul__(self, other: float) -> S:
        return self._apply("mul", other, self)

    def __truediv__(self, other: S | float) -> S:
        return self._apply("div", self, other)

    def __rtruediv__(self, other: float) -> S:
        return self._apply("div", other, self)

    def __floordiv__(self, other: S | float) -> S:
        return self._apply("floordiv", self, other)

    def __rfloordiv__(self, other: float) -> S:
        return self._apply("floordiv", other, self)

    def __mod__(self, other: S | float) -> S:
        return self._apply("mod", self, other)

    def __rmod__(self, other: float) -> S:
        return self._apply("mod", other, self)

    def __pow__(self, other: S | float) -> S:
        return self._apply("pow", self, other)

    def __rpow__(self, other: float) -> S:
        return self._apply("pow", other, self)

    def __and__(self, other: S | int) -> S:
        return self._apply("bitwise_and", self, other)

    def __or__(self, other: S | int) -> S:
        return self._apply("bitwise_or", self, other)

    def __xor__(self, other: S | int) -> S:
        return self._apply("bitwise_xor", self, other)

    def __invert__(self) -> S:
        return self._apply("bitwise_not", self)

    def __lshift__(self, other: S | int) -> S:
        return self._apply("shift_left", self, other)

    def __rshift__(self, other: S | int) -> S:
        return self._apply("shift_right", self, other)

    def __neg__(self) -> S:
        return self._apply("neg", self)

    def __lt__(self, other: S | float) -> S:
        return self._apply("lt", self, other)

    def __le__(self, other: S | float) -> S:
        return self._apply("le", self, other)

    def __gt__(self, other: S | float) -> S:
        return self._apply("gt", self, other)

    def __ge__(self, other: S | float) -> S:
        return self._apply("ge", self, other)

    def __bool__(self) -> bool:
        raise OperatorError("the value is not known while tracing, so Python cannot branch on it",
                            hint="select with where(), or branch on attributes and shapes")
