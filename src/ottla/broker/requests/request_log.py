"""Request log: a line for each request that was slow; at level DEBUG, each one with its content.

Invariants: a warning a second at most, with the number of those that were left out; what a request
waits for because its client asked for that (records of a fetch, members of a group) is not slow. A
line at DEBUG is JSON with the keys of Kafka's; it never has a secret in it, and its size has a
bound. Kafka: `RequestChannel`, `RequestConvertToJson` and `kafka.request.logger`; a slow-request
log it has not.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ottla.broker.requests.request_times import (
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    Took,
    kind_name,
)
from ottla.model.config_keys import broker_keys, topic_keys
from ottla.model.errors import OttlaError, WireError
from ottla.net.connection import Connection
from ottla.net.timed import Timed
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_request, decode_response
from ottla.wire.headers import RequestHeader, decode_request_header, decode_response_header
from ottla.wire.json_form import HIDDEN, MOST_ELEMENTS, Room, json_form

logger = logging.getLogger(__name__)

WAITING = {FETCH_CONSUMER, FETCH_FOLLOWER, int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)}
"""Kinds whose remote time is what their clients wait for."""
QUIET_S = 1.0
MOST_CLIENT_ID = 80
FIELDS = (
    "api=%s version=%d correlation_id=%d client_id=%r peer=%s:%d listener=%s principal=%s "
    "total_ms=%.1f queue_ms=%.1f local_ms=%.1f remote_ms=%.1f "
    "response_queue_ms=%.1f send_ms=%.1f"
)
MOST_BYTES = 256 << 10
"""A larger message is not read for a line of the log: it would hold the loop up."""
MOST_BYTES_WITH_RECORDS = 4 << 20
"""The same of messages that are mostly records, of which only the size is shown."""
WITH_RECORDS = {int(ApiKey.PRODUCE), int(ApiKey.FETCH)}
OF_CONFIGS = {int(ApiKey.ALTER_CONFIGS), int(ApiKey.INCREMENTAL_ALTER_CONFIGS)}
DEPRECATED: dict[int, int] = {
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 3,
    ApiKey.LIST_OFFSETS: 0,
    ApiKey.OFFSET_COMMIT: 1,
    ApiKey.OFFSET_FETCH: 0,
    ApiKey.JOIN_GROUP: 1,
    ApiKey.CREATE_TOPICS: 1,
    ApiKey.DELETE_TOPICS: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 1,
    ApiKey.DESCRIBE_ACLS: 0,
    ApiKey.CREATE_ACLS: 0,
    ApiKey.DELETE_ACLS: 0,
    ApiKey.DESCRIBE_CONFIGS: 0,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 0,
    ApiKey.DESCRIBE_LOG_DIRS: 0,
    ApiKey.CREATE_DELEGATION_TOKEN: 0,
    ApiKey.RENEW_DELEGATION_TOKEN: 0,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 0,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 0,
}
"""The last version of each API that Kafka 3.9 calls deprecated (KIP-896)."""
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
"""Types of what has settings."""


class Heard(msgspec.Struct, gc=False):
    """What is kept of a request until its response is sent."""

    header: RequestHeader
    software: tuple[str, str]
    request: dict[str, Any] | None
    """Its content, where that is to be logged."""
    cut: list[str]
    """What is left out of the content."""


class RequestLog:
    """Hears of each request when it comes, and when its response was handed to the system."""

    def __init__(
        self,
        slow_ms: int,
        monotonic: Callable[[], float],
        protocols: Mapping[str, str] | None = None,
    ) -> None:
        """`protocols`: the security protocol of each listener."""
        self._slow_ms = slow_ms
        self._monotonic = monotonic
        self._protocols = protocols or {}
        self._quiet_until_s = 0.0
        self._unlogged = 0

    def heard(self, conn: Connection, timed: Timed, frame: memoryview) -> None:
        """Note a request that is dispatched now; WireError for a frame that is none."""
        header, pos = decode_request_header(frame)
        noted = Heard(header, conn.software, None, [])
        if logger.isEnabledFor(logging.DEBUG):
            noted.request = _request(header, frame, pos, noted.cut)
            timed.keeps_response = True
        timed.noted = noted

    def __call__(self, conn: Connection, timed: Timed, took: Took) -> None:
        noted: Any = timed.noted
        if noted.request is not None:
            logger.debug(
                "Completed request:%s",
                self._line(conn, timed, noted, took),
                extra={"event": "Completed request"},
            )
        waited = took.remote if timed.kind in WAITING else 0.0
        if not self._slow_ms or took.total - waited < self._slow_ms:
            return
        now_s = self._monotonic()
        if now_s < self._quiet_until_s:
            self._unlogged += 1
            return
        self._quiet_until_s = now_s + QUIET_S
        unlogged, self._unlogged = self._unlogged, 0
        header = noted.header
        client_id = (header.client_id or "")[:MOST_CLIENT_ID]
        logger.warning(
            "request slow " + FIELDS + " unlogged=%d",  # noqa: G003
            kind_name(timed.kind),
            header.api_version,
            header.correlation_id,
            client_id,
            *conn.peer,
            conn.listener,
            conn.principal,
            took.total,
            *took,
            unlogged,
        )

    def _line(self, conn: Connection, timed: Timed, noted: Heard, took: Took) -> str:
        """Return a request as Kafka's `kafka.request.logger` tells it."""
        header, cut = noted.header, noted.cut
        response = _response(header, timed.parts, cut)
        throttled_ms = response.get("throttleTimeMs", 0) if isinstance(response, dict) else 0
        software, software_version = noted.software
        line: dict[str, Any] = {
            "isForwarded": False,
            "requestHeader": _header(header),
            "request": noted.request,
            "response": response,
            "connection": _connection(conn),
            "totalTimeMs": round(took.total, 3),
            "requestQueueTimeMs": took.queue,
            "localTimeMs": took.local,
            "remoteTimeMs": took.remote,
            "throttleTimeMs": throttled_ms,
            "responseQueueTimeMs": took.response_queue,
            "sendTimeMs": took.send,
            "securityProtocol": self._protocols.get(conn.listener, ""),
            "principal": str(conn.principal),
            "listener": conn.listener,
            "clientInformation": {
                "softwareName": software,
                "softwareVersion": software_version,
            },
        }
        if cut:
            line["cut"] = cut
        return msgspec.json.encode(line).decode()


