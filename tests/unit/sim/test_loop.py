"""Nodes run asyncio over virtual time; a killed one never runs again."""

import asyncio
import contextvars

import pytest

from ottla.sim.scheduler import DeadlockError, LivelockError, Scheduler
from ottla.sim.world import Simulation, simulate


def test_asyncio_works_and_takes_no_time():
    async def main(simulation, node):
        queue = asyncio.Queue(maxsize=1)
        seen = []

        async def consume():
            while (item := await queue.get()) is not None:
                seen.append((item, asyncio.get_running_loop().time()))

        consumer = asyncio.create_task(consume())
        for i in range(3):
            await asyncio.sleep(1000)
            await queue.put(i)
        await queue.put(None)
        await consumer
        assert seen == [(0, 1000.0), (1, 2000.0), (2, 3000.0)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        assert simulation.now == 3005.0
        assert await asyncio.gather(asyncio.sleep(2, "a"), asyncio.sleep(1, "b")) == ["a", "b"]
        done, _ = await asyncio.wait([asyncio.create_task(asyncio.sleep(1))])
        assert len(done) == 1
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
        return "result"

    assert simulate(1, main) == "result"


def test_callbacks_of_one_instant_run_in_their_order():
    async def main(simulation, node):
        loop = asyncio.get_running_loop()
        order = []
        loop.call_later(1, order.append, "later")
        loop.call_at(loop.time() + 1, order.append, "at")
        loop.call_soon(order.append, "soon")
        loop.call_later(1, order.append, "cancelled").cancel()
        loop.call_soon_threadsafe(order.append, "thread")
        await asyncio.sleep(2)
        assert order == ["soon", "thread", "later", "at"]

    simulate(1, main)


def test_context_variables_follow_tasks():
    variable = contextvars.ContextVar("variable", default="outer")

    async def main(simulation, node):
        async def inner():
            await asyncio.sleep(1)
            return variable.get()

        variable.set("set")
        task = asyncio.create_task(inner())
        variable.set("changed")
        assert await task == "set"

    simulate(1, main)


def test_a_killed_node_runs_no_finally_and_says_nothing(recwarn, caplog):
    ran = []

    async def main(world):
        async def child():
            try:
                await asyncio.sleep(5)
            finally:
                ran.append("child")

        task = asyncio.create_task(child())
        asyncio.get_running_loop().call_later(3, ran.append, "timer")
        try:
            await task
        finally:
            ran.append("main")

    simulation = Simulation(1)
    node = simulation.node("n")
    node.boot(main)
    simulation.run_for(1)
    assert node.up
    node.crash()
    simulation.run_for(100)
    assert ran == []
    assert not node.up
    simulation.close()
    assert not caplog.records
    assert not list(recwarn)
    assert "timer" not in ran


def test_a_rebooted_node_starts_over_with_its_disk_and_a_new_clock_start():
    starts = []

    async def main(world):
        path = "/data/file"
        world.files.make_dirs("/data")
        starts.append((world.files.exists(path), world.clock.monotonic()))
        world.files.write_atomic(path, b"x")
        await asyncio.sleep(1000)

    with Simulation(1) as simulation:
        node = simulation.node("n")
        node.boot(main)
        simulation.run_for(1)
        old = node.world.files
        node.crash()
        with pytest.raises(OSError, match="dead"):
            old.exists("/data/file")
        node.boot()
        simulation.run_for(1)
    assert [exists for exists, _ in starts] == [False, True]
    assert starts[0][1] != starts[1][1]


def test_a_paused_node_catches_up_in_order():
    ticks = []

    async def main(world):
        for i in range(5):
            await asyncio.sleep(1)
            ticks.append((i, world.clock.monotonic()))

    with Simulation(1) as simulation:
        node = simulation.node("n")
        node.boot(main)
        simulation.run_for(1.5)
        node.pause()
        simulation.run_for(100)
        assert len(ticks) == 1
        node.resume()
        simulation.run_for(10)
    assert [i for i, _ in ticks] == [0, 1, 2, 3, 4]
    assert ticks[1][1] - ticks[0][1] == pytest.approx(100.5)


def test_wall_clock_jumps_leave_the_monotonic_one_alone():
    """Fault F23."""

    async def main(simulation, node):
        clock = node.world.clock
        wall, steady = clock.wall_ms(), clock.monotonic()
        node.jump_wall_clock(-3_600_000)
        assert clock.wall_ms() == wall - 3_600_000
        await asyncio.sleep(2)
        assert clock.monotonic() - steady == 2
        assert clock.wall_ms() == wall - 3_600_000 + 2000

    simulate(1, main)


def test_waiting_for_nothing_is_a_deadlock():
    async def main(simulation, node):
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        simulate(1, main)


def test_spinning_is_a_livelock(monkeypatch):
    monkeypatch.setattr("ottla.sim.scheduler.MAX_STEPS_AT_ONCE", 1000)

    async def main(simulation, node):
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        simulate(1, main)


def test_endless_runs_end():
    scheduler = Scheduler(max_steps=100)

    def again():
        scheduler.after(1.0, again)

    again()
    with pytest.raises(LivelockError):
        scheduler.run_until(lambda: False)


def test_uncaught_errors_are_kept_as_failures():
    with Simulation(1) as simulation:
        node = simulation.node("n")

        async def main(world):
            asyncio.get_running_loop().call_soon(lambda: 1 // 0)
            await asyncio.sleep(1)

        node.boot(main)
        simulation.run_for(2)
        (failure,) = simulation.failures()
        assert "ZeroDivisionError" in failure
        assert not node.up


def test_workers_run_later_and_give_errors_to_the_caller():
    async def main(simulation, node):
        workers = node.world.workers
        before = simulation.now
        assert await workers.run(divmod, 7, 3) == (2, 1)
        assert simulation.now > before
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 1, 0)

    simulate(1, main)


def test_a_crash_forgets_the_work_of_workers():
    done = []

    async def main(world):
        await world.workers.run(done.append, 1)

    with Simulation(1) as simulation:
        node = simulation.node("n")
        node.boot(main)
        simulation.scheduler.step()  # the task's first step: the work is handed over
        node.crash()
        simulation.run_for(10)
    assert done == []


def test_workers_take_turns_in_simulated_time():
    """A worker stops at a file operation with the lock held; another waits and the loop goes on."""

    async def main(simulation, node):
        workers, files = node.workers, node.files
        workers.interleave = True
        file = files.open("/a", create=True)
        file.pwrite([b"x" * 100], 0)
        lock = file.worker_lock()
        order = []

        def work(name):
            with lock:
                order.append(f"{name} begins")
                for position in range(50):
                    file.pread(1, position)
                order.append(f"{name} ends")

        calls = [asyncio.create_task(workers.run(work, name)) for name in "abc"]
        turns = 0
        while not all(call.done() for call in calls):
            turns += 1
            await asyncio.sleep(0.001)
        assert turns > 20
        names = [entry.split()[0] for entry in order]
        assert names[::2] == names[1::2]
        assert sorted(names[::2]) == ["a", "b", "c"]
        assert order[::2] == [f"{name} begins" for name in names[::2]]

    simulate(3, main)


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_does_not_stop_while_it_holds_a_mutex(seed):
    """The event loop takes the same mutex, and would wait for ever for a call that has stopped."""

    async def main(simulation, node):
        workers, files = node.workers, node.files
        workers.interleave = True
        files.open("/a", create=True).close()
        mutex, inner = files.mutex(), files.mutex()
        inside = []

        def work():
            for _ in range(20):
                files.exists("/a")
                with mutex:
                    inside.append("file")
                    files.rename("/a", "/b")
                    with inner:
                        files.rename("/b", "/c")
                    files.rename("/c", "/a")
                    inside.pop()
                files.listdir("/")

        call = asyncio.create_task(workers.run(work))
        turns = 0
        while not call.done():
            turns += 1
            assert not inside
            with mutex, inner:
                assert files.listdir("/") == ["a"]
            await asyncio.sleep(0.0002)
        await call
        assert turns > 20, "the worker's call has to stop between the mutexes"

    simulate(seed, main)


def test_a_mutex_that_is_taken_is_told_and_not_waited_for():
    """In one thread, as here, whoever waits for it would wait for ever."""

    async def main(simulation, node):
        mutex = node.files.mutex()
        with mutex:
            with pytest.raises(AssertionError, match="mutex"), mutex:
                pass
        with mutex:
            pass

    simulate(1, main)


def test_a_nodes_time_goes_on_by_what_its_callbacks_cost():
    """F9: what waits behind slow callbacks waits for all of them; no clock of a node goes back."""
    with Simulation(1) as simulation:
        node = simulation.node("here")
        other: list[float] = []

        async def main(world):
            loop = asyncio.get_running_loop()
            times = [loop.time()]
            loop.call_soon(simulation.scheduler.spend, 0.010)
            loop.call_soon(simulation.scheduler.spend, 0.010)
            for _ in range(5):
                simulation.scheduler.spend(0.010)
                await asyncio.sleep(0)
                times.append(loop.time())
            return times

        simulation.scheduler.at(0.035, lambda: other.append(simulation.now))
        times = node.call(main(node.world))
        assert times == pytest.approx([0.0, 0.03, 0.04, 0.05, 0.06, 0.07])
        assert other == [0.035]


def test_a_workers_call_sees_no_event_loop_and_ends_with_its_process():
    """What asks there for the running loop fails on a real broker, so it has to fail here."""
    order = []

    def job(files, number):
        for turn in range(3):
            try:
                order.append(asyncio.get_running_loop())
            except RuntimeError:
                order.append((number, turn))
            files.write(f"/{number}", b"x")

    with Simulation(1, interleave=True) as simulation:
        node = simulation.node("here")

        async def main(world):
            loop = asyncio.get_running_loop()
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(world.workers.run(job, world.files, number))
            assert asyncio.get_running_loop() is loop

        node.call(main(node.world))
        assert sorted(order) == [(n, turn) for n in range(20) for turn in range(3)]
        assert order != sorted(order), "they took turns"
        order.clear()
        node.loop.create_task(main(node.world))
        simulation.run_until(lambda: bool(node.workers.calls))
        node.crash()
        assert not node.workers.calls
        count = len(order)
        node.boot(main)
        simulation.run_until(node.task.done)
        assert len(order) == count + 60
