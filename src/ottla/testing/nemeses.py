"""Nemeses: named things that happen to a cluster, each with its end.

Who may call: `chaos`. Invariants: a nemesis leaves the cluster as whole as it found it: what it
killed it starts, what it separated it joins; which broker, and for how long, comes from the random
numbers that it is given.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ottla.model.errors import ConfigError, OttlaError
from ottla.testing.sync_cluster import SyncCluster

SLOW_S = 0.1
ENDS_WITHIN_S = 10.0
POLL_S = 0.02

Wait = Callable[[float], None]
"""Waits so many seconds, or until the chaos is over."""


class Nemesis:
    """One round of something: on which cluster, with which chance, for how long at most."""

    def __init__(
        self,
        cluster: SyncCluster,
        chance: random.Random,
        partitions: Sequence[str],
        longest_s: float,
        wait: Wait,
    ) -> None:
        self.cluster = cluster
        self._chance = chance
        self._partitions = partitions
        self._longest_s = longest_s
        self._wait = wait

    def kill_leader(self) -> None:
        """Kill the leader of a partition (kill -9) and start it again."""
        self._kill(self._leader())

    def kill_controller(self) -> None:
        """Kill the controller and start it again."""
        self._kill(self.cluster.controller)

    def kill_any(self) -> None:
        """Kill a broker and start it again."""
        self._kill(self._any())

    def pause_leader(self) -> None:
        """Stop the leader of a partition amid everything (SIGSTOP), then let it go on."""
        broker = self._leader()
        self.cluster.pause(broker)
        try:
            self._pass_time()
        finally:
            self.cluster.resume(broker)

    def partition_leader(self) -> None:
        """Separate the leader of a partition from all others, then join them again."""
        self.cluster.partition(self._leader())
        try:
            self._pass_time()
        finally:
            self.cluster.heal()

    def slow_broker(self) -> None:
        """Delay all that a broker and others say to each other."""
        self.cluster.slow(self._any(), SLOW_S)
        try:
            self._pass_time()
        finally:
            self.cluster.heal()

    def disk_full(self) -> None:
        """Fill the disk of a broker; the broker ends, gets space, and starts again."""
        broker = self._any()
        self.cluster.disk_full(broker)
        try:
            deadline = time.monotonic() + ENDS_WITHIN_S  # nothing may be written to it meanwhile
            while self.cluster.running(broker) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        finally:
            self.cluster.heal()
            if not self.cluster.running(broker):
                self.cluster.start(broker)

    def rolling_restart(self) -> None:
        """Stop and start all brokers well, one after the other, each when all is in sync."""
        for broker in self.cluster.broker_ids:
            self.cluster.wait_until_in_sync()
            self.cluster.restart(broker)

    def _kill(self, broker: int) -> None:
        self.cluster.kill(broker)
        try:
            self._pass_time()
        finally:
            self.cluster.start(broker)

    def _pass_time(self) -> None:
        self._wait(self._chance.uniform(self._longest_s / 5, self._longest_s))

    def _any(self) -> int:
        return self._chance.choice(self.cluster.broker_ids)

    def _leader(self) -> int:
        partitions = self._partitions or self.cluster.partitions()
        if not partitions:
            return self._any()
        return self.cluster.leader_of(self._chance.choice(list(partitions)))


NEMESES: dict[str, Callable[[Nemesis], None]] = {
    function.__name__: function
    for function in (
        Nemesis.kill_leader,
        Nemesis.kill_controller,
        Nemesis.kill_any,
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
