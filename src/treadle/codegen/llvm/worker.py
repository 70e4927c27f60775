"""The worker runtime as LLVM IR: claiming, stealing, waiting, parking.

docs/threads.md argues why the memory orders below suffice; the names here are the ones used there.
Every lane walks the phases of a schedule. It claims chunks of its own share, then of the others',
and goes on when the phase's *work* is done, whoever did it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .kernel import VALUE_AT
from .parking import CONDITION, futex, pthread
from .schedule import PHASE_WORDS, STEP_WORDS
from .target import Target
from .text import Function, Module
from .types import I1, I8, I32, I64, PTR, VOID
from .value import Index, Value

# Byte offsets in the sync block. What different lanes write lies on different cache lines.
EPOCH, PARKED, DONE, WAITERS, FAILED = 0, 64, 128, 192, 256
RUN_SCHEDULE, RUN_FRAME, RUN_FIRST, RUN_BASE = 320, 328, 336, 344
LANES, RUN_SPINS, STEP_SPINS, NEXT_FIRST = 384, 392, 400, 408
RESULT_KEY, RESULT_CODE, RESULT_VALUE = 416, 424, 432
LANE_BASE, LANE_BYTES = CONDITION + 128, 128
# Byte offsets in a lane's record: the claim word on a line of its own, then the lane itself.
CLAIM, LANE = 0, 64
# Byte offsets in a lane; kernels see the first two.
KEY, CODE, VALUE, SEEN, ACTIVE = 16, 24, 32, 40, 48
NO_ERROR = (1 << 63) - 1
# Words of a phase that describe its guard.
GUARD_AT, GUARD_VALUE, GUARDED, HELD_CHUNKS = 4, 5, 6, 7
INDEX_BITS = 16
"""A claim word is a phase number above this many bits of next chunk."""


def sync_bytes(lanes: int) -> int:
    """The size of the sync block of a pool."""
    return LANE_BASE + LANE_BYTES * lanes


def runtime_text(target: Target, parking: str) -> str:
    """The runtime's module; `parking` is `futex` (Linux) or `pthread`."""
    module = Module(target)
    (futex if parking == "futex" else pthread)(module)
    for emit in (_execute, _held, _serial, _timed, _spin_done, _wait, _take, _run, _merge, _start,
                 _stop, _next_epoch, _worker, _oldest):
        emit(module)
    return module.text()


def _at(f: Function, base: Value, offset: Index) -> Value:
    return f.address(base, offset, I8)


def _lane_record(f: Function, sync: Value, lane: Value) -> Value:
    return _at(f, sync, lane * LANE_BYTES + LANE_BASE)


def _execute(module: Module) -> None:
    """All steps of a phase on one chunk; an error is recorded in the lane and ends the chunk."""
    f = module.function("execute", I32, [("schedule", PTR), ("frame", PTR), ("phase", PTR),
                                         ("chunk", I64), ("lane", PTR)])
    schedule, frame, phase, chunk, lane = f.args
    first, count, chunks = (f.load(I64, phase, j) for j in range(3))
    steps = f.load(PTR, schedule, 2)
    with f.loop(0, count) as loop:
        step = f.address(steps, (first + loop.index) * STEP_WORDS, I64)
        args = _at(f, frame, f.load(I64, step, 1))
        code = f.invoke_pointer(f.load(PTR, step), I32, args, lane, chunk, chunks)
        bad, good = f.label("bad"), f.label("good")
        f.branch(f.compare("ne", code, 0), bad, good)
        f.start(bad)
        key = f.binary("shl", f.load(I64, step, 2), INDEX_BITS) + chunk
        with f.when(f.compare("lt", key, f.load(I64, _at(f, lane, KEY)))):
            f.store(key, _at(f, lane, KEY))
            f.store(f.cast("sext", code, I64), _at(f, lane, CODE))
            f.store(f.load(I64, _at(f, lane, VALUE_AT)), _at(f, lane, VALUE))
        f.give(code)
        f.start(good)
    f.give(f.constant(I32, 0))


