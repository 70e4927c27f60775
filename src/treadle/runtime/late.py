"""Executables of models whose graph needs the values or shapes of some inputs first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..backends.base import Backend, Data
from ..declare.arrays import Array
from ..declare.evaluate import Watch
from ..errors import BindingError
from ..ir.graph import Graph
from .executable import Executable, no_copy
from .explain import Explanation
from .line import Line
from .params import replacements
from .random import check_seed, no_seed
from .results import Outputs, check_out, owned
from .signature import Signature

if TYPE_CHECKING:
    from concurrent.futures import Future

Compile = Callable[[Sequence[Array]], Executable]


class Needs(Protocol):
    """What a late-bound graph depends on."""

    reason: str

    def key(self, arrays: Sequence[Array]) -> object:
        """Equal keys share a program. Raises `BindingError` for inputs that fit no binding."""
        ...


LATE_KEPT = 16
"""Specialised programs a late-bound executable keeps."""


class LateExecutable:
    """An executable whose graph depends on values or ranks that only a run gives.

    It is specialised at the first call with new ones; the most recent specialisations are kept.
    With a `seed` run number i draws from key i of its sequence, whatever specialisation it has.
    """

    def __init__(self, signature: Signature, backend: Backend, needs: Needs,
                 compile_: Compile, seed: int | None = None) -> None:
        self.signature, self.backend, self._needs = signature, backend, needs
        self._compile = compile_
        self._kept: OrderedDict[object, Executable] = OrderedDict()
        self._lock = threading.Lock()
        self._line = Line()
        self._seed, self._runs = seed, 0
        self._replaced: dict[str, Data] = {}
        self.compilations = 0

    def __repr__(self) -> str:
        return (f"<Executable on {self.backend.name}, specialised at each new binding: "
                f"{self.signature}>")

    @property
    def graph(self) -> Graph:
        """The graph of the most recent specialisation."""
        return self._latest().graph

    def __call__(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
                 **named: Any) -> Outputs:  # noqa: ANN401 - arrays of any library
        """Run as `Executable` does, specialising first when the binding is new."""
        return self.run(self.signature.arrange(args, named), out=out)

    def run(self, arrays: Sequence[Array], *, out: Mapping[str, Array] | None = None,
            watch: Watch | None = None) -> Outputs:
        """Run on one array per input."""
        seen = self._line.inner(watch) if watch else None
        return self._line.run(lambda: self._run(arrays, out, seen))

    def submit(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
               **named: Any) -> Future[Outputs]:  # noqa: ANN401 - arrays of any library
        """Run later, as `Executable.submit` does."""
        arrays = [owned(a) for a in self.signature.arrange(args, named)]
        check_out(self.signature, out)
        return self._line.submit(lambda: self._run(arrays, out, None))

    def _run(self, arrays: Sequence[Array], out: Mapping[str, Array] | None,
             watch: Watch | None) -> Outputs:
        inner = self._specialise(arrays)
        if self._seed is not None:
            inner.reseed(self._seed, self._runs)
            self._runs += 1
        kept = {leaf.name for leaf in inner.signature.inputs}
        given = [a for leaf, a in zip(self.signature.inputs, arrays, strict=True)
                 if leaf.name in kept]
        return inner.run(given, out=out, watch=watch) if watch else inner(*given, out=out)

    def _specialise(self, arrays: Sequence[Array]) -> Executable:
        with self._lock:
            key = self._needs.key(arrays)
            if (found := self._kept.get(key)) is None:
                found = self._compile(arrays)
                names = {v.name for v in found.graph.params}
                if given := {n: a for n, a in self._replaced.items() if n in names}:
                    found.set_params(given)
                self.compilations += 1
                key = self._needs.key(arrays)  # compiling may have found more needs
                self._kept[key] = found
                if len(self._kept) > LATE_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
        return found

    def _latest(self) -> Executable:
        if not self._kept:
            raise BindingError(f"there is no graph before the first run: {self._needs.reason}",
                               hint="call it once")
        return next(reversed(self._kept.values()))

    def reseed(self, seed: int, runs: int = 0) -> None:
        """Draw random numbers as `Executable.reseed` says."""
        seed, runs = check_seed(seed, "seed"), check_seed(runs, "runs")
        if self._seed is None:
            raise no_seed()

        def change() -> None:
            self._seed, self._runs = seed, runs

        self._line.run(change)

    def set_param(self, name: str, array: Any) -> None:  # noqa: ANN401 - arrays of any library
        """Replace a parameter by a copy of `array`, in every specialisation and in later ones.

        Parameters exist after the first run.
        """
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Replace several parameters, all of them or, after an error, none."""
        def replace() -> None:
            self._latest().thaw(arrays)
            inner = list(self._kept.values())
            held = {v.name: v for exe in inner for v in exe.graph.params}
            given = replacements(held, arrays)
            parts = [(exe, {v.name: given[v.name] for v in exe.graph.params if v.name in given})
                     for exe in inner]
            for exe, part in parts:
                exe.set_params(part)
            self._replaced.update(given)

        self._line.run(replace)

    def clone(self) -> LateExecutable:
        """An executable of its own with the same specialisations and parameters."""
        def clone() -> LateExecutable:
            made = LateExecutable(self.signature, self.backend, self._needs, self._compile,
                                  self._seed)
            made._lock = self._lock  # what builds graphs is shared, and it learns
            made._kept = OrderedDict([(key, exe.clone()) for key, exe in self._kept.items()])
            made._runs, made._replaced = self._runs, dict(self._replaced)
            return made

        return self._line.run(clone)

    def __reduce__(self) -> NoReturn:
        """An error, as for `Executable`."""
        raise no_copy()

    def resident(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - those of `Executable`
        """An error: without a graph there is no state."""
        raise self._bound("has no resident state")

    def release(self, *_: Any) -> NoReturn:  # noqa: ANN401 - those of `Executable`
        """An error: without a graph there is no state."""
        raise self._bound("has no resident state")

    def share_params(self, *_: Any) -> NoReturn:  # noqa: ANN401 - those of `Executable`
        """An error: its specialisations have parameters of their own."""
        raise self._bound("shares no parameters")

    def _bound(self, what: str) -> BindingError:
        return BindingError(f"a model that is built at its first run {what}: "
                            f"{self._needs.reason}",
                            hint="model.bind(arrays).compile() gives an executable that can")

    def explain(self) -> Explanation:
        """What the most recent specialisation runs, and why the model is late-bound."""
        found = self._latest().explain()
        found.notes.insert(0, f"specialised at each new binding: {self._needs.reason}")
        return found
