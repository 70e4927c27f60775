"""Compiles module text to object code and loads it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ...errors import TreadleError
from .target import Target, host

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_LABEL = re.compile(r"^([A-Za-z_$.][\w$.]*):", re.MULTILINE)
_FUSED = re.compile(r"^\s+v?(?:fmadd|fmla|fnmadd|dp|pmaddwd|dot)\w*|^\s+[su]dot\b"
                    r"|^\s+vp?(?:fn?madd|dp|maddwd|maddubsw)\w*", re.MULTILINE)
_STACK = re.compile(r"^\s+(?:v?mov[au]p[sd]|vmovdq[au]\w*)\s[^\n]*\(%r[sb]p\)"
                    r"|^\s+(?:ldr|str|ldp|stp|ldur|stur)\s+q\d+,[^\n]*\[(?:sp|x29)", re.MULTILINE)


Text: TypeAlias = "str | Callable[[], str]"
"""A module's text, or what writes it."""


class CompileError(TreadleError):
    """Generated code that LLVM rejects: a defect of treadle, not of the model."""


class ObjectCache(Protocol):
    """Keeps object code by key; `get` gives None for what it does not have."""

    def get(self, key: str) -> bytes | None:
        """The object stored under a key."""
        ...

    def put(self, key: str, code: bytes) -> None:
        """Store an object."""
        ...


class MemoryCache:
    """An object cache that lives as long as the process."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """The object stored under a key."""
        return self._objects.get(key)

    def put(self, key: str, code: bytes) -> None:
        """Store an object."""
        self._objects[key] = code


class Spills(NamedTuple):
    """Vector moves to or from the stack, and multiply-adds, of one function."""

    moves: int
    multiply_adds: int


@functools.cache
def _llvm_version() -> str:
    import llvmlite
    import llvmlite.binding as llvm

    return f"{llvmlite.__version__}/{'.'.join(map(str, llvm.llvm_version_info))}"


def object_key(text: str, target: Target) -> str:
    """The key of compiled code: a hash of its text, the target, and LLVM's version."""
    about = f"{_llvm_version()}\n{target.key}\n"
    return hashlib.blake2b(about.encode() + text.encode(), digest_size=20).hexdigest()


