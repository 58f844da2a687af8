"""A cluster as an object, for asynchronous programs and tests.

Invariants: everything is done by a `SyncCluster` in a worker thread, so the caller's loop never
waits for a broker; what only reads this process's memory is a property, all else is awaited.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, ParamSpec, Self, TypeVar

from ottla.testing.links import Target
from ottla.testing.sync_cluster import FAULT_S, START_S, WAIT_S, SyncCluster

P = ParamSpec("P")
T = TypeVar("T")

__tracebackhide__ = True


class Cluster:
    """A replicated cluster on this machine, with faults on request; `async with`.

    Arguments and errors are those of `SyncCluster`, which it has as `sync`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        in_process: bool = False,
        dir: str | Path | None = None,  # noqa: A002 - the command line's --dir
        keep: bool = False,
        zookeeper: str | None = None,
        session_timeout_ms: int = 6000,
        timeout_s: float = START_S,
    ) -> None:
        self.sync = SyncCluster(
            brokers,
            settings=settings,
            in_process=in_process,
            dir=dir,
            keep=keep,
            zookeeper=zookeeper,
            session_timeout_ms=session_timeout_ms,
            timeout_s=timeout_s,
        )
        self._turn = asyncio.Lock()

    @classmethod
    def using(cls, sync: SyncCluster) -> Self:
        """Return an object for a cluster that a `SyncCluster` has started, and will end."""
        self = cls.__new__(cls)
        self.sync, self._turn = sync, asyncio.Lock()
        return self

    async def __aenter__(self) -> Self:
        await self._run(self.sync.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(self._run(self.sync.close))

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn:
            return await asyncio.to_thread(function, *args, **kwargs)

    # --- what the cluster is ----------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return self.sync.bootstrap

    @property
    def zookeeper(self) -> str:
        """The address of the coordination service."""
        return self.sync.zookeeper

    @property
    def dir(self) -> Path:
        """The folder of data and logs: `broker-1/server.log`, `broker-1/data/`."""
        return self.sync.dir

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, those that are down too."""
        return self.sync.broker_ids

    @property
    def events(self) -> list[tuple[float, str]]:
        """What was done to the cluster: seconds since its start, and what."""
        return self.sync.events

    @property
    def faults(self) -> Counter[str]:
        """How often a broker was killed, stopped, paused, …, by the name of the method."""
        return self.sync.faults

    def running(self, broker: int) -> bool:
        """Return whether a broker lives, paused or not."""
        return self.sync.running(broker)

    def paused(self, broker: int) -> bool:
        """Return whether a broker is paused."""
        return self.sync.paused(broker)

    def pid(self, broker: int) -> int:
        """Return the id of a broker's process, or of its thread where it is one."""
        return self.sync.pid(broker)

    def address(self, broker: int) -> str:
        """Return the `host:port` at which clients reach a broker."""
        return self.sync.address(broker)

    def logs(self, broker: int, lines: int = 50) -> str:
        """Return the last lines that a broker has logged."""
        return self.sync.logs(broker, lines)

    async def why(self, partition: str, timeout_s: float = FAULT_S) -> str:
        """Return why a partition, such as `orders-0`, has the leader and ISR that it has."""
        return await self._run(self.sync.why, partition, timeout_s)

    async def controller(self) -> int:
        """Return the id of the broker that is the controller; waits for one."""
        return await self._run(lambda: self.sync.controller)

    async def leader_of(self, partition: str, timeout_s: float = WAIT_S) -> int:
        """Return the broker that leads a partition, such as `orders-0`; waits for one that runs.

        OttlaError at once if there is no such topic.
        """
        return await self._run(self.sync.leader_of, partition, timeout_s)

    async def partitions(self) -> list[str]:
        """Return all partitions, such as `orders-0`, but those of Kafka's internal topics."""
        return await self._run(self.sync.partitions)

    async def isr_of(self, partition: str) -> list[int]:
        """Return the replicas in sync of a partition, such as `orders-0`, sorted."""
        return await self._run(self.sync.isr_of, partition)

    async def replicas_of(self, partition: str) -> list[int]:
        """Return the replicas of a partition, the preferred leader first."""
        return await self._run(self.sync.replicas_of, partition)

    async def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        """Wait until every partition has a leader and all its replicas are in sync."""
        await self._run(self.sync.wait_until_in_sync, timeout_s)

    async def prepare_producer_ids(self, timeout_s: float = FAULT_S) -> None:
        """Have every broker that serves fetch ids for idempotent producers from the controller."""
        await self._run(self.sync.prepare_producer_ids, timeout_s)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        *,
        timeout_s: float = WAIT_S,
        **configs: object,
    ) -> None:
        """Create a topic and wait until every broker knows its leaders."""
        await self._run(
            lambda: self.sync.create_topic(
                name, partitions, replicas, timeout_s=timeout_s, **configs
            )
        )

    async def delete_topic(self, name: str, timeout_s: float = WAIT_S) -> None:
        """Delete a topic and wait until no broker knows it; OttlaError if it is refused."""
        await self._run(self.sync.delete_topic, name, timeout_s)

    # --- what happens to brokers ------------------------------------------------------------

    async def kill(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """End a broker as kill -9 does (SIGKILL)."""
        await self._run(self.sync.kill, broker, timeout_s)

    async def stop(self, broker: int, timeout_s: float = WAIT_S) -> None:
        """Stop a broker well (SIGTERM): it hands its leaders over first."""
        await self._run(self.sync.stop, broker, timeout_s)

    async def start(self, broker: int, timeout_s: float = START_S) -> None:
        """Start a broker that is down; return when it serves and the others know it."""
        await self._run(self.sync.start, broker, timeout_s)

    async def restart(self, broker: int, timeout_s: float = START_S) -> None:
        """Stop a broker well and start it again."""
        await self._run(self.sync.restart, broker, timeout_s)

    async def pause(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Stop a broker amid everything (SIGSTOP): it keeps its connections and says nothing."""
        await self._run(self.sync.pause, broker, timeout_s)

    async def resume(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Let a paused broker go on (SIGCONT)."""
        await self._run(self.sync.resume, broker, timeout_s)

    async def add_broker(self, timeout_s: float = START_S) -> int:
        """Start one more broker; return its id."""
        return await self._run(self.sync.add_broker, timeout_s)

    # --- faults -----------------------------------------------------------------------------

    async def partition(
        self,
        broker: int,
        from_: Target | Iterable[Target] = "all",
        *,
        how: Literal["drop", "cut"] = "drop",
        timeout_s: float = FAULT_S,
    ) -> None:
        """Separate a broker from others until `heal`, in both directions."""
        await self._run(self.sync.partition, broker, from_, how=how, timeout_s=timeout_s)

    async def slow(
        self,
        broker: int,
        delay_s: float = 0.2,
        from_: Target | Iterable[Target] = "all",
        *,
        timeout_s: float = FAULT_S,
    ) -> None:
        """Have every response between a broker and others take `delay_s` longer, until `heal`."""
        await self._run(self.sync.slow, broker, delay_s, from_, timeout_s=timeout_s)

    async def disk_full(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Have no file of a broker grow (ENOSPC) until `heal`."""
        await self._run(self.sync.disk_full, broker, timeout_s)

    async def heal(self, timeout_s: float = FAULT_S) -> None:
        """End all partitions, delays and full disks. Paused and dead brokers stay as they are."""
        await self._run(self.sync.heal, timeout_s)
