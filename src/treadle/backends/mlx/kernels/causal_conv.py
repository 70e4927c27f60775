"""The causal depthwise convolution with its carry: a thread for each output, the states included.

Position p of channel c is past's where p < `REACH` and the input's after it. `LAST` says that
channels are the last axis.
"""

from __future__ import annotations

import mlx.core as mx

from .template import Template, launch

THREADS = 256
_BODY = """
  const size_t lines = x_shape[0];
  const size_t length = x_shape[LAST ? 1 : 2];
  const size_t made = lines * C * length;
  const size_t whole = lines * C * REACH;
  constexpr int SLOTS = WINDOW > 0 ? WINDOW : 1;
  size_t i = size_t($GROUP) * THREADS + ($WARP * 32 + $LANE);
  const bool kept = i >= made;
  const size_t slot = kept && whole > 0 ? (i - made) / whole : 0;
  const size_t span = kept ? REACH : length;
  if (i < made + SLOTS * whole) {
    const size_t to = kept ? i - made : i;
    const size_t e = kept ? to - slot * whole : to;
    const size_t line = e / (C * span);
    const size_t channel = LAST ? e % C : e / span % C;
    const size_t at = LAST ? e / C % span : e % span;
    const size_t row = line * C + channel;
    const size_t before = size_t(SLOTS - 1) * whole;
    if (kept) {
      const size_t back = SLOTS - 1 - slot;
      float v = 0.0f;
      if (back == 0 || back < length) {
        const size_t p = length - back + at;
        if (p >= REACH) {
          v = float(x[LAST ? (line * length + p - REACH) * C + channel
                           : row * length + p - REACH]);
        } else if (PAST) {
          v = float(past[before + (LAST ? (line * REACH + p) * C + channel : row * REACH + p)]);
        }
      }
      state[to] = T(v);
    } else {
      float sum = BIASED ? float(bias[channel]) : 0.0f;
      #pragma unroll
      for (int j = 0; j < TAPS; ++j) {
        const size_t p = at + size_t(j) * DILATION;
        float v = 0.0f;
        if (p >= REACH) {
          v = float(x[LAST ? (line * length + p - REACH) * C + channel
                           : row * length + p - REACH]);
        } else if (PAST) {
          v = float(past[before + (LAST ? (line * REACH + p) * C + channel : row * REACH + p)]);
        }
        sum += v * float(weight[channel * TAPS + j]);
      }
      y[to] = T(SILU ? sum / (1.0f + exp(-sum)) : sum);
    }
  }
"""
TEMPLATE = Template("treadle_causal_conv", ("x", "weight", "bias", "past"), ("y", "state"),
                    _BODY)


def causal_conv(x: mx.array, weight: mx.array, bias: mx.array | None, past: mx.array | None, *,
                silu: bool, dilation: int, last: bool, window: int) -> list[mx.array]:
    """y and the state of `ops.state_space_conv.causal_conv_with_state`, for L >= 1 positions.

    All operands have one dtype.
    """
    channels, taps = weight.shape[0], weight.shape[2]
    n, reach, slots = x.shape[0], (taps - 1) * dilation, max(window, 1)
    params = {"T": x.dtype, "C": channels, "TAPS": taps, "DILATION": dilation, "REACH": reach,
              "LAST": int(last), "WINDOW": window, "SILU": int(silu),
              "BIASED": int(bias is not None), "PAST": int(past is not None),
              "THREADS": THREADS}
    one = (n, reach, *x.shape[2:]) if last else (n, channels, reach)
    given = [x, weight, x if bias is None else bias, x if past is None else past]
    outputs = x.size + slots * n * channels * reach
    return launch(TEMPLATE, given, params, -(-outputs // THREADS), THREADS,
                  [x.shape, (*(window,) * bool(window), *one)], [x.dtype, x.dtype])
