"""What requests that change topics may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.broker.topic_creation import TopicCreation
from ottla.controller.loop import Controller
from ottla.model.config import BrokerConfig
from ottla.model.ports import World


class TopicsServer(Protocol):
    """What the creation and deletion of topics, elections and reassignments may touch."""

    authorizer: RequestAuthorizer | None
    world: World
    config: BrokerConfig
    metadata: MetadataCache
    controller: Controller
    topic_creation: TopicCreation
    mutation_quotas: ControllerMutationQuotas
    session: CurrentSession
