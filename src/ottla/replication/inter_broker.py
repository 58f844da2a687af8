"""What replicas speak among each other, and the settings of fetchers. Plain values.

Who may call: `fetcher`, `fetcher_manager`, `replica_manager`. Replicas do not negotiate: versions
follow from inter.broker.protocol.version (PROTOCOL 6.1), so that a rolling upgrade decides them.

Answers to Kafka's `MetadataVersion`.
"""

from dataclasses import dataclass

from ottla.model.config import BrokerConfig

Level = tuple[int, int]

TRUNCATION_ON_FETCH: Level = (2, 7)
"""From here on a fetch answer tells where logs diverge; before, OffsetForLeaderEpoch is asked."""

_FETCH: tuple[tuple[Level, int], ...] = (
    ((3, 9), 17),
    ((3, 7), 16),
    ((3, 5), 15),
    ((3, 1), 13),
    ((2, 7), 12),
    ((2, 3), 11),
    ((2, 2), 10),
)
_LIST_OFFSETS: tuple[tuple[Level, int], ...] = (
    ((3, 9), 9),
    ((3, 5), 8),
    ((3, 1), 7),
    ((2, 8), 6),
    ((2, 2), 5),
)
_EPOCH_END: tuple[tuple[Level, int], ...] = (((2, 8), 4), ((2, 3), 3), ((2, 2), 2))


def protocol_level(text: str) -> Level:
    """Return (major, minor) of an inter.broker.protocol.version such as `3.9-IV0`."""
    major, minor = text.split("-", maxsplit=1)[0].split(".")[:2]
    return int(major), int(minor)


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


def epoch_end_version(level: Level) -> int:
    """Return the OffsetForLeaderEpoch version replicas speak."""
    return _version_at(level, _EPOCH_END)


@dataclass(frozen=True, slots=True)
class FetcherSettings:
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

    @classmethod
    def of(cls, config: BrokerConfig) -> "FetcherSettings":
        """Read them from a broker's configuration."""
        number = config.integer
        return cls(
            broker_id=config.broker_id,
            level=protocol_level(config.text("inter.broker.protocol.version")),
            max_wait_ms=number("replica.fetch.wait.max.ms"),
            min_bytes=number("replica.fetch.min.bytes"),
            max_bytes=number("replica.fetch.response.max.bytes"),
            partition_max_bytes=number("replica.fetch.max.bytes"),
            backoff_s=number("replica.fetch.backoff.ms") / 1000,
            request_timeout_s=number("replica.socket.timeout.ms") / 1000,
            connect_timeout_s=number("socket.connection.setup.timeout.ms") / 1000,
        )

    @property
    def truncates_on_fetch(self) -> bool:
        return self.level >= TRUNCATION_ON_FETCH
