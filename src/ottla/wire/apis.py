"""Which APIs exist: key, name, versions. A table, so that knowing them loads no message module.

Invariant, kept by a test: every row says what the schema in `wire.messages` says. Keys and versions
are those of Kafka 3.9 in ZooKeeper mode, and those of Kafka 4.4 for groups of the new protocols,
which tools describe and brokers refuse; what a broker lists in its ApiVersions response is the
broker's affair. Kafka: `ApiKeys`.
"""

import re

import msgspec


class ApiSpec(msgspec.Struct, frozen=True):
    """One API. `flexible_version` is the first with compact types and tagged fields, or None."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_version: int | None

    @property
    def module(self) -> str:
        """Where its messages live."""
        return "ottla.wire.messages." + re.sub(r"(?<=[a-z])([A-Z])", r"_\1", self.name).lower()

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_version is not None and version >= self.flexible_version


_ROWS: tuple[tuple[int, str, int, int, int | None], ...] = (
    (0, "Produce", 0, 11, 9),
    (1, "Fetch", 0, 17, 12),
    (2, "ListOffsets", 0, 9, 6),
    (3, "Metadata", 0, 12, 9),
    (4, "LeaderAndIsr", 0, 7, 4),
    (5, "StopReplica", 0, 4, 2),
    (6, "UpdateMetadata", 0, 8, 6),
    (7, "ControlledShutdown", 0, 3, 3),
    (8, "OffsetCommit", 0, 9, 8),
    (9, "OffsetFetch", 0, 9, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 5, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, None),
    (18, "ApiVersions", 0, 4, 3),
    (19, "CreateTopics", 0, 7, 5),
    (20, "DeleteTopics", 0, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 5, 2),
    (23, "OffsetForLeaderEpoch", 0, 4, 4),
    (24, "AddPartitionsToTxn", 0, 5, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 4, 3),
    (27, "WriteTxnMarkers", 0, 1, 1),
    (28, "TxnOffsetCommit", 0, 4, 3),
    (29, "DescribeAcls", 0, 3, 2),
    (30, "CreateAcls", 0, 3, 2),
    (31, "DeleteAcls", 0, 3, 2),
    (32, "DescribeConfigs", 0, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", 0, 2, 2),
    (35, "DescribeLogDirs", 0, 4, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (38, "CreateDelegationToken", 0, 3, 2),
    (39, "RenewDelegationToken", 0, 2, 2),
    (40, "ExpireDelegationToken", 0, 2, 2),
    (41, "DescribeDelegationToken", 0, 3, 2),
    (42, "DeleteGroups", 0, 2, 2),
    (43, "ElectLeaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (45, "AlterPartitionReassignments", 0, 0, 0),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, None),
    (48, "DescribeClientQuotas", 0, 1, 1),
    (49, "AlterClientQuotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0),
    (56, "AlterPartition", 0, 3, 0),
    (57, "UpdateFeatures", 0, 1, 0),
    (58, "Envelope", 0, 0, 0),
    (60, "DescribeCluster", 0, 1, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 1, 0),
    (67, "AllocateProducerIds", 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", 0, 0, 0),
    (76, "ShareGroupHeartbeat", 1, 1, 0),
    (77, "ShareGroupDescribe", 1, 1, 0),
    (89, "StreamsGroupDescribe", 0, 0, 0),
    (90, "DescribeShareGroupOffsets", 0, 1, 0),
)

APIS: dict[int, ApiSpec] = {row[0]: ApiSpec(*row) for row in _ROWS}
