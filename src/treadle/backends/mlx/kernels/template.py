"""A small template language: C with a few words that each target spells its own way.

A body uses `$LANE`, `$WARP`, `$GROUP`, `$DEVICE`, `$SHARED`, `$BARRIER` and the functions
`lane_sum(x)`, `part_sum<N>(x)` (over N neighbouring lanes), `pack4(a, b, c, d)`, `as_float(bits)`,
`load_words<N>(pointer, out)`, `load<N>(pointer, out)` and `store<N>(pointer, values)` (N is 1 or
8), which the headers define. `FLOAT(NAME)` is a number given by `real`. MLX adds the signature from
the names of inputs and outputs and instantiates the template parameters; a body that says `x_shape`
gets the sizes of x as an argument.

Numbers that a kernel needs are sizes or template parameters, never arrays: MLX keeps arrays of a
few bytes in memory that it shares with the host, and on an NVIDIA GPU each group would wait for
the bus.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import mlx.core as mx
import numpy as np

from ....errors import DeclarationError
from ....records import dataclass

Target: TypeAlias = Literal["cuda", "metal"]
WARP = 32
"""Lanes that add up together on both targets."""
_WORDS: Mapping[Target, Mapping[str, str]] = {
    "cuda": {"LANE": "(threadIdx.x % 32)", "WARP": "(threadIdx.x / 32)", "GROUP": "blockIdx.x",
             "DEVICE": "", "SHARED": "__shared__", "BARRIER": "__syncthreads()"},
    "metal": {"LANE": "thread_index_in_simdgroup", "WARP": "simdgroup_index_in_threadgroup",
              "GROUP": "threadgroup_position_in_grid.x", "DEVICE": "device",
              "SHARED": "threadgroup",
              "BARRIER": "threadgroup_barrier(mem_flags::mem_threadgroup)"}}
_HEADERS: Mapping[Target, str] = {
    "cuda": """
