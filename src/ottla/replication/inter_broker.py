"""What brokers speak among each other: versions, settings, a connection, and ListOffsets.

Replicas do not negotiate: versions follow from inter.broker.protocol.version (PROTOCOL 6.1), so
that a rolling upgrade decides them.

Kafka: `MetadataVersion`.
"""

from collections.abc import Iterable

import msgspec

from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.security.client import ClientSecurity
from ottla.wire.messages.records import ListOffsetsRequest

Level = tuple[int, int]


COMPLETE_LOG_QUERY = "ottla:is-your-log-whole"
"""The rack id of such a Fetch: an Ottla broker whose log cannot have lost a record responds with
its own id as the preferred read replica; all other brokers respond with -1, as to any Fetch."""

_FETCH: tuple[tuple[Level, int], ...] = (
    ((3, 9), 17),
    ((3, 7), 16),
    ((3, 5), 15),
    ((3, 1), 13),
    ((2, 7), 12),
)
_LIST_OFFSETS: tuple[tuple[Level, int], ...] = (
    ((3, 9), 9),
    ((3, 5), 8),
    ((3, 1), 7),
    ((2, 8), 6),
    ((2, 7), 5),
)


def _version_at(level: Level, table: tuple[tuple[Level, int], ...]) -> int:
    for lowest, version in table:
        if level >= lowest:
            return version
    return table[-1][1]


def fetch_version(level: Level) -> int:
    """Return the Fetch version replicas speak."""
    return _version_at(level, _FETCH)


def list_offsets_version(level: Level) -> int:
    """Return the ListOffsets version replicas speak."""
    return _version_at(level, _LIST_OFFSETS)


LEAST_WAIT_MS = 10
"""What a follower's fetch waits at least for records: with 0 it would ask again without a pause."""


class FetcherSettings(msgspec.Struct, frozen=True):
    """What a fetcher needs of the configuration."""

    broker_id: int
    level: Level
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_s: float
    request_timeout_s: float
    connect_timeout_s: float
    security: ClientSecurity | None = None
    """of the inter-broker listener"""

    @classmethod
    def of(cls, config: BrokerConfig, security: ClientSecurity | None = None) -> "FetcherSettings":
        """Read them from a broker's configuration."""
        number = config.integer
        return cls(
            broker_id=config.broker_id,
            level=config.protocol_level,
            max_wait_ms=max(number("replica.fetch.wait.max.ms"), LEAST_WAIT_MS),
            min_bytes=number("replica.fetch.min.bytes"),
            max_bytes=number("replica.fetch.response.max.bytes"),
            partition_max_bytes=number("replica.fetch.max.bytes"),
            backoff_s=config.interval_s("replica.fetch.backoff.ms"),
            request_timeout_s=number("replica.socket.timeout.ms") / 1000,
            connect_timeout_s=number("socket.connection.setup.timeout.ms") / 1000,
            security=security,
        )


class BrokerConnection:
    """A connection to one broker, opened when it is needed, and again where it has moved.

    At most one caller waits for it at a time.
    """

    def __init__(
        self, world: World, client_id: str, timeout_s: float, security: ClientSecurity | None
    ) -> None:
        self._world = world
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._peer: PeerConnection | None = None
        self._endpoint: Endpoint | None = None

    async def peer(self, endpoint: Endpoint | None) -> PeerConnection:
        """Return an open connection to where the broker is now; None: that is not known.

        One to its former address may lead to a process whose place another has taken, and which
        knows nothing of the newest leader epoch. Kafka: `addFetcherForPartitions` (endpoints).
        """
        peer = self._peer
        if peer is not None and not peer.closed and endpoint in (None, self._endpoint):
            return peer
        self.close()
        if endpoint is None:
            raise ConnectionLostError("no address of the broker is known")
        self._peer = await PeerConnection.open(
            self._world,
            endpoint.host,
            endpoint.port,
            self._client_id,
            timeout_s=self._timeout_s,
            security=self._security,
        )
        self._endpoint = endpoint
        return self._peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


# --- ListOffsets: where another replica's log begins or ends ------------------------------------
# Replicas get log ends, consumers high watermarks: the replica id in the request decides. Kafka:
# the offset queries of `RemoteLeaderEndPoint`.

MOST_AT_ONCE = 500
"""Partitions in one request, so that neither side works on it for long."""

OffsetResults = dict[TopicPartition, tuple[ErrorCode, int]]
"""What was answered: an error, or NONE and an offset."""


async def query_offsets(
    peer: PeerConnection,
    version: int,
    timeout_s: float,
    replica_id: int,
    wanted: Iterable[tuple[TopicPartition, int]],
    timestamp: int,
) -> OffsetResults:
    """Ask for LATEST or EARLIEST of (partition, current leader epoch or -1) pairs.

    `replica_id`: a broker's own id asks a leader, -2 (debugging replica) asks any replica.
    A partition without a response is missing in the result; ConnectionLostError if none came.
    """
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp, leader_epoch in wanted:
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = ListOffsetsRequest.ListOffsetsTopic(name=tp.topic)
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))
    response = await peer.send(request, version, timeout_s)
    return {
        TopicPartition(topic.name, item.partition_index): (
            ErrorCode(item.error_code),
            int(item.offset),
        )
        for topic in response.topics
        for item in topic.partitions
    }


def offset_or_raise(results: OffsetResults, tp: TopicPartition) -> int:
    """Return the offset of a partition; OttlaError with the code that came instead."""
    if tp not in results:
        raise OttlaError(f"{tp}: no offset in the response")
    code, offset = results[tp]
    if code:
        raise OttlaError(f"{tp}: {code.name}", code)
    if offset < 0:
        raise OttlaError(f"{tp}: {offset} is no offset")
    return offset
