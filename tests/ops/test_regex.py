"""Regular expressions against Python's own, which backtracks."""

from __future__ import annotations

import re
from random import Random

import pytest

from treadle.errors import OperatorError
from treadle.ops.regex import compile_pattern, full_match

PIECES = ("a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\W", r"\b", "^", "$", r"\.",
          "(?:ab)", "(b|ca)", "(?i)", r"\x61", "1")
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?")


def drawn(rng: Random, depth: int = 0) -> str:
    """A pattern that both engines read."""
    parts = []
    for _ in range(rng.randrange(1, 5)):
        piece = rng.choice(PIECES)
        if piece == "(?i)" and (depth or parts):
            piece = "a"
        if depth < 2 and rng.random() < 0.25:
            piece = f"({drawn(rng, depth + 1)})"
        plain = piece in ("(?i)", r"\b", "^", "$")
        parts.append(piece + ("" if plain else rng.choice(REPEATS)))
    text = "".join(parts)
    return f"{text}|{drawn(rng, depth + 1)}" if depth < 2 and rng.random() < 0.2 else text


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_python(seed: int) -> None:
    rng = Random(seed)
    hits = 0
    for _ in range(100):
        pattern = drawn(rng)
        wanted, code = re.compile(pattern, re.ASCII), compile_pattern(pattern)
        for _ in range(12):
            text = "".join(rng.choice("abcA1 .") for _ in range(rng.randrange(6)))
            found = wanted.fullmatch(text) is not None
            assert full_match(code, text) == found, (pattern, text)
            hits += found
    assert hits > 20


@pytest.mark.parametrize(("pattern", "text", "match"), [
    (r"[[:alpha:]]+", "abZ", True), (r"[[:^alpha:]]", "a", False), (r"\Qa.b\E", "a.b", True),
    (r"\Qa.b\E", "axb", False), ("(?P<n>a)(?<m>b)", "ab", True),
    (r"(?s:.)", "\n", True), (".", "\n", False), (r"\z", "", True),
    (r"\x{e9}", "é", True), ("[]a]", "]", True), ("a{,2}", "a{,2}", True), ("(?i)É", "é", True),
    (r"\s", "\v", False), (r"(?m)a$\n^b", "a\nb", True), (r"a$\n", "a\n", False)])
def test_what_re2_says(pattern: str, text: str, match: bool) -> None:
    assert full_match(compile_pattern(pattern), text) is match


@pytest.mark.parametrize("pattern", [
    "(", ")", "[", "a**", "*", r"\1", "(?=a)", "(?<=a)", r"\pN", "[b-a]", "a{2,1}", "a{1001}",
    "(((a{1000}){1000}){1000})", "(" * 1000 + ")" * 1000, r"\x{110000}", "(?Z)", "[[:nope:]]"])
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(OperatorError, match="the pattern"):
        compile_pattern(pattern)


def test_no_pattern_is_slow() -> None:
    code = compile_pattern("(a|aa)+(a|a?)+b")
    assert not full_match(code, "a" * 5000)
