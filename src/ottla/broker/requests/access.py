"""Access: what a client must be allowed to do for a request, as its `Api` entry says it.

Plain values.

Three things can be said, and they are checked in this order:
- `whole`: needs of the request as a whole; one that is not met is the error of the whole response
- `check`: what no table can say; a function beside the handler, with the needs it checks
- `each`: needs of the elements of a list of the request; an element whose need is not met is taken
  out of the request before the handler sees it, and put into the response with its error

`handler` says which needs the handler itself checks, since it chooses what it shows by them.
Kafka: `KafkaApis`, where each handler does all of this.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from ottla.model.errors import ErrorCode
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)
from ottla.wire.headers import RequestHeader
from ottla.wire.portions import field
from ottla.wire.schema import Message

ERRORS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""What a client is answered that lacks a permission for a resource of a type."""

MESSAGES = {
    TOPIC: "Topic authorization failed.",
    GROUP: "Group authorization failed.",
    CLUSTER: "Cluster authorization failed.",
    TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
"""Kafka's messages for these errors."""


class Need(NamedTuple):
    """An operation on a resource. `name`: the field that has its name; the cluster has one."""

    operation: int
    resource_type: int = CLUSTER
    name: str = ""
    note: str = ""
    """when it counts, for the table in the documents"""

    def name_in(self, holder: object) -> str:
        """Return the name of the resource that a request, or an element of it, is about."""
        if self.name:
            return str(field(holder, self.name))
        return holder if type(holder) is str else CLUSTER_NAME


class Asking(Protocol):
    """The sender of a request, as a `check` sees it."""

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether it may do this; a denial is logged."""
        ...

    def may_quietly(self, operation: int, resource_type: int, name: str) -> bool:
        """Return the same where a denial means nothing yet."""
        ...

    def may_any(self, operation: int, resource_type: int) -> bool:
        """Return whether it may do this with any resource of a type."""
        ...


Check = Callable[[Asking, RequestHeader, Any], None]
"""Raises the OttlaError that the request as a whole gets."""


class ForEach(NamedTuple):
    """Needs of the elements of `asked`, a list of the request.

    Elements that may not be handled go into the response's list `responded`. `need` returns the
    need of one element, None if it has none; `error` makes a response for a request of refused
    elements alone, where it is not the API's error body.
    """

    asked: str
    responded: str
    need: Callable[[Any], Need | None]
    shown: tuple[Need, ...]
    unless: Need | None = None
    """Who may do this needs nothing else."""
    error: Callable[[Any, int, int, "str | None"], Message] | None = None
    with_message: bool = False
    handles_none: bool = False
    """The handler is called though there is nothing left: it may fail as a whole."""


class Access(msgspec.Struct, frozen=True):
    """What is needed for one API. `open`: why nothing is."""

    whole: tuple[tuple[Need, ...], ...] = ()
    """All of these are needed; of each, one of its alternatives."""
    check: Check | None = None
    checked: tuple[Need, ...] = ()
    """What `check` looks at."""
    each: ForEach | None = None
    handler: tuple[Need, ...] = ()
    open: str = ""

    @property
    def needs(self) -> list[tuple[str, Need]]:
        """Return all needs, each with the place where it is checked."""
        found = [("whole", need) for any_of in self.whole for need in any_of]
        found += [("check", need) for need in self.checked]
        if self.each is not None:
            if self.each.unless is not None:
                found.append(("each", self.each.unless))
            found += [("each", need) for need in self.each.shown]
        return found + [("handler", need) for need in self.handler]


def on_cluster(operation: int, *alternatives: int) -> Access:
    """Return what a request needs that is about the cluster."""
    return Access(whole=(tuple(Need(o) for o in (operation, *alternatives)),))


def on_group(operation: int, each: ForEach | None = None) -> Access:
    """Return what a request needs that is about the one group it names."""
    return Access(whole=((Need(operation, GROUP, "group_id"),),), each=each)


def each_named(
    need: Need,
    asked: str = "topics",
    responded: str = "topics",
    *,
    unless: Need | None = None,
    error: Callable[[Any, int, int, "str | None"], Message] | None = None,
    handles_none: bool = False,
) -> ForEach:
    """Return the needs of elements that each name their resource, or are its name."""
    return ForEach(
        asked, responded, lambda _: need, (need,), unless, error, handles_none=handles_none
    )