def _held(module: Module) -> None:
    """`held(frame, phase)`: 1 where the guard of a phase that is done holds others back, else 0."""
    f = module.function("held", I64, [("frame", PTR), ("phase", PTR)],
                        attributes="nounwind alwaysinline")
    frame, phase = f.args
    free, guarded = f.label("free"), f.label("guarded")
    f.branch(f.compare("eq", f.load(I64, phase, GUARDED), 0), free, guarded)
    f.start(guarded)
    flag = f.load(I8, f.load(PTR, _at(f, frame, f.load(I64, phase, GUARD_AT))))
    found = f.cast("zext", f.compare("ne", flag, 0), I64)
    f.give(f.cast("zext", f.compare("ne", found, f.load(I64, phase, GUARD_VALUE)), I64))
    f.start(free)
    f.give(f.constant(I64, 0))


@contextmanager
def _walk(f: Function, schedule: Value, frame: Value) -> Iterator[Value]:
    """The phases of a schedule on the caller alone, without those that guards hold back."""
    phases = f.load(PTR, schedule, 1)
    with f.loop(0, f.load(I64, schedule), 1, [f.constant(I64, 0)]) as at:
        before, work, after = f.block, f.label("work"), f.label("after")
        f.branch(f.compare("lt", at.index, at.values[0]), after, work)
        f.start(work)
        phase = f.address(phases, at.index * PHASE_WORDS, I64)
        yield phase
        held = f.invoke(f.module.functions["held"], frame, phase) * f.load(I64, phase, GUARDED)
        resume, last = at.index + held + 1, f.block
        f.jump(after)
        f.start(after)
        at.carry(f.phi((at.values[0], before), (resume, last)))


def _serial(module: Module) -> None:
    """`serial(schedule, frame, lane)`: everything on the caller; nonzero after an error."""
    f = module.function("serial", I32, [("schedule", PTR), ("frame", PTR), ("lane", PTR)],
                        linkage="")
    schedule, frame, lane = f.args
    with _walk(f, schedule, frame) as phase:
        with f.loop(0, f.load(I64, phase, 2), 1, [f.constant(I32, 0)]) as loop:
            code = f.invoke(module.functions["execute"], schedule, frame, phase, loop.index, lane)
            loop.carry(loop.values[0] | code)
        bad, good = f.label("bad"), f.label("good")
        f.branch(f.compare("ne", loop.results[0], 0), bad, good)
        f.start(bad)
        f.give(f.constant(I32, 1))
        f.start(good)
    f.give(f.constant(I32, 0))


def _timed(module: Module) -> None:
    """`timed(schedule, frame, lane, ticks)`: `serial` that adds each step's clock ticks to `ticks`.

    It stops at an error without recording it.
    """
    f = module.function("timed", I32, [("schedule", PTR), ("frame", PTR), ("lane", PTR),
                                       ("ticks", PTR)], linkage="")
    schedule, frame, lane, ticks = f.args
    steps = f.load(PTR, schedule, 2)
    with _walk(f, schedule, frame) as phase:
        first, count, chunks = (f.load(I64, phase, j) for j in range(3))
        with f.loop(0, chunks) as chunk, f.loop(first, first + count) as loop:
            step = f.address(steps, loop.index * STEP_WORDS, I64)
            args, kernel = _at(f, frame, f.load(I64, step, 1)), f.load(PTR, step)
            before = f.clock()
            code = f.invoke_pointer(kernel, I32, args, lane, chunk.index, chunks)
            took = f.clock() - before
            f.store(f.load(I64, ticks, loop.index) + took, ticks, loop.index)
            bad, good = f.label("bad"), f.label("good")
            f.branch(f.compare("ne", code, 0), bad, good)
            f.start(bad)
            f.give(code)
            f.start(good)
    f.give(f.constant(I32, 0))


