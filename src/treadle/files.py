"""Files and folders that others see whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Where to write a file or folder that becomes `path` in the end; an error leaves nothing."""
    made = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield made
        os.replace(made, path)
    except BaseException:
        if made.is_dir():
            shutil.rmtree(made, ignore_errors=True)
        else:
            made.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Make or replace a file of UTF-8."""
    with replacing(path) as made:
        made.write_text(text, "utf-8")
