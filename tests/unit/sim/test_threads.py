"""Turns between threads: one runs at a time, and none changes where the caller may run."""

import os
import threading

import pytest

from ottla.sim.threads import Threads


@pytest.fixture
def threads():
    threads = Threads()
    yield threads
    threads.close()


def test_a_job_and_its_caller_take_turns(threads):
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
    threads.give(thread)


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
def test_a_caller_that_may_use_one_processor_stays_there():
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