def _spin_done(module: Module) -> None:
    """Whether DONE reaches `end` within the step spins."""
    f = module.function("spin_done", I1, [("sync", PTR), ("end", I64)])
    sync, end = f.args
    done = _at(f, sync, DONE)
    with f.loop(0, f.load(I64, _at(f, sync, STEP_SPINS))):
        hit, miss = f.label("hit"), f.label("miss")
        f.branch(f.compare("ge", f.atomic_load(I64, done, "acquire"), end), hit, miss)
        f.start(hit)
        f.give(f.constant(I1, 1))
        f.start(miss)
        f.pause()
    f.give(f.constant(I1, 0))


def _wait(module: Module) -> None:
    """Return once DONE has reached `end`: spin, then park."""
    f = module.function("wait", VOID, [("sync", PTR), ("end", I64)])
    sync, end = f.args
    done, waiters, one = _at(f, sync, DONE), _at(f, sync, WAITERS), f.constant(I32, 1)
    with f.until() as reached:
        park = f.label("park")
        f.branch(f.invoke(module.functions["spin_done"], sync, end), reached, park)
        f.start(park)
        f.atomic_update("add", waiters, one, "seq_cst")
        now = f.atomic_load(I64, done, "seq_cst")
        with f.when(f.compare("lt", now, end)):
            f.invoke(module.functions["park"], sync, done, f.cast("trunc", now, I32))
        f.atomic_update("sub", waiters, one, "seq_cst")
    f.give()


_RUN_PARAMETERS = (("schedule", PTR), ("frame", PTR), ("first", I64), ("base", I64),
                   ("tid", I64), ("sync", PTR))


def _take(module: Module) -> None:
    """Claim and run chunks of one phase, own share first, until none is left to claim."""
    f = module.function("take", VOID, [
        ("schedule", PTR), ("frame", PTR), ("phase", PTR), ("number", I64), ("end", I64),
        ("tid", I64), ("sync", PTR)])
    schedule, frame, phase, number, end, tid, sync = f.args
    lanes, chunks = f.load(I64, _at(f, sync, LANES)), f.load(I64, phase, 2)
    mine = _at(f, _lane_record(f, sync, tid), LANE)
    with f.loop(0, lanes) as turn:
        owner = f.binary("urem", tid + turn.index, lanes)
        word = _at(f, _lane_record(f, sync, owner), CLAIM)
        # Rounding up gives a single chunk to lane 0, the caller.
        low, high = (f.binary("udiv", o * chunks + lanes - 1, lanes) for o in (owner, owner + 1))
        with f.until() as empty:
            seen = f.atomic_load(I64, word, "acquire")
            at = f.binary("lshr", seen, INDEX_BITS)
            index = f.select(f.compare("eq", at, number), seen & ((1 << INDEX_BITS) - 1), 0)
            over = f.compare("ge", index, high - low) | f.compare("gt", at, number)
            claim = f.label("claim")
            f.branch(over, empty, claim)
            f.start(claim)
            taken = f.binary("shl", number, INDEX_BITS) + index + 1
            with f.when(f.compare_exchange(word, seen, taken, "acq_rel")):
                code = f.invoke(module.functions["execute"], schedule, frame, phase, low + index,
                                mine)
                with f.when(f.compare("ne", code, 0)):
                    f.atomic_store(number, _at(f, sync, FAILED), "monotonic")
                held = f.invoke(module.functions["held"], frame, phase)
                _count_done(module, f, sync, end, held * f.load(I64, phase, HELD_CHUNKS))
    f.give()


def _count_done(module: Module, f: Function, sync: Value, end: Value, skipped: Value) -> None:
    """Count one chunk and those that it has skipped; the last of a phase wakes who waits for it."""
    done = _at(f, sync, DONE)
    before = f.atomic_update("add", done, skipped + 1, "seq_cst")
    with f.when(f.compare("eq", before + 1, end)):
        waiting = f.atomic_load(I32, _at(f, sync, WAITERS), "seq_cst")
        with f.when(f.compare("ne", waiting, 0)):
            f.invoke(module.functions["wake"], sync, done)


