"""Compiling and loading: errors, caching, every target, spill counting."""

from __future__ import annotations

import ctypes
import math
import threading

import pytest

from treadle.codegen.llvm import jit, target
from treadle.codegen.llvm.text import F32, I32, PTR, VOID, Function, Module
from treadle.errors import DeviceError

SEVEN = "define i32 @seven() {\n  ret i32 7\n}\n"
TARGETS = [target.AVX2, target.AVX512, target.AVX512_VNNI, target.NEON]


class Counting(jit.MemoryCache):
    """A memory cache that counts what it stores."""

    stored = 0

    def put(self, key: str, code: bytes) -> None:  # noqa: D102
        self.stored += 1
        super().put(key, code)


def products(on: target.Target, live: int) -> Function:
    """A loop that keeps `live` accumulators of one full vector each."""
    module = Module(on)
    kind = F32.vector(on.lanes(F32))
    f = module.function("f", VOID, [("a", PTR), ("b", PTR)], linkage="")
    a, b = f.args
    start = [f.load(kind, b, j * kind.lanes) for j in range(live)]
    with f.loop(0, 1000, kind.lanes, start) as loop:
        x = f.load(kind, a, loop.index)
        loop.carry(*[f.fma(x, v, v) for v in loop.values])
    for j, v in enumerate(loop.results):
        f.store(v, b, j * kind.lanes)
    f.give()
    return f


def test_the_host_is_described() -> None:
    here = target.host()
    assert here.vector_bytes in (16, 32, 64) and here.vector_registers in (16, 32)
    assert here.lanes(F32) * 4 == here.lanes(I32) * 4 == here.vector_bytes


def test_a_function_runs() -> None:
    assert jit.build(SEVEN, target.host()).function("seven", ctypes.c_int)() == 7


def test_functions_of_the_process_are_within_reach() -> None:
    names = ("exp", "sin", "cos", "tan")
    calls = "".join(f"  %x{j + 1} = call double @{name}(double %x{j})\n"
                    for j, name in enumerate(names))
    text = "".join(f"declare double @{name}(double)\n" for name in names)
    text += f"define double @f(double %x0) {{\n{calls}  ret double %x4\n}}\n"
    call = jit.build(text, target.host()).function("f", ctypes.c_double, ctypes.c_double)
    assert call(0.5) == pytest.approx(math.tan(math.cos(math.sin(math.exp(0.5)))), rel=1e-15)


def test_data_with_addresses_in_it_loads() -> None:
    text = SEVEN + "@table = constant [1 x ptr] [ptr @seven]\n"
    program = jit.build(text, target.host())
    at = ctypes.c_uint64.from_address(program.address("table")).value
    assert at == program.address("seven")


def test_a_missing_symbol_and_a_bad_object_are_errors() -> None:
    with pytest.raises(jit.CompileError, match="no symbol 'eight'"):
        jit.build(SEVEN, target.host()).address("eight")
    with pytest.raises(jit.CompileError, match="does not load"):
        jit.Program(b"not an object")


def test_rejected_text_is_quoted() -> None:
    with pytest.raises(jit.CompileError, match=r"line 2:   ret i32 0") as caught:
        jit.compile_object("define void @x() {\n  ret i32 0\n}", target.host())
    assert "report this" in caught.value.hint


def test_an_unknown_triple_is_an_error() -> None:
    with pytest.raises(DeviceError, match="no target 'pdp11-unknown-unix'"):
        target.describe("pdp11-unknown-unix", "", frozenset()).machine()


def test_the_cache_is_keyed_by_text_and_target() -> None:
    cache = Counting()
    for _ in range(2):
        code = jit.compile_object(SEVEN, target.AVX2, cache)
    assert cache.stored == 1
    assert cache.get(jit.object_key(SEVEN, target.AVX2)) == code
    jit.compile_object(SEVEN, target.AVX512, cache)
    jit.compile_object(SEVEN.replace("7", "8"), target.AVX2, cache)
    assert cache.stored == 3


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.cpu)
def test_every_target_uses_its_registers_and_spills_beyond_them(on: target.Target) -> None:
    fits = products(on, on.vector_registers - 3)
    found = jit.spills(jit.assembly(fits.module.text(), on))["f"]
    assert found.multiply_adds == on.vector_registers - 3 and found.moves == 0
    over = products(on, on.vector_registers + 4)
    assert jit.spills(jit.assembly(over.module.text(), on))["f"].moves >= 8


@pytest.mark.parametrize("threads", [1, 3])
def test_modules_compiled_at_the_same_time(threads: int) -> None:
    parts = [((lambda n=n: SEVEN.replace("7", str(n))), f"part {n}") for n in range(12)]
    found = jit.build_all(parts, target.host(), jit.MemoryCache(), threads)
    assert [p.function("seven", ctypes.c_int)() for p in found] == list(range(12))
    alone = jit.compile_object(SEVEN, target.host())
    machine = target.host().machine()
    assert alone == machine.emit_object(jit.optimise(SEVEN, target.host(), machine))
    with pytest.raises(jit.CompileError, match="ret i32 0"):
        jit.build_all([*parts, ("define void @x() {\n  ret i32 0\n}", "")], target.host(), None,
                      threads)


def test_modules_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the process ends."""
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    parts = [((lambda n=n: SEVEN.replace("7", str(n))), "") for n in range(3)]
    found = jit.build_all(parts, target.host(), None, 4)
    assert [p.function("seven", ctypes.c_int)() for p in found] == [0, 1, 2]
