"""Listener: where a broker's pages are served, by the settings `ottla.metrics.*`.

Invariants: off unless `ottla.metrics.listener` names an address; an address that cannot be had
costs the pages, never the broker, which says so in its log.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.metrics.catalogue import LATENESS, LATENESS_BEAN, help_texts
from ottla.broker.metrics.exposition import (
    COUNTER,
    GAUGE,
    OPEN_METRICS,
    TEXT,
    Families,
    wants_open_metrics,
)
from ottla.broker.metrics.mbeans import LEFT_OUT, Metrics
from ottla.broker.metrics.series import PARTITION, TOPIC, add_partitions, add_topics
from ottla.broker.services import BrokerServices
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.model.ports import address_text
from ottla.model.printable import plural
from ottla.model.time_slices import InTimeSlices, TimeSlice
from ottla.net.http_server import HttpRequest, HttpResponse, HttpServer, plain

logger = logging.getLogger(__name__)

LISTENER, DETAIL, MAX_SERIES = (
    "ottla.metrics.listener",
    "ottla.metrics.detail",
    "ottla.metrics.max.series",
)


FRESH_S = 1.0
_HERTZ, _START_FIELD, _CPU_FIELDS = "SC_CLK_TCK", 19, slice(11, 13)
INDEX = (
    "/metrics: this broker in the formats of Prometheus\n/healthz: whether it responds\n/readyz: \
whether it is registered and in sync"
)


NAMED = 5
"""How many partitions a reason names."""


async def why_not_ready(services: BrokerServices) -> list[str]:
    """Return the reasons why a broker is not ready; none if it is."""
    if not services.replicas.may_propose:
        return ["it is fenced: its ZooKeeper session is lost"]
    if not services.is_registered:
        return ["it is not registered"]
    if not services.metadata.ready:
        return ["it was not sent the cluster's metadata yet"]
    reasons = []
    offline = [str(tp) for tp in services.replicas.offline]
    if offline:
        reasons.append(
            f"{plural(len(offline), 'replica is', 'replicas are')} offline: {_few(offline)}"
        )
    behind = []
    partitions = list(services.replicas.partitions)
    async for tp in InTimeSlices(partitions, services.world.clock):
        state = services.metadata.partition(*tp)
        if state is not None and services.broker_id not in state.isr:
            behind.append(str(tp))
    if behind:
        reasons.append(
            f"{plural(len(behind), 'replica is', 'replicas are')} not in sync: {_few(behind)}"
        )
    return reasons


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a page of metrics shows: `broker`, `topic` or `partition`, and how many series."""

    level: str
    most_series: int


class Pages:
    """The pages of one broker."""

    def __init__(self, services: BrokerServices, metrics: Metrics, detail: Detail) -> None:
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


def metrics_address(config: BrokerConfig) -> tuple[str, int] | None:
    """Return host and port of the pages, an empty host for all addresses; None where they are off.

    ConfigError for what is no address.
    """
    text = config.text(LISTENER)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or "/" in host:
        raise ConfigError(f"Invalid value {text} for configuration {LISTENER}: write host:port")
    return host, int(port)


async def open_pages(
    config: BrokerConfig, services: BrokerServices, metrics: Metrics
) -> HttpServer | None:
    """Serve the pages where the settings say; None where they do not, or where that failed."""
    address = metrics_address(config)
    if address is None:
        return None
    detail = Detail(config.text(DETAIL), config.integer(MAX_SERIES))
    server = HttpServer(services.world, *address, Pages(services, metrics, detail).respond)
    try:
        await server.open()
    except OSError as error:
        where = address_text(*address)
        logger.error(  # noqa: TRY400 - what went wrong is the address
            "metrics listener not opened endpoint=%s error=%s", where, error.strerror or error
        )
        return None
    logger.info("metrics listener opened endpoint=%s", address_text(address[0], server.port))
    return server
