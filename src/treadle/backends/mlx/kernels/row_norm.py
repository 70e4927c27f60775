"""Norms of half precision, computed in f32 and rounded once; MLX's own kernels round twice.

A block adds up a row and then writes it. `CENTRED` subtracts the mean first; `RESIDUAL` adds
another tensor (and `BIASED` a vector) before, and gives that sum too.
"""

from __future__ import annotations

import mlx.core as mx

from .template import WARP, Template, launch, real

WARPS = 8
_BODY = """
  const size_t row = size_t($GROUP) * D;
  const int lane = $LANE, warp = $WARP;
  $SHARED float parts[2 * WARPS];
  float held[EACH * WIDTH];
  float mean = 0.0f;
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = ((e * WARPS + warp) * 32 + lane) * WIDTH;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) held[e * WIDTH + j] = 0.0f;
    if (i < D) {
      float other[WIDTH];
      load<WIDTH>(x + row + i, held + e * WIDTH);
      if (RESIDUAL) {
        load<WIDTH>(r + row + i, other);
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) held[e * WIDTH + j] += other[j];
      }
      if (BIASED) {
        load<WIDTH>(bias + i, other);
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) held[e * WIDTH + j] += other[j];
      }
    }
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) mean += held[e * WIDTH + j];
  }
  if (CENTRED) {
    mean = lane_sum(mean);
    if (lane == 0) parts[warp] = mean;
    $BARRIER;
    mean = 0.0f;
    for (int i = 0; i < WARPS; ++i) mean += parts[i];
    mean /= float(D);
  } else {
    mean = 0.0f;
  }
  float power = 0.0f;
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = ((e * WARPS + warp) * 32 + lane) * WIDTH;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float d = i < D ? held[e * WIDTH + j] - mean : 0.0f;
      power += d * d;
    }
  }
  power = lane_sum(power);
  if (lane == 0) parts[WARPS + warp] = power;
  $BARRIER;
  power = 0.0f;
  for (int i = 0; i < WARPS; ++i) power += parts[WARPS + i];
  const float scale = 1.0f / sqrt(power / float(D) + FLOAT(EPS));
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = ((e * WARPS + warp) * 32 + lane) * WIDTH;
    if (i < D) {
      float gain[WIDTH], v[WIDTH];
      load<WIDTH>(gamma + i, gain);
      #pragma unroll
      for (int j = 0; j < WIDTH; ++j) v[j] = (held[e * WIDTH + j] - mean) * scale * gain[j];
      if (SHIFTED) {
        load<WIDTH>(beta + i, gain);
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) v[j] += gain[j];
      }
      store<WIDTH>(y + row + i, v);
      TOTAL
    }
  }
"""
_INPUTS = ("x", "r", "bias", "gamma", "beta")
PLAIN = Template("treadle_row_norm", _INPUTS, ("y",), _BODY.replace("      TOTAL\n", ""))
RESIDUAL = Template("treadle_residual_norm", _INPUTS, ("y", "total"),
                    _BODY.replace("TOTAL", "store<WIDTH>(total + row + i, held + e * WIDTH);"))
MOST = 16384
"""Elements of a row that its block keeps in registers."""


def row_norm(x: mx.array, gamma: mx.array, beta: mx.array | None, eps: float, *, centred: bool,
             residual: mx.array | None = None, bias: mx.array | None = None) -> list[mx.array]:
    """The norm of each row of x[.., D] (+ residual + bias), and that sum if there is a residual.

    gamma, beta and bias are [D]; D is at most `MOST`.
    """
    d = x.shape[-1]
    width = 1 if d % 8 else 8
    warps = min(WARPS, max(1, d // (max(width, 4) * WARP)))
    params = {"T": x.dtype, "D": d, "WIDTH": width, "WARPS": warps,
              "EACH": -(-d // (warps * WARP * width)), "CENTRED": int(centred),
              "RESIDUAL": int(residual is not None), "BIASED": int(bias is not None),
              "SHIFTED": int(beta is not None), **real("EPS", eps)}
    given = [x, x if residual is None else residual, gamma if bias is None else bias, gamma,
             gamma if beta is None else beta]
    template = PLAIN if residual is None else RESIDUAL
    n = len(template.outputs)
    return launch(template, given, params, x.size // d, warps * WARP, [x.shape] * n,
                  [x.dtype] * n)
