"""What requests about users and tokens may touch of the broker.

Who may call: the handlers of this family; whoever assembles a broker has all of it.
"""

from typing import Protocol

from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.controller.loop import Controller
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.zookeeper.store import Store


class SecurityServer(Protocol):
    """What SCRAM users and delegation tokens may touch."""

    world: World
    config: BrokerConfig
    controller: Controller
    delegation_tokens: DelegationTokens

    @property
    def store(self) -> Store:
        """The current ZooKeeper session's; ConnectionLostError if there is none."""
        ...
