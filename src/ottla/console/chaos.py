"""Faults on a cluster of this machine, one at a time, in the background.

Invariants: what is done is `admin.local`'s, and only to processes of the folder; a page never waits
for it.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.local import brokers, faults
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError

LINES_KEPT = 50
RESTART_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

Tell = Callable[[str], None]


class Wanted(NamedTuple):
    """What is done to which broker; `from_`: from whom it is cut."""

    deed: str
    broker: int = -1
    from_: str = ""

    @property
    def words(self) -> str:
        """What it is, as people say it."""
        of = f" of broker {self.broker}" if self.broker >= 0 else ""
        return f"{self.deed}{of}" + (f" from {self.from_}" if self.from_ else "")


CUT, HEAL = "cut", "heal"
DEEDS: dict[str, Callable[[ClusterDir, Wanted, Tell], object]] = {
    "kill": lambda folder, w, tell: brokers.send_signal(
        folder, [w.broker], signal.SIGKILL, tell, "the console"
    ),
    "pause": lambda folder, w, tell: brokers.send_signal(folder, [w.broker], signal.SIGSTOP, tell),
    "resume": lambda folder, w, tell: brokers.send_signal(folder, [w.broker], signal.SIGCONT, tell),
    "stop": lambda folder, w, tell: brokers.stop(folder, [w.broker], STOP_TIMEOUT_S, tell),
    "start": lambda folder, w, tell: brokers.start(folder, [w.broker], tell),
    "restart": lambda folder, w, tell: brokers.restart(
        folder, [folder.existing().broker(w.broker)], RESTART_TIMEOUT_S, tell
    ),
    CUT: lambda folder, w, tell: faults.cut(folder, w.broker, w.from_, tell),
    HEAL: lambda folder, _w, tell: faults.heal(folder, tell),
}


class Chaos:
    """What is being done to brokers, and what was."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.doing = ""
        self._task: asyncio.Task[None] | None = None

    def begin(self, folder: ClusterDir, wanted: Wanted) -> None:
        """Begin a deed; OttlaError if another one goes on."""
        if self.doing:
            raise OttlaError(f"{self.doing} is still in progress")
        self.doing = wanted.words
        self._task = asyncio.create_task(self._do(folder, wanted))

    async def _do(self, folder: ClusterDir, wanted: Wanted) -> None:
        try:
            await asyncio.to_thread(DEEDS[wanted.deed], folder, wanted, self._tell)
        except OttlaError as error:
            self._tell(str(error))
        finally:
            self.doing = ""

    def _tell(self, text: str) -> None:
        self.lines.append(f"{time.strftime('%H:%M:%S')}  {text}")

    async def stop(self) -> None:
        """Wait for what goes on: a thread cannot be ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
