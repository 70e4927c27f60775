"""The cache of object code on disk."""

from __future__ import annotations

import os
from pathlib import Path

from treadle.codegen.llvm.cache import DiskCache


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


def test_a_folder_that_cannot_be_written_costs_nothing_but_time() -> None:
    cache = DiskCache(Path("/proc/nowhere"), 100)
    cache.put("ab12", b"code")
    assert cache.get("ab12") is None
