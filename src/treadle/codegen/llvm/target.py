"""What code generation must know about a processor, found through LLVM or given by a test."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...config import Config
from ...errors import DeviceError
from ...records import dataclass

if TYPE_CHECKING:
    import llvmlite.binding as llvm

    from .types import Type

_BASELINE_X86 = frozenset({"64bit", "cx8", "fxsr", "mmx", "sse", "sse2"})


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: its LLVM names and what a template asks about it.

    `features` are LLVM's feature names that the processor has, `l1_bytes` and `l2_bytes` the data
    caches of one core.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    vector_bytes: int
    vector_registers: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10

    def has(self, *features: str) -> bool:
        """Whether the processor has every feature, named as LLVM names it (`avx512vnni`)."""
        return self.features.issuperset(features)

    @property
    def is_x86(self) -> bool:
        """Whether this is x86-64."""
        return self.triple.startswith(("x86_64", "amd64"))

    @property
    def is_arm(self) -> bool:
        """Whether this is AArch64."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return self.is_arm or self.has("fma")

    @property
    def has_masks(self) -> bool:
        """Whether masked accesses of 8- and 16-bit lanes are single instructions."""
        return self.has("avx512bw", "avx512vl")

    @property
    def has_dot4(self) -> bool:
        """Whether four 8-bit products accumulate into 32 bits in one instruction."""
        return self.has("avxvnni") and self.vector_bytes <= 32 or self.has(
            "avx512vnni", "avx512vl") or self.has("dotprod")

    def lanes(self, element: Type) -> int:
        """Lanes of one full vector register of an element type."""
        return self.vector_bytes // element.size

    @property
    def feature_text(self) -> str:
        """The features in LLVM's spelling, sorted: part of the key of compiled code."""
        return ",".join(f"+{name}" for name in sorted(self.features))

    @property
    def key(self) -> str:
        """What identifies code made for this target."""
        return f"{self.triple} {self.cpu} {self.feature_text} {self.vector_bytes}"

    def machine(self) -> llvm.TargetMachine:
        """A new LLVM target machine: position-independent code of the small model.

        Raises `DeviceError` if this LLVM has no such target.
        """
        import llvmlite.binding as llvm

        _initialise()
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise DeviceError(f"LLVM has no target '{self.triple}': {error}",
                              hint="install an llvmlite built with it") from None
        return target.create_target_machine(
            cpu=self.cpu, features=self.feature_text, opt=3, reloc="pic", codemodel="small")


@functools.cache
def _initialise() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def host() -> Target:
    """The processor that this process runs on, with vectors of `TREADLE_VECTOR_BYTES` if set."""
    import llvmlite.binding as llvm

    _initialise()
    names = frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)
    return describe(llvm.get_process_triple(), llvm.get_host_cpu_name(), names,
                    Config.from_environment().vector_bytes)


def describe(triple: str, cpu: str, features: frozenset[str], vector_bytes: int | None = None
             ) -> Target:
    """A target whose vectors follow from its features, or have a size that is given."""
    arm = triple.startswith(("aarch64", "arm64"))
    if vector_bytes is None:
        wide = 64 if "avx512f" in features and "avx512vl" in features else 32
        vector_bytes = wide if "avx" in features and not arm else 16
    registers = 32 if arm or vector_bytes == 64 else 16
    big = registers == 32
    return Target(triple, cpu, features, vector_bytes, registers,
                  l2_bytes=(1 << 20) if big else (512 << 10))


_AVX2 = _BASELINE_X86 | {
    "avx", "avx2", "bmi", "bmi2", "cmov", "crc32", "cx16", "f16c", "fma", "lzcnt", "movbe",
    "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

AVX2 = describe("x86_64-unknown-linux-gnu", "x86-64-v3", _AVX2)
"""Any x86-64 with AVX2 and FMA."""
AVX512 = describe("x86_64-unknown-linux-gnu", "x86-64-v4", _AVX512)
"""Any x86-64 with the common AVX-512 features."""
AVX512_VNNI = describe("x86_64-unknown-linux-gnu", "sapphirerapids",
                       _AVX512 | {"avx512vnni", "avx512bf16"})
"""AVX-512 with the 8-bit and bfloat16 dot products."""
NEON = describe("aarch64-unknown-linux-gnu", "neoverse-n1",
                frozenset({"neon", "fp-armv8", "dotprod", "lse", "fullfp16"}))
"""AArch64 with 128-bit vectors and the 8-bit dot product."""
