"""Chaos: things happen to a cluster while an application works, then acknowledgements are checked.

Invariants: one nemesis at a time, the next only when all is in sync again, so that a cluster with
two replicas in sync loses nothing; each that is named happens, or there is an error; the same seed
gives the same order of nemeses and durations, though not the same moments of the application; at
the end the cluster is whole.
"""

import asyncio
import random
import re
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType

from ottla.model.errors import OttlaError
from ottla.testing.checking import Acknowledged, Checked, check, read_back
from ottla.testing.cluster import Cluster
from ottla.testing.nemeses import NEMESES, Nemesis, NothingWrittenError, named, repair
from ottla.testing.sync_cluster import SyncCluster

WHOLE_WITHIN_S = 60.0
HAPPENS_WITHIN_S = 120.0
"""Of one nemesis at the end of a block, until all is in sync again."""
REJOINED_S = 2.0
"""After so long, followers fetch again from a leader from which they were separated."""
LOG_LINES = 12
LOG_LINES_READ = 2000
WHYS = 10

_LOGGED = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+) ([A-Z]+) ")

__tracebackhide__ = True


class Chaos:
    """Nemeses for one cluster, and what was acknowledged to the application.

    `pending`: the names given to `during` that have not happened yet; let the application work
    until it is empty. `happened`: how often each nemesis happened and was undone, by name; `late`:
    how many of those began when the block had nothing more to do. `seed`: of the random choices.
    """

    def __init__(self, cluster: SyncCluster | Cluster, seed: int | None = None) -> None:
        """`seed`: of the random choices; by default another one each time."""
        self.cluster = cluster.sync if isinstance(cluster, Cluster) else cluster
        self.seed = secrets.randbelow(1_000_000) if seed is None else seed
        self.happened: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.pending: list[str] = []
        self._chance = random.Random(self.seed)  # noqa: S311 - nothing secret
        self._acknowledged: list[Acknowledged] = []
        self._compared = 0
        self._lock = threading.Lock()
        self._since_s = self.cluster.age_s
        self._faults_before = self.cluster.faults.copy()

    # --- nemeses ----------------------------------------------------------------------------

    def once(self, name: str, partition: str | None = None, longest_s: float = 1.0) -> None:
        """Have one nemesis happen now; return when it is over and all is in sync.

        `partition`: whose leader is meant, such as `orders-0`; by default any.
        """
        named([name])
        try:
            self._happen(name, [partition] if partition else [], longest_s, threading.Event())
        finally:
            repair(self.cluster, WHOLE_WITHIN_S)

    def during(
        self,
        *names: str,
        partitions: Sequence[str] = (),
        pause_s: tuple[float, float] = (0.2, 1.0),
        longest_s: float = 1.0,
    ) -> "During":
        """Have nemeses happen for as long as the block runs: `with` or `async with`.

        Each name once, in this order, the first before the block begins; from then on any of them,
        at random moments. The block does not end before each has happened. `partitions`: whose
        leaders are meant, by default any. `pause_s`: between two nemeses, in seconds from and to.
        `longest_s`: how long a broker is away. At the end of the block all is made whole;
        OttlaError if that fails, or a nemesis cannot happen.
        """
        wanted = named(names)

        def happen(name: str, block: During) -> None:
            self._happen(
                name, list(partitions), longest_s, block.ends, block.ready.set, block.working
            )

        return During(self, happen, wanted, pause_s, self._chance)

    def _happen(
        self,
        name: str,
        partitions: Sequence[str],
        longest_s: float,
        ends: threading.Event,
        ready: Callable[[], None] = lambda: None,
        working: Callable[[], bool] = lambda: True,
    ) -> None:
        """Have a nemesis happen, and wait until all is in sync again; then it counts.

        `ends`: when set, the fault ends at once.
        """
        self.cluster.wait_until_in_sync(WHOLE_WITHIN_S)
        late = not working()
        nemesis = Nemesis(self.cluster, self._chance, partitions, longest_s, ready, working)
        self.cluster.note(f"nemesis {name}")
        try:
            with NEMESES[name](nemesis):
                ready()
                ends.wait(nemesis.draw_duration())
        except OttlaError as error:
            self.cluster.note(f"nemesis {name} failed: {error}")
            kind = NothingWrittenError if isinstance(error, NothingWrittenError) else OttlaError
            raise kind(f"nemesis {name} failed: {error}") from error
        self.cluster.wait_until_in_sync(WHOLE_WITHIN_S)
        self.happened[name] += 1
        self.late[name] += late

    # --- the checker ------------------------------------------------------------------------

    def acknowledged(
        self,
        topic: str,
        key: str | bytes | None,
        value: str | bytes | None,
        partition: int = -1,
        offset: int = -1,
    ) -> None:
        """Note that a record was acknowledged to the application; from any thread.

        Values should be different from each other: a record that is sent again after it failed
        looks like a doubled one otherwise.
        """
        one = Acknowledged(topic, _bytes(key), _bytes(value), partition, offset)
        with self._lock:
            self._acknowledged.append(one)

    def check(self, *, committed: bool = False, timeout_s: float = 60.0) -> Checked:
        """Read the topics back and compare; AssertionError with all that is wrong.

        Nothing acknowledged is lost, nothing is there twice, the records of a key lie in the order
        in which they were acknowledged. A check without any fault or acknowledgement proves
        nothing and fails. The result, which is printed too, says how many faults of each kind
        happened. `committed`: without records of aborted transactions.
        """
        with self._lock:
            acknowledged = list(self._acknowledged)
            self._compared = len(acknowledged)
        topics = sorted({one.topic for one in acknowledged})
        if not topics:
            raise AssertionError(
                "nothing was acknowledged: call chaos.acknowledged(topic, key, value, …) where "
                "its producer reports that a record is kept"
            )
        faults = self.happened or self.cluster.faults - self._faults_before
        if not faults:
            raise AssertionError(
                "no fault happened, so this check proves nothing: call it after "
                "`with chaos.during(…)`, chaos.once(…) or a fault of the cluster such as kill(…)"
            )
        found = read_back(self.cluster.bootstrap, topics, committed=committed, timeout_s=timeout_s)
        result = check(acknowledged, found)
        result.faults, result.late = dict(faults), dict(+self.late)
        if not result.right:
            raise AssertionError(str(result))
        sys.stdout.write(f"chaos: {'; '.join(str(result).splitlines())}\n")
        return result

    @property
    def unchecked(self) -> int:
        """How many acknowledgements no `check` has compared."""
        with self._lock:
            return len(self._acknowledged) - self._compared

    # --- the report -------------------------------------------------------------------------

    def story(self) -> str:
        """Return what happened, why partitions are led so, and what brokers logged."""
        with self._lock:
            touched = sorted(
                {f"{a.topic}-{a.partition}" for a in self._acknowledged if a.partition >= 0}
            )
        return story(self.cluster, self._since_s, touched)


