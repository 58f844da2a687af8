"""Chaos: things happen to a cluster while an application works, then acknowledgements are checked.

Who may call: users, by the fixture `chaos`, or with any `SyncCluster`. Invariants: one nemesis at a
time, the next only when all is in sync again, so that a cluster with two replicas in sync loses
nothing; the same seed gives the same order of nemeses and durations, though not the same moments of
the application; at the end the cluster is whole.
"""

import random
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ottla.model.errors import OttlaError
from ottla.testing.checking import Acknowledged, Checked, check
from ottla.testing.nemeses import NEMESES, Nemesis, named, repair
from ottla.testing.reading import read_back
from ottla.testing.sync_cluster import SyncCluster

WHOLE_WITHIN_S = 60.0
LOG_LINES = 12
WHYS = 10


class Chaos:
    """Nemeses for one cluster, and what was acknowledged to the application."""

    def __init__(self, cluster: SyncCluster, seed: int | None = None) -> None:
        """`seed`: of the random choices; by default another one each time."""
        self.cluster = cluster
        self.seed = secrets.randbelow(1_000_000) if seed is None else seed
        self._chance = random.Random(self.seed)  # noqa: S311 - nothing secret
        self._acknowledged: list[Acknowledged] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._since_s = cluster.age_s

    # --- nemeses ----------------------------------------------------------------------------

    def once(self, name: str, partition: str | None = None, longest_s: float = 1.0) -> None:
        """Have one nemesis happen now; return when it is over and all is in sync.

        `partition`: whose leader is meant, such as `orders-0`; by default any.
        """
        named([name])
        self._over.clear()
        self._happen(name, [partition] if partition else [], longest_s)
        repair(self.cluster, WHOLE_WITHIN_S)

    @contextmanager
    def during(
        self,
        *names: str,
        partitions: Sequence[str] = (),
        pause_s: tuple[float, float] = (0.2, 1.0),
        longest_s: float = 1.0,
    ) -> Iterator["Chaos"]:
        """Have nemeses happen at random moments for as long as the block runs.

        `partitions`: whose leaders are meant, by default any. `pause_s`: between two nemeses, in
        seconds from and to. `longest_s`: how long a broker is away. At the end of the block all is
        made whole; OttlaError if that fails.
        """
        wanted = named(names)
        self._over.clear()
        self._failure = None
        thread = threading.Thread(
            target=self._go_on,
            args=(wanted, list(partitions), pause_s, longest_s),
            name="ottla-chaos",
            daemon=True,
        )
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(2 * WHOLE_WITHIN_S)
            repair(self.cluster, WHOLE_WITHIN_S)
        if self._failure is not None:
            raise OttlaError(f"a nemesis failed: {self._failure}") from self._failure

    def _go_on(
        self,
        names: list[str],
        partitions: list[str],
        pause_s: tuple[float, float],
        longest_s: float,
    ) -> None:
        try:
            while not self._over.wait(self._chance.uniform(*pause_s)):
                self._happen(self._chance.choice(names), partitions, longest_s)
                self.cluster.wait_until_in_sync(WHOLE_WITHIN_S)
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self._failure = error

    def _happen(self, name: str, partitions: Sequence[str], longest_s: float) -> None:
        self.cluster.note(f"nemesis {name}")

        def wait(seconds: float) -> None:
            self._over.wait(seconds)

        NEMESES[name](Nemesis(self.cluster, self._chance, partitions, longest_s, wait))

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
        in which they were acknowledged. `committed`: without records of aborted transactions.
        """
        with self._lock:
            acknowledged = list(self._acknowledged)
        topics = sorted({one.topic for one in acknowledged})
        if not topics:
            raise AssertionError(
                "nothing was acknowledged: call chaos.acknowledged(topic, key, value, …) where "
                "its producer reports that a record is kept"
            )
        found = read_back(self.cluster.bootstrap, topics, committed=committed, timeout_s=timeout_s)
        result = check(acknowledged, found)
        if not result.right:
            raise AssertionError(str(result))
        return result

    # --- the report -------------------------------------------------------------------------

    def story(self) -> str:
        """Return what happened, why partitions are led so, and the last lines of each broker."""
        with self._lock:
            touched = sorted(
                {f"{a.topic}-{a.partition}" for a in self._acknowledged if a.partition >= 0}
            )
        return story(self.cluster, self._since_s, touched)


def story(cluster: SyncCluster, since_s: float, partitions: Sequence[str]) -> str:
    """Return a cluster's events since an age, the reasons of partitions, and last lines of logs."""
    events = [(at_s - since_s, what) for at_s, what in cluster.events]
    lines = [f"{at_s:8.3f} s  {what}" for at_s, what in events if at_s >= 0]
    with suppress(OttlaError):
        for partition in list(partitions or cluster.partitions())[:WHYS]:
            with suppress(OttlaError):
                lines += ["", cluster.why(partition, 1.0)]
    for broker in cluster.broker_ids:
        state = "runs" if cluster.running(broker) else "is down"
        state = "is paused" if cluster.paused(broker) else state
        lines += ["", f"broker {broker} {state}; its last lines:", cluster.logs(broker, LOG_LINES)]
    return "\n".join(lines)


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
