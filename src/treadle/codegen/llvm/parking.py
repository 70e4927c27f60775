"""Sleeping until a word changes, as LLVM IR: by futex, or by a mutex and a condition."""

from __future__ import annotations

from .text import Module
from .types import I8, I32, I64, PTR, VOID

MUTEX, CONDITION = 448, 576
"""Byte offsets in the sync block; each has 128 bytes."""
_FUTEX_NUMBER = {True: 202, False: 98}
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


def futex(module: Module) -> None:
    """`park(sync, word, expected)` sleeps while the word has that value; `wake(sync, word)`."""
    call = "call i64 (i64, ...) @syscall"
    number = _FUTEX_NUMBER[module.target.is_x86]
    module.declare("syscall", I64, ["i64", "..."])
    f = module.function("park", VOID, [("sync", PTR), ("word", PTR), ("expected", I32)])
    f.line(f"{call}(i64 {number}, ptr %word, i32 {_WAIT_PRIVATE}, i32 %expected, ptr null)")
    f.give()
    f = module.function("wake", VOID, [("sync", PTR), ("word", PTR)])
    f.line(f"{call}(i64 {number}, ptr %word, i32 {_WAKE_PRIVATE}, i32 {2**31 - 1})")
    f.give()
    f = module.function("prepare", VOID, [("sync", PTR)], linkage="")
    f.give()


def pthread(module: Module) -> None:
    """The same with one mutex and one condition for all words."""
    f = module.function("park", VOID, [("sync", PTR), ("word", PTR), ("expected", I32)])
    sync, word, expected = f.args
    mutex, condition = f.address(sync, MUTEX, I8), f.address(sync, CONDITION, I8)
    f.call("pthread_mutex_lock", I32, mutex)
    with f.when(f.compare("eq", f.atomic_load(I32, word, "seq_cst"), expected)):
        f.call("pthread_cond_wait", I32, condition, mutex)
    f.call("pthread_mutex_unlock", I32, mutex)
    f.give()
    f = module.function("wake", VOID, [("sync", PTR), ("word", PTR)])
    sync = f.args[0]
    f.call("pthread_mutex_lock", I32, f.address(sync, MUTEX, I8))
    f.call("pthread_cond_broadcast", I32, f.address(sync, CONDITION, I8))
    f.call("pthread_mutex_unlock", I32, f.address(sync, MUTEX, I8))
    f.give()
    f = module.function("prepare", VOID, [("sync", PTR)], linkage="")
    sync, null = f.args[0], f.constant(PTR, 0)
    f.call("pthread_mutex_init", I32, f.address(sync, MUTEX, I8), null)
    f.call("pthread_cond_init", I32, f.address(sync, CONDITION, I8), null)
    f.give()