def _run(module: Module) -> None:
    """`run`: one lane's walk through the phases; it returns when the run's work is done."""
    f = module.function("run", VOID, _RUN_PARAMETERS)
    schedule, frame, first, base, tid, sync = f.args
    phases, out, count = f.load(PTR, schedule, 1), f.label("out"), f.load(I64, schedule)
    with f.loop(0, count) as at:
        phase = f.address(phases, at.index * PHASE_WORDS, I64)
        end = base + f.load(I64, phase, 3)
        now = f.atomic_load(I64, _at(f, sync, DONE), "acquire")
        with f.when(f.compare("lt", now, end)):
            f.invoke(module.functions["take"], schedule, frame, phase, first + at.index, end,
                     tid, sync)
            f.invoke(module.functions["wait"], sync, end)
        # Other lanes may be phases ahead: only a failure of this very phase ends the walk here.
        failed, go = f.atomic_load(I64, _at(f, sync, FAILED), "monotonic"), f.label("go")
        over = f.compare("eq", failed, first + at.index) | f.compare("ge", failed, first + count)
        f.branch(over, out, go)
        f.start(go)
    f.jump(out)
    f.start(out)
    f.give()


def _merge(module: Module) -> None:
    """The lowest error of all lanes becomes the result; the lanes are clean again."""
    f = module.function("merge", VOID, [("sync", PTR)])
    sync = f.args[0]
    f.store(f.constant(I64, NO_ERROR), _at(f, sync, RESULT_KEY))
    with f.loop(0, f.load(I64, _at(f, sync, LANES))) as loop:
        lane = _at(f, _lane_record(f, sync, loop.index), LANE)
        key = f.load(I64, _at(f, lane, KEY))
        with f.when(f.compare("lt", key, f.load(I64, _at(f, sync, RESULT_KEY)))):
            for source, target in ((KEY, RESULT_KEY), (CODE, RESULT_CODE), (VALUE, RESULT_VALUE)):
                f.store(f.load(I64, _at(f, lane, source)), _at(f, sync, target))
        f.store(f.constant(I64, NO_ERROR), _at(f, lane, KEY))
    f.give()


def _publish(f: Function, sync: Value, run: list[Value]) -> None:
    """Write the run under an odd epoch, make it even, wake who is parked."""
    module, word = f.module, _at(f, sync, EPOCH)
    epoch = f.atomic_load(I64, word, "monotonic") + 2
    f.atomic_store(epoch - 1, word, "monotonic")
    f.fence("release")
    for value, offset in zip(run, (RUN_SCHEDULE, RUN_FRAME, RUN_FIRST, RUN_BASE), strict=True):
        f.atomic_store(value, _at(f, sync, offset), "monotonic")
    f.atomic_update("xchg", word, epoch, "seq_cst")
    parked = f.atomic_load(I32, _at(f, sync, PARKED), "seq_cst")
    with f.when(f.compare("ne", parked, 0)):
        f.invoke(module.functions["wake"], sync, word)


def _start(module: Module) -> None:
    """`start(sync, schedule, frame)`: a whole run, from its caller; nonzero after an error."""
    f = module.function("start", I32, [("sync", PTR), ("schedule", PTR), ("frame", PTR)],
                        linkage="")
    sync, schedule, frame = f.args
    first = f.load(I64, _at(f, sync, NEXT_FIRST))
    f.store(first + f.load(I64, schedule), _at(f, sync, NEXT_FIRST))
    base = f.atomic_load(I64, _at(f, sync, DONE), "monotonic")
    _publish(f, sync, [schedule, frame, first, base])
    f.invoke(module.functions["run"], schedule, frame, first, base, f.constant(I64, 0), sync)
    failed = f.compare("ge", f.atomic_load(I64, _at(f, sync, FAILED), "monotonic"), first)
    with f.when(failed):
        f.invoke(module.functions["merge"], sync)
    f.give(f.cast("zext", failed, I32))


