"""Api: how one API is served, all of it in one entry that stands below its handler.

Invariants: whatever is special about an API is in its entry; nothing else in this room goes by the
number of an API. Kafka: `ApiKeys` and the cases of `KafkaApis.handle`.

To serve one more API: docs/ARCHITECTURE.md, "To serve one more API", has all that it needs.
"""

from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from ottla.broker.requests.access import Access
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer
from ottla.net.connection import Connection, Pending
from ottla.wire.apis import ApiKey
from ottla.wire.headers import RequestHeader
from ottla.wire.portions import InPortions
from ottla.wire.schema import Message

Parts = Sequence[Buffer]
"""An encoded response, header included; the server adds the size."""

Later = Coroutine[Any, Any, Parts]
"""What a handler returns that has to wait for ZooKeeper, a peer or a disk: it becomes a task."""

Response = Parts | Pending | None
"""What goes back to the connection: a response, one that comes later, or none at all (acks=0)."""

RequestT_contra = TypeVar("RequestT_contra", bound=Message, contravariant=True)

Handle = Callable[[BrokerServices, Connection, RequestHeader, RequestT_contra], "Response | Later"]
"""Plain and quick, or a coroutine function. OttlaError becomes the response, by `Api.error`."""

HandleInSlices = Callable[[BrokerServices, Connection, RequestHeader, RequestT_contra], Later]
"""Handles a request that was read in slices, and lets others run meanwhile."""

ErrorBody = Callable[[RequestT_contra, int, int, "str | None"], Message]
"""(request, version, error code, message) -> the response of a request that failed as a whole."""


class Quota(Enum):
    """Which bounds of its client a request counts against."""

    TIME = "time"
    TIME_AND_BYTES = "time and bytes"
    """The size of the request counts, too."""
    NONE = "none"
    """Brokers send it: no quota of a client holds it back."""


class InSlices(msgspec.Struct, Generic[RequestT_contra], frozen=True):
    """A large frame is read in slices, and handled by a function that works in slices, too."""

    handle: HandleInSlices[RequestT_contra]


class ReadInSlices(msgspec.Struct, frozen=True):
    """A large frame is read in slices, and handled as a whole: the request cannot be cut."""


class Api(msgspec.Struct, Generic[RequestT_contra], frozen=True):
    """One API as it is served."""

    request: type[RequestT_contra]
    handle: Handle[RequestT_contra]
    error: ErrorBody[RequestT_contra]
    access: Access
    """What a client must be allowed to do for it."""
    quota: Quota = Quota.TIME
    large: InPortions | InSlices[RequestT_contra] | ReadInSlices | None = None
    """How a large request is handled; None: as a whole."""
    pipelined: bool = False
    """A connection's next request of this kind is handled though this one is not answered yet."""
    control_plane: bool = False
    """From the controller: its frame never waits for memory that clients hold."""
    large_response: bool = False
    """Not begun while responses that no client reads fill their memory."""
    respond_unsupported: Callable[[RequestHeader], Parts] | None = None
    """How a version that is not served is answered; None: its connection is closed."""
    is_from_broker: Callable[[RequestHeader, RequestT_contra], bool] | None = None
    """Tells whether a broker sent a request that clients send as well: it counts for no client's
    quota."""

    @property
    def key(self) -> ApiKey:
        return ApiKey(self.request.API_KEY)

    @property
    def between_brokers(self) -> bool:
        return self.quota is Quota.NONE

    @property
    def min_version(self) -> int:
        return self.request.MIN_VERSION

    @property
    def max_version(self) -> int:
        return self.request.MAX_VERSION

    def error_response(self, request: RequestT_contra, version: int, error: OttlaError) -> Message:
        """Return the response for a request that failed as a whole."""
        code = error.code if error.code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
        return self.error(request, version, int(code), str(error) or None)


AnyApi = Api[Any]
"""An entry where what its requests are does not matter."""
