"""Builds LLVM IR as text: modules, functions, structured control flow.

A function is written in one pass. Values carry their type, numbers beside them become constants,
loops carry SSA values, and no stack memory is used. `llvmlite.ir` is not: objects per instruction
cost several times more than text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...records import dataclass, field
from .instructions import Instructions
from .target import Target
from .types import BF16, F16, F32, F64, I1, I8, I16, I32, I64, PTR, VOID, Type
from .value import Index, Operand, Value

__all__ = [
    "BF16", "F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64", "PTR", "VOID",
    "Function", "Index", "Loop", "Module", "Operand", "Type", "Value",
]

_PAUSES = {True: ("llvm.x86.sse2.pause", "", ""), False: ("llvm.aarch64.hint", "i32", "i32 1")}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A function's parameter; `attributes` are LLVM's, such as `noalias readonly`."""

    name: str
    type: Type
    attributes: str = ""


@dataclass(slots=True)
class Loop:
    """The inside of `Function.loop`: its counter, what it carries in, and what it hands on.

    `results` are the carried values after the loop; they exist once the `with` block is over.
    """

    index: Value
    values: list[Value]
    results: list[Value] = field(default_factory=list)
    next: list[Value] | None = None

    def carry(self, *values: Value) -> None:
        """Give the carried values of the next turn, in the order of `values`."""
        if [v.type for v in values] != [v.type for v in self.values]:
            raise TypeError(f"a loop over {[str(v.type) for v in self.values]} was handed "
                            f"{[str(v.type) for v in values]}")
        self.next = list(values)


