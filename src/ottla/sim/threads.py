"""Threads that run only while everything else stands still, used again and again.

Invariants: of all threads of a simulation one runs at a time, the others wait for their turn;
`Threads.close` ends those that are idle, so a process that forks later has none. Where the system
lets a thread choose its processor, a turn is handed over on one processor: waking a thread on
another one, and moving there what the caches hold, costs more processor time than most turns take.
In between the simulation runs on whichever processor the system gives it, so several simulations do
not crowd onto one. Where the package greenlet is installed, a greenlet stands for each thread: a
turn to and fro takes one microsecond instead of sixteen, and nothing else is different.
"""

import ctypes
import os
import threading
from asyncio.events import _get_running_loop as get_running_loop
from asyncio.events import _set_running_loop as set_running_loop
from collections.abc import Callable, Iterable
from typing import Protocol

try:
    import greenlet
except ImportError:  # threads do without it
    greenlet = None

STUCK_S = 120.0
"""No job takes longer in real time, unless it waits for something that is not simulated."""


def _processor_finder() -> Callable[[], int]:
    """Return what tells the processor of the calling thread; -1 where that is not known."""
    if not hasattr(os, "sched_setaffinity"):
        return lambda: -1
    find: Callable[[], int] = getattr(ctypes.PyDLL(None), "sched_getcpu", lambda: -1)
    return find


_processor = _processor_finder()


def _allow(thread_id: int, processors: Iterable[int]) -> None:
    """Have a thread run on these processors only; 0 is the calling thread."""
    os.sched_setaffinity(thread_id, processors)


class Worker(Protocol):
    """What a worker's call runs in, while everything else stands still."""

    def run(self, job: Callable[[], object] | None = None) -> None:
        """Let it begin a job, or go on with it; return when it stops or has ended."""

    def stop(self) -> None:
        """Stop here until `run` is called again (called by the job)."""

    def end(self) -> None:
        """Let go of it; it has no job."""


class LockStepGreenlet:
    """A stack of its own in the caller's thread, with no event loop in it, as a thread has none."""

    __slots__ = ("_caller", "_greenlet", "_job")

    def __init__(self) -> None:
        self._greenlet = greenlet.greenlet(self._main)
        self._caller = greenlet.getcurrent()
        self._job: Callable[[], object] | None = None

    def run(self, job: Callable[[], object] | None = None) -> None:
        if job is not None:
            self._job = job
        self._caller = greenlet.getcurrent()
        loop = get_running_loop()
        set_running_loop(None)
        try:
            self._greenlet.switch()
        finally:
            set_running_loop(loop)

    def stop(self) -> None:
        self._caller.switch()

    @property
    def ended(self) -> bool:
        return bool(self._greenlet.dead)

    def end(self) -> None:
        if self._greenlet:  # it has begun and not ended
            self._greenlet.parent = greenlet.getcurrent()
            self.run()

    def _main(self) -> None:
        while self._job is not None:
            job, self._job = self._job, None
            job()
            del job
            self._caller.switch()


class LockStepThread:
    """A thread that goes on when `run` says so, and whose `run` returns when it stops again."""

    __slots__ = ("_allowed", "_back", "_go", "_id", "_job", "_on")

    def __init__(self, allowed: Iterable[int] = ()) -> None:
        self._allowed = allowed
        """the processors of whoever calls `run`; none if it stays where it is"""
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Callable[[], object] | None = None
        self._id: int | None = None
        """the system's number of the thread, once it has run"""
        self._on = -1
        """the processor that it may run on"""

    def run(self, job: Callable[[], object] | None = None) -> None:
        """Let the thread begin a job, or go on with it; return when it stops or has ended."""
        if job is not None:
            self._job = job
        if not self._allowed:
            self._switch()
            return
        here = _processor()
        _allow(0, (here,))
        try:
            if self._id is not None and self._on != here:
                _allow(self._id, (here,))
            self._on = here  # a thread that is started here may run where its creator may
            self._switch()
        finally:
            _allow(0, self._allowed)

    def _switch(self) -> None:
        if self._id is None:
            thread = threading.Thread(target=self._main, daemon=True)
            thread.start()
            self._id = thread.native_id
        self._go.release()
        if not self._back.acquire(timeout=STUCK_S):
            raise SystemExit("a worker's call waits for something that is not simulated")

    def stop(self) -> None:
        """Stop here until `run` is called again (called by the job)."""
        self._back.release()
        self._go.acquire()

    def end(self) -> None:
        """End the thread; it has no job."""
        if self._id is not None:
            self._go.release()
            self._back.acquire()

    def _main(self) -> None:
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            if job is None:
                self._back.release()
                return
            job()
            del job
            self._back.release()


def _to_choose_from() -> set[int]:
    """Return the processors among which this thread may choose; none if it may not, or has one."""
    if _processor() < 0:
        return set()
    try:
        allowed = os.sched_getaffinity(0)
        _allow(0, allowed)
    except OSError:  # a sandbox that forbids it
        return set()
    return allowed if len(allowed) > 1 else set()


class Threads:
    """A simulation's threads that have nothing to do."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._greenlets = greenlet is not None
        self._allowed = set() if self._greenlets else _to_choose_from()

    def take(self) -> Worker:
        if self._idle:
            return self._idle.pop()
        return LockStepGreenlet() if self._greenlets else LockStepThread(self._allowed)

    def give(self, thread: Worker) -> None:
        """Keep a thread whose job has ended."""
        self._idle.append(thread)

    def close(self) -> None:
        for thread in self._idle:
            thread.end()
        self._idle.clear()
