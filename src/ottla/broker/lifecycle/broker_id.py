"""Broker id: of settings, of the log dirs, or a new one (`broker.id.generation.enable`).

Invariants: a broker that has an id in meta.properties keeps it; a generated id is above
`reserved.broker.max.id` and, by the version of /brokers/seqid, no other broker's. Kafka:
`KafkaServer.getOrGenerateBrokerId`.
"""

import logging

from ottla.log.checkpoints import META_PROPERTIES, CheckpointError, decode_meta_properties
from ottla.model.config import BrokerConfig
from ottla.model.errors import StartupError
from ottla.model.ports import World
from ottla.net.tls_world import tls_world
from ottla.zookeeper.security_settings import zookeeper_security, zookeeper_tls
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store, ensure_chroot

logger = logging.getLogger(__name__)


async def find_broker_id(config: BrokerConfig, world: World) -> None:
    """Have `config` name the broker's id; OttlaError if none can be had."""
    if config.broker_id >= 0:
        return
    broker_id = _stored_id(config, world)
    if broker_id is None:
        broker_id = await _generated_id(config, world)
        logger.info("broker id generated broker=%d", broker_id)
    config.identify(broker_id)


def _stored_id(config: BrokerConfig, world: World) -> int | None:
    """Return the id that the first marked log dir has; the log manager compares the others."""
    for folder in config.log_dirs:
        path = f"{folder}/{META_PROPERTIES}"
        try:
            found = decode_meta_properties(world.files.read_bytes(path)).broker_id
        except OSError:
            continue  # a new dir; one that cannot be read is the log manager's to report
        except CheckpointError as error:
            raise StartupError(f"{path}: {error}") from error
        if found is not None:
            return found
    return None


async def _generated_id(config: BrokerConfig, world: World) -> int:
    read_bytes = world.files.read_bytes
    tls = zookeeper_tls(config, read_bytes)
    where = world if tls is None else tls_world(world, tls)
    security = zookeeper_security(config, read_bytes)
    address = config.text("zookeeper.connect")
    session_timeout_ms = config.integer("zookeeper.session.timeout.ms")
    connect_timeout_ms = config["zookeeper.connection.timeout.ms"] or session_timeout_ms
    assert isinstance(connect_timeout_ms, int)
    await ensure_chroot(where, address, session_timeout_ms, connect_timeout_ms, security)
    session = await Session.connect(
        where, address, session_timeout_ms, connect_timeout_ms, security=security
    )
    try:
        sequence = await Store(session).cluster.generate_broker_sequence_id()
    finally:
        await session.close()
    return config.integer("reserved.broker.max.id") + sequence
