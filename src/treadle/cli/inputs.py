"""Inputs from the command line: files, numbers, zeros or random values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ..declare.arrays import Array, np_dtype
from ..errors import BindingError
from ..ir.dims import evaluate, symbols
from ..runtime.signature import Leaf, Signature


def parse_pairs(items: Iterable[str], what: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict; the last `=` separates, since names may hold one."""
    out: dict[str, str] = {}
    for item in items:
        name, sep, value = item.rpartition("=")
        if not sep or not name:
            raise BindingError(f"{what} {item!r} is not NAME=VALUE")
        if name in out:
            raise BindingError(f"{what} {name} is given twice")
        out[name] = value
    return out


def parse_dims(items: Iterable[str]) -> dict[str, int]:
    """`--dim NAME=N` options."""
    out: dict[str, int] = {}
    for name, value in parse_pairs(items, "--dim").items():
        if not (value.isascii() and value.isdigit() and len(value) < 16):
            raise BindingError(f"--dim {name}={value}: a size is a whole number from 0 to 10**15")
        out[name] = int(value)
    return out


def make_inputs(signature: Signature, given: Mapping[str, str], dims: Mapping[str, int],
                seed: int) -> tuple[dict[str, Array], list[str]]:
    """An array for every input, and remarks about sizes that were not given."""
    names = [leaf.name for leaf in signature.inputs]
    if extra := [n for n in given if n not in names]:
        raise BindingError(f"--input {extra[0]}: there is no such input",
                           hint=f"the model takes {signature}")
    known = {s for leaf in signature.inputs for d in leaf.shape or () for s in symbols(d)}
    if extra := [n for n in dims if n not in known]:
        raise BindingError(f"--dim {extra[0]}: there is no such size",
                           hint=f"the sizes are {', '.join(sorted(known)) or 'all fixed'}")
    loaded = {n: _load(leaf, given[n]) for leaf in signature.inputs
              if (n := leaf.name) in given and _is_file(given[n])}
    binding = {**_bound(signature, loaded), **dims}
    notes = [f"size {s} not given: using 1 (set it with --dim {s}=N)"
             for s in sorted(known - binding.keys())]
    full = {**dict.fromkeys(known, 1), **binding}
    rng = np.random.default_rng(seed)
    try:
        made = {leaf.name: loaded[leaf.name] if leaf.name in loaded
                else _make(leaf, given.get(leaf.name, "random"), full, rng)
                for leaf in signature.inputs}
    except (MemoryError, OverflowError, ValueError) as e:
        raise BindingError(f"the inputs cannot be made: {e}", hint="give smaller sizes") from None
    return made, notes


def _is_file(text: str) -> bool:
    return text.endswith((".npy", ".npz"))


def _bound(signature: Signature, loaded: Mapping[str, Array]) -> dict[str, int]:
    leaves = tuple(leaf for leaf in signature.inputs if leaf.name in loaded)
    part = Signature(leaves, ())
    return part.bind([loaded[leaf.name] for leaf in leaves])


def _load(leaf: Leaf, path: str) -> Array:
    try:
        data = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is no .npy or .npz of plain arrays"
        raise BindingError(f"input {leaf}: cannot read {path}: {why}") from None
    if isinstance(data, np.ndarray):
        return data
    if leaf.name not in data:
        raise BindingError(f"input {leaf}: {path} has no array '{leaf.name}'",
                           hint=f"it has {', '.join(data)}")
    return data[leaf.name]


def _make(leaf: Leaf, how: str, binding: Mapping[str, int], rng: np.random.Generator) -> Array:
    if leaf.shape is None or leaf.dtype.sort == "host":
        raise BindingError(f"input {leaf} has no shape to make values for",
                           hint=f"give a file: --input {leaf.name}=file.npy")
    shape = tuple([evaluate(s, binding) for s in leaf.shape])
    dtype = np_dtype(leaf.dtype)
    if how == "zeros":
        return np.zeros(shape, dtype) if leaf.dtype.sort != "string" else np.full(shape, "", dtype)
    if how == "random":
        return _random(leaf, shape, rng)
    try:
        numbers = [float(x) if leaf.dtype.sort == "float" else int(x) for x in how.split(",")]
    except ValueError:
        raise BindingError(f"--input {leaf.name}={how}: not a file, 'random', 'zeros' or numbers",
                           hint="write --input x=1,2,3 or --input x=data.npy") from None
    flat = np.asarray(numbers).astype(dtype)
    if flat.size == 1:
        return np.full(shape, flat[0], dtype)
    free = [i for i, s in enumerate(leaf.shape) if not isinstance(s, int)]
    if flat.size == int(np.prod(shape, dtype=np.int64)):
        return flat.reshape(shape)
    rest = int(np.prod([n for i, n in enumerate(shape) if i not in free], dtype=np.int64))
    if len(free) == 1 and rest and flat.size % rest == 0:
        return flat.reshape([-1 if i == free[0] else n for i, n in enumerate(shape)])
    raise BindingError(f"--input {leaf.name}: {flat.size} numbers for {list(shape)}")


def _random(leaf: Leaf, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Floats in [-1, 1), integers in [0, 10), booleans either way."""
    dtype = np_dtype(leaf.dtype)
    if leaf.dtype.sort == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if leaf.dtype.sort == "string":
        return np.full(shape, "text", dtype)
    if leaf.dtype.sort in ("int", "uint"):
        return np.asarray(rng.integers(0, 10 if leaf.dtype.bits >= 8 else 2, shape), dtype)
    return np.asarray(rng.random(shape) * 2 - 1).astype(dtype)
