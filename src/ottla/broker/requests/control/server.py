"""What requests between brokers may touch of the broker."""

from typing import Protocol

from ottla.broker.configs.topic_configs import TopicConfigs
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.control.control_connection import ControlConnection
from ottla.controller.loop import Controller
from ottla.replication.replica_manager import ReplicaManager


class ReplicaServer(Protocol):
    """What the controller's requests to a broker may touch."""

    replicas: ReplicaManager
    metadata: MetadataCache
    topic_configs: TopicConfigs
    control_connection: ControlConnection
    session: CurrentSession

    def is_stale(self, request_epoch: int) -> bool: ...

    def accept_controller_epoch(self, epoch: int) -> bool: ...


class ControllerServer(Protocol):
    """What a broker's requests to the controller may touch."""

    controller: Controller
