"""Crash detection: refused connections prove that a broker's process is gone; silence does not.

Invariants: a broker is taken for gone only if every registered endpoint refuses a connection
(ECONNREFUSED), and does so again `PAUSE_S` later; whatever else a probe meets (an accepted
connection, no answer, an unreachable host, an unknown name) proves nothing, and the broker's
session decides as ever (R17, F44). A proof is about one registration, that of the broker epoch it
was asked for. Kafka has no counterpart (adr/0018).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.ports import Network, World

logger = logging.getLogger(__name__)

CRASH_DETECTION = "ottla.crash.detection"
OWN, ALL, OFF = "own", "all", "off"
ROUNDS = 2
PAUSE_S = 0.04
"""Between the rounds: longer than a listener is away while a process takes over its socket."""
PROBE_TIMEOUT_S = 1.0
MAX_PROBES = 64
"""Endpoints that are probed at a time, a socket each: more would take descriptors that files and
clients need (F45). A refusal takes a millisecond, so a thousand brokers are asked within a second;
behind as many silent ones a broker's session may end sooner."""


async def refusal_of(
    network: Network, endpoints: Sequence[Endpoint], probes: asyncio.Semaphore | None = None
) -> str | None:
    """Return the evidence if every endpoint refuses connections in every round; else None.

    `probes` bounds how many endpoints are probed at a time, of all who share it.
    """
    probes = probes or asyncio.Semaphore(MAX_PROBES)

    async def refuses(host: str, port: int) -> bool:
        async with probes:
            return await network.refuses(host, port, timeout_s=PROBE_TIMEOUT_S)

    addresses = list(dict.fromkeys((e.host, e.port) for e in endpoints))
    if not addresses:
        return None
    for number in range(ROUNDS):
        if number:
            await asyncio.sleep(PAUSE_S)
        answers = await asyncio.gather(*(refuses(host, port) for host, port in addresses))
        if not all(answers):
            return None
    named = ", ".join(dict.fromkeys(str(e) for e in endpoints))
    return f"connection refused at {named}"


class CrashDetector:
    """Probes brokers whose connection ended; one probe at a time for each broker.

    Of each registration it reports once that the process is gone, and again only where it has
    accepted a connection since: whether that ends it is decided then, and a registration that stays
    is its session's matter.
    """

    def __init__(self, world: World, on_gone: Callable[[BrokerInfo, str, float], None]) -> None:
        """`on_gone` takes a broker, the evidence and how long it took to get it, in seconds."""
        self._world = world
        self._on_gone = on_gone
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(MAX_PROBES)
        self._reported: dict[int, int] = {}
        """Broker -> the epoch of the registration that was reported last."""
        self._accepted: dict[int, int] = {}
        """Broker -> the epoch of the registration in which it accepted a connection last."""

    def connected(self, broker: BrokerInfo) -> None:
        """Take a broker that accepted a connection."""
        self._accepted[broker.id] = broker.epoch
        self._reported.pop(broker.id, None)

    def has_accepted(self, broker: BrokerInfo) -> bool:
        """Return whether a broker has accepted a connection since it registered."""
        return self._accepted.get(broker.id) == broker.epoch

    def suspect(self, broker: BrokerInfo) -> None:
        """Probe a broker: a connection to it ended or could not be made."""
        if broker.id not in self._probes and self._reported.get(broker.id) != broker.epoch:
            self._probes[broker.id] = asyncio.get_running_loop().create_task(
                self._probe(broker), name=f"probe-{broker.id}"
            )

    async def _probe(self, broker: BrokerInfo) -> None:
        clock = self._world.clock
        began_s = clock.monotonic()
        try:
            evidence = await refusal_of(self._world.network, broker.endpoints, self._at_once)
        finally:
            del self._probes[broker.id]
        if evidence is not None:
            logger.info("process gone broker=%d reason=%r", broker.id, evidence)
            self._reported[broker.id] = broker.epoch
            self._on_gone(broker, evidence, clock.monotonic() - began_s)

    def close(self) -> None:
        for probe in list(self._probes.values()):
            probe.cancel()
