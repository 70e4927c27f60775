"""State spaces as plain recurrences over tokens, one head at a time, in f64."""

from __future__ import annotations

import numpy as np


def wide(x: np.ndarray | None) -> np.ndarray | None:
    return None if x is None else np.asarray(x).astype(np.float64)


def _states(past: np.ndarray | None, window: int, shape: tuple[int, ...]) -> np.ndarray:
    if past is None:
        return np.zeros(shape)
    return wide(past[-1] if window else past).copy()


def linear_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, *,
                     past: np.ndarray | None = None, decay: np.ndarray | None = None,
                     beta: np.ndarray | None = None, rule: str = "gated_delta", q_heads: int,
                     kv_heads: int, scale: float = 0.0, state_window: int = 0
                     ) -> list[np.ndarray]:
    """y and the present state, by the definition of each rule."""
    q, k, v, g, b = map(wide, (query, key, value, decay, beta))
    n, t = q.shape[:2]
    dk, dv, heads = q.shape[2] // q_heads, v.shape[2] // kv_heads, max(q_heads, kv_heads)
    k_heads = k.shape[2] // dk
    s = _states(past, state_window, (n, kv_heads, dk, dv))
    y, trail = np.zeros((n, t, heads, dv)), [np.zeros_like(s)] * state_window
    for i in range(n):
        history = []
        for at in range(t):
            for h in range(kv_heads):
                own = k[i, at].reshape(k_heads, dk)[h // (kv_heads // k_heads)]
                val, state = v[i, at].reshape(kv_heads, dv)[h], s[i, h]
                if rule in ("gated", "gated_delta"):
                    by = g[i, at].reshape(kv_heads, -1)[h]
                    state = np.exp(by)[:, None] * state
                if rule in ("delta", "gated_delta"):
                    rate = b[i, at, h if b.shape[2] > 1 else 0]
                    val = rate * (val - state.T @ own)
                s[i, h] = state + np.outer(own, val)
            for o in range(heads):
                head = o if q_heads >= kv_heads else o // (kv_heads // q_heads)
                read = o // (q_heads // kv_heads) if q_heads >= kv_heads else o
                y[i, at, o] = q[i, at].reshape(q_heads, dk)[head] @ s[i, read]
            history.append(s[i].copy())
        for slot in range(state_window):
            if (at := t - state_window + slot) >= 0:
                trail[slot] = trail[slot].copy()
                trail[slot][i] = history[at]
    y *= scale or dk ** -0.5
    present = np.stack([*trail[:-1], s]) if state_window else s
    kind = query.dtype if past is None else past.dtype
    return [y.reshape(n, t, heads * dv).astype(query.dtype), present.astype(kind)]


def gated_delta_net(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray,
                    beta: np.ndarray, *, state: np.ndarray | None = None, scale: float = 0.0
                    ) -> list[np.ndarray]:
    heads = q.shape[2]
    flat = [x.reshape(*x.shape[:2], heads * x.shape[3]) for x in (q, k, v)]
    y, s = linear_attention(*flat, past=state, decay=g, beta=beta, q_heads=heads, kv_heads=heads,
                            scale=scale)
    return [y.reshape(v.shape), s]


def mamba2_scan(x: np.ndarray, dt: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, *,
                state: np.ndarray | None = None) -> list[np.ndarray]:
    n, t, heads, width = x.shape
    group = heads // b.shape[2]
    h = np.zeros((n, heads, b.shape[3], width)) if state is None else wide(state).copy()
    y = np.zeros(x.shape)
    for at in range(t):
        for i in range(heads):
            for j in range(n):
                rate = float(dt[j, at, i])
                h[j, i] = np.exp(rate * float(a[i])) * h[j, i] + rate * np.outer(
                    wide(b)[j, at, i // group], wide(x)[j, at, i])
                y[j, at, i] = wide(c)[j, at, i // group] @ h[j, i]
    return [y.astype(x.dtype), h.astype(np.float32 if state is None else state.dtype)]


def selective_scan(x: np.ndarray, dt: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, *,
                   state: np.ndarray | None = None) -> list[np.ndarray]:
    n, t, channels = x.shape
    h = np.zeros((n, channels, a.shape[1])) if state is None else wide(state).copy()
    y = np.zeros(x.shape)
    for at in range(t):
        rate = wide(dt)[:, at, :, None]
        h = np.exp(rate * wide(a)) * h + rate * wide(b)[:, at, None] * wide(x)[:, at, :, None]
        y[:, at] = (wide(c)[:, at, None] * h).sum(2)
    return [y.astype(x.dtype), h.astype(np.float32 if state is None else state.dtype)]


def causal_conv_with_state(x: np.ndarray, weight: np.ndarray, *, bias: np.ndarray | None = None,
                           past: np.ndarray | None = None, activation: str = "none",
                           dilation: int = 1, channels_last: bool = False,
                           state_window: int = 0) -> list[np.ndarray]:
    """One output at a time from the positions it reads."""
    wx = wide(x)
    if channels_last:
        wx = wx.reshape(*x.shape[:2], weight.shape[0]).transpose(0, 2, 1)
    n, channels, length = wx.shape
    taps = weight.shape[2]
    reach = (taps - 1) * dilation
    before = np.zeros((n, channels, reach))
    if past is not None:
        one = wide(past[-1] if state_window else past)
        before = one.reshape(n, reach, channels).transpose(0, 2, 1) if channels_last else one
    line = np.concatenate([before, wx], 2)
    y = np.zeros(wx.shape) + (0 if bias is None else wide(bias)[:, None])
    for t, j in np.ndindex(length, taps):
        y[:, :, t] += wide(weight)[:, 0, j] * line[:, :, t + j * dilation]
    y = y if activation == "none" else y / (1 + np.exp(-y))

    def laid(a: np.ndarray) -> np.ndarray:
        if not channels_last:
            return a.astype(x.dtype)
        return a.transpose(0, 2, 1).reshape(n, a.shape[2], *x.shape[2:]).astype(x.dtype)

    def state(end: int) -> np.ndarray:
        return laid(line[:, :, end:end + reach])

    last = state(length)
    if state_window:
        slots = [state(length - state_window + 1 + s) if length - state_window + s >= 0
                 else np.zeros_like(last) for s in range(state_window - 1)]
        last = np.stack([*slots, last])
    return [laid(y), last]


def gated_rms_norm(x: np.ndarray, scale: np.ndarray, gate: np.ndarray, *, eps: float = 1e-5,
                   activation: str = "silu") -> np.ndarray:
    rows = wide(x).reshape(-1, scale.shape[0])
    y = rows / np.sqrt((rows * rows).mean(1, keepdims=True) + eps) * wide(scale)
    z = wide(gate)
    act = 1 / (1 + np.exp(-z)) * (1.0 if activation == "sigmoid" else z)
    return (y.reshape(x.shape) * act).astype(x.dtype)
