"""What requests for settings may touch of the broker."""

from typing import Protocol

from ottla.broker.configs.dynamic_configs import DynamicConfigs
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.model.config import BrokerConfig
from ottla.model.ports import World


class ConfigsServer(Protocol):
    """What settings of topics and brokers, and quotas of clients, may touch."""

    world: World
    config: BrokerConfig
    broker_id: int
    metadata: MetadataCache
    dynamic_configs: DynamicConfigs
    session: CurrentSession
