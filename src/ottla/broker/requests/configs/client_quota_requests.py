"""DescribeClientQuotas and AlterClientQuotas: who may use how much of every broker.

Invariants: what is written is valid as a whole, and the change notification follows it; an entity
left without bounds is deleted; messages are Kafka's. Kafka: `ZkAdminManager.describeClientQuotas`,
`alterClientQuotas` and `AdminZkClient.changeConfigs` (KIP-546, KIP-612).
"""

import logging
from collections.abc import Iterable, Mapping

from ottla.broker.quotas import quota_settings
from ottla.broker.quotas.client_quotas import ANY
from ottla.broker.quotas.quota_settings import CLIENTS, IPS, OF_ADDRESSES, OF_CLIENTS, USERS
from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, InvalidRequestError, OttlaError, UnsupportedVersionError
from ottla.net.connection import Connection
from ottla.security.acls import ALTER_CONFIGS, DESCRIBE_CONFIGS
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions
from ottla.zookeeper.znodes import sanitize

logger = logging.getLogger(__name__)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
EPSILON = 1e-6
_SHORT_NAMES = {USER: "user", CLIENT_ID: "client", IP: "ip"}
Component = DescribeClientQuotasRequest.ComponentData
_LARGEST = {"INT": 2**31 - 1, "LONG": 2**63 - 1}


# Describe ------------------------------------------------------------------------------


async def describe(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeClientQuotasRequest,
) -> Parts:
    """Handle DescribeClientQuotas."""
    wanted = _filter(request.components)
    entries = []
    for kind in quota_settings.KINDS:
        if not _may_match(kind, wanted, strict=request.strict):
            continue
        names = await quota_settings.names(server.session.store.configs, kind)
        settings = await server.session.store.configs.get_many(kind, names)
        for name, found in settings.items():
            entity = _entity(kind, name)
            values = quota_settings.numbers(kind, found)
            if values and _matches(entity, wanted, strict=request.strict):
                entries.append(_entry(entity, values))
    return respond(header, DescribeClientQuotasResponse(entries=entries))


def _filter(components: Iterable[Component]) -> dict[str, Component]:
    """Return the request's conditions by kind of entity."""
    wanted: dict[str, Component] = {}
    for component in components:
        kind = component.entity_type
        if kind in wanted:
            raise InvalidRequestError(
                f"Duplicate {_SHORT_NAMES[kind]} filter component entity type"
            )
        if kind == "":
            raise InvalidRequestError("Unexpected empty filter component entity type")
        if kind not in _SHORT_NAMES:
            raise UnsupportedVersionError(f"Custom entity type '{kind}' not supported")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequestError(f"Unexpected match type: {component.match_type}")
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination, IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _may_match(kind: str, wanted: Mapping[str, Component], *, strict: bool) -> bool:
    """Return whether it is worth reading a folder: addresses are a world of their own."""
    if kind == IPS:
        return IP in wanted or (not wanted and not strict)
    return IP not in wanted


def _entity(kind: str, name: str) -> dict[str, str]:
    if kind == IPS:
        return {IP: quota_settings.plain(name)}
    user, client = quota_settings.split(kind, name)
    parts = {USER: user, CLIENT_ID: client}
    return {part: value for part, value in parts.items() if value is not None}


def _matches(entity: Mapping[str, str], wanted: Mapping[str, Component], *, strict: bool) -> bool:
    """Return whether every condition holds and, if strict, nothing else is named."""
    if strict and entity.keys() - wanted.keys():
        return False
    for kind, component in wanted.items():
        name = entity.get(kind)
        if name is None:
            return False
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name != ANY:
            return False
    return True


def _entry(
    entity: Mapping[str, str], values: Mapping[str, float]
) -> DescribeClientQuotasResponse.EntryData:
    r = DescribeClientQuotasResponse
    return r.EntryData(
        entity=[
            r.EntityData(entity_type=kind, entity_name=None if name == ANY else name)
            for kind, name in entity.items()
        ],
        values=[r.ValueData(key=key, value=value) for key, value in values.items()],
    )


