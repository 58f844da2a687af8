"""What requests of consumer groups may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.coordination import Coordination
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.model.config import BrokerConfig
from ottla.model.ports import World


class GroupsServer(Protocol):
    """What members and administrators of groups may touch."""

    authorizer: RequestAuthorizer | None
    world: World
    config: BrokerConfig
    metadata: MetadataCache
    groups: GroupCoordinator
    session: CurrentSession


class FinderServer(Protocol):
    """What FindCoordinator may touch."""

    authorizer: RequestAuthorizer | None
    metadata: MetadataCache
    mutation_quotas: ControllerMutationQuotas
    coordination: Coordination
