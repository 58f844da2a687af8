"""Listener: where a broker's pages are served, by the settings `ottla.metrics.*`.

Invariants: off unless `ottla.metrics.listener` names an address; an address that cannot be had
costs the pages, never the broker, which says so in its log.
"""

import logging

from ottla.broker.metrics.mbeans import Metrics
from ottla.broker.metrics.pages import Detail, Pages
from ottla.broker.metrics.readiness import Registered
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.model.ports import address_text
from ottla.net.http_server import HttpServer

logger = logging.getLogger(__name__)

LISTENER, DETAIL, MAX_SERIES = (
    "ottla.metrics.listener",
    "ottla.metrics.detail",
    "ottla.metrics.max.series",
)


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
    config: BrokerConfig, services: Registered, metrics: Metrics
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
