"""What a model takes and gives, and how a caller's arrays are bound to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare.arrays import Array, dtype_of_array, host, np_dtype
from ..errors import BindingError, OperatorError
from ..ir.dims import Size, evaluate, limits, symbol_name, symbols
from ..ir.types import STRING, DType, Shape, shape_text
from ..records import dataclass, field


@dataclass(frozen=True, slots=True)
class Leaf:
    """A named input or output; `shape` is None while its rank is not known.

    `role` is what errors about arrays given for it call it.
    """

    name: str
    dtype: DType
    shape: Shape | None
    role: str = "input"

    def __str__(self) -> str:
        shown = "[*]" if self.shape is None else shape_text(self.shape)
        return f"{self.name}: {self.dtype}{shown}"


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model, in order."""

    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    _plain: tuple[tuple[int | str, ...], ...] | None = field(init=False, compare=False, repr=False)
    _limits: tuple[tuple[str, int], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        sizes = [size for leaf in self.inputs for size in leaf.shape or ()]
        object.__setattr__(self, "_limits", tuple(dict.fromkeys(
            [x for size in sizes for x in limits(size)])))
        object.__setattr__(self, "_plain", self._simple())

    def _simple(self) -> tuple[tuple[int | str, ...], ...] | None:
        """Numbers and names of every input's axes, or None where some are neither."""
        found: list[tuple[int | str, ...]] = []
        for leaf in self.inputs:
            named = [n if isinstance(n, int) else symbol_name(n) for n in leaf.shape or ()]
            if leaf.shape is None or leaf.dtype.sort == "host" or None in named:
                return None
            found.append(tuple([n for n in named if n is not None]))
        return tuple(found)

    def __str__(self) -> str:
        return (f"({', '.join(map(str, self.inputs))}) -> "
                f"({', '.join(map(str, self.outputs))})")

    def arrange(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
        """One array for each input, from positional arguments, a dict, or names."""
        if len(args) == 1 and isinstance(args[0], Mapping) and not named:
            args, named = (), args[0]
        names = [leaf.name for leaf in self.inputs]
        if len(args) > len(names):
            raise BindingError(f"{len(args)} inputs given, the model takes {len(names)}",
                               hint=f"it takes {self}")
        given = dict(zip(names, args, strict=False))
        if twice := sorted(given.keys() & named.keys()):
            raise BindingError(f"input '{twice[0]}' is given by position and by name")
        given.update(named)
        if extra := [n for n in given if n not in names]:
            raise BindingError(f"there is no input '{extra[0]}'", hint=f"the model takes {self}")
        if missing := [n for n in names if n not in given]:
            raise BindingError(f"input '{missing[0]}' is missing", hint=f"the model takes {self}")
        return [as_array(leaf, given[leaf.name]) for leaf in self.inputs]

    def bind(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The sizes that the arrays give to symbols; a disagreement names both inputs."""
        if (quick := self._quick(arrays)) is not None:
            return quick
        found: dict[str, int] = {}
        source: dict[str, str] = {}
        for leaf, array in zip(self.inputs, arrays, strict=True):
            if leaf.shape is None or leaf.dtype.sort == "host":
                continue
            if array.ndim != len(leaf.shape):
                raise BindingError(f"input {leaf} has rank {len(leaf.shape)}, the given array has "
                                   f"rank {array.ndim}: {list(array.shape)}")
            for size, n in zip(leaf.shape, array.shape, strict=True):
                if (name := symbol_name(size)) is None:
                    continue
                if found.setdefault(name, n) != n:
                    raise BindingError(
                        f"the size {name} is {found[name]} in input '{source[name]}' and {n} in "
                        f"input '{leaf.name}'", hint=f"the model takes {self}")
                source.setdefault(name, leaf.name)
        self._check_limits(found)
        self._check_shapes(arrays, found)
        return found

    def _quick(self, arrays: Sequence[Array]) -> dict[str, int] | None:
        """The same if nothing needs arithmetic and nothing is wrong, else None."""
        if self._plain is None:
            return None
        found: dict[str, int] = {}
        for sizes, array in zip(self._plain, arrays, strict=True):
            shape = array.shape
            if len(shape) != len(sizes):
                return None
            for size, n in zip(sizes, shape, strict=True):
                if size != n and (size.__class__ is int or found.setdefault(size, n) != n):  # type: ignore[arg-type]
                    return None
        if any(found[name] > most for name, most in self._limits):
            return None
        return found

    def _check_limits(self, binding: Mapping[str, int]) -> None:
        for leaf in self.inputs:
            for name, most in (x for size in leaf.shape or () for x in limits(size)):
                if binding.get(name, 0) > most:
                    raise BindingError(f"the size {name} is {binding[name]} in input "
                                       f"'{leaf.name}'; the model works for at most {most}")

    def _check_shapes(self, arrays: Sequence[Array], binding: dict[str, int]) -> None:
        for leaf, array in zip(self.inputs, arrays, strict=True):
            for axis, size in enumerate(leaf.shape or ()):
                missing = sorted(set(symbols(size)) - binding.keys())
                if len(missing) == 1 and (n := solve(size, missing[0], array.shape[axis],
                                                     binding)) is not None:
                    binding[missing[0]] = n
                elif missing:
                    raise BindingError(f"input {leaf}: axis {axis} of {array.shape[axis]} does not "
                                       f"tell the size {missing[0]}",
                                       hint="another input must have that size as an axis")
                want = evaluate(size, binding)
                if want != array.shape[axis]:
                    shown = f"{want}" if isinstance(size, int) else f"{size} = {want}"
                    raise BindingError(f"input {leaf}: axis {axis} must be {shown}, the given "
                                       f"array is {list(array.shape)}")


def solve(size: Size, name: str, value: int, binding: Mapping[str, int]) -> int | None:
    """The number at which the symbol makes `size` equal `value`, where `size` is linear in it."""
    at_0, at_1, at_2 = (evaluate(size, {**binding, name: n}) for n in (0, 1, 2))
    step = at_1 - at_0
    if step == 0 or at_2 - at_1 != step or (value - at_0) % step or (value - at_0) // step < 0:
        return None
    found = (value - at_0) // step
    return found if evaluate(size, {**binding, name: found}) == value else None


def as_array(leaf: Leaf, given: Any) -> Array:  # noqa: ANN401 - what callers have
    """A caller's value as an array of the leaf's dtype; another dtype is an error, not a cast."""
    if leaf.dtype.sort == "host":
        return _host(leaf, given)
    if isinstance(given, int | float | complex | bool | list | tuple | str):
        return _from_python(leaf, given)
    if not isinstance(given, np.ndarray | np.generic):
        if not hasattr(given, "__dlpack__"):
            raise BindingError(f"{leaf.role} {leaf}: {type(given).__name__} is no array",
                               hint="give a NumPy array or anything with __dlpack__")
        given = _from_dlpack(leaf, given)
    array = np.asarray(given)
    try:
        dtype = dtype_of_array(array)
    except (OperatorError, AttributeError) as e:
        raise BindingError(f"{leaf.role} {leaf}: {getattr(e, 'message', e)}") from None
    if dtype is not leaf.dtype:
        raise BindingError(f"{leaf.role} {leaf}: the given array has dtype {dtype}",
                           hint=f"convert it: array.astype('{np_dtype(leaf.dtype).name}')")
    if dtype is STRING and array.dtype.kind in "US":
        return array.astype(object)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _host(leaf: Leaf, given: Any) -> Array:  # noqa: ANN401 - a list, a value or None
    """A sequence or optional whose elements have the declared type, or an error."""
    wrapped = isinstance(given, np.ndarray) and given.dtype == object and not given.ndim
    value = given.item() if wrapped else given
    kind, elem = leaf.dtype.name[:3], leaf.dtype.elem
    if kind == "seq" and not isinstance(value, list):
        raise BindingError(f"input {leaf}: a list is needed, got {type(value).__name__}")
    if elem is None or value is None or kind == "map":
        return host(value)
    inner = Leaf(leaf.name, elem.dtype, elem.shape)
    if kind == "seq":
        return host([_element(inner, v) for v in value])
    return host(_element(inner, value))


def _element(leaf: Leaf, value: Any) -> Any:  # noqa: ANN401 - an array or a nested host value
    array = as_array(leaf, value)
    if leaf.dtype.sort == "host":
        return array
    sizes = leaf.shape or ()
    fits = array.ndim == len(sizes) and all(
        n == s or not isinstance(s, int) for s, n in zip(sizes, array.shape, strict=True))
    if not fits:
        raise BindingError(f"input {leaf}: an element has shape {list(array.shape)}")
    return array


def _from_python(leaf: Leaf, given: object) -> Array:
    try:
        if leaf.dtype is STRING:
            return np.asarray(given, object)
        natural = np.asarray(given)
        if not natural.size:
            return natural.astype(np_dtype(leaf.dtype))
        wide = {"bool": "b", "int": "iu", "uint": "iu", "float": "iuf", "complex": "iufc"}
        if natural.dtype.kind not in wide[leaf.dtype.sort]:
            raise BindingError(f"{leaf.role} {leaf}: the given values are {natural.dtype}")
        with np.errstate(over="raise"):
            cast = natural.astype(np_dtype(leaf.dtype))
        if leaf.dtype.sort in ("int", "uint") and not np.array_equal(cast, natural):
            raise BindingError(f"{leaf.role} {leaf}: a given number does not fit {leaf.dtype}")
        return cast
    except (ValueError, TypeError, OverflowError, FloatingPointError) as e:
        raise BindingError(f"{leaf.role} {leaf}: {e}") from None


def _from_dlpack(leaf: Leaf, given: Any) -> Array:  # noqa: ANN401 - a foreign array
    try:
        return np.from_dlpack(given)
    except Exception as e:  # noqa: BLE001 - a foreign object may raise anything
        raise BindingError(f"{leaf.role} {leaf}: its DLPack capsule cannot be read: {e}",
                           hint="move it to the CPU and detach it; bf16 and floats of 8 bits, "
                                "which NumPy does not read so, go as integers: x.view(...) there, "
                                "array.view(ml_dtypes.bfloat16) here") from None
