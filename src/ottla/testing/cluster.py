"""A cluster as an object, for asynchronous programs and tests.

Invariants: everything is done by a `SyncCluster` in a worker thread, so the caller's loop never
waits for a broker; what only reads this process's memory is a plain method or property, all else is
awaited. Signatures and docstrings are those of `SyncCluster`, whose methods are named here.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from ottla.testing.sync_cluster import START_S, SyncCluster

P = ParamSpec("P")
T = TypeVar("T")
Plain = Callable[Concatenate["Cluster", P], T]
Awaited = Callable[Concatenate["Cluster", P], Coroutine[Any, Any, T]]

__tracebackhide__ = True


def _plain(method: Callable[Concatenate[SyncCluster, P], T]) -> Plain[P, T]:
    """Return the same method, called at once."""

    @functools.wraps(method)
    def plain(self: "Cluster", *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.sync, *args, **kwargs)

    return cast("Plain[P, T]", plain)


def _awaited(method: Callable[Concatenate[SyncCluster, P], T]) -> Awaited[P, T]:
    """Return the same method, called in a worker thread when no other one is under way."""

    @functools.wraps(method)
    async def awaited(self: "Cluster", *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(method, self.sync, *args, **kwargs)

    return cast("Awaited[P, T]", awaited)


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
    def schema_registry_url(self) -> str:
        """The address of a schema registry, which starts when it is first asked for: seconds."""
        return self.sync.schema_registry_url

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

    stop_schema_registry = _awaited(SyncCluster.stop_schema_registry)
    running = _plain(SyncCluster.running)
    paused = _plain(SyncCluster.paused)
    pid = _plain(SyncCluster.pid)
    address = _plain(SyncCluster.address)
    logs = _plain(SyncCluster.logs)

    async def controller(self) -> int:
        """Return the id of the broker that is the controller; waits for one."""
        return await self._run(lambda: self.sync.controller)

    why = _awaited(SyncCluster.why)
    leader_of = _awaited(SyncCluster.leader_of)
    partitions = _awaited(SyncCluster.partitions)
    isr_of = _awaited(SyncCluster.isr_of)
    replicas_of = _awaited(SyncCluster.replicas_of)
    wait_until_in_sync = _awaited(SyncCluster.wait_until_in_sync)
    prepare_producer_ids = _awaited(SyncCluster.prepare_producer_ids)

    # --- what happens to topics and brokers -------------------------------------------------

    create_topic = _awaited(SyncCluster.create_topic)
    delete_topic = _awaited(SyncCluster.delete_topic)
    kill = _awaited(SyncCluster.kill)
    stop = _awaited(SyncCluster.stop)
    start = _awaited(SyncCluster.start)
    restart = _awaited(SyncCluster.restart)
    pause = _awaited(SyncCluster.pause)
    resume = _awaited(SyncCluster.resume)
    add_broker = _awaited(SyncCluster.add_broker)
    partition = _awaited(SyncCluster.partition)
    slow = _awaited(SyncCluster.slow)
    disk_full = _awaited(SyncCluster.disk_full)
    heal = _awaited(SyncCluster.heal)