def optimise(text: str, target: Target, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parse, verify, and run the few passes that pay for themselves on generated kernels.

    Raises `CompileError` with LLVM's message and the line that it complains about.
    """
    import llvmlite.binding as llvm

    # A context of its own: LLVM's global one is not safe to share and never shrinks.
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple, module.data_layout = target.triple, str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects generated code: {error}{_quote(text, str(error))}",
                           hint="please report this as a defect of treadle") from None
    passes = llvm.create_new_module_pass_manager()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_dead_code_elimination_pass()
    passes.add_global_dead_code_eliminate_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    return module


def _unlocked(name: str) -> Callable[..., object]:
    """A function of LLVM without the lock that llvmlite puts around every one.

    Only for calls on a context and a target machine that no other thread has.
    """
    import llvmlite.binding as llvm

    found = getattr(llvm.ffi.lib, name)
    return getattr(found, "_cfn", found)


def _emitted(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """The object code of a module, as `machine.emit_object` gives it but for the lock."""
    import llvmlite.binding as llvm

    lib = llvm.ffi.lib
    with llvm.ffi.OutputString() as message:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise CompileError(f"LLVM makes no code: {message}")
    try:
        start, size = lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _quote(text: str, message: str) -> str:
    """The line of `text` named by a parser message such as `<string>:12:5: error`."""
    found = re.search(r":(\d+):\d+: error", message)
    lines = text.splitlines()
    number = int(found.group(1)) if found else 0
    return f"\n  line {number}: {lines[number - 1]}" if 0 < number <= len(lines) else ""


WRITERS = ("declare", "ops", "loops", "codegen", "backends")
"""Folders of the package whose files decide the text of a kernel that has a key."""


@functools.cache
def sources() -> str:
    """What tells the files that write code from those of another version; empty without files.

    Sizes and times of change: reading them all would take longer.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    found: list[tuple[str, int, int]] = []
    folders = [os.path.join(package, name) for name in WRITERS]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            return ""
        for entry in entries:
            if entry.name.endswith(".py"):
                about = entry.stat()
                found.append((entry.path, about.st_size, about.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    return hashlib.blake2b(repr(sorted(found)).encode(), digest_size=20).hexdigest() * bool(found)


def compile_object(text: Text, target: Target, cache: ObjectCache | None = None,
                   identity: str = "") -> bytes:
    """Object code of a module, from the cache if it is there.

    `identity` decides, with the package's files, what the text will be: the cache remembers under
    it the key of the code, and the text is written only if it does not.
    """
    named = cache is not None and identity != "" and sources() != ""
    name = object_key(f"{sources()}\n{identity}", target) if named else ""
    known = cache.get(name) if cache is not None and named else None
    written = _whole(text) if known is None else ""
    key = object_key(written, target) if known is None else known.decode()
    if cache is not None and (code := cache.get(key)) is not None:
        if known is None and named:
            cache.put(name, key.encode())
        return code
    machine = target.machine()
    code = _emitted(optimise(written or _whole(text), target, machine), machine)
    if cache is not None:
        cache.put(key, code)
        if named:
            cache.put(name, key.encode())
    return code


def _whole(text: Text) -> str:
    return text if isinstance(text, str) else text()


def assembly(text: str, target: Target) -> str:
    """The assembly text of a module."""
    machine = target.machine()
    return machine.emit_assembly(optimise(text, target, machine))


def spills(assembly_text: str) -> dict[str, Spills]:
    """Per function with multiply-adds: how many vector moves touch the stack (x86, AArch64)."""
    marks = [m for m in _LABEL.finditer(assembly_text) if not m.group(1).startswith(".")]
    ends = [m.start() for m in marks[1:]] + [len(assembly_text)]
    found: dict[str, Spills] = {}
    for mark, end in zip(marks, ends, strict=True):
        body = assembly_text[mark.end():end]
        if count := len(_FUSED.findall(body)):
            found[mark.group(1)] = Spills(len(_STACK.findall(body)), count)
    return found


@functools.cache
def _linker() -> llvm.LLJIT:
    """The process's linker. JITLink places an object's sections together, with its own GOT.

    The older MCJIT loader may spread them beyond the small code model's reach, or abort.
    """
    import llvmlite.binding as llvm

    made = llvm.create_lljit_compiler(host().machine(), use_jit_link=True)
    # Threads may still run code while the interpreter exits: never unload at that time.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


class Program:
    """Loaded code. It stays loaded while this or a callable of `function` is alive."""

    _lock = threading.Lock()
    _count = itertools.count()

    def __init__(self, code: bytes) -> None:
        """Load object code that `compile_object` made for the processor of this process.

        Raises `CompileError` for what is no object file. Damage inside one goes unnoticed: a cache
        that outlives the process verifies a checksum first.
        """
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        self._found: dict[str, llvm.ResourceTracker] = {}
        with Program._lock:
            self._name = f"treadle{next(Program._count)}"
            try:
                self._loaded = builder.link(_linker(), self._name)
            except RuntimeError as error:
                raise CompileError(f"object code does not load: {error}",
                                   hint="delete the cache directory") from None

    def address(self, name: str) -> int:
        """The address of an external function or datum; raises `CompileError` if there is none."""
        with Program._lock:
            # What a lookup returns keeps the code loaded, and unloads it when dropped.
            if name not in self._found:
                try:
                    self._found[name] = _linker().lookup(self._name, name)
                except RuntimeError as error:
                    raise CompileError(
                        f"compiled code has no symbol '{name}': {error}") from None
            return self._found[name][name]

    def function(self, name: str, result: type | None, *parameters: type) -> Callable[..., int]:
        """A function as a Python callable of ctypes types; it runs without the GIL."""
        found = ctypes.CFUNCTYPE(result, *parameters)(self.address(name))
        found.program = self  # type: ignore[attr-defined]
        return found


def build(text: Text, target: Target, cache: ObjectCache | None = None,
          identity: str = "") -> Program:
    """Compile and load a module for the processor of this process; as `compile_object`."""
    return Program(compile_object(text, target, cache, identity))


def build_all(parts: Sequence[tuple[Text, str]], target: Target, cache: ObjectCache | None = None,
              threads: int = 1) -> list[Program]:
    """Compile and load modules, given as text and identity, several at a time.

    The caller's thread works too, so that all is done where no other can be started: when the
    process is ending, or has as many threads as it may have.
    """
    if threads == 1 or len(parts) < 2:
        return [build(text, target, cache, identity) for text, identity in parts]
    sources()  # once, not in every thread
    todo = deque(enumerate(parts))
    made, failed = dict[int, bytes](), list[BaseException]()

    def work() -> None:
        while todo and not failed:
            with contextlib.suppress(IndexError):
                i, (text, identity) = todo.popleft()
                try:
                    made[i] = compile_object(text, target, cache, identity)
                except BaseException as e:  # noqa: BLE001 - raised where it was asked for
                    failed.append(e)

    started = _started(work, min(threads, len(parts)) - 1)
    work()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    return [Program(made[i]) for i in range(len(parts))]


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """At most `count` threads."""
    made = list[threading.Thread]()
    for _ in range(count):
        thread = threading.Thread(target=work, name="treadle-compile", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more of them
            break
        made.append(thread)
    return made
