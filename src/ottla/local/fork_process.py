"""The process that forks ZooKeeper and brokers (`ottla.broker.forked`), as `ottla up` has it.

Invariants: plain system calls, so that little is imported here; it ends when this process does;
each wait has a bound. Only on Linux: elsewhere libraries may not survive a fork. No module of
`subprocess` and `socket`: they take as long as Python's start.
"""

import contextlib
import os
import select
import signal
import sys

REPLY_S = 30.0
"""The first broker waits until everything is imported."""
MAX_REPLY_BYTES = 64
LONGEST_ARGUMENTS = 1024
"""Bytes that a broker's arguments may have to be shown by `ps`."""
BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Until it has a session of its own: a terminal sends them to its whole foreground. `posix_spawn`
makes one only with newer C libraries."""
PRINTED_BYTES = 16_384
PROGRAM = "from ottla.__main__ import main; main()"
"""`-m ottla` imports `runpy` for it."""


class ForkProcess:
    """The process, and this end of the pipes to it; OSError where it cannot be started."""

    def __init__(self) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self._printed, printed = os.pipe()
        try:
            for end in (requests, replies):
                os.set_inheritable(end, True)
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-c", PROGRAM, "broker", "fork", str(requests), str(replies),
                 "-" * LONGEST_ARGUMENTS],
                os.environ,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, printed, 1),
                    (os.POSIX_SPAWN_DUP2, printed, 2),
                ),
                setsigmask=BLOCKED,
            )  # fmt: skip
        except BaseException:
            for end in (self._requests, self._replies, self._printed):
                os.close(end)
            raise
        finally:
            for end in (requests, replies, printed):
                os.close(end)

    def send(self, request: bytes) -> None:
        """Ask for a process: a line."""
        with contextlib.suppress(BrokenPipeError):  # `reply` finds that
            os.write(self._requests, request)

    def reply(self) -> bytes:
        """Return the reply to what was sent: nothing where it has ended; OSError."""
        if not select.select([self._replies], [], [], REPLY_S)[0]:
            raise TimeoutError(f"nothing came within {REPLY_S:.0f} s")
        return os.read(self._replies, MAX_REPLY_BYTES)

    def last_words(self) -> str:
        """Return the last line that it printed; it has ended."""
        lines = os.read(self._printed, PRINTED_BYTES).decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def end(self) -> None:
        """Have it end, and wait for that: what it forked is no child of it.

        A server whose process id was not read ends, too: nothing could stop it.
        """
        self._close()
        while select.select([self._printed], [], [], REPLY_S)[0]:
            if not os.read(self._printed, PRINTED_BYTES):
                break
        else:
            os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """End it amid its imports."""
        self._close()
        os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def _close(self) -> None:
        os.close(self._requests)
        os.close(self._replies)

    def _reap(self) -> None:
        os.waitpid(self._pid, 0)
        os.close(self._printed)


_early: list[ForkProcess] = []
"""The one that was started early, until `taken`."""


def begin() -> None:
    """Start one early."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it is tried again when it is needed
            _early.append(ForkProcess())


def taken(count: int) -> ForkProcess | None:
    """Return one for so many processes; None where they had better be started one by one."""
    if not count:
        return None
    if _early:
        return _early.pop()
    return ForkProcess() if count > 1 and sys.platform == "linux" else None


def discard() -> None:
    """End the one that was not taken."""
    while _early:
        _early.pop().kill()
