"""Settings: those of a test's cluster, and the check of a user's own.

Pure. Invariants: a key that no broker reads is refused, with the one that is likely meant; the
addresses and folders of brokers are the cluster's to choose.
"""

from collections.abc import Mapping

from ottla.model.config import BrokerConfig, unknown_setting
from ottla.model.errors import ConfigError

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
