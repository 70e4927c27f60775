"""No inner loop of a micro-kernel moves vectors to or from the stack, on any target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import pytest

from tests.codegen.inner import inner_loops
from treadle.backends.cpu.attention.kernel import emit_attention
from treadle.backends.cpu.attention.spec import Attention, Operand
from treadle.backends.cpu.contraction import (
    BatchAxis,
    Epilogue,
    ExtraOperand,
    Matmul,
    Place,
    emit_matmul,
)
from treadle.backends.cpu.convolution.kernel import emit_convolution
from treadle.backends.cpu.convolution.planes import Planes, emit_planes
from treadle.backends.cpu.convolution.spec import Convolution, Window
from treadle.codegen.llvm import target
from treadle.codegen.llvm.jit import assembly
from treadle.codegen.llvm.kernel import Kernel, export
from treadle.codegen.llvm.text import BF16, F16, F32, F64, I8, I32, Function, Module, Type, Value

Emit = Callable[[Module, str], Kernel]
TARGETS = (target.AVX2, target.AVX512, target.AVX512_VNNI, target.NEON)


def relu_of_sum(f: Function, value: Value, values: Sequence[Value], place: Place) -> Value:
    """max(x + bias + residual, 0)."""
    return f.maximum(value + values[0] + values[1], 0.0)


FINISH = Epilogue("relu_of_sum", (ExtraOperand("bias", "column"),
                                  ExtraOperand("residual", "matrix")), relu_of_sum)


def matmul(m: int | str, n: int | str, k: int | str, *types: Type, **more: object) -> Emit:
    """A matrix product as something to emit."""
    spec = Matmul(m, n, k, *types, **more)  # type: ignore[arg-type]
    return lambda module, name: emit_matmul(module, spec, name)


def products() -> dict[str, Emit]:
    """Contractions of every element type and layout."""
    halves = [(F32, F16, F32), (F16, F16, F16), (F32, BF16, F32), (BF16, BF16, BF16)]
    found = {f"{a.mangled}-{b.mangled}-{c.mangled}": matmul(128, 768, 768, a, b, c)
             for a, b, c in [(F32, F32, F32), (F64, F64, F64), *halves]}
    for layout, turned in product(("rows", "columns"), (False, True)):
        found[f"{layout}-{'turned' if turned else 'straight'}"] = matmul(
            "m", 100, "k", b_layout=layout, a_transposed=turned)
    found |= {"dynamic": matmul("m", 768, 768), "vector": matmul(1, 768, 768),
              "narrow": matmul(64, 3, 64), "epilogue": matmul(128, 96, 512, epilogue=FINISH),
              "batched": matmul(64, 64, 32, b_layout="columns", batch=(
                  BatchAxis("heads", 2048, 2048, 4096),))}
    for a, b in product((True, False), repeat=2):
        found[f"integer-{'su'[not a]}{'su'[not b]}"] = matmul(
            64, 64, 256, I8, I8, I32, a_signed=a, b_signed=b)
    return found


def window(size: int | str, out: int | str, line: int | str, kernel: int, step: int = 1,
           gap: int = 1) -> Window:
    """A window with half of its taps before its position."""
    return Window(size, out, line, kernel, step, gap, kernel // 2)


CLASSES: dict[str, tuple[Window, ...]] = {
    "3x3": (window(40, 40, 40, 3), window(40, 40, 1, 3)),
    "3x3-strided": (window(40, 20, 40, 3, 2), window(40, 20, 1, 3, 2)),
    "5x5-dilated": (window(40, 40, 40, 5, 1, 2), window(40, 40, 1, 5, 1, 2)),
    "3x3-dynamic": (window("down", "lines", "line", 3), window("across", "wide", 1, 3)),
    "1x1": (window(1600, 1600, 1, 1),),
    "1d": (window("long", "out", 1, 7),),
    "3d": (window(8, 8, 64, 3), window(8, 8, 8, 3), window(8, 8, 1, 3))}


def convolutions() -> dict[str, Emit]:
    """Gathered products of every class of windows, with many and few filters."""
    found: dict[str, Emit] = {}
    for (name, windows), filters in product(CLASSES.items(), (16, 96)):
        spec = Convolution(1, 1, filters, 24, windows, 38400, 1600)
        found[f"{name}-{filters}"] = partial(_convolution, spec)
    square = CLASSES["3x3"]
    found["f64"] = partial(_convolution, Convolution(1, 1, 48, 16, square, 25600, 1600, F64))
    found["unpacked"] = partial(_convolution, Convolution(1, 2, 48, 16, square, 51200, 1600, F32,
                                                          False))
    return found


def _convolution(spec: Convolution, module: Module, name: str) -> Kernel:
    return emit_convolution(module, spec, name)


def planes() -> dict[str, Emit]:
    """Depthwise filters and pools of every class of windows."""
    found: dict[str, Emit] = {}
    for (name, windows), fold in product(CLASSES.items(), ("weighted", "sum", "max", "min")):
        spec = Planes(fold, "n", 32, 1, windows, 51200, 1600)  # type: ignore[arg-type]
        found[f"{name}-{fold}"] = partial(_planes, spec)
    return found


def _planes(spec: Planes, module: Module, name: str) -> Kernel:
    return emit_planes(module, spec, name)


def attentions() -> dict[str, Emit]:
    """Scores and sums of values of every accumulator; keys row by row and column by column."""
    found: dict[str, Emit] = {}
    for columns, (e, total) in product((False, True), ((F32, F32), (F64, F64), (F16, F32))):
        rows: tuple[int | str, ...] = ("batch", "head", 64, 1)
        keys = ("batch", "head", 1, "keys") if columns else rows
        q, k, v, y = (Operand(n, e, keys if n == "k" else rows) for n in "qkvy")
        spec = Attention(q, k, v, y, (), total, 1, 4, 1, "rows", "keys", 64, 64, columns, 0.125,
                         None, 0, None, None)
        found[f"{e.mangled}-{'columns' if columns else 'rows'}"] = partial(_attention, spec)
    return found


def _attention(spec: Attention, module: Module, name: str) -> Kernel:
    return emit_attention(module, spec, None, name)


FAMILIES = {"product": products, "attention": attentions, "convolution": convolutions,
            "planes": planes}


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("family", FAMILIES)
def test_inner_loops_stay_in_registers(family: str, on: target.Target) -> None:
    """All kernels of a family are one module: functions that they share are compiled once."""
    module, kernels = Module(on), FAMILIES[family]()
    export(module, [emit(module, f"k{i}") for i, emit in enumerate(kernels.values())])
    found = list(inner_loops(assembly(module.text(), on)))
    assert len(found) > len(kernels)
    assert not [x for x in found if x.moves]


def test_a_loop_that_spills_is_found() -> None:
    text = ("f:\n.LBB0_1:\n\tvmovups\t%ymm0, 32(%rsp)\n.LBB0_2:\n\tvfmadd231ps\t(%rax), %ymm1, "
            "%ymm2\n\tvmovaps\t64(%rsp), %ymm3\n\tjne\t.LBB0_2\n\tjl\t.LBB0_1\n\tretq\n"
            "g:\n.LBB1_1:\n\tfmla\tv1.4s, v2.4s, v3.s[0]\n\tb.ne\t.LBB1_1\n\tret\n")
    assert [tuple(x) for x in inner_loops(text)] == [("f", 1, 1), ("g", 1, 0)]
