"""What requests of security may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.broker.current_session import CurrentSession
from ottla.controller.loop import Controller
from ottla.model.config import BrokerConfig
from ottla.model.ports import World


class AclsServer(Protocol):
    """What requests for ACLs may touch."""

    world: World
    acl_cache: AclCache | None
    session: CurrentSession


class SecurityServer(Protocol):
    """What SCRAM users and delegation tokens may touch."""

    world: World
    config: BrokerConfig
    controller: Controller
    delegation_tokens: DelegationTokens
    authorizer: RequestAuthorizer | None
    session: CurrentSession
