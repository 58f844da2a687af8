"""What all pages share: the cluster's client, the watcher, the local cluster's folder if it is one.

Who may call: `server`, `application`, the pages, tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from ottla.admin.local.cluster_dir import ClusterDir
from ottla.admin.operations.status import metrics_of
from ottla.console.diagnosing import Diagnosing
from ottla.console.sessions import Sessions
from ottla.console.watcher import Watcher
from ottla.net.client import Client


@dataclass(slots=True)
class Console:
    """One console. `folder`: of the cluster that `ottla up` started, None for any other."""

    client: Client
    folder: ClusterDir | None
    watcher: Watcher
    diagnosing: Diagnosing
    sessions: Sessions
    read_only: bool = False
    subscribers: int = 0
    """Open streams of live updates."""
    closing: Callable[[], bool] = field(default=lambda: False)
    """Whether the server ends: streams end, too."""


def console_for(
    client: Client, folder: ClusterDir | None = None, *, read_only: bool = False
) -> Console:
    """Return a console of a cluster."""

    def figures(broker: int) -> dict[str, dict[str, int | float]] | None:
        if folder is None or broker in watcher.silent:  # one that is paused would be waited for
            return None
        return metrics_of(folder.metrics_socket(broker))

    watcher = Watcher(client, figures)
    return Console(client, folder, watcher, Diagnosing(client), Sessions(), read_only)


def console_of(request: Request) -> Console:
    """Return the console that a request is for."""
    found: Any = request.app.state.console
    assert isinstance(found, Console)
    return found
