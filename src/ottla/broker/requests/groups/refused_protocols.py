"""Heartbeats of the new group protocols (KIP-848, KIP-932): listed, and refused at once.

Invariant: nothing is kept of a client that asks. librdkafka waits without an error for an API that
ApiVersions does not list, and fails at once on this answer; Java's clients fail at once either way.
Kafka: 3.9 in ZooKeeper mode refuses ConsumerGroupHeartbeat like this
(`KafkaApis.handleConsumerGroupHeartbeat`), in version 0 only.
"""

from typing import Any, NoReturn

from ottla.broker.requests.access import Access
from ottla.broker.requests.api import Api
from ottla.broker.services import BrokerServices
from ottla.model.errors import UnsupportedVersionError
from ottla.net.connection import Connection
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def refuse(
    _server: BrokerServices, _conn: Connection, _header: RequestHeader, _request: Any
) -> NoReturn:
    raise UnsupportedVersionError("only the classic group protocol is served")


CONSUMER_GROUP_HEARTBEAT = Api(
    ConsumerGroupHeartbeatRequest,
    refuse,
    access=Access(open="always refused"),
    error=error_response(ConsumerGroupHeartbeatResponse),
)
SHARE_GROUP_HEARTBEAT = Api(
    ShareGroupHeartbeatRequest,
    refuse,
    access=Access(open="always refused"),
    error=error_response(ShareGroupHeartbeatResponse),
)