class During:
    """A block in which nemeses happen: see `Chaos.during`."""

    def __init__(
        self,
        chaos: Chaos,
        happen: Callable[[str, "During"], None],
        names: list[str],
        pause_s: tuple[float, float],
        chance: random.Random,
    ) -> None:
        self._chaos = chaos
        self._happen = happen
        self._names = names
        self._pause_s = pause_s
        self._chance = chance
        self.ready = threading.Event()
        """The first fault is in force, or waits for the application to write."""
        self._over = threading.Event()
        self._abandoned = threading.Event()
        self.ends = self._abandoned
        """When a fault ends before its time."""
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-chaos", daemon=True)

    def working(self) -> bool:
        """Return whether the block still runs."""
        return not self._over.is_set()

    def __enter__(self) -> Chaos:
        self._chaos.pending = list(dict.fromkeys(self._names))
        self._thread.start()
        if not self.ready.wait(HAPPENS_WITHIN_S):
            self._end(abandon=True)
        if self._failure is not None:
            self._end(abandon=True)
        return self._chaos

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._end(abandon=error is not None)
        except OttlaError:
            if error is None:  # the block's own error says more
                raise

    async def __aenter__(self) -> Chaos:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, traceback))

    def _end(self, *, abandon: bool) -> None:
        """Wait for what is still to happen, unless it is abandoned, and make all whole."""
        if abandon:
            self._abandoned.set()
        self._over.set()
        chaos = self._chaos
        while self._thread.is_alive():
            left = len(chaos.pending)
            self._thread.join(HAPPENS_WITHIN_S)
            if self._thread.is_alive() and left == len(chaos.pending):
                break
        stuck = self._thread.is_alive()
        repair(chaos.cluster, WHOLE_WITHIN_S)
        if self._failure is not None:
            raise OttlaError(f"{self._failure}") from self._failure
        if stuck:
            raise OttlaError(
                f"not within {HAPPENS_WITHIN_S:g} s: nemesis "
                f"{', '.join(chaos.pending) or 'of the end'} happens"
            )

    def _run(self) -> None:
        try:
            for name in list(self._chaos.pending):
                self._happen_for_sure(name)
                if self._abandoned.is_set():
                    return
                self._chaos.pending.remove(name)
                self._over.wait(self._chance.uniform(*self._pause_s))
            self.ends = self._over
            while self.working():
                with suppress(NothingWrittenError):
                    self._happen(self._chance.choice(self._names), self)
                self._over.wait(self._chance.uniform(*self._pause_s))
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self._failure = error
        finally:
            self._chaos.pending.clear()  # after a failure, too: an application waits for it
            self.ready.set()

    def _happen_for_sure(self, name: str) -> None:
        """Have a nemesis happen; again if nothing was written into it while the block runs."""
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while True:
            try:
                self._happen(name, self)
                return
            except NothingWrittenError:
                if not self.working() or time.monotonic() > deadline:
                    raise
            self._over.wait(REJOINED_S)


