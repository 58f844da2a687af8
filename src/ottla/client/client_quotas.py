"""Client quotas: what users, client ids and addresses may use of every broker, with any Kafka.

Invariants: an entity is named by its parts, None standing for the default of a part; only what is
named changes. Kafka: the quota half of `ConfigCommand` (KIP-546, KIP-612).
"""

from collections.abc import Collection, Mapping

from ottla.client.client import Client
from ottla.client.configs import Quota
from ottla.client.error_texts import reason
from ottla.model.errors import OttlaError
from ottla.wire.messages.configs import AlterClientQuotasRequest, DescribeClientQuotasRequest

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PARTS = (USER, CLIENT_ID, IP)
OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
OF_ADDRESSES = ("connection_creation_rate",)

EXACT, DEFAULT = 0, 1

Entity = Mapping[str, str | None]


def known_keys(entity: Entity) -> tuple[str, ...]:
    """Return the quotas that an entity can have."""
    return OF_ADDRESSES if IP in entity else OF_CLIENTS


def shown(entity: Entity) -> str:
    """Return an entity as a person says it: `user alice, client-id default`."""
    return ", ".join(f"{part} {'default' if n is None else n}" for part, n in entity.items())


async def describe(client: Client, entity: Entity | None) -> list[Quota]:
    """Return the quotas of exactly this entity, of all for None."""
    r = DescribeClientQuotasRequest
    wanted = {} if entity is None else entity
    components = [
        r.ComponentData(entity_type=part, match_type=DEFAULT if name is None else EXACT, match=name)
        for part, name in wanted.items()
    ]
    response = await client.call(r(components=components, strict=entity is not None))
    if response.error_code:
        raise OttlaError(f"quotas: {reason(response.error_code, response.error_message)}")
    found = [
        Quota(
            {e.entity_type: e.entity_name for e in entry.entity},
            {v.key: v.value for v in sorted(entry.values, key=lambda v: v.key)},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda q: [(p in q.entity, q.entity.get(p) or "") for p in PARTS])


async def alter(
    client: Client,
    entity: Entity,
    changed: Mapping[str, float],
    removed: Collection[str] = (),
    *,
    validate_only: bool = False,
) -> None:
    """Set and remove quotas of one entity; OttlaError with the broker's own reason."""
    r = AlterClientQuotasRequest
    entry = r.EntryData(
        entity=[r.EntityData(entity_type=p, entity_name=n) for p, n in entity.items()],
        ops=[
            *(r.OpData(key=k, value=v, remove=False) for k, v in changed.items()),
            *(r.OpData(key=k, value=0.0, remove=True) for k in removed),
        ],
    )
    response = await client.call(r(entries=[entry], validate_only=validate_only))
    result = response.entries[0]
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        raise OttlaError(f"quotas of {shown(entity)} were not changed: {why}")
