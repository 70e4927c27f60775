"""Einstein summation, as contractions of pairs of operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import I64
from .arithmetic import mul
from .compare import eq, where
from .contract import dot_general
from .generate import iota
from .movement import reshape, transpose
from .reduce import sum_

ORACLE = "tests.oracles.contract:einsum"
Term = tuple[Value, str]
"""An operand and the label of each of its axes; ellipsis axes are labelled by digits."""
_DIGITS = "0123456789"


def _term(text: str, rank: int) -> str:
    """The labels of one operand, its ellipsis replaced by digits that align on the right."""
    letters = text.replace("...", "", 1)
    if letters and not (letters.isascii() and letters.isalpha()):
        raise OperatorError(f"the term {text!r} holds more than letters and one ellipsis",
                            hint="write an equation such as '...ij,jk->...ik'")
    extra = rank - len(letters)
    if extra < 0 or extra and "..." not in text:
        raise OperatorError(f"the term {text!r} names {len(letters)} axes of an operand of rank "
                            f"{rank}")
    if extra > len(_DIGITS):
        raise OperatorError(f"an ellipsis stands for {extra} axes, at most 10 are supported")
    return text.replace("...", _DIGITS[len(_DIGITS) - extra:])


def _parsed(equation: str, xs: Sequence[Value]) -> tuple[list[str], str]:
    """The labels of every operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(xs):
        raise OperatorError(f"{equation!r} has {len(texts)} terms for {len(xs)} operands")
    terms = [_term(t, x.type.rank) for t, x in zip(texts, xs, strict=True)]
    counts = Counter("".join(terms))
    dots = "".join(sorted(c for c in counts if c.isdigit()))
    if arrow:
        out = right.replace("...", dots, 1)
    else:
        out = dots + "".join(sorted(c for c, n in counts.items() if n == 1 and c.isalpha()))
    if len(set(out)) != len(out) or any(c not in counts for c in out):
        raise OperatorError(f"the result {right!r} of {equation!r} repeats a label or names a new "
                            "one")
    return terms, out


def _diagonal(x: Value, labels: str) -> Term:
    """`x` with axes of equal labels reduced to their diagonal."""
    while (again := next((c for c in labels if labels.count(c) > 1), None)) is not None:
        i, j = labels.index(again), labels.rindex(again)
        if x.shape[i] != x.shape[j]:
            raise OperatorError(f"axes of size {x.shape[i]} and {x.shape[j]} share the label "
                                f"{again!r}")
        rank = x.type.rank
        shape = [1] * rank
        rows, columns = (
            iota(shape=tuple([x.shape[a] if a == at else s for a, s in enumerate(shape)]), axis=at,
                 dtype=I64) for at in (i, j))
        zero = 0 if x.dtype.sort in ("int", "uint") else 0.0
        x = sum_(where(eq(rows, columns), x, zero), axes=(j,))
        labels = labels[:j] + labels[j + 1:]
    return x, labels


def _kept(term: Term, keep: set[str]) -> Term:
    """`term` summed over the axes that nothing else reads."""
    x, labels = term
    gone = tuple([i for i, c in enumerate(labels) if c not in keep])
    return (sum_(x, axes=gone), "".join(c for c in labels if c in keep)) if gone else term


def _without(term: Term, drop: set[str]) -> Term:
    """`term` without unit axes that broadcast against the other operand's."""
    x, labels = term
    if not drop:
        return term
    at = [i for i, c in enumerate(labels) if c not in drop]
    return reshape(x, shape=tuple([x.shape[i] for i in at])), "".join(labels[i] for i in at)


def _ones(term: Term, other: Term) -> set[str]:
    """Shared labels on which `term` has size 1 and the other more."""
    theirs = dict(zip(other[1], other[0].shape, strict=True))
    return {c for c, s in zip(term[1], term[0].shape, strict=True)
            if s == 1 and theirs.get(c, 1) != 1}


def _aligned(term: Term, order: str) -> Value:
    """`term` with its axes in `order`, and 1 where it lacks one."""
    x, labels = term
    mine = [c for c in order if c in labels]
    x = transpose(x, perm=tuple([labels.index(c) for c in mine]))
    sizes = dict(zip(mine, x.shape, strict=True))
    return reshape(x, shape=tuple([sizes.get(c, 1) for c in order]))


def _pair(a: Term, b: Term, keep: set[str]) -> Term:
    """The product of two terms, summed over shared labels that are not kept."""
    a, b = _without(a, _ones(a, b)), _without(b, _ones(b, a))
    shared = [c for c in a[1] if c in b[1]]
    summed = [c for c in shared if c not in keep]
    if not summed:
        order = a[1] + "".join(c for c in b[1] if c not in a[1])
        return mul(_aligned(a, order), _aligned(b, order)), order
    batch = [c for c in shared if c in keep]
    out = dot_general(
        a[0], b[0], contract_a=tuple([a[1].index(c) for c in summed]),
        contract_b=tuple([b[1].index(c) for c in summed]),
        batch_a=tuple([a[1].index(c) for c in batch]),
        batch_b=tuple([b[1].index(c) for c in batch]))
    free = [c for t in (a[1], b[1]) for c in t if c not in shared]
    return out, "".join([*batch, *free])


@composite(samples=[
    sample("f32[3,4]", "f32[4,5]", equation="ij,jk->ik", expect=ORACLE),
    sample("f32[2,3,4]", "f32[2,4,5]", equation="bij, bjk", expect=ORACLE),
    sample("f32[2,1,3,4]", "f32[1,5,4,3]", equation="...ij,...ji->...", expect=ORACLE),
    sample("f32[3,4]", "f32[4]", "f32[3,2]", equation="ij,j,ik->kj", expect=ORACLE),
    sample("f32[3,3,2]", equation="iij->ji", expect=ORACLE),
    sample("f32[3,3]", equation="ii", expect=ORACLE),
    sample("f32[2,3]", "f32[2,3]", equation="ij,ij->ij", expect=ORACLE),
    sample("f32[2]", "f32[3]", equation="i,j", expect=ORACLE),
    sample("f32[2,3]", equation="...->...", expect=ORACLE),
    sample("i32[2,3]", "i32[3,2]", equation="ab,ba->"),
    known(arr([60000.0, 60000.0, -60000.0], "f16"), equation="i->",
          expect=[arr(60000.0, "f16")])])
def einsum(xs: Sequence[Value], *, equation: str) -> Value:
    """Sum of products over the labels that the result lacks (numpy.einsum, ONNX Einsum).

    Ellipses align on the right and broadcast; a label repeated in one term takes the diagonal;
    without `->` the result has the labels that occur once, sorted. Operands are contracted from
    left to right; halves in f32, rounded once.
    """
    if not xs or any(x.dtype is not xs[0].dtype for x in xs):
        raise OperatorError(f"the operands {', '.join(str(x.type) for x in xs)} differ in dtype",
                            hint="give one or more operands of one dtype")
    labels, out = _parsed(equation, xs)
    terms = [_diagonal(wide(x), t) for x, t in zip(xs, labels, strict=True)]
    done = terms[0]
    for i, term in enumerate(terms[1:], 1):
        later = {*out, *(c for _, t in terms[i + 1:] for c in t)}
        done = _pair(_kept(done, later | {*term[1]}), _kept(term, later | {*done[1]}), later)
    x, have = _kept(done, {*out})
    perm = tuple([have.index(c) for c in out])
    moved = x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)
    return cast_value(moved, xs[0].dtype)
