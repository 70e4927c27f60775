"""Norms of half precision, computed in f32 and rounded once; MLX's own kernels round twice.

A block adds up a row and then writes it. `CENTRED` subtracts the mean first; `RESIDUAL` adds
another tensor (and `BIASED` a vector) before, and gives that sum too.
"""

from __future__ import annotations

import mlx.core as mx

from .template import WARP, Template, launch

WARPS = 8
_BODY = """
  const size_t row = size_t($GROUP) * D;
  const int lane = $LANE, warp = $WARP;
  $SHARED float parts[2 * WARPS];
  float held[EACH];
  float mean = 0.0f;
  for (int e = 0; e < EACH; ++e) {
    const int i = (e * WARPS + warp) * 32 + lane;
    float v = i < D ? float(x[row + i]) : 0.0f;
    if (RESIDUAL && i < D) v += float(r[row + i]);
    if (BIASED && i < D) v += float(bias[i]);
    held[e] = v;
    mean += v;
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
  for (int e = 0; e < EACH; ++e) {
    const int i = (e * WARPS + warp) * 32 + lane;
    const float d = i < D ? held[e] - mean : 0.0f;
    power += d * d;
  }
  power = lane_sum(power);
  if (lane == 0) parts[WARPS + warp] = power;
  $BARRIER;
  power = 0.0f;
  for (int i = 0; i < WARPS; ++i) power += parts[WARPS + i];
  const float scale = 1.0f / sqrt(power / float(D) + eps[0]);
  for (int e = 0; e < EACH; ++e) {
    const int i = (e * WARPS + warp) * 32 + lane;
    if (i < D) {
      float v = (held[e] - mean) * scale * float(gamma[i]);
      if (SHIFTED) v += float(beta[i]);
      y[row + i] = T(v);
      TOTAL
    }
  }
"""
_INPUTS = ("x", "r", "bias", "gamma", "beta", "eps")
PLAIN = Template("treadle_row_norm", _INPUTS, ("y",), _BODY.replace("      TOTAL\n", ""))
RESIDUAL = Template("treadle_residual_norm", _INPUTS, ("y", "total"),
                    _BODY.replace("TOTAL", "total[row + i] = T(held[e]);"))
MOST = 16384
"""Elements of a row that its block keeps in registers."""


def row_norm(x: mx.array, gamma: mx.array, beta: mx.array | None, eps: mx.array, *, centred: bool,
             residual: mx.array | None = None, bias: mx.array | None = None) -> list[mx.array]:
    """The norm of each row of x[.., D] (+ residual + bias), and that sum if there is a residual.

    gamma, beta and bias are [D], eps is f32[1]; D is at most `MOST`.
    """
    d = x.shape[-1]
    warps = min(WARPS, max(1, d // (4 * WARP)))
    params = {"T": x.dtype, "D": d, "WARPS": warps, "EACH": -(-d // (warps * WARP)),
              "CENTRED": int(centred), "RESIDUAL": int(residual is not None),
              "BIASED": int(bias is not None), "SHIFTED": int(beta is not None)}
    given = [x, x if residual is None else residual, gamma if bias is None else bias, gamma,
             gamma if beta is None else beta, eps]
    template = PLAIN if residual is None else RESIDUAL
    n = len(template.outputs)
    return launch(template, given, params, x.size // d, warps * WARP, [x.shape] * n,
                  [x.dtype] * n)
