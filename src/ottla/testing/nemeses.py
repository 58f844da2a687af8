"""Nemeses: named things that happen to a cluster, each with its end.

Invariants: a nemesis leaves the cluster as whole as it found it: what it killed it starts, what it
separated it joins; which broker, and for how long, comes from the random numbers that it is given.
A nemesis that cannot have an effect is an OttlaError, never a success.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import ConfigError, OttlaError
from ottla.testing.sync_cluster import SyncCluster

SLOW_S = 0.1
ENDS_WITHIN_S = 10.0
LEADS_WITHIN_S = 20.0
FIRST_WRITE_WITHIN_S = 60.0
"""Until an application that has just been started writes."""
IDLE_S = 1.0
"""After so long without a write, clients that write do not use this leader, or it blocks them."""
HELD_S = 3600.0
"""How much later a lost response would arrive: its connection ends before."""
POLL_S = 0.02

__tracebackhide__ = True


class NothingWrittenError(OttlaError):
    """A fault that clients have to write into met no write, so it did not happen."""


class Nemesis:
    """One round of something: on which cluster, with which random numbers, for how long at most.

    Each method is a context manager: when its block begins, the fault is in force; at the end of
    the block it is undone.
    """

    def __init__(
        self,
        cluster: SyncCluster,
        chance: random.Random,
        partitions: Sequence[str],
        longest_s: float,
        ready: Callable[[], None] = lambda: None,
        working: Callable[[], bool] = lambda: True,
    ) -> None:
        """`ready`: called when the application must write next. `working`: whether it still may."""
        self.cluster = cluster
        self._chance = chance
        self._partitions = partitions
        self._longest_s = longest_s
        self._ready = ready
        self._working = working

    def draw_duration(self) -> float:
        """Return for how many seconds the fault is in force."""
        return self._chance.uniform(self._longest_s / 5, self._longest_s)

    @contextmanager
    def kill_leader(self) -> Iterator[None]:
        """Kill the leader of a partition (kill -9) and start it again."""
        with self._killed(self._leader()):
            yield

    @contextmanager
    def kill_controller(self) -> Iterator[None]:
        """Kill the controller and start it again."""
        with self._killed(self.cluster.controller):
            yield

    @contextmanager
    def kill_any(self) -> Iterator[None]:
        """Kill a broker and start it again."""
        with self._killed(self._any()):
            yield

    @contextmanager
    def kill_isolated_leader(self) -> Iterator[None]:
        """Separate a leader from the other brokers while clients write to it, then kill it.

        A follower takes over without what the leader alone has: records acknowledged with `acks=1`
        are lost, those with `acks=all` are not.
        """
        leader, led = self._written_leader()
        self.cluster.prepare_producer_ids()  # without them an idempotent producer writes nothing
        self.cluster.partition(leader, "brokers", how="cut")
        try:
            before = self._bytes(leader, led)
            yield
            self._wait_written(leader, led, before)
            self.cluster.kill(leader)
        finally:
            self.cluster.heal()  # others see that a broker is dead only if they can reach its port
        try:
            self._wait_replaced(led)
        finally:
            self.cluster.start(leader)

    @contextmanager
    def lose_responses(self) -> Iterator[None]:
        """End the connections of a leader's clients before they get its responses.

        The leader has written what they sent; they send it again. Without idempotence it is there
        twice then.
        """
        leader, led = self._written_leader()
        self._wait_written(leader, led, self._bytes(leader, led))  # clients are connected
        self.cluster.slow(leader, HELD_S, "clients")
        try:
            before = self._bytes(leader, led)
            yield
            self._wait_written(leader, led, before)
            self.cluster.partition(leader, "clients", how="cut")
        finally:
            self.cluster.heal()

    @contextmanager
    def pause_leader(self) -> Iterator[None]:
        """Pause the leader of a partition (SIGSTOP), then let it continue."""
        broker = self._leader()
        self.cluster.pause(broker)
        try:
            yield
        finally:
            self.cluster.resume(broker)

    @contextmanager
    def partition_leader(self) -> Iterator[None]:
        """Separate the leader of a partition from all others, then join them again."""
        self.cluster.partition(self._leader())
        try:
            yield
        finally:
            self.cluster.heal()

    @contextmanager
    def slow_broker(self) -> Iterator[None]:
        """Delay everything that a broker and others send each other."""
        self.cluster.slow(self._any(), SLOW_S)
        try:
            yield
        finally:
            self.cluster.heal()

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Fill the disk of a broker; the broker exits, gets space, and starts again."""
        broker = self._any()
        self.cluster.disk_full(broker)
        try:
            yield
            deadline = time.monotonic() + ENDS_WITHIN_S
            while self.cluster.running(broker):
                if time.monotonic() > deadline:
                    raise OttlaError(
                        f"broker {broker} wrote nothing to its full disk for {ENDS_WITHIN_S:g} s"
                    )
                time.sleep(POLL_S)
        finally:
            self.cluster.heal()
            if not self.cluster.running(broker):
                self.cluster.start(broker)

    @contextmanager
    def rolling_restart(self) -> Iterator[None]:
        """Stop and start all brokers gracefully, one after the other, each when all is in sync."""
        first, *others = self.cluster.broker_ids
        self.cluster.stop(first)
        try:
            yield
        finally:
            self.cluster.start(first)
        for broker in others:
            self.cluster.wait_until_in_sync()
            self.cluster.restart(broker)

    @contextmanager
    def _killed(self, broker: int) -> Iterator[None]:
        self.cluster.kill(broker)
        try:
            yield
        finally:
            self.cluster.start(broker)

    def _any(self) -> int:
        return self._chance.choice(self.cluster.broker_ids)

    def _leader(self) -> int:
        return self.cluster.leader_of(self._chance.choice(self._candidates()))

    def _candidates(self) -> list[str]:
        partitions = list(self._partitions) or self.cluster.partitions()
        if not partitions:
            raise OttlaError(
                "there is no partition whose leader it could be; create the topic before"
            )
        return partitions

    def _written_leader(self) -> tuple[int, list[str]]:
        """Return a leader that clients write to, if they write already, and what it leads."""
        leaders = {p: self.cluster.leader_of(p) for p in self.cluster.partitions()}
        candidates = [p for p in self._candidates() if p in leaders]
        written = [p for p in candidates if self._bytes(leaders[p], [p])]
        leader = leaders[self._chance.choice(written or candidates)]
        return leader, [p for p, other in leaders.items() if other == leader]

    def _bytes(self, broker: int, partitions: Sequence[str]) -> int:
        """Return how many bytes a broker has in the logs of these partitions."""
        folder = ClusterDir(self.cluster.dir).data_dir(broker)
        total = 0
        for file in (file for p in partitions for file in (folder / p).glob("*.log")):
            with suppress(FileNotFoundError):  # a segment was deleted
                total += file.stat().st_size
        return total

    def _bytes_of_all(self) -> int:
        partitions = self.cluster.partitions()
        return sum(self._bytes(broker, partitions) for broker in self.cluster.broker_ids)

    def _wait_written(self, broker: int, partitions: Sequence[str], before: int) -> None:
        """Wait until a broker has more than these bytes.

        NothingWrittenError if clients write to others only, or not at all.
        """
        self._ready()
        deadline = time.monotonic() + FIRST_WRITE_WITHIN_S
        while self._bytes(broker, partitions) <= before:
            now_s = time.monotonic()
            if deadline > now_s + IDLE_S and self._bytes_of_all():
                deadline = now_s + IDLE_S
            if now_s > deadline or not self._working():
                raise NothingWrittenError(
                    f"nothing was written to leader {broker} meanwhile; let the application write "
                    "while chaos.pending is not empty"
                )
            time.sleep(POLL_S)

    def _wait_replaced(self, partitions: Sequence[str]) -> None:
        """Wait until another broker leads these partitions, those that have another replica."""
        with suppress(OttlaError):  # there was no other replica in sync
            for partition in partitions:
                if len(self.cluster.replicas_of(partition)) > 1:
                    self.cluster.leader_of(partition, LEADS_WITHIN_S)


