"""Which APIs exist: key, versions, and the module in `wire.messages` that has the messages.

Invariant, kept by a test: every row says what the schema says; the table loads no schema. Keys and
versions are those of Kafka 3.9 in ZooKeeper mode, and those of Kafka 4.4 for groups of the new
protocols, which tools describe and brokers refuse; what a broker lists in its ApiVersions response
is decided by the broker. Kafka: `ApiKeys`.
"""

from enum import IntEnum
from typing import Self

import msgspec


class ApiSpec(msgspec.Struct, frozen=True):
    """One API. `flexible_version` is the first with compact types and tagged fields, or None."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_version: int | None
    module: str
    """Where its messages are."""

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_version is not None and version >= self.flexible_version


class ApiKey(IntEnum):
    """The number by which a request says what it asks for; see `ApiSpec` for the columns."""

    _value_: int
    row: tuple[int, int, int | None, str]

    def __new__(
        cls, key: int, low: int = 0, high: int = 0, flexible: int | None = None, family: str = ""
    ) -> Self:
        self = int.__new__(cls, key)
        self._value_, self.row = key, (low, high, flexible, family)
        return self

    PRODUCE = 0, 0, 11, 9, "records"
    FETCH = 1, 0, 17, 12, "records"
    LIST_OFFSETS = 2, 0, 9, 6, "records"
    METADATA = 3, 0, 12, 9, "cluster"
    LEADER_AND_ISR = 4, 0, 7, 4, "control"
    STOP_REPLICA = 5, 0, 4, 2, "control"
    UPDATE_METADATA = 6, 0, 8, 6, "control"
    CONTROLLED_SHUTDOWN = 7, 0, 3, 3, "control"
    OFFSET_COMMIT = 8, 0, 9, 8, "groups"
    OFFSET_FETCH = 9, 0, 9, 6, "groups"
    FIND_COORDINATOR = 10, 0, 6, 3, "groups"
    JOIN_GROUP = 11, 0, 9, 6, "groups"
    HEARTBEAT = 12, 0, 4, 4, "groups"
    LEAVE_GROUP = 13, 0, 5, 4, "groups"
    SYNC_GROUP = 14, 0, 5, 4, "groups"
    DESCRIBE_GROUPS = 15, 0, 5, 5, "groups"
    LIST_GROUPS = 16, 0, 5, 3, "groups"
    SASL_HANDSHAKE = 17, 0, 1, None, "security"
    API_VERSIONS = 18, 0, 4, 3, "cluster"
    CREATE_TOPICS = 19, 0, 7, 5, "topics"
    DELETE_TOPICS = 20, 0, 6, 4, "topics"
    DELETE_RECORDS = 21, 0, 2, 2, "records"
    INIT_PRODUCER_ID = 22, 0, 5, 2, "transactions"
    OFFSET_FOR_LEADER_EPOCH = 23, 0, 4, 4, "records"
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3, "transactions"
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3, "transactions"
    END_TXN = 26, 0, 4, 3, "transactions"
    WRITE_TXN_MARKERS = 27, 0, 1, 1, "transactions"
    TXN_OFFSET_COMMIT = 28, 0, 4, 3, "transactions"
    DESCRIBE_ACLS = 29, 0, 3, 2, "security"
    CREATE_ACLS = 30, 0, 3, 2, "security"
    DELETE_ACLS = 31, 0, 3, 2, "security"
    DESCRIBE_CONFIGS = 32, 0, 4, 4, "configs"
    ALTER_CONFIGS = 33, 0, 2, 2, "configs"
    ALTER_REPLICA_LOG_DIRS = 34, 0, 2, 2, "cluster"
    DESCRIBE_LOG_DIRS = 35, 0, 4, 2, "cluster"
    SASL_AUTHENTICATE = 36, 0, 2, 2, "security"
    CREATE_PARTITIONS = 37, 0, 3, 2, "topics"
    CREATE_DELEGATION_TOKEN = 38, 0, 3, 2, "security"
    RENEW_DELEGATION_TOKEN = 39, 0, 2, 2, "security"
    EXPIRE_DELEGATION_TOKEN = 40, 0, 2, 2, "security"
    DESCRIBE_DELEGATION_TOKEN = 41, 0, 3, 2, "security"
    DELETE_GROUPS = 42, 0, 2, 2, "groups"
    ELECT_LEADERS = 43, 0, 2, 2, "topics"
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1, "configs"
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 0, 0, "topics"
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0, "topics"
    OFFSET_DELETE = 47, 0, 0, None, "groups"
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1, "configs"
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1, "configs"
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0, "security"
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0, "security"
    ALTER_PARTITION = 56, 0, 3, 0, "control"
    UPDATE_FEATURES = 57, 0, 1, 0, "cluster"
    ENVELOPE = 58, 0, 0, 0, "control"
    DESCRIBE_CLUSTER = 60, 0, 1, 0, "cluster"
    DESCRIBE_PRODUCERS = 61, 0, 0, 0, "transactions"
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0, "transactions"
    LIST_TRANSACTIONS = 66, 0, 1, 0, "transactions"
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0, "control"
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0, "groups"
    CONSUMER_GROUP_DESCRIBE = 69, 0, 0, 0, "groups"
    SHARE_GROUP_HEARTBEAT = 76, 1, 1, 0, "groups"
    SHARE_GROUP_DESCRIBE = 77, 1, 1, 0, "groups"
    STREAMS_GROUP_DESCRIBE = 89, 0, 0, 0, "groups"
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1, 0, "groups"


APIS: dict[int, ApiSpec] = {}
for _key in ApiKey:
    _low, _high, _flexible, _family = _key.row
    APIS[_key.value] = ApiSpec(
        _key.value,
        _key.name.title().replace("_", ""),
        _low,
        _high,
        _flexible,
        f"ottla.wire.messages.{_family}",
    )
