"""The worker threads of a process: all of them from the start, or one line that says why not."""

import asyncio
import threading

import pytest

from ottla.model.errors import StartupError
from ottla.net.runtime import WORKER_THREADS, RealWorkers


def test_no_call_needs_a_thread_that_is_not_there(monkeypatch):
    before = set(threading.enumerate())  # those of other tests may end at any moment
    workers = RealWorkers()
    started = [thread.name for thread in threading.enumerate() if thread not in before]
    assert sum(name.startswith("ottla-worker") for name in started) == WORKER_THREADS

    def start(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    async def many():
        return await asyncio.gather(*[workers.run(pow, 2, n) for n in range(100)])

    try:
        assert asyncio.run(many()) == [2**n for n in range(100)]
    finally:
        workers.close()
    with pytest.raises(StartupError, match=r"do not start \(can't start new thread\): raise the"):
        RealWorkers()