class Function(Instructions):
    """A function being written, block by block."""

    def __init__(self, module: Module, name: str, result: Type, parameters: Sequence[Parameter],
                 linkage: str, attributes: str) -> None:
        self.module, self.name, self.result = module, name, result
        self.parameters = tuple(parameters)
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._head = (
            f"define {linkage} {result} @{name}("
            + ", ".join(f"{p.type} {p.attributes} %{p.name}" for p in parameters)
            + f") {attributes} {{")

    @property
    def args(self) -> list[Value]:
        """The parameters as values, in order."""
        return [Value(self, f"%{p.name}", p.type) for p in self.parameters]

    @property
    def target(self) -> Target:
        """The processor that the module is for."""
        return self.module.target

    # What Instructions needs

    def emit(self, kind: Type, text: str) -> Value:
        """Append an instruction that gives a value of type `kind`."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(self, name, kind)

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {text}")

    def declare(self, name: str, result: Type, parameters: Sequence[str]) -> None:
        """Declare an external function or intrinsic; repeated declarations are one."""
        self.module.declare(name, result, parameters)

    def constant(self, kind: Type, value: Operand) -> Value:
        """A constant in every lane; a value passes through if it has that type."""
        if isinstance(value, Value):
            if value.type != kind:
                raise TypeError(f"{value.type} {value.name} in @{self.name} meets {kind}")
            return value
        return Value(self, kind.constant(value), kind)

    def invoke(self, function: Function, *args: Value) -> Value:
        """Call a function of this module; a void call gives a meaningless zero."""
        text = ", ".join(f"{a.type} {a.name}" for a in args)
        if [a.type for a in args] != [p.type for p in function.parameters]:
            raise TypeError(f"@{function.name} was called with ({text})")
        return self._invoke(f"@{function.name}", function.result, text)

    def invoke_pointer(self, pointer: Value, result: Type, *args: Value) -> Value:
        """Call through a pointer."""
        return self._invoke(pointer.name, result,
                            ", ".join(f"{a.type} {a.name}" for a in args))

    def _invoke(self, callee: str, result: Type, args: str) -> Value:
        if result == VOID:
            self.line(f"call void {callee}({args})")
            return self.constant(I64, 0)
        return self.emit(result, f"call {result} {callee}({args})")

    # Blocks

    def label(self, hint: str = "block") -> str:
        """A fresh block name; `start` begins the block."""
        self._count += 1
        return f"{hint}{self._count}"

    @property
    def block(self) -> str:
        """The name of the block being written, for `phi`."""
        return self._block

    def start(self, label: str) -> None:
        """Begin the block `label`; the one before must have ended in a jump or a return."""
        self._lines.append(f"{label}:")
        self._block = label

    def jump(self, label: str) -> None:
        """End the block with a jump."""
        self.line(f"br label %{label}")

    def branch(self, condition: Value, then: str, otherwise: str) -> None:
        """End the block with a two-way jump on an `i1`."""
        self.line(f"br i1 {condition.name}, label %{then}, label %{otherwise}")

    def switch(self, value: Value, cases: dict[int, str], otherwise: str) -> None:
        """End the block with a jump to the label of the case, or to `otherwise`."""
        items = " ".join(f"{value.type} {case}, label %{to}" for case, to in cases.items())
        self.line(f"switch {value.type} {value.name}, label %{otherwise} [ {items} ]")

    def give(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.line("ret void" if value is None else f"ret {value.type} {value.name}")

    def phi(self, *incoming: tuple[Value, str]) -> Value:
        """The value that belongs to the block control came from; first in its block."""
        kind = incoming[0][0].type
        pairs = ", ".join(f"[ {value.name}, %{block} ]" for value, block in incoming)
        return self.emit(kind, f"phi {kind} {pairs}")

    # Structured control

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1,
             carried: Sequence[Value] = ()) -> Iterator[Loop]:
        """Count from `low` while below `high`, carrying values.

        The body reads `loop.index` and `loop.values` and ends with `loop.carry(...)` if anything is
        carried; afterwards `loop.results` holds the last values. An empty range skips the body.
        """
        certain = isinstance(low, int) and isinstance(high, int) and low < high
        first, last = self.constant(I64, low), self.constant(I64, high)
        before, body, done = self._block, self.label("body"), self.label("done")
        if certain:
            self.jump(body)
        else:
            self.branch(self.compare("lt", first, last), body, done)
        self.start(body)
        tag = body.removeprefix("body")
        loop = Loop(Value(self, f"%i{tag}", I64),
                    [Value(self, f"%c{tag}.{j}", v.type) for j, v in enumerate(carried)])
        head = len(self._lines)
        yield loop
        handed = loop.next or []
        if len(handed) != len(carried):
            raise TypeError(f"a loop of @{self.name} carries {len(carried)} values and its body "
                            f"handed on {len(handed)}")
        after = self.binary("add nsw", loop.index, step)
        again = self.compare("lt", after, last)
        latch = self._block
        pairs = zip([loop.index, *loop.values], [first, *carried], [after, *handed], strict=True)
        self._lines[head:head] = [
            f"  {v.name} = phi {v.type} [ {start.name}, %{before} ], [ {turn.name}, %{latch} ]"
            for v, start, turn in pairs]
        self.branch(again, body, done)
        self.start(done)
        loop.results = handed if certain else [
            self.phi((start, before), (turn, latch))
            for start, turn in zip(carried, handed, strict=True)]

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body if an `i1` holds."""
        then, done = self.label("then"), self.label("done")
        self.branch(condition, then, done)
        self.start(then)
        yield
        self.jump(done)
        self.start(done)

    @contextmanager
    def until(self) -> Iterator[str]:
        """Repeat the body for ever; it leaves by branching to the yielded label."""
        again, done = self.label("again"), self.label("done")
        self.jump(again)
        self.start(again)
        yield done
        self.jump(again)
        self.start(done)

    def pause(self) -> None:
        """Tell the core that this is a spinning wait."""
        name, kind, argument = _PAUSES[self.target.is_x86]
        self.declare(name, VOID, [kind] if kind else [])
        self.line(f"call void @{name}({argument})")

    def clock(self) -> Value:
        """Ticks (`i64`) of a clock of constant rate."""
        name = "llvm.readcyclecounter" if self.target.is_x86 else "llvm.readsteadycounter"
        return self.call(name, I64)

    def text(self) -> str:
        """The definition."""
        return "\n".join([self._head, "entry:", *self._lines, "}", ""])


class Module:
    """Functions, declarations and constant data that are compiled together."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, Function] = {}
        self._declared: dict[str, str] = {}
        self._data: dict[str, str] = {}

    def function(self, name: str, result: Type, parameters: Sequence[Parameter | tuple[str, Type]],
                 *, linkage: str = "internal", attributes: str = "nounwind noinline") -> Function:
        """Begin a function; an `internal` one is dropped unless something uses it.

        Raises `ValueError` for a name that exists: look in `functions` first.
        """
        if name in self.functions:
            raise ValueError(f"@{name} exists")
        full = [p if isinstance(p, Parameter) else Parameter(*p) for p in parameters]
        self.functions[name] = made = Function(self, name, result, full, linkage, attributes)
        return made

    def declare(self, name: str, result: Type, parameters: Sequence[str]) -> None:
        """Declare an external function or intrinsic; repeated declarations are one."""
        self._declared[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def data(self, name: str, definition: str) -> None:
        """Define `@name`, as in `data("table", "internal constant [2 x i32] [i32 1, i32 2]")`."""
        self._data[name] = f"@{name} = {definition}"

    def text(self) -> str:
        """The whole module."""
        defined = (f.text() for f in self.functions.values())
        return "\n".join([*self._data.values(), "", *defined, *self._declared.values(), ""])
