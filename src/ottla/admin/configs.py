"""Settings of topics and brokers: asked and changed in a running cluster, with any Kafka.

Who may call: the admin room. Invariants: only what is named changes: by IncrementalAlterConfigs,
or, where a cluster does not serve it for topics, by reading what a topic has and writing that back
changed; a broker's settings are never written back, since its passwords cannot be read. What
concerns a broker is asked of that broker. Answers to Kafka's `ConfigCommand` (KIP-339).
"""

from collections.abc import Collection, Mapping

from ottla.admin.session import error_name
from ottla.model.errors import ErrorCode, OttlaError, UnsupportedVersionError
from ottla.net.client import CONTROLLER, Client
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER = 2, 4
OWN_SOURCE = {TOPIC: 1, BROKER: 2}
"""The source of a setting that was set on the very thing (`DYNAMIC_TOPIC_CONFIG`, `…_BROKER_…`)."""

SET, DELETE = 0, 1


def reason(code: int, message: str | None) -> str:
    """Return a broker's own words with Kafka's name of the error."""
    name = error_name(code)
    return f"{message.rstrip('.')} ({name})" if message else name


def _shown(kind: int, name: str) -> str:
    return f"{'topic' if kind == TOPIC else 'broker'} {name}"


def _target(kind: int, name: str) -> int | None:
    return int(name) if kind == BROKER else None


async def effective(
    client: Client,
    kind: int,
    name: str,
    keys: Collection[str] | None = None,
    *,
    timeout_s: float | None = None,
) -> dict[str, tuple[str | None, bool]]:
    """Return each setting's value in force, and whether it was set on this very thing."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else sorted(keys),
    )
    request = DescribeConfigsRequest(resources=[resource])
    response = await client.call(request, _target(kind, name), timeout_s=timeout_s)
    result = response.results[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # A broker may not have been told of a new topic yet; news begin at the controller.
        result = (await client.call(request, CONTROLLER, timeout_s=timeout_s)).results[0]
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        raise OttlaError(f"settings of {_shown(kind, name)}: {why}")
    source = OWN_SOURCE[kind]
    return {c.name: (c.value, c.config_source == source) for c in result.configs}


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
    request = IncrementalAlterConfigsRequest
    operations = [
        *(
            request.AlterableConfig(name=k, config_operation=SET, value=v)
            for k, v in changed.items()
        ),
        *(request.AlterableConfig(name=k, config_operation=DELETE, value=None) for k in removed),
    ]
    resource = request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=operations
    )
    try:
        response = await client.call(
            request(resources=[resource], validate_only=validate_only), _target(kind, name)
        )
    except UnsupportedVersionError:
        if kind != TOPIC:
            raise
        response = await _write_back(client, name, changed, removed, validate_only=validate_only)
    result = response.responses[0]
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        raise OttlaError(f"settings of {_shown(kind, name)} were not changed: {why}")


async def _write_back(
    client: Client,
    topic: str,
    changed: Mapping[str, str],
    removed: Collection[str],
    *,
    validate_only: bool,
) -> object:
    kept = {k: v for k, v in (await own(client, TOPIC, topic)).items() if k not in removed}
    request = AlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[
            request.AlterableConfig(name=k, value=v)
            for k, v in {**kept, **changed}.items()
            if v is not None
        ],
    )
    response: object = await client.call(request(resources=[resource], validate_only=validate_only))
    return response
