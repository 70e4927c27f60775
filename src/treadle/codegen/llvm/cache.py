"""Object code on disk, so that a model compiles once a machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import random
import tempfile
from pathlib import Path

from ...config import Config
from .jit import ObjectCache

_DIGEST = 20
_TRIM_EVERY = 256
"""Stores between two looks at the size of the whole, which read every entry's date and size."""


class DiskCache:
    """An object cache in a folder. Entries carry checksums; a damaged one counts as absent.

    Beyond `limit` bytes the least recently used entries go first. Nothing here fails for want of
    space or rights: then code is compiled again. One look at the whole serves `_TRIM_EVERY` stores;
    the first comes at a random one, so that many short processes look as rarely as a long one.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._until_trim = random.randint(1, _TRIM_EVERY)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The object stored under a key."""
        path = self._path(key)
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        code = entry[_DIGEST:]
        if entry[:_DIGEST] != _checksum(code):
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return code

    def put(self, key: str, code: bytes) -> None:
        """Store an object; readers see all of it or nothing."""
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(code) + code)
            os.replace(name, path)
            self._until_trim -= 1
            if self._until_trim <= 0:
                self._until_trim = _TRIM_EVERY
                self.trim()
        except OSError:
            return

    def trim(self) -> None:
        """Remove the least recently used entries beyond the limit."""
        entries = [(s.st_mtime, s.st_size, p) for p in self.folder.glob("*/*")
                   if (s := p.stat()).st_size]
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size


def _checksum(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=_DIGEST).digest()


def default_cache() -> ObjectCache | None:
    """The cache that the environment asks for: `TREADLE_CACHE`, `_CACHE_DIR`, `_CACHE_LIMIT`."""
    config = Config.from_environment()
    return _shared(config.cache_root() / "code", config.cache_limit) if config.cache else None


@functools.cache
def _shared(folder: Path, limit: int) -> DiskCache:
    """One cache a folder, so that its count of stores outlives a compilation."""
    return DiskCache(folder, limit)
