"""What requests of security may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.controller.loop import Controller
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.zookeeper.store import Store


class AclsServer(Protocol):
    """What requests for ACLs may touch."""

    world: World
    acl_cache: AclCache | None

    @property
    def store(self) -> Store: ...


class SecurityServer(Protocol):
    """What SCRAM users and delegation tokens may touch."""

    world: World
    config: BrokerConfig
    controller: Controller
    delegation_tokens: DelegationTokens
    authorizer: RequestAuthorizer | None

    @property
    def store(self) -> Store:
        """The current ZooKeeper session's; ConnectionLostError if there is none."""
        ...
