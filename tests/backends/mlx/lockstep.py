"""Kernels run on the CPU: a group's threads are fibers that take turns at every exchange.

Every thread of a group comes to the same exchanges and barriers in the same order, so a thread that
waits may simply let all others go as far as it did.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from treadle.backends.mlx.arrays import to_mlx
from treadle.backends.mlx.kernels.template import Target, Template, header

FIBERS = """
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ucontext.h>
#include <vector>
using std::exp; using std::sqrt;
static const int MOST = 1024;
static int threads, me, running;
static ucontext_t home, places[MOST];
static bool done[MOST];
static float slots[MOST];
static void turn() { swapcontext(&places[me], &home); }
static float exchange(float x, int step) {
  slots[me] = x;
  turn();
  const float other = slots[me ^ step];
  turn();
  return other;
}
static float sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += exchange(x, step);
  return x;
}
"""
SHIMS: dict[Target, str] = {
    "cuda": """
#define __device__
#define __shared__ static
static struct { int x; } threadIdx, blockIdx;
static void place(int group, int t) { blockIdx.x = group; threadIdx.x = t; }
static void __syncthreads() { turn(); }
static float __shfl_xor_sync(unsigned, float x, int step) { return exchange(x, step); }
static float __uint_as_float(uint32_t bits) { union { uint32_t b; float f; } u{bits}; return u.f; }
struct alignas(16) float4 { float x, y, z, w; };
static float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
""",
    "metal": """
#define device
#define thread
#define threadgroup static
typedef unsigned short ushort;
struct alignas(16) float4 {
  float x, y, z, w;
  float4() = default;
  float4(float a, float b, float c, float d) : x(a), y(b), z(c), w(d) {}
};
namespace metal { template <typename T, int N> struct vec { T v[N]; T operator[](int i) const {
  return v[i]; } }; }
namespace mem_flags { const int mem_threadgroup = 0; }
static int thread_index_in_simdgroup, simdgroup_index_in_threadgroup;
static struct { int x; } threadgroup_position_in_grid;
static void place(int group, int t) {
  threadgroup_position_in_grid.x = group;
  thread_index_in_simdgroup = t % 32;
  simdgroup_index_in_threadgroup = t / 32;
}
static void threadgroup_barrier(int) { turn(); }
static float simd_sum(float x) { return sum(x); }
static float simd_shuffle_xor(float x, ushort step) { return exchange(x, step); }
template <typename T> T as_type(uint32_t bits) { union { uint32_t b; T f; } u{bits}; return u.f; }
"""}
"""What each target's language adds to C++, as far as the kernels use it."""
MAIN = """
static void fiber() { kernel(); done[me] = true; --running; swapcontext(&places[me], &home); }
extern "C" void run(void** given, int groups, int n) {
  args = given;
  threads = n;
  std::vector<std::vector<char>> stacks(n, std::vector<char>(1 << 16));
  for (int group = 0; group < groups; ++group) {
    for (int t = 0; t < n; ++t) {
      done[t] = false;
      getcontext(&places[t]);
      places[t].uc_stack.ss_sp = stacks[t].data();
      places[t].uc_stack.ss_size = stacks[t].size();
      makecontext(&places[t], fiber, 0);
    }
    for (running = n; running;) {
      for (me = 0; me < n; ++me) {
        place(group, me);
        if (!done[me]) swapcontext(&home, &places[me]);
      }
    }
  }
}
"""
C_TYPES = {mx.float32: "float", mx.float16: "_Float16", mx.int32: "int", mx.uint32: "uint32_t",
           mx.uint8: "uint8_t"}


def source(template: Template, target: Target, params: Mapping[str, object],
           dtypes: Sequence[mx.Dtype], sizes: Mapping[str, Sequence[int]]) -> str:
    """A kernel with the signature that MLX gives it, and what runs it."""
    fixed = [f"typedef {C_TYPES[v]} {k};" if isinstance(v, mx.Dtype) else
             f"static constexpr int {k} = {v};" for k, v in params.items()]
    fixed += [f"static const int {n}_shape[] = {{{', '.join(map(str, s))}}};"
              for n, s in sizes.items() if f"{n}_shape" in template.body]
    names = [*template.inputs, *template.outputs]
    operands = [f"auto {n} = ({C_TYPES[d]}*)args[{i}];"
                for i, (n, d) in enumerate(zip(names, dtypes, strict=True))]
    return "\n".join([FIBERS, SHIMS[target], header(target), *fixed, "static void** args;",
                      "static void kernel() {", *operands, template.render(target), "}", MAIN])


class Lockstep:
    """`launch` of the kernels for one target; `seen` are the names of what was launched."""

    def __init__(self, target: Target) -> None:
        self.target: Target = target
        self.seen: list[str] = []

    def __call__(self, template: Template, inputs: Sequence[mx.array],
                 params: Mapping[str, object], groups: int, threads: int,
                 shapes: Sequence[Sequence[int]], dtypes: Sequence[mx.Dtype]) -> list[mx.array]:
        """As `kernels.template.launch`."""
        self.seen.append(template.name)
        given = [np.ascontiguousarray(np.array(x)) for x in inputs]
        kinds = {mx.float32: np.float32, mx.float16: np.float16}
        made = [np.full(s, np.nan, kinds[d]) for s, d in zip(shapes, dtypes, strict=True)]
        sizes = {n: x.shape for n, x in zip(template.inputs, inputs, strict=True)}
        text = source(template, self.target, params, [*[x.dtype for x in inputs], *dtypes], sizes)
        pointers = [a.ctypes.data for a in (*given, *made)]
        compiled(text).run((ctypes.c_void_p * len(pointers))(*pointers), groups, threads)
        return [to_mlx(a) for a in made]


def compiled(text: str) -> ctypes.CDLL:
    """C++ as a loaded library."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place)
        (path / "kernel.cpp").write_text(text)
        done = subprocess.run(
            ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-o",
             path / "kernel.so", path / "kernel.cpp"], capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return ctypes.CDLL(str(path / "kernel.so"))
