"""Settings of topics and brokers: asked and changed in a running cluster, with any Kafka.

Invariants: only what is named changes: by IncrementalAlterConfigs, or, where a cluster does not
serve it for topics, by reading what a topic has and writing that back changed; a broker's settings
are never written back, since its passwords cannot be read. What concerns a broker is asked of that
broker; the broker without a name stands for all of them. Responses to Kafka's `ConfigCommand`
(KIP-226, KIP-339).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ottla.client.client import CONTROLLER, Client
from ottla.client.error_texts import reason, with_way_out
from ottla.model.errors import ErrorCode, OttlaError, UnsupportedVersionError
from ottla.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.wire.messages.configs import AlterConfigsResponse

TOPIC, BROKER = 2, 4
ALL_BROKERS = ""
"""The name under which the dynamic defaults of all brokers go."""

SOURCES = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default",
    4: "static",
    5: "default",
    6: "logger",
}
"""Kafka's `ConfigSource` by number; static is server.properties."""

TYPES = ("", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

TOPICS_AT_ONCE = 100
"""In one request: all settings of as many are some 300 kB."""
IN_FORCE_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.05


class Synonym(msgspec.Struct, frozen=True):
    """One place a setting's value may come from; None for a value that is not shown."""

    key: str
    value: str | None
    source: str


class Setting(msgspec.Struct, frozen=True):
    """One setting as a broker tells it.

    `value` is None where it is sensitive or nothing. `synonyms` are in order of precedence: the
    first is in force, those after it would be if it were deleted.
    """

    key: str
    value: str | None
    source: str
    type: str
    read_only: bool
    sensitive: bool
    synonyms: list[Synonym]


class Quota(msgspec.Struct, frozen=True):
    """One entity and its bounds: bytes, percent, mutations or connections per second."""

    entity: dict[str, str | None]
    values: dict[str, float]


class Described(msgspec.Struct):
    """The settings or the quotas of an entity; of all entities if it is None."""

    entity: dict[str, str | None] | None
    settings: list[Setting]
    quotas: list[Quota]


class Changed(msgspec.Struct):
    """A change of one setting or quota, and the value that was in force before."""

    key: str
    before: str | float | None
    operation: str
    value: str | None


class Altered(msgspec.Struct):
    """The changes of an entity, and whether they were made."""

    entity: dict[str, str | None]
    executed: bool
    changes: list[Changed]


class Change(NamedTuple):
    """What is to be done to one setting: `operation` is SET, DELETE, APPEND or SUBTRACT."""

    operation: int
    key: str
    value: str | None = None


def shown(kind: int, name: str) -> str:
    """Return whose settings are meant, as a person says it."""
    if kind == TOPIC:
        return f"topic {name}"
    return "all brokers" if name == ALL_BROKERS else f"broker {name}"


def own_source(kind: int, name: str) -> str:
    """Return the source of what was set on the very thing."""
    if kind == TOPIC:
        return SOURCES[1]
    return SOURCES[3] if name == ALL_BROKERS else SOURCES[2]


def _target(kind: int, name: str) -> int | None:
    return int(name) if kind == BROKER and name != ALL_BROKERS else None


async def settings(
    client: Client,
    kind: int,
    name: str,
    keys: Collection[str] | None = None,
    *,
    timeout_s: float | None = None,
) -> list[Setting]:
    """Return these settings of a topic or broker as they are in force, all for None."""
    request = _asking(kind, [name], keys, synonyms=True)
    response = await client.call(request, _target(kind, name), timeout_s=timeout_s)
    result = response.results[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # A broker may not know a new topic yet; news begin at the controller.
        result = (await client.call(request, CONTROLLER, timeout_s=timeout_s)).results[0]
    return _read(kind, result)


def _asking(
    kind: int, names: Collection[str], keys: Collection[str] | None, *, synonyms: bool
) -> DescribeConfigsRequest:
    wanted = None if keys is None else sorted(keys)
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=wanted
        )
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=synonyms)


def _read(kind: int, result: DescribeConfigsResponse.DescribeConfigsResult) -> list[Setting]:
    """Return the settings in a result; OttlaError with the broker's own reason."""
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        text = f"settings of {shown(kind, result.resource_name)}: {why}"
        raise OttlaError(with_way_out(text, result.error_code), ErrorCode(result.error_code))
    return [
        Setting(
            c.name,
            c.value,
            SOURCES.get(c.config_source, "unknown"),
            TYPES[c.config_type] if 0 < c.config_type < len(TYPES) else "unknown",
            c.read_only,
            c.is_sensitive,
            [Synonym(s.name, s.value, SOURCES.get(s.source, "unknown")) for s in c.synonyms],
        )
        for c in result.configs
    ]


