"""Linear attention token by token, the state in registers.

A group of threads has a sequence, a state and `THREADS / LANES` of its value columns. `LANES`
neighbouring lanes share a column: each holds every LANES-th quad of its dk numbers, so that what a
key reads of the state is a sum over few lanes. Keys, queries and gates of `CHUNK` tokens lie in
shared memory while those of the next are on their way in registers. The query's answer needs no
second pass over the state: qT (S + k d) = qT S + (qT k) d; its sum over lanes is taken beside that
of the next token's key, because a sum takes long and nothing waits for this one.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from .template import Template, launch, real

THREADS = 128
MOST_KEYS = 512
"""The widest head."""
_ROOM = 4096
"""Numbers of keys and queries that a group stages; of one token there may be `MOST_ROOM`."""
MOST_ROOM = 6144
_BODY = """
  constexpr int COLUMNS = THREADS / LANES;
  constexpr int QUADS = PARTS * LANES;
  constexpr int VECTORS = 1 + G + (DECAY == 2);
  constexpr int STAGED = (CHUNK * VECTORS * QUADS + THREADS - 1) / THREADS;
  constexpr int VALUES = (CHUNK + LANES - 1) / LANES;
  constexpr int BLOCKS = (DV + COLUMNS - 1) / COLUMNS;
  constexpr int HO = HQ > H ? HQ : H;
  $SHARED float4 rows[CHUNK * VECTORS * QUADS];
  $SHARED float values[CHUNK * COLUMNS];
  $SHARED float gates[CHUNK * 2];
  const int own = $WARP * 32 + $LANE;
  const int part = own % LANES;
  const int column = own / LANES;
  const int group = $GROUP;
  const int first = group % BLOCKS * COLUMNS;
  const int head = group / BLOCKS % H;
  const size_t line = group / BLOCKS / H;
  const size_t lines = query_shape[0];
  const int tokens = query_shape[1];
  const int at = first + column;
  const bool live = at < DV;
  const size_t corner = (line * H + head) * DK * DV + at;
  const size_t whole = lines * H * DK * DV;
  const int q_head = HQ > H ? head * G : head / (H / HQ);
  const int k_head = head / (H / HK);
  const size_t place = size_t(HQ > H ? q_head : head) * DV + at;
  const float by = FLOAT(SCALE);
  float s[PARTS][4];
  #pragma unroll
  for (int p = 0; p < PARTS; ++p) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = (p * LANES + part) * 4 + j;
      const size_t from = (WINDOW > 0 ? (WINDOW - 1) * whole : 0) + corner + size_t(row) * DV;
      s[p][j] = PAST && live && row < DK ? float(past[from]) : 0.0f;
      for (int w = 0; w < WINDOW - tokens; ++w) {
        if (live && row < DK) state[w * whole + corner + size_t(row) * DV] = S(0.0f);
      }
    }
  }
  for (int start = -CHUNK; start < tokens; start += CHUNK) {
    T coming[STAGED][4];
    T coming_values[VALUES];
    T coming_gate = T(0.0f);
    const int next = start + CHUNK;
    #pragma unroll
    for (int i = 0; i < STAGED; ++i) {
      const int e = i * THREADS + own;
      const int token = next + e / (VECTORS * QUADS);
      const int vector = e / QUADS % VECTORS;
      const int quad = e % QUADS * 4;
      const size_t stamp = line * tokens + token;
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        coming[i][j] = T(0.0f);
        if (e < CHUNK * VECTORS * QUADS && token < tokens && quad + j < DK) {
          if (vector == 0) coming[i][j] = key[(stamp * HK + k_head) * DK + quad + j];
          else if (vector <= G)
            coming[i][j] = query[(stamp * HQ + q_head + vector - 1) * DK + quad + j];
          else coming[i][j] = decay[(stamp * H + head) * DK + quad + j];
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < VALUES; ++i) {
      const int e = i * THREADS + own;
      const int token = next + e / COLUMNS;
      const int to = first + e % COLUMNS;
      coming_values[i] = T(0.0f);
      if (e < CHUNK * COLUMNS && token < tokens && to < DV)
        coming_values[i] = value[((line * tokens + token) * H + head) * DV + to];
    }
    if (own < CHUNK * 2 && next + own / 2 < tokens) {
      const size_t stamp = line * tokens + next + own / 2;
      if (DECAY == 1 && own % 2 == 0) coming_gate = decay[stamp * H + head];
      if (DELTA && own % 2 == 1) coming_gate = beta[SHARED_BETA ? stamp : stamp * H + head];
    }
    const size_t stamp = line * tokens + start;
    const int count = start < 0 ? 0 : tokens - start < CHUNK ? tokens - start : CHUNK;
    float ready[G];
    #pragma unroll
    for (int g = 0; g < G; ++g) ready[g] = 0.0f;
    #pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const int row = i * VECTORS * QUADS + part;
      const float forget = gates[2 * i];
      float k[PARTS][4];
      float found = 0.0f;
      float answer[G], overlap[G];
      #pragma unroll
      for (int g = 0; g < G; ++g) answer[g] = overlap[g] = 0.0f;
      #pragma unroll
      for (int p = 0; p < PARTS; ++p) {
        const float4 k4 = rows[row + p * LANES];
        k[p][0] = k4.x; k[p][1] = k4.y; k[p][2] = k4.z; k[p][3] = k4.w;
        if (DECAY == 1) {
          #pragma unroll
          for (int j = 0; j < 4; ++j) s[p][j] *= forget;
        }
        if (DECAY == 2) {
          const float4 d4 = rows[row + (VECTORS - 1) * QUADS + p * LANES];
          s[p][0] *= d4.x; s[p][1] *= d4.y; s[p][2] *= d4.z; s[p][3] *= d4.w;
        }
        if (DELTA) {
          found += (k4.x * s[p][0] + k4.y * s[p][1]) + (k4.z * s[p][2] + k4.w * s[p][3]);
        }
        #pragma unroll
        for (int g = 0; g < G; ++g) {
          const float4 q4 = rows[row + (1 + g) * QUADS + p * LANES];
          answer[g] += (q4.x * s[p][0] + q4.y * s[p][1]) + (q4.z * s[p][2] + q4.w * s[p][3]);
          overlap[g] += (q4.x * k4.x + q4.y * k4.y) + (q4.z * k4.z + q4.w * k4.w);
        }
      }
      float change = values[i * COLUMNS + column];
      if (DELTA) found = part_sum<LANES>(found);
      #pragma unroll
      for (int g = 0; g < G; ++g) {
        const float sum = part_sum<LANES>(ready[g]);
        if (i > 0 && part == 0 && live) y[(stamp + i - 1) * HO * DV + place + g * DV] = T(sum * by);
      }
      if (DELTA) change = gates[2 * i + 1] * (change - found);
      #pragma unroll
      for (int p = 0; p < PARTS; ++p) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) s[p][j] += k[p][j] * change;
      }
      #pragma unroll
      for (int g = 0; g < G; ++g) ready[g] = answer[g] + overlap[g] * change;
      const int slot = WINDOW - tokens + start + i;
      if (WINDOW > 1 && slot >= 0 && slot < WINDOW - 1 && live) {
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int r = (p * LANES + part) * 4 + j;
            if (r < DK) state[slot * whole + corner + size_t(r) * DV] = S(s[p][j]);
          }
        }
      }
    }
    #pragma unroll
    for (int g = 0; g < G; ++g) {
      const float sum = part_sum<LANES>(ready[g]);
      if (count > 0 && part == 0 && live)
        y[(stamp + count - 1) * HO * DV + place + g * DV] = T(sum * by);
    }
    $BARRIER;
    #pragma unroll
    for (int i = 0; i < STAGED; ++i) {
      const int e = i * THREADS + own;
      float v[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        v[j] = float(coming[i][j]);
        if (DECAY == 2 && e / QUADS % VECTORS == VECTORS - 1) v[j] = exp(v[j]);
      }
      if (e < CHUNK * VECTORS * QUADS) rows[e] = pack4(v[0], v[1], v[2], v[3]);
    }
    #pragma unroll
    for (int i = 0; i < VALUES; ++i) {
      const int e = i * THREADS + own;
      if (e < CHUNK * COLUMNS) values[e] = float(coming_values[i]);
    }
    if (own < CHUNK * 2) {
      const float gate = float(coming_gate);
      gates[own] = DECAY == 1 && own % 2 == 0 ? exp(gate) : gate;
    }
    $BARRIER;
  }
  #pragma unroll
  for (int p = 0; p < PARTS; ++p) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = (p * LANES + part) * 4 + j;
      const size_t to = (WINDOW > 0 ? (WINDOW - 1) * whole : 0) + corner + size_t(row) * DV;
      if (live && row < DK) state[to] = S(s[p][j]);
    }
  }