def request_log(
    slow_ms: int, monotonic: Callable[[], float], protocols: Mapping[str, str] | None = None
) -> RequestLog | None:
    """Return the log of a broker; None where there is nothing to log."""
    if not slow_ms and not logger.isEnabledFor(logging.DEBUG):
        return None
    return RequestLog(slow_ms, monotonic, protocols)


def _header(header: RequestHeader) -> dict[str, Any]:
    found: dict[str, Any] = {
        "requestApiKey": header.api_key,
        "requestApiVersion": header.api_version,
        "correlationId": header.correlation_id,
        "clientId": header.client_id,
        "requestApiKeyName": ApiKey(header.api_key).name,
    }
    if header.api_version <= DEPRECATED.get(header.api_key, -1):
        found["requestApiVersionDeprecated"] = True
    return found


def _connection(conn: Connection) -> str:
    """Return both ends of a connection and its number, as Kafka names it."""
    local, peer = conn.local, conn.peer
    return f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{conn.id}"


def _most_bytes(api_key: int) -> int:
    return MOST_BYTES_WITH_RECORDS if api_key in WITH_RECORDS else MOST_BYTES


def _request(header: RequestHeader, frame: memoryview, pos: int, cut: list[str]) -> dict[str, Any]:
    if len(frame) > _most_bytes(header.api_key):
        cut.append(f"request: all of its {len(frame)} bytes")
        return {}
    try:
        request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
    except WireError as error:
        cut.append(f"request: not read, {error}")
        return {}
    room = Room()
    found = json_form(request, header.api_version, room)
    if header.api_key in OF_CONFIGS:
        _hide_passwords(found)
    _note_cut(cut, "request", room)
    return found


def _response(
    header: RequestHeader, parts: Iterable[Any] | None, cut: list[str]
) -> dict[str, Any] | str:
    """Return the content of a response; an empty text where there is none."""
    if parts is None:
        return ""
    pieces = list(parts)
    size = sum(map(len, pieces))
    if size > _most_bytes(header.api_key):
        cut.append(f"response: all of its {size} bytes")
        return {}
    key, version = header.api_key, header.api_version
    whole = memoryview(b"".join(pieces))
    try:
        _, pos = decode_response_header(key, version, whole)
        response = decode_response(key, version, whole, pos)
    except OttlaError as error:
        cut.append(f"response: not read, {error}")
        return {}
    room = Room()
    found = json_form(response, version, room)
    _note_cut(cut, "response", room)
    return found


def _note_cut(cut: list[str], what: str, room: Room) -> None:
    if room.left_out:
        cut.append(f"{what}: {room.left_out} elements after the first {MOST_ELEMENTS}")
    if room.texts_cut:
        cut.append(f"{what}: the end of {room.texts_cut} long values")


def _hide_passwords(request: dict[str, Any]) -> None:
    """Replace the values of settings that are passwords, or unknown."""
    for resource in request["resources"]:
        keys = {TOPIC: topic_keys, BROKER: broker_keys}.get(resource["resourceType"])
        for config in resource["configs"]:
            known = keys().get(config["name"]) if keys is not None else None
            shown = resource["resourceType"] == BROKER_LOGGER or (
                known is not None and known.type != "password"
            )
            if not shown:
                config["value"] = HIDDEN