# Alter ---------------------------------------------------------------------------------


async def alter(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterClientQuotasRequest,
) -> Parts:
    """Handle AlterClientQuotas: each entry for itself."""
    results = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            await _alter(server, entry, validate_only=request.validate_only)
        except OttlaError as error:
            logger.info("quotas not altered error=%s", error)
            code, message = error.code, str(error)
        results.append(_result(entry, code, message))
    return respond(header, AlterClientQuotasResponse(entries=results))


def _result(
    entry: AlterClientQuotasRequest.EntryData, code: int, message: str | None
) -> AlterClientQuotasResponse.EntryData:
    r = AlterClientQuotasResponse
    return r.EntryData(
        error_code=code,
        error_message=message,
        entity=[
            r.EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity
        ],
    )


async def _alter(
    server: BrokerServices, entry: AlterClientQuotasRequest.EntryData, *, validate_only: bool
) -> None:
    kind, name = _named(entry.entity)
    store = server.session.store
    settings = await store.configs.get(kind, name)
    for op in entry.ops:
        if op.remove:
            settings.pop(op.key, None)
        else:
            settings[op.key] = _text(kind, op.key, op.value)
    if validate_only:
        return
    if settings or not await store.configs.drop(kind, name):
        await store.configs.set(kind, name, settings)
    await store.configs.changes.notify(f"{kind}/{name}")
    logger.info("quotas altered entity=%s/%s keys=%s", kind, name, ",".join(settings))


def _named(entity: Iterable[AlterClientQuotasRequest.EntityData]) -> tuple[str, str]:
    """Return the folder and the name of the znode whose bounds are meant."""
    parts: dict[str, str] = {}
    for part in entity:
        kind, name = part.entity_type, part.entity_name
        if kind not in _SHORT_NAMES:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
        parts[kind] = ANY if name is None else sanitize(name)
    if not parts:
        raise InvalidRequestError("Invalid empty client quota entity")
    if IP in parts:
        if len(parts) > 1:
            raise InvalidRequestError(
                "Invalid quota entity combination, IP entity should not be used with user/client "
                "ID entity."
            )
        return IPS, _address(parts[IP])
    if USER not in parts:
        return CLIENTS, parts[CLIENT_ID]
    if CLIENT_ID not in parts:
        return USERS, parts[USER]
    return USERS, f"{parts[USER]}/clients/{parts[CLIENT_ID]}"


def _address(name: str) -> str:
    """Return the name if it can be a client's address. Host names are not looked up."""
    if name != ANY:
        import ipaddress  # 0.5 MB, for a request that few clusters ever see

        try:
            ipaddress.ip_address(quota_settings.plain(name))
        except ValueError:
            raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.") from None
    return name


def _text(kind: str, key: str, value: float) -> str:
    """Return a bound as it is written; refuse what is no bound of this kind."""
    type_ = (OF_ADDRESSES if kind == IPS else OF_CLIENTS).get(key)
    if type_ is None:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if type_ == "DOUBLE":
        return repr(value)
    whole = int(value + EPSILON) if abs(value) <= _LARGEST[type_] else _LARGEST[type_]
    if abs(whole - value) > EPSILON:
        raise InvalidRequestError(f"Configuration {key} must be a {type_} value")
    return str(whole)


def _alter_error(
    request: AlterClientQuotasRequest, _version: int, code: int, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_result(e, code, message) for e in request.entries])


DESCRIBE_CLIENT_QUOTAS = Api(
    DescribeClientQuotasRequest,
    describe,
    access=on_cluster(DESCRIBE_CONFIGS),
    error=error_response(DescribeClientQuotasResponse, entries=None),
    large_response=True,
)
ALTER_CLIENT_QUOTAS = Api(
    AlterClientQuotasRequest,
    alter,
    access=on_cluster(ALTER_CONFIGS),
    error=_alter_error,
    large=in_portions("entries", "entries", many=MANY_CHANGES),
)