NEMESES: dict[str, Callable[[Nemesis], AbstractContextManager[None]]] = {
    function.__name__: function
    for function in (
        Nemesis.kill_leader,
        Nemesis.kill_controller,
        Nemesis.kill_any,
        Nemesis.kill_isolated_leader,
        Nemesis.lose_responses,
        Nemesis.pause_leader,
        Nemesis.partition_leader,
        Nemesis.rolling_restart,
        Nemesis.slow_broker,
        Nemesis.disk_full,
    )
}


def named(names: Sequence[str]) -> list[str]:
    """Return these nemeses; ConfigError for one that does not exist."""
    unknown = sorted(set(names) - NEMESES.keys())
    if unknown or not names:
        which = unknown[0] if unknown else "none"
        raise ConfigError(f"no nemesis {which}; there are {', '.join(NEMESES)}")
    return list(names)


def repair(cluster: SyncCluster, timeout_s: float) -> None:
    """Make a cluster whole, whatever happened to it; OttlaError if it does not become so."""
    cluster.heal()
    for broker in cluster.broker_ids:
        if cluster.paused(broker):
            cluster.resume(broker)
    for broker in cluster.broker_ids:
        if not cluster.running(broker):
            with suppress(OttlaError):  # the next line says what is missing
                cluster.start(broker, timeout_s)
    cluster.wait_until_in_sync(timeout_s)
