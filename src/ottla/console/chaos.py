"""Faults on a cluster of this machine, one at a time, in the background.

Who may call: `state`, the page of chaos. Invariants: what is done is `admin.local`'s, and only to
processes of the folder; a page never waits for it.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable

from ottla.admin.local import brokers
from ottla.admin.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError

LINES_KEPT = 50
RESTART_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

Tell = Callable[[str], None]
DEEDS: dict[str, Callable[[ClusterDir, int, Tell], None]] = {
    "kill": lambda folder, b, tell: brokers.send_signal(folder, [b], signal.SIGKILL, tell),
    "pause": lambda folder, b, tell: brokers.send_signal(folder, [b], signal.SIGSTOP, tell),
    "resume": lambda folder, b, tell: brokers.send_signal(folder, [b], signal.SIGCONT, tell),
    "stop": lambda folder, b, tell: brokers.stop(folder, [b], STOP_TIMEOUT_S, tell),
    "start": lambda folder, b, tell: brokers.start(folder, [b], tell),
    "restart": lambda folder, b, tell: brokers.restart(
        folder, [folder.existing().broker(b)], RESTART_TIMEOUT_S, tell
    ),
}


class Chaos:
    """What is being done to brokers, and what was."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.doing = ""
        self._task: asyncio.Task[None] | None = None

    def begin(self, folder: ClusterDir, deed: str, broker: int) -> None:
        """Begin a deed; OttlaError if another one goes on."""
        if self.doing:
            raise OttlaError(f"wait: {self.doing} goes on")
        self.doing = f"{deed} of broker {broker}"
        self._task = asyncio.create_task(self._do(folder, deed, broker))

    async def _do(self, folder: ClusterDir, deed: str, broker: int) -> None:
        try:
            await asyncio.to_thread(DEEDS[deed], folder, broker, self._tell)
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
