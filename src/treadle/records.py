"""Dataclasses whose methods are made when they are first needed.

`dataclasses` compiles up to seven methods for each class, most of which no run of a program calls:
a fifth of the time that importing this package and starting on a model took. Here the constructor
is compiled at the first instance, and no other method takes code of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True,
              weakref_slot: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: type[T] | None = None, /, *, frozen: bool = False, slots: bool = False,
              eq: bool = True, repr: bool = True, weakref_slot: bool = False) -> object:
    """A class decorator that means what `dataclasses.dataclass` does with these options."""
    def wrap(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # or else one is made from the signature
        hashes = cls.__dict__.get("__hash__", MISSING)
        own = hashes is not MISSING and not (hashes is None and "__eq__" in cls.__dict__)
        with _thawed(cls):
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots,
                                         weakref_slot=weakref_slot)(cls)
        made.__dataclass_params__.frozen = frozen  # type: ignore[attr-defined]
        equal, hashed = _compared(made)
        methods: list[Callable[..., object]] = [_constructor(made, frozen, slots)]
        methods += [_shown(made)] if repr else []
        methods += [equal] if eq else []
        methods += _unchanging(made) if frozen else []
        methods += _states(made) if frozen and slots else []
        for method in methods:
            if method.__name__ not in made.__dict__:
                _give(made, method)
        if eq and not own:
            made.__hash__ = hashed if frozen else None  # type: ignore[assignment, method-assign]
        return made

    return wrap if cls is None else wrap(cls)


@contextmanager
def _thawed(cls: type) -> Generator[None]:
    """Let a class inherit from frozen ones; `dataclasses` asks that both are frozen or neither."""
    every = [b.__dict__.get("__dataclass_params__") for b in cls.__mro__[1:]]
    found = [params for params in every if params is not None and params.frozen]
    for params in found:
        params.frozen = False
    try:
        yield
    finally:
        for params in found:
            params.frozen = True


def _give(cls: type, method: Callable[..., object]) -> None:
    method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
    setattr(cls, method.__name__, method)


def _constructor(cls: type, frozen: bool, slots: bool) -> Callable[..., object]:
    """A constructor that replaces itself when it is first called."""
    def __init__(self: object, *args: object, **named: object) -> None:  # noqa: N807 - a method
        made = _compiled(cls, frozen, slots)
        _give(cls, made)
        made(self, *args, **named)

    return __init__


def _compiled(cls: type, frozen: bool, slots: bool) -> Callable[..., object]:
    """The constructor of a class, from source text as `dataclasses` writes it."""
    known: dict[str, object] = {"_set": object.__setattr__, "_new": _NEW}
    params, lines = ["self"], list[str]()
    for f in _all(cls):
        given, value = _spoken(f, known)
        if f.init:
            params.append(given)
        elif f.default_factory is MISSING and (f.default is MISSING or not slots):
            continue
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(params)}):\n {body}", known)  # noqa: S102 - names are identifiers
    found = known["__init__"]
    assert callable(found)
    return found


_NEW = object()
"""Stands for an argument that is not given and is made anew each time."""


def _spoken(f: Field[Any], known: dict[str, object]) -> tuple[str, str]:
    """A field as a parameter and as the value that is kept; what these need becomes known."""
    if f.default_factory is not MISSING:
        known[f"_make_{f.name}"] = f.default_factory
        made = f"_make_{f.name}()"
        return f"{f.name}=_new", f"{made} if {f.name} is _new else {f.name}" if f.init else made
    if f.default is not MISSING:
        known[f"_default_{f.name}"] = f.default
        name = f.name if f.init else f"_default_{f.name}"
        return f"{f.name}=_default_{f.name}", name
    return f.name, f.name


def _all(cls: type) -> Sequence[Field[Any]]:
    return fields(cls)  # type: ignore[arg-type] - it is a dataclass by now


def _shown(cls: type) -> Callable[..., object]:
    names = [f.name for f in _all(cls) if f.repr]

    def __repr__(self: object) -> str:  # noqa: N807 - a method
        found = ", ".join([f"{n}={getattr(self, n)!r}" for n in names])
        return f"{self.__class__.__qualname__}({found})"

    return recursive_repr()(__repr__)


def _compared(cls: type) -> tuple[Callable[..., object], Callable[..., int]]:
    """Equality and hash of the fields that compare."""
    names = [f.name for f in _all(cls) if f.compare]
    contents: Callable[[object], object] = (
        attrgetter(*names) if len(names) > 1 else lambda x: tuple([getattr(x, n) for n in names]))

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - a method
        if other.__class__ is not self.__class__:
            return NotImplemented
        return contents(self) == contents(other)

    def __hash__(self: object) -> int:  # noqa: N807 - a method
        return hash(contents(self))

    return __eq__, __hash__


def _unchanging(cls: type) -> list[Callable[..., object]]:
    names = frozenset(f.name for f in _all(cls))

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807 - a method
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807 - a method
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return [__setattr__, __delattr__]


def _states(cls: type) -> list[Callable[..., object]]:
    """What copies and pickles go by where attributes cannot be set."""
    names = [f.name for f in _all(cls)]

    def __getstate__(self: object) -> list[object]:  # noqa: N807 - a method
        return [getattr(self, n) for n in names]

    def __setstate__(self: object, state: Sequence[object]) -> None:  # noqa: N807 - a method
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return [__getstate__, __setstate__]


__all__ = ["asdict", "dataclass", "field", "fields", "replace"]
