"""What a Spark job costs, process by process: processor time and resident memory, from /proc.

For benchmarks on a machine that others use, too: there the clock says little. Java, Python's
workers (with the daemon they are forked from) and what is left (the driver) are told apart.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
JAVA, WORKERS, DRIVER, BROKER = "java", "workers", "driver", "broker"
EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class One:
    """A process: its parent, seconds of processor time, resident bytes, and what it is.

    `kind` is "" once it has ended and nobody has waited for it.
    """

    parent: int
    seconds: float
    resident: int
    kind: str


@dataclass(slots=True)
class Used:
    """Seconds of processor time, and the resident bytes of the largest worker and of Java."""

    java: float = 0.0
    workers: float = 0.0
    driver: float = 0.0
    broker: float = 0.0
    largest_worker: int = 0
    largest_java: int = 0

    @property
    def seconds(self) -> float:
        return self.java + self.workers + self.driver


def processes() -> dict[int, One]:
    """Return all processes of the machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_text()
        except OSError:
            continue
        seconds = (int(fields[11]) + int(fields[12])) / CLOCK_TICK
        resident = int(fields[21]) * PAGE
        found[int(path.parent.name)] = One(int(fields[1]), seconds, resident, _kind(command))
    return found


def _kind(command: str) -> str:
    if not command:
        return ""
    if command.partition("\0")[0].endswith("java"):
        return JAVA
    if "\0ottla\0broker\0" in command:
        return BROKER
    return WORKERS if "daemon\0pyspark." in command else DRIVER


def below(pid: int) -> dict[int, One]:
    """Return a process and all below it."""
    found = processes()
    children: dict[int, list[int]] = {}
    for one, process in found.items():
        children.setdefault(process.parent, []).append(one)
    wanted, kept = [pid], {}
    while wanted:
        one = wanted.pop()
        if one in found:
            kept[one] = found[one]
        wanted += children.get(one, [])
    return kept


class Watch:
    """Notes what a process and all below it use, from now until `end`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = {one: process.seconds for one, process in below(pid).items()}
        self._kinds: dict[int, str] = {}
        self._seconds: dict[int, float] = {}
        self._largest = {WORKERS: 0, JAVA: 0}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def _look_on(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        for pid, process in below(self._pid).items():
            self._seconds[pid] = process.seconds
            self._kinds[pid] = kind = process.kind or self._kinds.get(pid, DRIVER)
            if kind in self._largest:
                self._largest[kind] = max(self._largest[kind], process.resident)

    def end(self) -> Used:
        """Return what was used; of processes that ended, up to EVERY_S before they did."""
        self._ended.set()
        self._thread.join()
        self._look()
        used = Used(largest_worker=self._largest[WORKERS], largest_java=self._largest[JAVA])
        for pid, seconds in self._seconds.items():
            kind = self._kinds[pid]
            setattr(used, kind, getattr(used, kind) + seconds - self._start.get(pid, 0.0))
        return used
