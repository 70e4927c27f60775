"""The selective scan token by token, the state in registers.

A group of threads has a sequence and `THREADS / LANES` of its channels; `LANES` neighbouring lanes
share the numbers of a channel. Operands of `CHUNK` tokens lie in shared memory while those of the
next are on their way in registers.
"""

from __future__ import annotations

import mlx.core as mx

from .template import Template, launch

THREADS = 128
MOST_STATES = 256
"""Most numbers of a channel."""
_BODY = """
  constexpr int WIDTH = THREADS / LANES;
  constexpr int BLOCKS = (C + WIDTH - 1) / WIDTH;
  constexpr int WIDE = (CHUNK + LANES - 1) / LANES;
  constexpr int SHARES = (CHUNK * 2 * STATES + THREADS - 1) / THREADS;
  $SHARED float xs[CHUNK * WIDTH];
  $SHARED float steps[CHUNK * WIDTH];
  $SHARED float shares[CHUNK * 2 * STATES];
  const int own = $WARP * 32 + $LANE;
  const int part = own % LANES;
  const int channel = own / LANES;
  const int group = $GROUP;
  const int first = group % BLOCKS * WIDTH;
  const size_t line = group / BLOCKS;
  const int tokens = x_shape[1];
  const int at = first + channel;
  const bool live = at < C;
  float h[EACH], rate[EACH];
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = e * LANES + part;
    const bool held = live && i < STATES;
    h[e] = PAST && held ? float(past[(line * C + at) * STATES + i]) : 0.0f;
    rate[e] = held ? float(a[size_t(at) * STATES + i]) : 0.0f;
  }
  for (int start = -CHUNK; start < tokens; start += CHUNK) {
    T coming_x[WIDE], coming_step[WIDE], coming[SHARES];
    const int next = start + CHUNK;
    #pragma unroll
    for (int i = 0; i < WIDE; ++i) {
      const int e = i * THREADS + own;
      const int token = next + e / WIDTH;
      const int from = first + e % WIDTH;
      coming_x[i] = coming_step[i] = T(0.0f);
      if (e < CHUNK * WIDTH && token < tokens && from < C) {
        coming_x[i] = x[(line * tokens + token) * C + from];
        coming_step[i] = dt[(line * tokens + token) * C + from];
      }
    }
    #pragma unroll
    for (int i = 0; i < SHARES; ++i) {
      const int e = i * THREADS + own;
      const int token = next + e / (2 * STATES);
      const int share = e % (2 * STATES);
      coming[i] = T(0.0f);
      if (e < CHUNK * 2 * STATES && token < tokens) {
        if (share < STATES) coming[i] = b[(line * tokens + token) * STATES + share];
        else coming[i] = c[(line * tokens + token) * STATES + share - STATES];
      }
    }
    const int count = start < 0 ? 0 : tokens - start < CHUNK ? tokens - start : CHUNK;
    #pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float step = steps[i * WIDTH + channel];
      const float input = step * xs[i * WIDTH + channel];
      float sum = 0.0f;
      #pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const int n = e * LANES + part;
        if (n < STATES) {
          h[e] = exp(step * rate[e]) * h[e] + input * shares[i * 2 * STATES + n];
          sum += h[e] * shares[i * 2 * STATES + STATES + n];
        }
      }
      sum = part_sum<LANES>(sum);
      if (part == 0 && live) y[(line * tokens + start + i) * C + at] = T(sum);
    }
    $BARRIER;
    #pragma unroll
    for (int i = 0; i < WIDE; ++i) {
      const int e = i * THREADS + own;
      if (e < CHUNK * WIDTH) {
        xs[e] = float(coming_x[i]);
        steps[e] = float(coming_step[i]);
      }
    }
    #pragma unroll
    for (int i = 0; i < SHARES; ++i) {
      const int e = i * THREADS + own;
      if (e < CHUNK * 2 * STATES) shares[e] = float(coming[i]);
    }
    $BARRIER;
  }
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = e * LANES + part;
    if (live && i < STATES) state[(line * C + at) * STATES + i] = S(h[e]);
  }
"""
TEMPLATE = Template("treadle_selective_scan", ("x", "dt", "a", "b", "c", "past"),
                    ("y", "state"), _BODY)


def _lanes(states: int) -> int:
    """4 numbers of a channel a lane, as far as a warp's lanes go."""
    lanes = 1
    while lanes < 32 and lanes * 4 < states:
        lanes *= 2
    return lanes


def selective_scan(x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array,
                   past: mx.array | None) -> list[mx.array]:
    """y and the state of `ops.state_space_scan.selective_scan`, for T >= 1 tokens.

    x, dt, b and c have one dtype; a channel holds at most `MOST_STATES` numbers.
    """
    n, channels, states = x.shape[0], x.shape[2], a.shape[1]
    lanes, kept = _lanes(states), mx.float32 if past is None else past.dtype
    params = {"T": x.dtype, "A": a.dtype, "S": kept, "C": channels, "STATES": states,
              "LANES": lanes, "EACH": -(-states // lanes),
              "CHUNK": max(1, min(16, 2048 // states)), "PAST": int(past is not None),
              "THREADS": THREADS}
    given = [x, dt, a, b, c, x if past is None else past]
    blocks = -(-channels // (THREADS // lanes))
    return launch(TEMPLATE, given, params, n * blocks, THREADS, [x.shape, (n, *a.shape)],
                  [x.dtype, kept])