__device__ inline float lane_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
template <int N>
__device__ inline float part_sum(float x) {
  #pragma unroll
  for (int step = N / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ inline float4 pack4(float a, float b, float c, float d) {
  return make_float4(a, b, c, d);
}
__device__ inline float as_float(uint32_t bits) { return __uint_as_float(bits); }
template <int N>
__device__ inline void load_words(const uint32_t* p, uint32_t* out) {
  struct alignas(4 * N) Part { uint32_t v[N]; };
  Part part = *reinterpret_cast<const Part*>(p);
  #pragma unroll
  for (int i = 0; i < N; ++i) out[i] = part.v[i];
}
template <typename T>
struct alignas(16) Part { T v[16 / sizeof(T)]; };
template <typename T>
__device__ inline void load8(const T* p, float* out) {
  constexpr int each = 16 / sizeof(T);
  #pragma unroll
  for (int i = 0; i < 8 / each; ++i) {
    Part<T> part = reinterpret_cast<const Part<T>*>(p)[i];
    #pragma unroll
    for (int j = 0; j < each; ++j) out[i * each + j] = float(part.v[j]);
  }
}
template <int N, typename T>
__device__ inline void load(const T* p, float* out) {
  if (N == 8 && reinterpret_cast<uintptr_t>(p) % 16 == 0) {
    load8(p, out);
  } else {
    #pragma unroll
    for (int i = 0; i < N; ++i) out[i] = float(p[i]);
  }
}
template <int N, typename T>
__device__ inline void store(T* p, const float* values) {
  constexpr int each = 16 / sizeof(T);
  if (N < 8) {
    #pragma unroll
    for (int i = 0; i < N; ++i) p[i] = T(values[i]);
  } else {
    #pragma unroll
    for (int i = 0; i < 8 / each; ++i) {
      Part<T> part;
      #pragma unroll
      for (int j = 0; j < each; ++j) part.v[j] = T(values[i * each + j]);
      reinterpret_cast<Part<T>*>(p)[i] = part;
    }
  }
}
""",
    "metal": """
inline float lane_sum(float x) { return simd_sum(x); }
template <int N>
inline float part_sum(float x) {
  for (int step = N / 2; step > 0; step /= 2) x += simd_shuffle_xor(x, ushort(step));
  return x;
}
inline float4 pack4(float a, float b, float c, float d) { return float4(a, b, c, d); }
inline float as_float(uint32_t bits) { return as_type<float>(bits); }
template <int N>
inline void load_words(const device uint32_t* p, thread uint32_t* out) {
  for (int i = 0; i < N; ++i) out[i] = p[i];
}
template <typename T>
inline void load8(const device T* p, thread float* out) {
  for (int i = 0; i < 2; ++i) {
    metal::vec<T, 4> part = reinterpret_cast<const device metal::vec<T, 4>*>(p)[i];
    for (int j = 0; j < 4; ++j) out[i * 4 + j] = float(part[j]);
  }
}
template <int N, typename T>
inline void load(const device T* p, thread float* out) {
  for (int i = 0; i < N; ++i) out[i] = float(p[i]);
}
template <int N, typename T>
inline void store(device T* p, thread const float* values) {
  for (int i = 0; i < N; ++i) p[i] = T(values[i]);
}
"""}
_COMMON = """
#define FLOAT(NAME) as_float(uint32_t(NAME) << 16 | uint32_t(NAME##_LOW))
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A kernel's name, operands and body."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str

    def render(self, target: Target) -> str:
        """The body in a target's words."""
        def word(found: re.Match[str]) -> str:
            if (text := _WORDS[target].get(found[1])) is None:
                raise DeclarationError(f"{self.name}: ${found[1]} is no word of the templates",
                                       hint=f"they are {', '.join(sorted(_WORDS[target]))}")
            return text

        return re.sub(r"\$([A-Z]+)", word, self.body)


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as it was launched: for `explain()` and dumps."""

    template: Template
    target: Target
    params: tuple[tuple[str, object], ...]
    groups: int
    threads: int

    def __str__(self) -> str:
        named = ", ".join([f"{name}={value}" for name, value in self.params])
        return f"{self.groups} groups of {self.threads} threads, {named}"


launched: deque[Launch] = deque(maxlen=64)
"""The latest launches since whoever runs steps cleared it; only MLX's owner launches any."""


def source(launches: Sequence[Launch]) -> str:
    """The text of one template as it was launched, each way of launching in a comment."""
    first = launches[0]
    ways = "".join(f"// {one}\n" for one in dict.fromkeys(map(str, launches)))
    given = ", ".join(first.template.inputs)
    made = ", ".join(first.template.outputs)
    return (f"// {first.template.name}: {given} -> {made}\n{ways}{header(first.target)}\n"
            f"// the body; MLX adds the signature\n{first.template.render(first.target)}")


def header(target: Target) -> str:
    """The functions that bodies may call."""
    return _COMMON + _HEADERS[target]


def real(name: str, value: float) -> dict[str, object]:
    """An f32 number as template parameters, which are integers: its bits, high half first."""
    bits = int(np.float32(value).view(np.uint32))
    return {name: bits >> 16, f"{name}_LOW": bits & 0xFFFF}


def target() -> Target | None:
    """What MLX's GPU here is programmed in; None without one."""
    if mx.metal.is_available():
        return "metal"
    return "cuda" if mx.cuda.is_available() else None


@lru_cache(64)
def build(template: Template, for_: Target) -> Any:  # noqa: ANN401 - MLX's kernel object
    """MLX's kernel, compiled at its first call for each set of parameters."""
    make = mx.fast.metal_kernel if for_ == "metal" else mx.fast.cuda_kernel
    return make(name=template.name, input_names=list(template.inputs),
                output_names=list(template.outputs), source=template.render(for_),
                header=header(for_))


def launch(template: Template, inputs: Sequence[mx.array], params: Mapping[str, object],
           groups: int, threads: int, shapes: Sequence[Sequence[int]],
           dtypes: Sequence[mx.Dtype]) -> list[mx.array]:
    """Outputs of `groups` blocks of `threads`, on the GPU that is here."""
    found = target()
    assert found is not None, "only called where there is a GPU"
    launched.append(Launch(template, found, tuple(params.items()), groups, threads))
    return build(template, found)(
        inputs=list(inputs), template=list(params.items()), grid=(groups * threads, 1, 1),
        threadgroup=(threads, 1, 1), output_shapes=[tuple(s) for s in shapes],
        output_dtypes=list(dtypes))
