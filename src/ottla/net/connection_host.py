"""What a connection needs of the server that made it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.net.frame_memory import FrameMemory
from ottla.net.limits import DispatchTimeSlice, FrameRules, ServerLimits
from ottla.net.response_memory import ResponseMemory
from ottla.net.timed import Timed
from ottla.security.sasl.authentication import Authentication

ConnectionT = TypeVar("ConnectionT")
OnSent = Callable[[ConnectionT, Sequence[Timed]], None]
"""Called with the requests that are measured when their responses were handed to the system."""


Unread = Callable[[asyncio.BaseTransport], int | None]
"""Returns how many received bytes of a transport were not read yet; None if unknown."""


class ConnectionHost(Protocol[ConnectionT]):
    """What a connection needs of the server that made it."""

    limits: ServerLimits
    rules: FrameRules
    listener: str
    between_brokers: bool
    held: bool
    """whether connections are accepted and not yet served"""
    budget: FrameMemory
    responses: ResponseMemory
    broker_responses: ResponseMemory
    turn: DispatchTimeSlice
    now: float
    """the monotonic clock at the last sweep, in seconds"""
    dispatch: Callable[[ConnectionT, memoryview], Any]
    """returns parts of a response, a Pending, or None"""
    authentication: Callable[[float], Authentication] | None
    """makes a connection's authentication, at a monotonic time; None: clients are anonymous"""
    sent: OnSent[ConnectionT]
    monotonic: Callable[[], float]
    unread: Unread

    def judge(self, connection: ConnectionT, frame: memoryview) -> None:
        """Raise CloseConnection for a frame on trial that is not a broker's."""

    def end_trial(self, connection: ConnectionT) -> None:
        """Close a connection on trial."""

    def admit(self, connection: ConnectionT) -> bool:
        """Return whether a new connection is within the limits."""

    def dismiss(self, connection: ConnectionT) -> None:
        """Forget a connection that is lost."""

    def began(self, connection: ConnectionT) -> None:
        """Note that a whole request came of a client, or that it was authenticated."""

    def touch(self, connection: ConnectionT) -> None:
        """Have `pump` called at the end of the loop's iteration."""

    def note_refusal(self, connection: ConnectionT, reason: str) -> None:
        """Count and log why a connection is closed."""

    def watch_memory(self) -> None:
        """Have slow frames found while others wait for their memory."""
