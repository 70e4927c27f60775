"""Single rows by quantised matrices, the product that decides the speed of generation.

A weight is in MLX's affine form: w[N, K * BITS / 32] holds fields of 2, 4 or 8 bits, low ones
first; element k of row n is field * scales[n, k / G] + biases[n, k / G], or with zero points for
biases (field - zero) * scale. A block adds up `ROWS` rows, so that what it reads of x serves all of
them; a lane of its `WARPS` warps reads `WORDS` words a turn. A field q is read as the float
1 + q / 2**BITS, whose bits are the field beside a constant exponent.
"""

from __future__ import annotations

import mlx.core as mx

from .template import WARP, Template, launch

WARPS = 4
ROWS = 4
WORDS = 4
BODY = """
  constexpr int PER = 32 / BITS;
  constexpr int SPAN = WORDS * PER;
  constexpr int TOP = 23 - BITS;
  constexpr uint32_t MASK = ((1u << BITS) - 1u) << TOP;
  const int group = $GROUP;
  const int row = group / BLOCKS;
  const int first = group % BLOCKS * ROWS;
  const int warp = $WARP, lane = $LANE;
  const size_t lead = EXPERTS ? size_t(int(float(expert[row]))) * N : 0;
  const size_t from = size_t(row) * K;
  float total[ROWS];
  for (int r = 0; r < ROWS; ++r) total[r] = 0.0f;
  $SHARED float parts[WARPS * ROWS];
  #pragma unroll 2
  for (int k = (warp * 32 + lane) * SPAN; k < K; k += WARPS * 32 * SPAN) {
    uint32_t q[ROWS][WORDS];
    float s[ROWS], b[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const size_t n = lead + (first + r < N ? first + r : N - 1);
      load_words<WORDS>(w + n * (K / PER) + k / PER, q[r]);
      s[r] = float(scales[n * (K / G) + k / G]);
      b[r] = float(biases[n * (K / G) + k / G]);
    }
    float dot[ROWS], sum = 0.0f;
    for (int r = 0; r < ROWS; ++r) dot[r] = 0.0f;
    #pragma unroll
    for (int i = 0; i < SPAN; i += 8) {
      float v[8];
      load8(x + from + k + i, v);
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int at = (i + j) % PER * BITS;
        sum += v[j];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const uint32_t word = q[r][(i + j) / PER];
          const uint32_t field = at < TOP ? word << (TOP - at) : word >> (at - TOP);
          dot[r] += v[j] * as_float((field & MASK) | 0x3F800000u);
        }
      }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float part = float(1 << BITS) * (dot[r] - sum);
      total[r] += ZEROS ? s[r] * (part - b[r] * sum) : s[r] * part + b[r] * sum;
    }
  }
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float whole = lane_sum(total[r]);
    if (lane == 0) parts[r * WARPS + warp] = whole;
  }
  $BARRIER;
  if (warp == 0 && lane < ROWS && first + lane < N) {
    float whole = BIASED ? float(added[first + lane]) : 0.0f;
    for (int i = 0; i < WARPS; ++i) whole += parts[lane * WARPS + i];
    y[size_t(row) * N + first + lane] = T(whole);
  }
"""
TEMPLATE = Template("treadle_quantized_row", ("x", "w", "scales", "biases", "added", "expert"),
                    ("y",), BODY)


def quantized_row(x: mx.array, w: mx.array, scales: mx.array, biases: mx.array, *,
                  added: mx.array | None = None, expert: mx.array | None = None, rows: int = ROWS,
                  words: int = WORDS, warps: int = WARPS) -> mx.array:
    """x[M,K] by the transpose of a weight [N,K], plus added[N]: [M,N], on a GPU.

    K is a multiple of 32. With expert[M] (i32, in range) row m of x meets the weight w[expert[m]]
    of w[E,N,..]. The sum is f32 and rounded once; every row reads the weight again.
    """
    m, k = x.shape
    n, bits = w.shape[-2], 32 * w.shape[-1] // k
    group, blocks = k // scales.shape[-1], -(-n // rows)
    words = min(words, group * bits // 32)
    params = {"T": x.dtype, "N": n, "K": k, "G": group, "BITS": bits,
              "ROWS": rows, "WORDS": words, "WARPS": warps, "BLOCKS": blocks,
              "ZEROS": int(biases.dtype == mx.uint8), "BIASED": int(added is not None),
              "EXPERTS": int(expert is not None)}
    given = [x, w, scales, biases, x if added is None else added, x if expert is None else expert]
    return launch(TEMPLATE, given, params, m * blocks, warps * WARP, [(m, n)], [x.dtype])[0]
