"""Turns between threads: one runs at a time, and none changes where the caller may run."""

import asyncio
import contextvars
import os
import threading
from functools import partial

import pytest

from ottla.sim import threads as module
from ottla.sim.threads import Threads


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr(module, "greenlet", None)
    threads = Threads()
    yield threads
    threads.close()


@pytest.fixture(params=["threads", "greenlets"])
def either(request, monkeypatch):
    if request.param == "threads":
        monkeypatch.setattr(module, "greenlet", None)
    elif module.greenlet is None:
        pytest.skip("greenlet is not installed")
    threads = Threads()
    yield threads
    threads.close()


def test_a_job_and_its_caller_take_turns(either):
    threads = either
    order = []
    thread = threads.take()

    def job():
        order.append("job begins")
        thread.stop()
        order.append("job goes on")

    thread.run(job)
    order.append("caller")
    thread.run()
    assert order == ["job begins", "caller", "job goes on"]
    threads.give(thread)
    assert threads.take() is thread
    thread.run(lambda: order.append("another job"))
    assert order[3:] == ["another job"]
    threads.give(thread)


def test_several_jobs_stop_and_go_on_in_any_order(either):
    order = []
    running = [either.take() for _ in range(3)]
    depth = contextvars.ContextVar("depth", default=0)

    def job(number):
        def deeper(left):
            depth.set(number)
            if left:
                deeper(left - 1)
            running[number].stop()
            order.append((number, left, depth.get()))

        deeper(2)

    for number, thread in enumerate(running):
        thread.run(partial(contextvars.copy_context().run, job, number))
    turns = (2, 0, 1, 1, 0, 2, 0, 1, 2)
    for number in turns:
        running[number].run()
    left = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert order == [(number, left[i], number) for i, number in enumerate(turns)]
    assert depth.get() == 0
    for thread in running:
        either.give(thread)


def test_a_job_sees_no_event_loop_as_in_a_worker_of_a_real_broker(either):
    """What asks there for the running loop fails on a real broker, so it has to fail here."""
    seen = []

    def job():
        for _ in range(2):
            try:
                seen.append(asyncio.get_running_loop())
            except RuntimeError:
                seen.append(None)
            thread.stop()

    async def main():
        loop = asyncio.get_running_loop()
        thread.run(job)
        assert asyncio.get_running_loop() is loop
        thread.run()
        assert asyncio.get_running_loop() is loop

    thread = either.take()
    asyncio.run(main())
    thread.run()
    assert seen == [None, None]
    either.give(thread)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no such call")
def test_a_turn_is_on_one_processor_and_the_caller_may_run_everywhere_after_it(threads):
    before = os.sched_getaffinity(0)
    if len(before) == 1:
        pytest.skip("there is one processor only")
    thread = threads.take()
    seen = []

    def job():
        for _ in range(3):
            caller = threading.main_thread().native_id
            seen.append((os.sched_getaffinity(0), os.sched_getaffinity(caller)))
            thread.stop()

    thread.run(job)
    for processor in sorted(before)[:2]:
        assert os.sched_getaffinity(0) == before
        os.sched_setaffinity(0, {processor})  # the caller is moved meanwhile
        os.sched_setaffinity(0, before)
        thread.run()
    thread.run()
    threads.give(thread)
    assert os.sched_getaffinity(0) == before
    assert len(seen) == 3
    assert all(of_job == of_caller and len(of_job) == 1 for of_job, of_caller in seen)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no such call")
def test_a_caller_that_may_use_one_processor_stays_there(monkeypatch):
    monkeypatch.setattr(module, "greenlet", None)
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        threads = Threads()
        thread = threads.take()
        thread.run(lambda: None)
        threads.give(thread)
        threads.close()
        assert os.sched_getaffinity(0) == one
    finally:
        os.sched_setaffinity(0, before)
