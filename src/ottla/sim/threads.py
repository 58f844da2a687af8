"""Threads that run only while everything else stands still, used again and again.

Who may call: `clock`, for workers' calls that stop at file operations. Invariants: of all threads
of a simulation one runs at a time, the others wait for their turn; `Threads.close` ends those that
are idle, so a process that forks later has none.
"""

import threading
from collections.abc import Callable

STUCK_S = 120.0
"""No job takes longer in real time, unless it waits for something that is not simulated."""


class LockStepThread:
    """A thread that goes on when `run` says so, and whose `run` returns when it stops again."""

    __slots__ = ("_back", "_go", "_job", "_started")

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Callable[[], object] | None = None
        self._started = False

    def run(self, job: Callable[[], object] | None = None) -> None:
        """Let the thread begin a job, or go on with it; return when it stops or has ended."""
        if job is not None:
            self._job = job
            if not self._started:
                self._started = True
                threading.Thread(target=self._main, daemon=True).start()
        self._go.release()
        if not self._back.acquire(timeout=STUCK_S):
            raise SystemExit("a worker's call waits for something that is not simulated")

    def stop(self) -> None:
        """Stop here until `run` is called again (called by the job)."""
        self._back.release()
        self._go.acquire()

    def end(self) -> None:
        """End the thread; it has no job."""
        if self._started:
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


class Threads:
    """A simulation's threads that have nothing to do."""

    def __init__(self) -> None:
        self._idle: list[LockStepThread] = []

    def take(self) -> LockStepThread:
        return self._idle.pop() if self._idle else LockStepThread()

    def give(self, thread: LockStepThread) -> None:
        """Keep a thread whose job has ended."""
        self._idle.append(thread)

    def close(self) -> None:
        for thread in self._idle:
            thread.end()
        self._idle.clear()