def _stop(module: Module) -> None:
    """`stop(sync)`: a run without a schedule, at which workers return."""
    f = module.function("stop", VOID, [("sync", PTR)], linkage="")
    null, zero = f.constant(PTR, 0), f.constant(I64, 0)
    _publish(f, f.args[0], [null, null, zero, zero])
    f.give()


def _next_epoch(module: Module) -> None:
    """The first complete epoch other than `seen`: spin, then park."""
    f = module.function("next_epoch", I64, [("sync", PTR), ("seen", I64)])
    sync, seen = f.args
    word, parked, one = _at(f, sync, EPOCH), _at(f, sync, PARKED), f.constant(I32, 1)
    with f.until() as never:
        with f.loop(0, f.load(I64, _at(f, sync, RUN_SPINS))):
            now = f.atomic_load(I64, word, "acquire")
            fresh = f.compare("ne", now, seen) & f.compare("eq", now & 1, 0)
            hit, miss = f.label("hit"), f.label("miss")
            f.branch(fresh, hit, miss)
            f.start(hit)
            f.give(now)
            f.start(miss)
            f.pause()
        f.atomic_update("add", parked, one, "seq_cst")
        now = f.atomic_load(I64, word, "seq_cst")
        stale = f.compare("eq", now, seen) | f.compare("ne", now & 1, 0)
        with f.when(stale):
            f.invoke(module.functions["park"], sync, word, f.cast("trunc", now, I32))
        f.atomic_update("sub", parked, one, "seq_cst")
    del never
    f.line("unreachable")


def _worker(module: Module) -> None:
    """`worker(sync, tid)`: a lane's life, until `stop`."""
    f = module.function("worker", VOID, [("sync", PTR), ("tid", I64)], linkage="")
    sync, tid = f.args
    lane = _at(f, _lane_record(f, sync, tid), LANE)
    active, seen = _at(f, lane, ACTIVE), _at(f, lane, SEEN)
    with f.until() as stopped:
        epoch = f.invoke(module.functions["next_epoch"], sync, f.load(I64, seen))
        f.atomic_store(epoch, active, "seq_cst")
        schedule, frame = (f.atomic_load(PTR, _at(f, sync, o), "monotonic")
                           for o in (RUN_SCHEDULE, RUN_FRAME))
        first, base = (f.atomic_load(I64, _at(f, sync, o), "monotonic")
                       for o in (RUN_FIRST, RUN_BASE))
        f.fence("acquire")
        again = f.atomic_load(I64, _at(f, sync, EPOCH), "seq_cst")
        whole, leave, again_label = f.label("whole"), f.label("work"), f.label("leave")
        f.branch(f.compare("eq", again, epoch), whole, again_label)
        f.start(whole)
        f.branch(f.compare("eq", schedule, 0), stopped, leave)
        f.start(leave)
        f.invoke(module.functions["run"], schedule, frame, first, base, tid, sync)
        f.store(epoch, seen)
        f.jump(again_label)
        f.start(again_label)
        f.atomic_store(f.constant(I64, 0), active, "release")
    f.give()


def _oldest(module: Module) -> None:
    """`oldest(sync)`: the lowest epoch that a worker may still read; the maximum if none."""
    f = module.function("oldest", I64, [("sync", PTR)], linkage="")
    sync = f.args[0]
    most = f.constant(I64, NO_ERROR)
    with f.loop(0, f.load(I64, _at(f, sync, LANES)), 1, [most]) as loop:
        lane = _at(f, _lane_record(f, sync, loop.index), LANE)
        now = f.atomic_load(I64, _at(f, lane, ACTIVE), "seq_cst")
        now = f.select(f.compare("eq", now, 0), most, now)
        loop.carry(f.minimum(loop.values[0], now))
    f.give(loop.results[0])