"""
TEMPLATE = Template("treadle_linear_attention",
                    ("query", "key", "value", "past", "decay", "beta"),
                    ("y", "state"), _BODY)


def room(dk: int, group: int, by_key: bool) -> int:
    """Numbers that the keys, queries and decays of one token take in shared memory."""
    return _padded(dk) * (1 + group + by_key)


def _lanes(dk: int) -> int:
    """16 numbers of a column a lane, as far as a warp's lanes go."""
    lanes = 1
    while lanes < 32 and lanes * 16 < dk:
        lanes *= 2
    return lanes


def _padded(dk: int) -> int:
    step = 4 * _lanes(dk)
    return -(-dk // step) * step


def linear_attention(query: mx.array, key: mx.array, value: mx.array, past: mx.array | None,
                     decay: mx.array | None, beta: mx.array | None, *, q_heads: int,
                     kv_heads: int, scale: float, window: int) -> list[mx.array]:
    """y and the state of `ops.state_space.linear_attention`, for T >= 1 tokens of one dtype.

    dk is at most `MOST_KEYS` and `room` at most `MOST_ROOM`.
    """
    n, t = query.shape[:2]
    dk, dv = query.shape[2] // q_heads, value.shape[2] // kv_heads
    group, by_key = max(q_heads // kv_heads, 1), decay is not None and decay.shape[2] != kv_heads
    lanes, staged = _lanes(dk), room(dk, group, by_key)
    kept = query.dtype if past is None else past.dtype
    params: Mapping[str, object] = {
        "T": query.dtype, "S": kept, "DK": dk, "DV": dv, "HQ": q_heads,
        "HK": key.shape[2] // dk, "H": kv_heads, "G": group, "LANES": lanes,
        "PARTS": _padded(dk) // (4 * lanes),
        "CHUNK": 1 if t == 1 else max(1, min(16, _ROOM // staged)),
        "DECAY": 0 if decay is None else 1 + by_key, "DELTA": int(beta is not None),
        "SHARED_BETA": int(beta is not None and beta.shape[2] != kv_heads),
        "PAST": int(past is not None), "WINDOW": window, "THREADS": THREADS,
        **real("SCALE", scale)}
    given = [query, key, value, *(query if x is None else x for x in (past, decay, beta))]
    state = (*(window,) * bool(window), n, kv_heads, dk, dv)
    blocks = -(-dv // (THREADS // lanes))
    return launch(TEMPLATE, given, params, n * kv_heads * blocks, THREADS,
                  [(n, t, max(q_heads, kv_heads) * dv), state], [query.dtype, kept])