def story(cluster: SyncCluster, since_s: float, partitions: Sequence[str]) -> str:
    """Return a cluster's events since an age, and the warnings that brokers logged since then.

    Also why partitions are led as they are, if there was an event, and the last lines of a broker
    that does not run.
    """
    events = [(at_s - since_s, what) for at_s, what in cluster.events]
    lines = [f"{at_s:8.3f} s  {what}" for at_s, what in events if at_s >= 0]
    if lines:
        with suppress(OttlaError):
            for partition in list(partitions or cluster.partitions())[:WHYS]:
                with suppress(OttlaError):
                    lines += ["", cluster.why(partition, 1.0)]
    since = datetime.now() - timedelta(seconds=cluster.age_s - since_s)  # noqa: DTZ005 - as in logs
    for broker in cluster.broker_ids:
        if not cluster.running(broker):
            what, logged = "is down; its last lines:", cluster.logs(broker, LOG_LINES)
        else:
            state = "is paused" if cluster.paused(broker) else "runs"
            what = f"{state}; its warnings:"
            logged = _warnings(cluster.logs(broker, LOG_LINES_READ), since.isoformat())
        if logged:
            lines += ["", f"broker {broker} {what}", logged]
    return "\n".join(lines) or "nothing was done to it, and no broker logged a warning"


def _warnings(log: str, since: str) -> str:
    """Return the last lines of a log above INFO, with their tracebacks, from a time on."""
    lines: list[str] = []
    wanted = False
    for line in log.splitlines():
        if found := _LOGGED.match(line):
            wanted = found[1] >= since and found[2] not in ("DEBUG", "INFO")
        if wanted:
            lines.append(line)
    return "\n".join(lines[-LOG_LINES:])


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
