"""The worker runtime: equal results for any number of threads, under load, after errors, forks."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests import source
from tests.codegen.workload import CODE, SIZE, Workload, code, guarded, hogs
from treadle.codegen.llvm import processors, worker
from treadle.codegen.llvm.jit import assembly, build
from treadle.codegen.llvm.kernel import Kernel, addresses, export
from treadle.codegen.llvm.runtime import KernelFault, ThreadPool, aligned, shared_pool
from treadle.codegen.llvm.schedule import MAX_CHUNKS, Frame, Phase, Schedule, Step
from treadle.codegen.llvm.target import AVX2, NEON, host
from treadle.codegen.llvm.text import I64, PTR, Module

PARKING = ["pthread"] + ["futex"] * (sys.platform == "linux")
RUNS = 10_000


def variants(seed: int, count: int = 12) -> list[tuple[Workload, Workload]]:
    """Pairs of equal workloads of random shapes, a quarter of which fail somewhere."""
    pick = random.Random(seed)
    made = []
    for _ in range(count):
        chunks = tuple(pick.choice([1, 1, 2, 3, 5, 8, 13, 40]) for _ in range(pick.randint(1, 9)))
        fails = pick.randrange(len(chunks)) if pick.random() < 0.25 else None
        limit, guards = pick.randrange(4), guarded(pick, chunks)
        made.append((Workload(chunks, fails, limit, guards),
                     Workload(chunks, fails, limit, guards)))
    return made


def compare_runs(pool: ThreadPool, runs: int, seed: int = 0) -> None:
    """Random schedules on a pool and on one thread see the same bytes and the same faults."""
    pairs, pick = variants(seed), random.Random(seed + 1)
    for _ in range(runs):
        one, many = pick.choice(pairs)
        assert many.outcome(pool.run) == one.outcome(pool.run_serial)


def test_a_serial_run_computes_what_numpy_does() -> None:
    ran, expected = Workload((4, 7, 1, 96, 100)), Workload((4, 7, 1, 96, 100))
    for _ in range(3):
        ran.outcome(ThreadPool(1).run)
        expected.expect()
        np.testing.assert_array_equal(ran.arrays, expected.arrays)


@pytest.mark.parametrize("threads", [1, 3])
def test_guards_hold_back_what_numpy_leaves_out(threads: int) -> None:
    pick, pool, skipped = random.Random(5), ThreadPool(threads), 0
    for _ in range(100):
        chunks = tuple(pick.choice([1, 1, 1, 3, 9]) for _ in range(pick.randint(2, 9)))
        guards = guarded(pick, chunks)
        ran, expected = (Workload(chunks, guards=guards) for _ in range(2))
        for _ in range(4):
            ran.outcome(pool.run)
            expected.expect()
            np.testing.assert_array_equal(ran.arrays, expected.arrays)
            np.testing.assert_array_equal(ran.flags, expected.flags)
            skipped += sum(bool(ran.flags[at]) is not value for at, (value, _) in guards.items())
    assert skipped > 100
    pool.close()


@pytest.mark.parametrize("parking", PARKING)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_results_do_not_depend_on_threads(threads: int, parking: str) -> None:
    pool = ThreadPool(threads, parking=parking)
    compare_runs(pool, RUNS, threads)
    pool.close()


@pytest.mark.parametrize("threads", [2, 4])
def test_results_do_not_depend_on_threads_beside_busy_processes(threads: int) -> None:
    pool = ThreadPool(threads)
    with hogs(2):
        compare_runs(pool, RUNS // 5, threads)
    pool.close()


def test_threads_that_park_at_once_lose_no_wake_up() -> None:
    pool = ThreadPool(3, run_spins=1, step_spins=1)
    compare_runs(pool, RUNS)
    pool.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_lowest_node_and_chunk_win_and_later_steps_are_skipped(threads: int) -> None:
    own = code()
    out = np.zeros((2, SIZE), np.int64)
    mix = [out[0].ctypes.data, out[1].ctypes.data]
    frame = Frame([5, 2, *mix])
    phases = [Phase((Step(own.guard, 0, 9), Step(own.guard, 1, 4)), 8),
              Phase((Step(own.mix, 2, 1),), 4)]
    schedule, pool = Schedule(phases, own.program), ThreadPool(threads)
    for _ in range(50):
        with pytest.raises(KernelFault, match="node 4 failed with code 7 .value 28.") as caught:
            pool.run(schedule, frame)
        assert (caught.value.node, caught.value.code, caught.value.value) == (4, CODE, 28)
    assert not out[1].any()
    frame.words[0] = frame.words[1] = 8
    pool.run(schedule, frame)
    assert out[1].tolist() == list(range(SIZE))
    pool.close()


def test_the_caller_can_finish_without_any_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPool(4)
    monkeypatch.setattr(pool._crew, "begin", lambda: None)
    compare_runs(pool, 200)


def test_a_system_without_room_for_threads_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    compare_runs(ThreadPool(4), 50)


def test_many_callers_share_a_pool() -> None:
    pool, failures = ThreadPool(3), []

    def work(seed: int) -> None:
        try:
            compare_runs(pool, RUNS // 5, seed)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures
    pool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_pool_works_in_a_forked_child_and_still_in_the_parent() -> None:
    pool = ThreadPool(3)
    compare_runs(pool, 50)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            compare_runs(pool, 50, 5)
            status = 0 if len(pool._crew.threads) == 2 else 2
            pool.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    compare_runs(pool, 50)
    pool.close()


def workers() -> int:
    return sum(thread.name.startswith("treadle-") for thread in threading.enumerate())


def test_threads_end_with_the_pool() -> None:
    before = workers()
    pool = ThreadPool(3)
    compare_runs(pool, 5)
    assert workers() == before + 2
    pool.close()
    pool.close()
    assert workers() == before
    compare_runs(pool, 5)
    assert workers() == before
    pool = ThreadPool(2)
    compare_runs(pool, 5)
    del pool
    gc.collect()
    assert workers() == before


def test_a_process_with_parked_and_with_spinning_workers_exits() -> None:
    script = ("from tests.codegen.workload import Workload\n"
              "from treadle.codegen.llvm.runtime import ThreadPool\n"
              "import time\n"
              "pools = [ThreadPool(3), ThreadPool(2, run_spins=10**12)]\n"
              "for pool in pools: Workload((8, 8)).outcome(pool.run)\n"
              "time.sleep(0.05)\n")
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert time.monotonic() - started < 60


def test_schedules_die_once_no_worker_can_read_them() -> None:
    pool = ThreadPool(2)
    for _ in range(500):
        Workload((4, 4)).outcome(pool.run)
    time.sleep(0.02)
    Workload((4, 4)).outcome(pool.run)
    assert len(pool._crew.retired) <= 2
    pool.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_every_lane_has_scratch_of_its_own(threads: int) -> None:
    """Chunks write, wait for the others, and read back what they wrote."""
    words, chunks = 1000, 12
    module = Module(host())
    kernel = Kernel(module, "scratchy", [("out", PTR)])
    f, mine = kernel.function, kernel.scratch()
    with f.loop(0, words) as at:
        f.store(at.index * kernel.chunk, mine, at.index)
    with f.loop(0, words, 1, [f.constant(I64, 0)]) as at:
        at.carry(at.values[0] + f.load(I64, mine, at.index))
    f.store(at.results[0], kernel["out"], kernel.chunk)
    kernel.finish()
    export(module, [kernel])
    program = build(module.text(), host())
    out = np.zeros(chunks, np.int64)
    schedule = Schedule([Phase((Step(addresses(program, 1)[0], 0, 0),), chunks)], program,
                        scratch=8 * words)
    pool = ThreadPool(threads)
    for _ in range(20):
        out[:] = 0
        pool.run(schedule, Frame([out.ctypes.data]))
        assert out.tolist() == [c * words * (words - 1) // 2 for c in range(chunks)]
    pool.close()


def test_several_lanes_take_part() -> None:
    module = Module(host())
    kernel = Kernel(module, "who", [("out", PTR)])
    f = kernel.function
    with f.loop(0, 20_000):
        f.pause()
    f.store(f.cast("ptrtoint", kernel.lane, I64), kernel["out"], kernel.chunk)
    kernel.finish()
    export(module, [kernel])
    program = build(module.text(), host())
    out = np.zeros(8, np.int64)
    schedule = Schedule([Phase((Step(addresses(program, 1)[0], 0, 0),), 8)], program)
    pool = ThreadPool(2)
    lanes: set[int] = set()
    for _ in range(1000):
        pool.run(schedule, Frame([out.ctypes.data]))
        lanes.update(out.tolist())
        if len(lanes) > 1:
            break
    assert len(lanes) == 2
    pool.close()


def test_a_profile_says_where_the_time_goes() -> None:
    module = Module(host())
    kernel = Kernel(module, "pauses", [("turns", I64)])
    with kernel.function.loop(0, kernel["turns"]):
        kernel.function.pause()
    kernel.finish()
    export(module, [kernel])
    program = build(module.text(), host())
    pauses = addresses(program, 1)[0]
    schedule = Schedule([Phase((Step(pauses, 0, 0), Step(pauses, 1, 1)), 5)], program)
    seconds = ThreadPool(1).profile(schedule, Frame([100, 100_000]))
    assert seconds.shape == (2,) and 0 < seconds[0] < seconds[1] < 10
    failing = Workload((3, 4), fails_at=1)
    with pytest.raises(KernelFault, match="node 3"):
        ThreadPool(1).profile(failing.schedule, failing.frame)


def test_an_empty_schedule_runs() -> None:
    ThreadPool(2).run(Schedule([], code().program), Frame([]))


def test_the_example_of_the_documentation_runs() -> None:
    page = (source.ROOT / "docs/native-code.md").read_text("utf-8")
    exec(compile(page.split("```python\n")[1].split("```")[0], "native-code.md", "exec"), {})


def test_limits_are_errors() -> None:
    with pytest.raises(ValueError, match=f"phase 0 has {MAX_CHUNKS + 1} chunks"):
        Workload((MAX_CHUNKS + 1,))
    for chunks, guards in (((2, 1), {0: (True, 1)}), ((1, 1), {0: (True, 2)})):
        with pytest.raises(ValueError, match="phase 0 of 2 has . chunks and a guard of . phases"):
            Workload(chunks, guards=guards)
    with pytest.raises(ValueError, match="a pool of 0 threads"):
        ThreadPool(0)
    many = Workload((MAX_CHUNKS,))
    one = Workload((1,))
    assert many.outcome(ThreadPool(2).run)[0] == one.outcome(ThreadPool(1).run)[0]


def test_pools_are_shared_by_size() -> None:
    assert shared_pool(2) is shared_pool(2)
    assert shared_pool(2) is not shared_pool(3)


@pytest.mark.parametrize("on", [AVX2, NEON], ids=lambda t: t.cpu)
@pytest.mark.parametrize("parking", ["futex", "pthread"])
def test_the_runtime_compiles_for_every_system(on: object, parking: str) -> None:
    assert isinstance(on, type(AVX2))
    assert "worker" in assembly(worker.runtime_text(on, parking), on)


def test_memory_is_aligned() -> None:
    assert all(aligned(n, 128).ctypes.data % 128 == 0 for n in range(1, 50))


def test_the_default_number_of_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5}, raising=False)
    groups, tree = tmp_path / "cgroup", tmp_path / "sys"
    assert processors.usable_cores(groups, tree) == 4
    for number, siblings in ((0, "0,4"), (1, "1,5"), (4, "0,4"), (5, "1,5")):
        place = tree / f"devices/system/cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(siblings + "\n")
    assert processors.usable_cores(groups, tree) == 2
    groups.write_text("0::/a/b\n")
    (tree / "fs/cgroup/a").mkdir(parents=True)
    (tree / "fs/cgroup/a/cpu.max").write_text("50000 100000\n")
    assert processors.usable_cores(groups, tree) == 1
    (tree / "fs/cgroup/a/cpu.max").write_text("max 100000\n")
    assert processors.usable_cores(groups, tree) == 2
    groups.write_text("3:cpu,cpuacct:/c\n")
    (tree / "fs/cgroup/cpu/c").mkdir(parents=True)
    (tree / "fs/cgroup/cpu/c/cpu.cfs_quota_us").write_text("90000")
    (tree / "fs/cgroup/cpu/c/cpu.cfs_period_us").write_text("100000")
    assert processors.usable_cores(groups, tree) == 1
    monkeypatch.setenv("TREADLE_THREADS", "7")
    assert processors.default_threads() == 7


def test_what_one_thread_can_do_wakes_no_other() -> None:
    before = workers()
    pool, small = ThreadPool(3), Workload((1, 1, 1))
    assert pool.runner(small.schedule) == pool.run_serial
    for _ in range(10):
        small.outcome(pool.run)
    assert workers() == before
    large = Workload((2,))
    assert pool.runner(large.schedule) == pool.run
    large.outcome(pool.run)
    assert workers() == before + 2
    pool.close()
