"""What requests about the cluster may touch of the broker."""

from collections.abc import Sequence
from typing import Protocol

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_blobs import MetadataBlobs
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.broker.topic_creation import TopicCreation
from ottla.controller.loop import Controller
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.replication.replica_manager import ReplicaManager


class MetadataServer(Protocol):
    """What Metadata and DescribeCluster may touch."""

    world: World
    authorizer: RequestAuthorizer | None
    config: BrokerConfig
    cluster_id: str
    metadata: MetadataCache
    blobs: MetadataBlobs
    topic_creation: TopicCreation
    mutation_quotas: ControllerMutationQuotas


class VersionsServer(Protocol):
    """What ApiVersions and UpdateFeatures may touch."""

    served: Sequence[tuple[int, int, int]]
    """(api key, lowest, highest version) of what the router serves"""
    features_epoch: int
    controller: Controller
    session: CurrentSession


class LogDirsServer(Protocol):
    """What requests about log dirs may touch."""

    world: World
    replicas: ReplicaManager
