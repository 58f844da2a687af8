"""Requests of a test's cluster: what creates, deletes and describes topics, and the waits for it.

Invariants: every wait has a limit, and its error says what was waited for; a setting that no broker
reads is refused, with the one that is likely meant; the addresses and folders of brokers are the
cluster's to choose.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ottla.client.error_texts import reason
from ottla.model.config import BrokerConfig, unknown_setting
from ottla.model.errors import ConfigError, ConnectionLostError, ErrorCode, OttlaError, StartupError
from ottla.model.ids import topic_name_problem
from ottla.model.ports import Files, World
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.messages.cluster import MetadataRequest, MetadataResponse
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.schema import R, Request

RETRIED = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}
"""Of CreateTopics, while the cluster changes: a broker that has just started may not count yet."""

__tracebackhide__ = True


OURS = {
    "advertised.listeners",
    "broker.id",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "zookeeper.connect",
    "zookeeper.session.timeout.ms",
}


CLIENT_ID = "ottla-testing"
GRACE_S = 1.0
END_S = 5.0


T = TypeVar("T")

POLL_S = 0.005


class RefusedError(OttlaError):
    """The cluster refuses what was asked for; waiting does not help."""


class NotKnownYetError(OttlaError):
    """No broker that was asked knows the partition; one may be about to."""


def until(
    condition: Callable[[], T],
    timeout_s: float,
    what: str | Callable[[], str],
    *,
    refused: bool = False,
) -> T:
    """Call `condition` until it returns something; OttlaError with its last error if never.

    `refused`: an outer wait then ends, too.
    """
    deadline = time.monotonic() + timeout_s
    wait_s = POLL_S
    while True:
        last = ""
        try:
            found = condition()
            if found:
                return found
        except (RefusedError, StartupError):
            raise
        except OttlaError as error:
            last = f": {error}"
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            kind = RefusedError if refused else OttlaError
            raise kind(f"not within {timeout_s:g} s: {text}{last}")
        time.sleep(wait_s)
        wait_s = min(0.1, wait_s * 1.2)


class Questions:
    """What brokers are asked about the cluster, from any thread, in bounded time.

    One thread with one event loop per cluster serves any number of callers, also those in which a
    loop runs; a connection is kept until it fails; nothing is asked twice here: the caller knows
    what may be repeated. Close it once; it may not be used afterwards.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._world: World | None = None
        self._peers: dict[int, PeerConnection] = {}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ottla-questions", daemon=True
        )
        self._thread.start()

    def ask(self, port: int, message: Request[R], timeout_s: float) -> R:
        """Send one request to the broker at a port; return its response.

        ConnectionLostError if it cannot be reached or does not respond within `timeout_s`.
        """
        future = asyncio.run_coroutine_threadsafe(self._ask(port, message, timeout_s), self._loop)
        try:
            return future.result(timeout_s + GRACE_S)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise ConnectionLostError(f"no response within {timeout_s:g} s") from None

    async def _ask(self, port: int, message: Request[R], timeout_s: float) -> R:
        if self._world is None:
            self._world = real_world(cast("Files", None))
        peer = self._peers.get(port)
        if peer is None or peer.closed:
            peer = await PeerConnection.open(
                self._world, "127.0.0.1", port, CLIENT_ID, timeout_s=timeout_s
            )
            self._peers[port] = peer
        return await peer.send(message, int(message.MAX_VERSION), timeout_s)

    def close(self) -> None:
        """Close all connections and end the thread."""

        def end() -> None:
            for peer in self._peers.values():
                peer.close()
            self._loop.call_soon(self._loop.call_soon, self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join(END_S)
        if not self._thread.is_alive():
            self._loop.close()


def checked_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings of `server.properties` as text; ConfigError for what no broker would read."""
    found = {key: as_text(value) for key, value in settings.items()}
    for key in found:
        if key in OURS:
            raise ConfigError(f"setting {key}: the cluster chooses this one for each broker")
        if (problem := unknown_setting(key)) is not None:
            raise ConfigError(f"setting {key}: {problem}")
    BrokerConfig({"broker.id": "0", "zookeeper.connect": "unused:2181", **found})
    return found


def defaults(brokers: int) -> dict[str, str]:
    """Return what a broker of a cluster of so many begins with."""
    replicas = str(min(3, brokers))
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= 3 else "1",
        # A test waits for each of these partitions, and for no member that may still come.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "controlled.shutdown.retry.backoff.ms": "500",
    }


def as_text(value: object) -> str:
    """Return a setting as `server.properties` has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def creation(
    name: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, object],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    """Return what creates a topic; `configs` with `_` for `.`. OttlaError for a bad name."""
    problem = topic_name_problem(name)
    if problem:
        raise OttlaError(f"topic name: {problem}")
    entry = CreateTopicsRequest.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            entry(name=key.replace("_", "."), value=as_text(value))
            for key, value in configs.items()
        ],
    )
    return CreateTopicsRequest(
        topics=[topic], timeout_ms=int(timeout_s * 1000), validate_only=validate_only
    )


def deletion(name: str, timeout_s: float) -> DeleteTopicsRequest:
    """Return what deletes a topic."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    return DeleteTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))


def about(topics: list[str] | None) -> MetadataRequest:
    """Return a question for these topics, all for None, which creates none of them."""
    item = MetadataRequest.MetadataRequestTopic
    wanted = None if topics is None else [item(name=t) for t in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def sync_problem(response: MetadataResponse) -> str:
    """Return what is not in sync by a Metadata response; "" if all is."""
    for topic in response.topics:
        for part in topic.partitions:
            missing = sorted(set(part.replica_nodes) - set(part.isr_nodes))
            name = f"{topic.name}-{part.partition_index}"
            if part.leader_id < 0:
                return f"{name} has no leader"
            if missing:
                return f"{name} lacks the replicas {missing}"
    return ""


def change(
    ask: Callable[[float], Any], done: ErrorCode, timeout_s: float, what: str, how: str
) -> None:
    """Ask for a change until it is made; the last refusal is raised if it never is.

    `ask` takes how many seconds are left. `done`: what is refused where the change was made by
    an attempt that got no response, or one that was to be repeated.
    """
    deadline = time.monotonic() + timeout_s
    maybe_made = False
    refusal: RefusedError | None = None

    def attempt() -> bool:
        nonlocal maybe_made, refusal
        try:
            result = ask(max(0.1, deadline - time.monotonic()))
        except OttlaError:
            maybe_made = True
            raise
        code = result.error_code
        if not code or (maybe_made and code == done):
            return True
        why = reason(code, result.error_message)
        refusal = RefusedError(f"{what} was not {how}: {why}", ErrorCode(code))
        maybe_made = maybe_made or code in RETRIED
        if code in RETRIED and time.monotonic() < deadline:
            return False
        raise refusal

    try:
        until(attempt, timeout_s, f"{what} is {how}")
    except OttlaError:
        if refusal is None:
            raise
        raise refusal from None
