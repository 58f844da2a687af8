"""Names of the settings that throttle a reassignment, and of our lease on them.

Kafka: `QuotaConfigs`; the lease is ours (docs/adr/0017).
"""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
"""Of a broker, in bytes/s: what its leaders send, and what its followers fetch."""
REPLICATION_RATES = (LEADER_RATE, FOLLOWER_RATE)
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Of a broker, in bytes/s: moves between its log dirs."""
RATES = (*REPLICATION_RATES, LOG_DIRS_RATE)
THROTTLED_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
"""Of a topic: the replicas that the rates are for, as partition:broker between commas, or *."""
LEASE = "ottla.replication.throttle.lease"
"""Of a broker: topics whose throttles, and its own, it removes after their reassignment."""