async def effective(
    client: Client,
    kind: int,
    name: str,
    keys: Collection[str] | None = None,
    *,
    timeout_s: float | None = None,
) -> dict[str, tuple[str | None, bool]]:
    """Return each setting's value in force, and whether it was set on this very thing."""
    own = own_source(kind, name)
    found = await settings(client, kind, name, keys, timeout_s=timeout_s)
    return {s.key: (s.value, s.source == own) for s in found}


async def own(
    client: Client,
    kind: int,
    name: str,
    keys: Collection[str] | None = None,
    *,
    timeout_s: float | None = None,
) -> dict[str, str | None]:
    """Return what was set on a topic or, while it runs, on a broker."""
    found = await effective(client, kind, name, keys, timeout_s=timeout_s)
    return {key: value for key, (value, is_own) in found.items() if is_own}


async def own_of_topics(
    client: Client, names: Iterable[str], keys: Collection[str] | None = None
) -> dict[str, dict[str, str | None]]:
    """Return what was set on each of many topics; one that is deleted meanwhile is left out."""
    source = own_source(TOPIC, "")
    found: dict[str, dict[str, str | None]] = {}
    asked = list(names)
    for target in (None, CONTROLLER):  # a broker may not know a new topic yet
        unknown = []
        async for result in of_topics(client, asked, keys, target):
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                unknown.append(result.resource_name)
            else:
                of_all = _read(TOPIC, result)
                found[result.resource_name] = {s.key: s.value for s in of_all if s.source == source}
        asked = unknown
    return found


async def of_topics(
    client: Client,
    names: Sequence[str],
    keys: Collection[str] | None = None,
    broker: str | None = None,
) -> AsyncIterator[DescribeConfigsResponse.DescribeConfigsResult]:
    """Yield what a broker says of each of many topics, its errors, too."""
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = names[start : start + TOPICS_AT_ONCE]
        response = await client.call(_asking(TOPIC, some, keys, synonyms=False), broker)
        for result in response.results:
            yield result


async def alter(
    client: Client,
    kind: int,
    name: str,
    changed: Mapping[str, str],
    removed: Collection[str] = (),
    *,
    validate_only: bool = False,
) -> None:
    """Set and remove settings of one topic or broker; OttlaError with the broker's own reason."""
    changes = [Change(SET, k, v) for k, v in changed.items()] + [Change(DELETE, k) for k in removed]
    await apply(client, kind, name, changes, validate_only=validate_only)


async def wait_in_force(
    client: Client, broker: int, wanted: Mapping[str, str], bound_s: float = IN_FORCE_WITHIN_S
) -> None:
    """Wait until a broker obeys dynamic settings of its own that were just changed.

    A broker responds to a change when it is in ZooKeeper, and hears of it from there a moment
    later: what begins in between is not under it yet. Of a setting that the broker does not show,
    as Kafka's does not show throttles, only that it is set can be seen. OttlaError after `bound_s`.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + bound_s
    with client.waiting() as wait:
        while True:
            found = {s.key: s for s in await settings(client, BROKER, str(broker), wanted)}
            missing = [k for k, value in wanted.items() if not _in_force(found.get(k), value)]
            if not missing:
                return
            problem = f"broker {broker} does not obey {missing[0]}={wanted[missing[0]]}"
            if loop.time() >= give_up_s:
                raise OttlaError(
                    f"{problem} after {bound_s:g} s; try again when it has a session with ZooKeeper"
                )
            wait.text = f"{problem} yet"
            await asyncio.sleep(LOOK_AGAIN_S)


def _in_force(setting: Setting | None, value: str) -> bool:
    if setting is None:
        return False
    if setting.value is None and setting.sensitive:
        return setting.source == SOURCES[2]
    return setting.value == value


async def apply(
    client: Client, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool = False
) -> None:
    """Make all these changes of one topic or broker or, if one of them is refused, none."""
    request = IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            request.AlterableConfig(name=c.key, config_operation=c.operation, value=c.value)
            for c in changes
        ],
    )
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse
    try:
        response = await client.call(
            request(resources=[resource], validate_only=validate_only), _target(kind, name)
        )
    except UnsupportedVersionError:
        if kind != TOPIC or any(c.operation in (APPEND, SUBTRACT) for c in changes):
            raise
        response = await _write_back(client, name, changes, validate_only=validate_only)
    result = response.responses[0]
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        raise OttlaError(
            with_way_out(
                f"settings of {shown(kind, name)} were not changed: {why}", result.error_code
            )
        )


async def _write_back(
    client: Client, topic: str, changes: Sequence[Change], *, validate_only: bool
) -> "AlterConfigsResponse":
    from ottla.wire.messages.configs import AlterConfigsRequest  # few clusters need it

    there = await own(client, TOPIC, topic)
    for change in changes:
        there.pop(change.key, None)
        if change.operation == SET:
            there[change.key] = change.value
    request = AlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[
            request.AlterableConfig(name=k, value=v) for k, v in there.items() if v is not None
        ],
    )
    return await client.call(request(resources=[resource], validate_only=validate_only))
