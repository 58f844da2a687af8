"""What all pages share: the cluster's client, the watcher, the folder of a local cluster."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar

from starlette.requests import Request

from ottla.admin.operations.status import metrics_of
from ottla.client.client import Client
from ottla.client.left_over_throttles import Forgotten
from ottla.console.avro import Schemas
from ottla.console.chaos import Chaos
from ottla.console.diagnosing import Diagnosing
from ottla.console.kept import Kept
from ottla.console.probe import Probe
from ottla.console.sessions import Sessions
from ottla.console.snapshots import Snapshots
from ottla.console.watcher import Watcher
from ottla.local.cluster_dir import ClusterDir

P = ParamSpec("P")
T = TypeVar("T")


class Password(NamedTuple):
    """What was typed for a user, until its preview is agreed to."""

    user: str
    mechanism: str
    text: str


@dataclass(slots=True)
class Console:
    """One console. `folder`: of the cluster that `ottla up` started, None for any other."""

    client: Client
    folder: ClusterDir | None
    watcher: Watcher
    diagnosing: Diagnosing
    snapshots: Snapshots
    probe: Probe
    sessions: Sessions
    read_only: bool = False
    subscribers: int = 0
    """Open streams of live updates."""
    searches: int = 0
    """Searches in records that read now."""
    schemas: Schemas = field(default_factory=Schemas)
    chaos: Chaos = field(default_factory=Chaos)
    passwords: Kept[Password] = field(default_factory=Kept)
    left_over: list[tuple[float, list[Forgotten]]] = field(default_factory=list)
    """The throttles that no one needs, with the monotonic time of the look; or nothing."""
    closing: Callable[[], bool] = field(default=lambda: False)
    """Whether the server ends: streams end, too."""
    _one: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def alone(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do slow work in a thread, one piece at a time, also after the client has gone."""

        async def run() -> T:
            async with self._one:
                return await asyncio.to_thread(work, *args, **kwargs)

        return await asyncio.shield(run())


def console_for(
    client: Client,
    another: Callable[[], Client],
    folder: ClusterDir | None = None,
    *,
    read_only: bool = False,
    schemas: Schemas | None = None,
) -> Console:
    """Return a console of a cluster; `another` makes one more client of it."""

    def figures(broker: int) -> dict[str, dict[str, int | float]] | None:
        if folder is None or broker in watcher.silent:  # one that is paused would be waited for
            return None
        return metrics_of(folder.metrics_socket(broker))

    watcher = Watcher(client, another(), figures)
    probe = Probe(another)
    return Console(
        client,
        folder,
        watcher,
        Diagnosing(client, folder),
        Snapshots(client),
        probe,
        Sessions(),
        read_only,
        schemas=schemas or Schemas(),
    )


def console_of(request: Request) -> Console:
    """Return the console that a request is for."""
    found: Any = request.app.state.console
    assert isinstance(found, Console)
    return found
