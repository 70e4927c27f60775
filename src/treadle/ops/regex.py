"""Regular expressions that match in time linear in the text.

The syntax is RE2's (github.com/google/re2/wiki/Syntax) without Unicode classes; no pattern can
make a match slow, which Python's `re` cannot promise. A pattern becomes a program whose threads
all run at once, character by character (K. Thompson, CACM 11(6), 1968).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import OperatorError

MOST_REPEATS, MOST_STEPS, MOST_LEVELS = 1000, 20_000, 100
Ranges = tuple[tuple[int, int], ...]
_LAST = 0x10FFFF
_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES: dict[str, Ranges] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "digit": _DIGIT,
    "ascii": ((0, 127),), "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)),
    "graph": ((33, 126),), "lower": ((97, 122),), "print": ((32, 126),), "word": _WORD,
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),), "xdigit": ((48, 57), (65, 70), (97, 102))}
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_OCTAL = tuple("01234567")
_PLACES = {"A": "start", "z": "end", "b": "edge", "B": "inside"}


class Step(NamedTuple):
    """One instruction: take a character of `ranges`, go on at `to`, check a place, or match."""

    kind: str
    to: tuple[int, ...] = ()
    ranges: Ranges = ()


Code = list[Step]
"""Instructions with targets relative to their own place."""


def _negated(ranges: Iterable[tuple[int, int]]) -> Ranges:
    out, at = list[tuple[int, int]](), 0
    for low, high in sorted(ranges):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return (*out, (at, _LAST)) if at <= _LAST else tuple(out)


def _folded(ranges: Ranges) -> Ranges:
    """The ranges with the other case of every letter up to U+024F."""
    found = {ord(c) for low, high in ranges for i in range(low, min(high, 0x24F) + 1)
             for c in (chr(i).lower(), chr(i).upper()) if len(c) == 1}
    return (*ranges, *((i, i) for i in sorted(found)))


class _Parser:
    """A pattern on its way to code."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.flags, self.level = pattern, 0, frozenset[str](), 0

    def fail(self, why: str) -> OperatorError:
        return OperatorError(f"the pattern {self.text[:60]!r} is not valid: {why} at {self.at}",
                             hint="the syntax is RE2's, without Unicode classes")

    def peek(self) -> str:
        return self.text[self.at:self.at + 1]

    def take(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def next(self) -> str:
        if not (c := self.peek()):
            raise self.fail("it ends too early")
        self.at += 1
        return c

    def whole(self) -> Code:
        code = self.alternatives()
        if self.at < len(self.text):
            raise self.fail("a ) without its (")
        return code

    def alternatives(self) -> Code:
        self.level += 1
        if self.level > MOST_LEVELS:
            raise self.fail(f"groups deeper than {MOST_LEVELS}")
        code = self.sequence()
        while self.take("|"):
            other = self.sequence()
            code = [Step("go", (1, len(code) + 2)), *code, Step("go", (len(other) + 1,)), *other]
        self.level -= 1
        return code

    def sequence(self) -> Code:
        code: Code = []
        while self.peek() not in ("", "|", ")"):
            code += self.repeated(self.atom())
            if len(code) > MOST_STEPS:
                raise self.fail("it is too large")
        return code

    def repeated(self, code: Code) -> Code:
        if (c := self.peek()) not in ("*", "+", "?", "{"):
            return code
        start = self.at
        self.at += 1
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(c) or self.counts()
        if bounds is None:
            self.at = start + 1
            return [*code, _char("{")] if code else [_char("{")]
        self.take("?")  # lazy or not, the whole text must match
        if self.peek() in ("*", "+", "?"):
            raise self.fail("a repetition of a repetition")
        low, high = bounds
        if max(low, high or 0) > MOST_REPEATS or max(low, high or 1) * len(code) > MOST_STEPS:
            raise self.fail("too many repetitions")
        if high is not None and high < low:
            raise self.fail(f"from {low} to {high} repetitions")
        n = len(code)
        tail = ([Step("go", (1, n + 2)), *code, Step("go", (-n - 1,))] if high is None else
                [Step("go", (1, n + 1)), *code] * (high - low))
        return [*code * low, *tail]

    def counts(self) -> tuple[int, int | None] | None:
        """The bounds in braces, or None where a brace is only a brace."""
        end = self.text.find("}", self.at)
        first, comma, last = self.text[self.at:end].partition(",") if end > 0 else ("", "", "")
        if not (first.isascii() and first.isdigit() and len(first + last) < 9) or (
                last and not (last.isascii() and last.isdigit())):
            return None
        self.at = end + 1
        return int(first), int(last) if last else None if comma else int(first)

    def atom(self) -> Code:
        c = self.next()
        if c == "(":
            return self.group()
        if c == "[":
            return [self.chars(self.bracket())]
        if c == ".":
            return [Step("char", (1,), _negated([] if "s" in self.flags else [(10, 10)]))]
        if c in "^$":
            kind = {"^": "start", "$": "end"}[c] + ("line" if "m" in self.flags else "")
            return [Step(kind, (1,))]
        if c in "*+?":
            raise self.fail("nothing to repeat")
        if c != "\\":
            return [self.chars(((ord(c), ord(c)),))]
        if (place := _PLACES.get(self.peek())) is not None:
            self.at += 1
            return [Step(place, (1,))]
        if self.take("Q"):
            end = self.text.find("\\E", self.at)
            text = self.text[self.at:] if end < 0 else self.text[self.at:end]
            self.at = len(self.text) if end < 0 else end + 2
            return [self.chars(((ord(x), ord(x)),)) for x in text]
        return [self.chars(self.escape())]

    def chars(self, ranges: Ranges) -> Step:
        return Step("char", (1,), _folded(ranges) if "i" in self.flags else ranges)

    def group(self) -> Code:
        outer = self.flags
        if self.take("?") and not self.take(":") and not self.named():
            on, dash, off = self.word("imsU-", ":)").partition("-")
            self.flags = (outer | {*on}) - {*off}
            if self.text[self.at - 1] == ")":
                return []
            if dash and not off:
                raise self.fail("flags are missing")
        code = self.alternatives()
        if not self.take(")"):
            raise self.fail("a ( without its )")
        self.flags = outer
        return code

    def named(self) -> bool:
        """Skip the name of a group."""
        if self.text.startswith(("<=", "<!"), self.at) or not (self.take("P<") or self.take("<")):
            return False
        while (c := self.next()) != ">":
            if not (c.isalnum() or c == "_"):
                raise self.fail("a bad name of a group")
        return True

    def word(self, letters: str, ends: str) -> str:
        start = self.at
        while (c := self.next()) not in ends:
            if c not in letters:
                raise self.fail(f"(?{c} is not known")
        return self.text[start:self.at - 1]

    def escape(self) -> Ranges:
        c = self.next()
        if (found := _CLASSES.get(c.lower())) is not None:
            return found if c.islower() else _negated(found)
        if c in _CONTROL:
            return ((_CONTROL[c], _CONTROL[c]),)
        if c in _OCTAL:
            digits = c + "".join([self.next() for _ in range(2) if self.peek() in _OCTAL])
            if c != "0" and len(digits) < 3:
                raise self.fail("references to groups are not known")
            return ((int(digits, 8), int(digits, 8)),)
        if c == "x":
            return self.hexadecimal()
        if c.isascii() and c.isalnum():
            raise self.fail(f"\\{c} is not known")
        return ((ord(c), ord(c)),)

    def hexadecimal(self) -> Ranges:
        if self.take("{"):
            end = self.text.find("}", self.at)
            digits, self.at = self.text[self.at:max(end, self.at)], max(end, self.at) + 1
        else:
            digits = self.next() + self.next()
        try:
            code = int(digits, 16) if len(digits) < 7 else -1
        except ValueError:
            code = -1
        if not 0 <= code <= _LAST:
            raise self.fail("a bad number of a character")
        return ((code, code),)

    def bracket(self) -> Ranges:
        inverted, ranges = self.take("^"), list[tuple[int, int]]()
        first = True
        while first or self.peek() != "]":
            first = False
            low = self.member()
            if self.peek() == "-" and self.text[self.at + 1:self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.member()
                if len(low) != 1 or len(high) != 1 or low[0][0] > high[0][1]:
                    raise self.fail("a bad range of characters")
                low = ((low[0][0], high[0][1]),)
            ranges += low
        self.at += 1
        folded = _folded(tuple(ranges)) if "i" in self.flags else ranges
        return _negated(folded) if inverted else tuple(ranges)

    def member(self) -> Ranges:
        c = self.next()
        if c == "\\":
            return self.escape()
        if c == "[" and self.take(":"):
            inverted = self.take("^")
            end = self.text.find(":]", self.at)
            found = _POSIX.get(self.text[self.at:end] if end > 0 else "")
            if found is None:
                raise self.fail("a class that is not known")
            self.at = end + 2
            return _negated(found) if inverted else found
        return ((ord(c), ord(c)),)


def _char(c: str) -> Step:
    return Step("char", (1,), ((ord(c), ord(c)),))


def _word_at(text: str, i: int) -> bool:
    return 0 <= i < len(text) and any(a <= ord(text[i]) <= b for a, b in _WORD)


_CHECKS: dict[str, Callable[[str, int], bool]] = {
    "go": lambda _t, _i: True, "start": lambda _t, i: i == 0, "end": lambda t, i: i == len(t),
    "startline": lambda t, i: i == 0 or t[i - 1] == "\n",
    "endline": lambda t, i: i == len(t) or t[i] == "\n",
    "edge": lambda t, i: _word_at(t, i - 1) != _word_at(t, i),
    "inside": lambda t, i: _word_at(t, i - 1) == _word_at(t, i)}


@lru_cache(256)
def compile_pattern(pattern: str) -> tuple[Step, ...]:
    """The program of a pattern; OperatorError for one that is not valid."""
    code = [*_Parser(pattern).whole(), Step("match")]
    if len(code) > MOST_STEPS:
        raise OperatorError(f"the pattern {pattern[:60]!r} is too large")
    return tuple([s._replace(to=tuple([i + t for t in s.to])) for i, s in enumerate(code)])


def _open(code: Sequence[Step], threads: Iterable[int], text: str, at: int) -> set[int]:
    """The threads that wait for a character, or have matched."""
    seen, stack, waiting = set[int](), list(threads), set[int]()
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        step = code[i]
        if step.kind in ("char", "match"):
            waiting.add(i)
        elif _CHECKS[step.kind](text, at):
            stack.extend(step.to)
    return waiting


def full_match(code: Sequence[Step], text: str) -> bool:
    """Whether the whole text matches."""
    threads = _open(code, (0,), text, 0)
    for at, c in enumerate(text):
        n = ord(c)
        threads = _open(code, [i + 1 for i in threads if any(
            [low <= n <= high for low, high in code[i].ranges])], text, at + 1)
        if not threads:
            return False
    return len(code) - 1 in threads
