"""Reshapes, transposes, slices and joins that undo or absorb one another."""

from __future__ import annotations

from ...ir.graph import Value
from ...ir.types import Shape, axes_of, axis_of
from ..constants import number_of
from ..pattern import op, rule


def compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that does p, then q."""
    return tuple([p[i] for i in q])


def moves_units_only(x: Value, p: tuple[int, ...]) -> bool:
    """Whether p keeps the order of the axes that are not of size 1."""
    kept = [i for i in p if x.shape[i] != 1]
    return kept == sorted(kept)


def whole(x: Value, starts: Shape, steps: Shape, axes: tuple[int, ...], out: Value) -> bool:
    """Whether a slice takes its operand as it stands."""
    return x.type == out.type and all(s == 1 for s in steps) and all(
        s == 0 for s in starts) and len(axes) > 0


CUBE = "T[2,3,4]"
PERMS = [{"x": CUBE, "p": (1, 2, 0), "q": (0, 2, 1)}, {"x": CUBE, "p": (2, 1, 0), "q": (2, 1, 0)}]
rule("transpose_transpose", lambda x, p, q: op.transpose(op.transpose(x, perm=p), perm=q),
     lambda x, p, q: op.transpose(x, perm=compose(p, q)), examples=PERMS)
rule("transpose_identity", lambda x, p: op.transpose(x, perm=p), lambda x: x,
     when=lambda p: list(p) == sorted(p), examples=[{"x": CUBE, "p": (0, 1, 2)}])
rule("transpose_units", lambda x, p: op.transpose(x, perm=p),
     lambda x, out: op.reshape(x, shape=out.shape), when=moves_units_only,
     examples=[{"x": "T[2,1,3]", "p": (1, 0, 2)}, {"x": "T[1,3,1]", "p": (1, 2, 0)}])

rule("reshape_same", lambda x, s: op.reshape(x, shape=s), lambda x: x,
     when=lambda x, out: x.type == out.type, examples=[{"x": CUBE, "s": (2, 3, -1)}])
rule("reshape_reshape", lambda x, s, t: op.reshape(op.reshape(x, shape=s), shape=t),
     lambda x, out: op.reshape(x, shape=out.shape),
     examples=[{"x": CUBE, "s": (6, 4), "t": (2, -1)}, {"x": CUBE, "s": (24,), "t": (4, 6)}])
rule("reshape_squeeze", lambda x, a, s: op.reshape(op.squeeze(x, axes=a), shape=s),
     lambda x, out: op.reshape(x, shape=out.shape),
     examples=[{"x": "T[2,1,3]", "a": (1,), "s": (3, 2)}])
rule("reshape_unsqueeze", lambda x, a, s: op.reshape(op.unsqueeze(x, axes=a), shape=s),
     lambda x, out: op.reshape(x, shape=out.shape),
     examples=[{"x": "T[2,3]", "a": (1,), "s": (3, 2)}])
rule("squeeze_reshape", lambda x, s, a: op.squeeze(op.reshape(x, shape=s), axes=a),
     lambda x, out: op.reshape(x, shape=out.shape),
     examples=[{"x": "T[2,3]", "s": (3, 1, 2), "a": (1,)}])
rule("unsqueeze_reshape", lambda x, s, a: op.unsqueeze(op.reshape(x, shape=s), axes=a),
     lambda x, out: op.reshape(x, shape=out.shape),
     examples=[{"x": "T[2,3]", "s": (6,), "a": (0,)}])


def swaps_matrices(x: Value, s: Shape, p: tuple[int, ...], out: Value) -> bool:
    """Whether p swaps the last two axes, which both reshapes keep."""
    n = len(p)
    return len(x.shape) > 1 and p == (*range(n - 2), n - 1, n - 2) and (
        tuple(s[-2:]) == x.shape[-2:]
        and out.shape == (*x.shape[:-2], x.shape[-1], x.shape[-2]))


# Leading axes are regrouped and restored around a transposition of matrices.
rule("reshape_swap_reshape",
     lambda x, s, p, t: op.reshape(op.transpose(op.reshape(x, shape=s), perm=p), shape=t),
     lambda x: op.transpose(x, perm=(*range(len(x.shape) - 2), len(x.shape) - 1,
                                     len(x.shape) - 2)),
     when=swaps_matrices,
     examples=[{"x": "T[2,3,4,5]", "s": (6, 4, 5), "p": (0, 2, 1), "t": (2, 3, 5, 4)},
               {"x": "T[2,3,4]", "s": (1, 2, 3, 4), "p": (0, 1, 3, 2), "t": (2, 4, 3)}])
rule("squeeze_none", lambda x, a: op.squeeze(x, axes=a), lambda x: x,
     when=lambda a: not a, examples=[{"x": CUBE, "a": ()}])
rule("unsqueeze_none", lambda x, a: op.unsqueeze(x, axes=a), lambda x: x,
     when=lambda a: not a, examples=[{"x": CUBE, "a": ()}])
rule("squeeze_unsqueeze", lambda x, a, b: op.squeeze(op.unsqueeze(x, axes=a), axes=b),
     lambda x: x,
     when=lambda x, a, b: axes_of(a, len(x.shape) + len(a)) == axes_of(b, len(x.shape) + len(a)),
     examples=[{"x": CUBE, "a": (0, 2), "b": (2, 0)}, {"x": "T[2]", "a": (-1,), "b": (1,)}])
rule("unsqueeze_squeeze", lambda x, a, b: op.unsqueeze(op.squeeze(x, axes=a), axes=b),
     lambda x: x,
     when=lambda x, a, b: axes_of(a, len(x.shape)) == axes_of(b, len(x.shape)),
     examples=[{"x": "T[2,1,3]", "a": (1,), "b": (-2,)}])

rule("expand_same", lambda x, s: op.expand(x, shape=s), lambda x: x,
     when=lambda x, out: x.type == out.type, examples=[{"x": CUBE, "s": (1, 4)}])
rule("expand_expand", lambda x, s, t: op.expand(op.expand(x, shape=s), shape=t),
     lambda x, out: op.expand(x, shape=out.shape),
     examples=[{"x": "T[3,1]", "s": (3, 2), "t": (4, 3, 2)}])

rule("expect_known", lambda x, s: op.expect_broadcast(x, shape=s), lambda x: x,
     when=lambda x, s: all(w in (1, h) for h, w in zip(
         x.shape[len(x.shape) - len(s):], s, strict=True)),
     examples=[{"x": CUBE, "s": (1, 4)}, {"x": CUBE, "s": ()}])

rule("slice_whole", lambda x, s, e, t, a: op.slice(x, starts=s, ends=e, steps=t, axes=a),
     lambda x: x, when=lambda x, s, t, a, out: whole(x, s, t, a, out),
     examples=[{"x": CUBE, "s": (0,), "e": (2**62,), "t": (1,), "a": (1,)}])
rule("slice_none", lambda x, s, e, t, a: op.slice(x, starts=s, ends=e, steps=t, axes=a),
     lambda x: x, when=lambda a: not a,
     examples=[{"x": CUBE, "s": (), "e": (), "t": (), "a": ()}])
rule("narrow_whole", lambda x, a, n: op.narrow(x, axis=a, start=0, length=n), lambda x: x,
     when=lambda x, a, n: x.shape[a] == n, examples=[{"x": CUBE, "a": 1, "n": 3}])
rule("narrow_narrow",
     lambda x, a, s, n, t, k: op.narrow(op.narrow(x, axis=a, start=s, length=n), axis=a,
                                        start=t, length=k),
     lambda x, a, s, t, k: op.narrow(x, axis=a, start=s + t, length=k),
     examples=[{"x": "T[9]", "a": 0, "s": 2, "n": 5, "t": 1, "k": 3}])
rule("concat_one", lambda x, a: op.concat([x], axis=a), lambda x: x,
     examples=[{"x": CUBE, "a": 1}])
rule("split_one", lambda x, a, s: op.split(x, axis=a, sizes=s), lambda x: x,
     examples=[{"x": CUBE, "a": 1, "s": (3,)}])
rule("pad_none", lambda x, p, m, v: op.pad(x, pads=p, mode=m, value=v), lambda x: x,
     when=lambda p: all(n == 0 for n in p),
     examples=[{"x": "T[2,3]", "p": (0, 0, 0, 0), "m": "reflect", "v": 1.0}])
rule("flip_flip", lambda x, a: op.flip(op.flip(x, axes=a), axes=a), lambda x: x,
     examples=[{"x": CUBE, "a": (0, 2)}])
rule("flip_none", lambda x, a: op.flip(x, axes=a), lambda x: x,
     when=lambda x, a: all(x.shape[i] == 1 for i in a),
     examples=[{"x": CUBE, "a": ()}, {"x": "T[1,3]", "a": (0,)}])
rule("tile_once", lambda x, r: op.tile(x, repeats=r), lambda x: x,
     when=lambda r: all(n == 1 for n in r), examples=[{"x": CUBE, "r": (1, 1, 1)}])
rule("roll_none", lambda x, a: op.roll(x, shift=0, axis=a), lambda x: x,
     examples=[{"x": CUBE, "a": 1}])


def adjacent(x: Value, a: int, s: object, n: object, t: object, b: int) -> bool:
    """Whether the second part begins where the first ends, on the axis of the join."""
    rank = len(x.shape)
    return axis_of(a, rank) == axis_of(b, rank) and s + n == t  # type: ignore[operator]


rule("concat_of_adjacent",
     lambda x, a, s, n, t, k, b: op.concat([op.narrow(x, axis=a, start=s, length=n),
                                            op.narrow(x, axis=a, start=t, length=k)], axis=b),
     lambda x, a, s, n, k: op.narrow(x, axis=a, start=s, length=n + k), when=adjacent,
     examples=[{"x": "T[9,2]", "a": 0, "s": 2, "n": 3, "t": 5, "k": 1, "b": -2}])


def place(x: Value, a: int, i: Value) -> Value | None:
    """The element of an axis at a constant index, as a view."""
    at, size = number_of(i), x.shape[axis_of(a, len(x.shape))]
    if not isinstance(at, int):
        return None
    return op.narrow(x, axis=a, start=at if at >= 0 else size + at, length=1)


rule("gather_constant", lambda x, i, a: op.gather(x, i, axis=a),
     lambda x, i, a, out: op.reshape(place(x, a, i), shape=out.shape),
     when=lambda i: isinstance(number_of(i), int) and all(n == 1 for n in i.shape),
     examples=[{"x": CUBE, "i": 1, "a": 1}, {"x": CUBE, "i": -1, "a": -1}])

# Elementwise operators broadcast, so a smaller operand need not be expanded first.
ABSORBING = ("add", "sub", "mul", "div", "max", "min", "pow", "eq", "ne", "lt", "le", "gt", "ge",
             "logical_and", "logical_or")
EXPANDED = [{"x": "T[3,1]", "s": (4, 3, 2), "y": "T[4,3,2]"}]
for _name in ABSORBING:
    _call = getattr(op, _name)
    rule(f"{_name}_expand_left", lambda x, s, y, f=_call: f(op.expand(x, shape=s), y),
         lambda x, y, f=_call: f(x, y), examples=EXPANDED)
    rule(f"{_name}_expand_right", lambda x, s, y, f=_call: f(y, op.expand(x, shape=s)),
         lambda x, y, f=_call: f(y, x), examples=EXPANDED)


def single(x: Value, a: tuple[int, ...]) -> bool:
    """Whether a fold over these axes sees one element each time."""
    return all(x.shape[i] == 1 for i in a)


for _name in ("sum", "prod", "reduce_max", "reduce_min", "any", "all"):
    _call = getattr(op, _name)
    rule(f"{_name}_single", lambda x, a, k, f=_call: f(x, axes=a, keepdims=k),
         lambda x, out: op.reshape(x, shape=out.shape), when=single,
         examples=[{"x": "T[3,1,2]", "a": (1,), "k": False}, {"x": "T[3]", "a": (), "k": True}])
