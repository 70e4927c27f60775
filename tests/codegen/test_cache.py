"""The cache of object code on disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle.codegen.llvm.cache import DiskCache, default_cache
from treadle.codegen.llvm.jit import MemoryCache, compile_object
from treadle.codegen.llvm.target import host
from treadle.ops import softmax

TEXT = "define i32 @seven() {\n  ret i32 7\n}\n"


def test_entries_come_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    assert cache.get("ab12") is None
    cache.put("ab12", b"code")
    assert DiskCache(tmp_path, 1 << 20).get("ab12") == b"code"


def test_damaged_entries_are_absent_and_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    for damage in (lambda b: b[:-1], lambda b: b[:30] + b"?" + b[31:], lambda b: b""):
        cache.put("ab12", b"x" * 100)
        path = tmp_path / "ab" / "ab12"
        path.write_bytes(damage(path.read_bytes()))
        assert cache.get("ab12") is None
        assert not path.exists()


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 350)
    for at, key in enumerate(("aa1", "bb2", "cc3")):
        cache.put(key, b"x" * 100)
        os.utime(tmp_path / key[:2] / key, (at, at))
    assert cache.get("aa1")  # now the most recent one
    cache.put("dd4", b"x" * 100)
    cache.trim()
    assert [k for k in ("aa1", "bb2", "cc3", "dd4") if cache.get(k) is None] == ["bb2", "cc3"]


def test_many_compilations_look_at_the_whole_once(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads every entry: one a compilation made a filled cache slower than none."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    looks = list[DiskCache]()
    monkeypatch.setattr(DiskCache, "trim", lambda self: looks.append(self))
    for each in range(40):
        cache = default_cache()
        assert isinstance(cache, DiskCache)
        for part in range(16):
            cache.put(f"{each:02x}{part}", b"code")
    assert 2 <= len(looks) <= 3


def test_a_folder_that_cannot_be_written_costs_nothing_but_time() -> None:
    cache = DiskCache(Path("/proc/nowhere"), 100)
    cache.put("ab12", b"code")
    assert cache.get("ab12") is None


def test_named_code_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name decides the text, until a file of the package changes."""
    cache, written = MemoryCache(), list[str]()

    def text() -> str:
        written.append(TEXT)
        return TEXT

    for name in ("one", "one", "two"):
        found = compile_object(text, host(), cache, name)
        assert found == compile_object(TEXT, host())
    assert len(written) == 2
    monkeypatch.setattr("treadle.codegen.llvm.jit.sources", lambda: "another version")
    compile_object(text, host(), cache, "one")
    assert len(written) == 3
    monkeypatch.setattr("treadle.codegen.llvm.jit.sources", lambda: "")  # no files to look at
    for _ in range(2):
        compile_object(text, host(), cache, "one")
    assert len(written) == 5


def test_a_model_compiled_again_writes_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    model = treadle.trace(lambda x: softmax(x) * 2.0, "f32[n,8]")
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    first = model.compile("cpu")(x).popitem()[1]

    def refuse(*_: object) -> None:
        raise AssertionError("code was written again")

    monkeypatch.setattr("treadle.backends.cpu.assembly.written", refuse)
    np.testing.assert_array_equal(model.compile("cpu")(x).popitem()[1], first)
