"""One row by a 4-bit matrix, the product that decides the speed of generation.

The weight is MLX's affine form: w[N, K / 8] holds eight 4-bit fields a word, low ones first;
element k of row n is field * scales[n, k / G] + biases[n, k / G]. A warp adds up `ROWS` rows, so
that what it reads of x serves all of them; a lane reads `WORDS` words a turn. A field q is read as
the float 1 + q / 16, whose bits are the field beside a constant exponent: no conversion.
"""

from __future__ import annotations

import mlx.core as mx

from ..arrays import on_gpu
from .template import WARP, Template, launch

WARPS = 4
BODY = """
  const int first = ($GROUP * WARPS + $WARP) * ROWS;
  float total[ROWS];
  for (int r = 0; r < ROWS; ++r) total[r] = 0.0f;
  if (first < N) {
    #pragma unroll 2
    for (int k = $LANE * 8 * WORDS; k < K; k += 32 * 8 * WORDS) {
      uint32_t q[ROWS][WORDS];
      float s[ROWS], b[ROWS];
      #pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const size_t n = first + r < N ? first + r : N - 1;
        load_words<WORDS>(w + n * (K / 8) + k / 8, q[r]);
        s[r] = float(scales[n * (K / G) + k / G]);
        b[r] = float(biases[n * (K / G) + k / G]);
      }
      float dot[ROWS], sum = 0.0f;
      for (int r = 0; r < ROWS; ++r) dot[r] = 0.0f;
      #pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        float v[8];
        load8(x + k + 8 * i, v);
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          sum += v[j];
          #pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const uint32_t field = j < 5 ? q[r][i] << (19 - 4 * j) : q[r][i] >> (4 * j - 19);
            dot[r] += v[j] * as_float((field & 0x00780000u) | 0x3F800000u);
          }
        }
      }
      #pragma unroll
      for (int r = 0; r < ROWS; ++r) total[r] += s[r] * 16.0f * (dot[r] - sum) + b[r] * sum;
    }
  }
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float whole = lane_sum(total[r]);
    if ($LANE == 0 && first + r < N) y[first + r] = T(whole);
  }
"""
TEMPLATE = Template("treadle_quantized_row", ("x", "w", "scales", "biases"), ("y",), BODY)


def composed(x: mx.array, w: mx.array, scales: mx.array, biases: mx.array, group: int
             ) -> mx.array:
    """The same by MLX's own operator, for any number of rows and on any device."""
    return mx.quantized_matmul(x, w, scales, biases, transpose=True, group_size=group, bits=4)


def quantized_row(x: mx.array, w: mx.array, scales: mx.array, biases: mx.array, group: int, *,
                  rows: int = 2, words: int = 2, warps: int = WARPS) -> mx.array:
    """x[.., 1, K] by the transpose of a weight [N, K] of 4-bit fields: [.., 1, N].

    `group` is 32, 64 or 128 and divides K. The kernel runs for one row on a GPU; all else is
    `composed`.
    """
    if not on_gpu() or x.size != x.shape[-1]:
        return composed(x, w, scales, biases, group)
    n, k = w.shape[0], x.shape[-1]
    params = {"T": x.dtype, "N": n, "K": k, "G": group, "ROWS": rows, "WORDS": words,
              "WARPS": warps}
    groups = -(-n // (rows * warps))
    out = launch(TEMPLATE, [x, w, scales, biases], params, groups, warps * WARP, [(n,)],
                 [x.dtype])[0]
    return mx.reshape(out, (*x.shape[:-1], n))
