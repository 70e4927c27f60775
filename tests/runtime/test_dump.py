"""What `TREADLE_DUMP` writes, and that it runs again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import treadle
from tests.source import ROOT
from treadle import ops
from treadle.backends.cpu.reproduce import rerun as rerun_kernel
from treadle.errors import ConfigError, RunError
from treadle.ir.graph import Builder, Value
from treadle.ir.parser import parse_graph
from treadle.ir.types import BF16, F32, TensorType, parse_type
from treadle.ops.control import scan
from treadle.runtime.dump import restore, save
from treadle.runtime.model import Built, Model


def layer(x: Value, w: Value, i: Value) -> Value:
    return ops.gelu(ops.matmul(x, w)) + ops.gather(w, i, axis=0)


TYPES = ("f32[n,8]", "f32[8,8]", "i64[n]")


def inputs(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [*(rng.normal(size=s).astype(np.float32) for s in ((n, 8), (8, 8))), np.arange(n)]


def mixed(x: Value, w: Value, i: Value) -> tuple[Value, ...]:
    """A product with an epilogue, a gather, rows, a scan, and two kernels for one result."""
    h = ops.gelu(ops.matmul(x, w))
    down, _ = scan([ops.mean(h, axes=(0,)), h], body=lambda s, t: (ops.tanh(s) * 0.5 + t, s),
                   carried=1)
    parts = ops.concat([ops.transpose(x, perm=(1, 0)), ops.gather(w, i, axis=1)], axis=1)
    return ops.softmax(h, axis=-1), down, parts, ops.cumsum(x, axis=1)


def reproduce(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(folder / "reproduce.py"), *words], text=True,
                          capture_output=True, timeout=120, cwd=ROOT)


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_DUMP", str(tmp_path))
    return tmp_path


def test_a_folder_tells_everything_and_runs_again(dump: Path, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    exe = treadle.trace(layer, *TYPES).compile("cpu")
    folder = dump / "layer"
    assert "+0" not in (folder / "memory.txt").read_text()  # no size is known yet
    exe(*inputs(3))
    assert parse_graph((folder / "graph.ir").read_text()).nodes
    assert sorted(folder.glob("passes/*.ir"))
    assert "define internal i32 @k0_" in (folder / "kernels.ll").read_text()
    assert re.search(r"^k0_\w+:", (folder / "kernels.s").read_text(), re.MULTILINE)
    assert "arena 0.0 +0" in (folder / "memory.txt").read_text()
    monkeypatch.delenv("TREADLE_DUMP")
    for words in ((), ("cpu", "n=5")):
        done = reproduce(folder, *words)
        assert done.returncode == 0 and "agrees" in done.stdout, done.stderr
    treadle.trace(layer, *TYPES).compile("cpu")
    assert [p.name for p in dump.iterdir()] == ["layer"]


def test_every_kernel_runs_alone(dump: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    exe = treadle.trace(mixed, *TYPES).compile("cpu")
    assert not (dump / "mixed" / "kernels").exists()  # no size is known yet
    exe(*inputs(3))
    folders = sorted((dump / "mixed" / "kernels").iterdir())
    named = {k for r in exe.explain().rows for k in r.kernel.split(", ") if k}
    assert {f.name for f in folders} == named and len(named) > 5
    monkeypatch.setattr("treadle.backends.cpu.reproduce.SECONDS", 0.0)
    for folder in folders:
        assert f"@{folder.name}(" in (folder / "kernel.ll").read_text()
        assert f"{folder.name}:" in (folder / "kernel.s").read_text()
        assert (folder / "kernel.txt").read_text().strip()
        assert not rerun_kernel(folder, ["3"]), capsys.readouterr().out
    text = capsys.readouterr().out
    assert text.count("agrees") >= len(folders) - 1 and "us on one thread" in text


def test_a_kernel_reproduces_from_its_folder_alone(dump: Path, tmp_path_factory: pytest
                                                   .TempPathFactory) -> None:
    exe = treadle.trace(layer, "f32[2,8]", "f32[8,8]", "i64[2]").compile("cpu")
    found = dump / "layer" / "kernels"  # sizes are known without a run
    folder = next(f for f in found.iterdir() if "product" in f.name)
    moved = tmp_path_factory.mktemp("alone") / folder.name
    shutil.move(folder, moved)
    done = reproduce(moved)
    assert re.fullmatch(rf"{folder.name}, output 0: agrees.*\n{folder.name}: [\d.]+ us.*\n",
                        done.stdout), done.stderr
    exe(*inputs(2))  # what is gone is written again
    code = (folder / "kernel.ll").read_text()
    (folder / "kernel.ll").write_text(code.replace("fmul", "fadd"))
    broken = reproduce(folder)
    assert broken.returncode == 1 and "DIFFERS" in broken.stdout, broken.stderr


def test_half_written_files_do_not_stay(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(ConfigError, match="TREADLE_DUMP.*No space"):
        treadle.trace(layer, "f32[2,8]", "f32[8,8]", "i64[2]").compile("cpu")
    assert [p.name for p in (dump / "layer").iterdir() if p.is_file()] == ["graph.ir"]


def test_a_folder_that_is_gone_is_said(dump: Path) -> None:
    exe = treadle.trace(layer, *TYPES).compile("cpu")
    shutil.rmtree(dump)
    with pytest.raises(ConfigError, match="TREADLE_DUMP"):
        exe(*inputs(2))
    assert exe(*inputs(2))


def test_a_run_that_fails_can_be_repeated(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = treadle.trace(layer, *TYPES).compile("cpu")
    x, w, i = inputs(3)
    with pytest.raises(RunError, match="index 8 is out of range"):
        exe(x, w, i + 7)
    monkeypatch.delenv("TREADLE_DUMP")
    done = reproduce(dump / "layer")
    assert done.returncode and "is out of range" in done.stderr


def test_every_compilation_has_a_folder_of_its_own(dump: Path) -> None:
    for device in ("cpu", "reference"):
        exe = treadle.trace(layer, *TYPES).compile(device)
        assert exe.explain().rows
        exe(*inputs(2))
    assert sorted(p.name for p in dump.iterdir()) == ["layer", "layer-2"]
    assert not (dump / "layer-2" / "kernels.ll").exists()
    assert (dump / "layer-2" / "reproduce.py").exists()


def test_parameters_of_any_dtype_come_back(tmp_path: Path) -> None:
    with Builder("g") as b:
        values = [b.input("x", TensorType((2,), BF16)), b.input("s", parse_type("string[2]"))]
        b.finish(values)
    arrays = [np.array([1.5, np.nan], ml_dtypes.bfloat16), np.array(["a", "bc"], object)]
    save(tmp_path / "a.npz", values, arrays)
    for got, want in zip(restore(tmp_path / "a.npz", values), arrays, strict=True):
        assert got.dtype == want.dtype  # type: ignore[union-attr]
        assert np.asarray(got).tolist()[:1] == want.tolist()[:1]


def test_explain_tells_kernels_memory_and_passes() -> None:
    with Builder("g") as b:
        x = b.input("x", parse_type("f32[n,8]"))
        w = b.input("w", parse_type("f32[8,8]"), param=True)
        y = ops.exp(ops.matmul(x, w)) * 2.0
        out = ops.softmax(ops.transpose(y, perm=(1, 0)), axis=0)
        graph = b.finish([out])
    exe = Model("g", Built(graph, {"w": np.eye(8, dtype=np.float32)})).compile("cpu")
    exe(np.ones((3, 8), np.float32))
    rows = {r.op: r for r in exe.explain().rows}
    assert rows["transpose"].moved == "0" and rows["transpose"].slot.startswith("view of arena 0.")
    assert {r.dtype for r in rows.values()} == {F32.name}
    made = [r for r in rows.values() if r.made_by == "fuse"]
    assert made and all(r.kernel.startswith("k") for r in made)
    head = next(r for r in exe.explain().rows if "matmul" in (r.op, *r.reason.split(", ")))
    assert "product" in head.kernel and head.flops.startswith("14")  # 2 * 8 * 8 and the rest, a row
    assert head.moved == "64*n+256"
    assert exe.explain().rows[-1].slot == "output"
    text, data = str(exe.explain()), exe.explain().json()
    for r in rows.values():
        assert f"{r.flops} FLOPs" in text and f"{r.moved} bytes moved" in text
    assert '"made_by": "fuse"' in data and '"slot": "output"' in data
