"""Pages: what a broker shows over HTTP: /metrics, /healthz, /readyz.

Invariants: a page of metrics is made once a second at most, in the format that is asked for,
however many ask; it is made in time slices, so that requests are served in between; what was made
is forgotten after that second.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.metrics.bean_names import COUNTER, GAUGE
from ottla.broker.metrics.catalogue import LATENESS, LATENESS_BEAN, help_texts
from ottla.broker.metrics.exposition import (
    OPEN_METRICS,
    TEXT,
    Families,
    wants_open_metrics,
)
from ottla.broker.metrics.mbeans import LEFT_OUT, Metrics
from ottla.broker.metrics.readiness import Registered, why_not_ready
from ottla.broker.metrics.series import PARTITION, TOPIC, add_partitions, add_topics
from ottla.model.time_slices import TimeSlice
from ottla.net.http_server import HttpRequest, HttpResponse, plain

FRESH_S = 1.0
_HERTZ, _START_FIELD, _CPU_FIELDS = "SC_CLK_TCK", 19, slice(11, 13)
INDEX = (
    "/metrics: this broker in the formats of Prometheus\n/healthz: whether it responds\n/readyz: \
whether it is registered and in sync"
)


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a page of metrics shows: `broker`, `topic` or `partition`, and how many series."""

    level: str
    most_series: int


class Pages:
    """The pages of one broker."""

    def __init__(self, services: Registered, metrics: Metrics, detail: Detail) -> None:
        self._services = services
        self._metrics = metrics
        self._detail = detail
        self._making = asyncio.Lock()
        self._made: dict[bool, tuple[float, Sequence[bytes]]] = {}

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Respond to a request; 404 for what there is not."""
        if request.path == "/metrics":
            open_metrics = wants_open_metrics(request.fields.get("accept", ""))
            body = await self.metrics(open_metrics=open_metrics)
            return HttpResponse(200, OPEN_METRICS if open_metrics else TEXT, body)
        if request.path == "/healthz":
            return plain(200, "ok")
        if request.path == "/readyz":
            reasons = await why_not_ready(self._services)
            return plain(503, f"not ready: {'; '.join(reasons)}") if reasons else plain(200, "ok")
        return plain(200, INDEX) if request.path == "/" else plain(404, INDEX)

    async def metrics(self, *, open_metrics: bool) -> Sequence[bytes]:
        """Return the text of all metrics in pieces, not older than a second."""
        clock = self._services.world.clock
        async with self._making:
            made_s, body = self._made.get(open_metrics, (float("-inf"), ()))
            if clock.monotonic() - made_s >= FRESH_S:
                body = await self._make(open_metrics=open_metrics)
                self._made[open_metrics] = clock.monotonic(), body
                forget = self._made.pop
                asyncio.get_running_loop().call_later(FRESH_S, forget, open_metrics, None)
            return body

    async def _make(self, *, open_metrics: bool) -> Sequence[bytes]:
        turn = TimeSlice(self._services.world.clock)
        self._metrics.watch()
        families = Families(help_texts())
        figures = self._metrics.figures()
        left_out = figures.pop(LEFT_OUT)["Value"]
        await turn.checkpoint()
        for bean, values in figures.items():
            if bean != LATENESS_BEAN:
                families.add_figure(bean, values)
        await turn.checkpoint()
        families.add_histogram(LATENESS, *self._metrics.lateness())
        left_out += await self._add_series(families, turn)
        families.add_figure(LEFT_OUT, {"Value": left_out})
        _add_process(families)
        body = []
        for text in families.texts(open_metrics=open_metrics):
            body.append(text)
            await turn.checkpoint()
        return body

    async def _add_series(self, families: Families, turn: TimeSlice) -> int:
        """Add what is shown of topics and partitions; return how many series are left out."""
        replicas, detail = self._services.replicas, self._detail
        room, left_out = detail.most_series, 0
        if detail.level in (TOPIC, PARTITION):
            shown, left_out = await add_topics(families, replicas.topic_counts.items(), room, turn)
            room -= shown
        if detail.level == PARTITION:
            _, more = await add_partitions(families, replicas, room, turn)
            left_out += more
        return left_out


def _add_process(families: Families) -> None:
    """Add what the system knows of this process; nothing where it has no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b") ")[2].split()
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            pages = int(file.read().split()[1])
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            booted_s = int(file.read().partition(b"\nbtime ")[2].split()[0])
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        import resource  # not everywhere

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (OSError, ValueError, IndexError, ImportError):
        return
    hertz = os.sysconf(_HERTZ)
    ticks = sum(int(field) for field in fields[_CPU_FIELDS])
    started_s = booted_s + int(fields[_START_FIELD]) / hertz
    for name, kind, value in (
        ("process_cpu_seconds_total", COUNTER, ticks / hertz),
        ("process_resident_memory_bytes", GAUGE, pages * os.sysconf("SC_PAGE_SIZE")),
        ("process_open_fds", GAUGE, descriptors),
        ("process_max_fds", GAUGE, most),
        ("process_start_time_seconds", GAUGE, round(started_s, 2)),
    ):
        families.family(name, kind).lines.append(f"{name} {value}\n")
