"""Our dataclasses against those of the standard library, made from the same bodies."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from treadle import records

OPTIONS: list[dict[str, bool]] = [
    {}, {"eq": False}, {"frozen": True}, {"slots": True}, {"frozen": True, "eq": False},
    {"frozen": True, "slots": True}, {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False, "repr": False},
    {"slots": True, "eq": False, "weakref_slot": True}]


def body(dataclass: Callable[..., Any], field: Callable[..., Any], options: dict[str, bool]
         ) -> type:
    class Point:
        """A point."""

        x: int
        y: Any = 2
        found: list[int] = field(default_factory=list)
        hidden: int = field(default=7, compare=False, repr=False)
        late: int = field(init=False, compare=False, repr=False, default=9)

        def __post_init__(self) -> None:
            object.__setattr__(self, "hidden", self.hidden + 1)

    return dataclass(**options)(Point)


def outcome(call: Callable[[], object]) -> Any:  # noqa: ANN401 - of any call
    """What a call gives, or the error that it raises."""
    try:
        return call()
    except Exception as e:
        return type(e), str(e)


CALLS: dict[str, Callable[[Any], object]] = {
    "repr": lambda c: repr(c(1)).split(" object at")[0],
    "named": lambda c: c(y=5, x=3).y,
    "missing": lambda c: outcome(c)[0],
    "unknown": lambda c: outcome(lambda: c(1, z=2))[0],
    "fresh lists": lambda c: c(1).found is c(1).found,
    "given list": lambda c: c(1, 2, [3]).found,
    "post init": lambda c: c(1).hidden,
    "not an argument": lambda c: (c(1).late, outcome(lambda: c(1, late=2))[0]),
    "equal": lambda c: (c(1) == c(1), c(1) == c(2), c(1) == 1, c(1, 2, [], 3) == c(1)),
    "hash": lambda c: outcome(lambda: hash(c(1, 2, ())) == hash(c(1, 2, ()))),
    "set": lambda c: outcome(lambda: setattr(c(1), "x", 2)),
    "delete": lambda c: outcome(lambda: delattr(c(1), "x")),
    "no room": lambda c: outcome(lambda: setattr(c(1), "more", 2)) is None,
    "fields": lambda c: [(f.name, f.type, f.compare) for f in dataclasses.fields(c)],
    "match": lambda c: c.__match_args__,
    "replace": lambda c: dataclasses.replace(c(1), x=4).x,
    "as a dict": lambda c: dataclasses.asdict(c(1)),
    "copied": lambda c: copy.copy(c(1, 5)).y,
    "slots": lambda c: getattr(c, "__slots__", None)}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_as_the_standard_library(options: dict[str, bool]) -> None:
    ours = body(records.dataclass, records.field, options)
    theirs = body(dataclasses.dataclass, dataclasses.field, options)
    for name, call in CALLS.items():
        a, b = outcome(lambda call=call: call(ours)), outcome(lambda call=call: call(theirs))
        assert a == b, name
        assert outcome(lambda call=call: call(ours)) == b, f"{name}, the second time"


@records.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickles find it."""

    x: int
    y: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True)
class Heir(Kept):
    """One field more."""

    z: int = 3

    def __repr__(self) -> str:
        return f"<{self.x} {self.z}>"


def test_a_standard_one_inherits() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class More(Heir):
        w: int = 5

    assert More(1, w=2) == More(1, (), 3, 2) != More(1)
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Loose", (Heir,), {}))


def test_inheritance_and_pickles() -> None:
    assert (repr(Heir(1, z=4)), Heir(1) == Heir(1), Heir(1) == Kept(1)) == ("<1 3>"[:3] + "4>",
                                                                            True, False)
    assert pickle.loads(pickle.dumps(Heir(1, (2,)))) == Heir(1, (2,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Heir(1).x = 2  # type: ignore[misc]
