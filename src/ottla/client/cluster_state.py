"""All that is set up in a cluster, as one value: topics, settings, quotas, groups; differences.

`taken` asks any Kafka; `differences` and `steps` are pure. Invariants: what a step would do is what
`differences` says; nothing is deleted by itself.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from ottla.client import client_quotas, configs, groups, topics
from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

V = TypeVar("V")

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
KINDS = ("consumer", "streams", "")
"""Protocol types of groups with offsets."""


class TopicState(msgspec.Struct, forbid_unknown_fields=True):
    """A topic: the brokers of each partition, and the settings of its own."""

    replicas: list[list[int]]
    settings: dict[str, str]


class QuotaState(msgspec.Struct, forbid_unknown_fields=True):
    """Quotas of one user, client id, address, or of all others (None as name)."""

    entity: dict[str, str | None]
    values: dict[str, float]


class ClusterState(msgspec.Struct, forbid_unknown_fields=True):
    """A cluster as it is set up. Brokers are named by id, "default" being all of them."""

    cluster_id: str
    brokers: dict[str, dict[str, str]]
    topics: dict[str, TopicState]
    quotas: list[QuotaState]
    groups: dict[str, dict[str, dict[str, int]]]
    version: int = VERSION


class Difference(msgspec.Struct, frozen=True):
    """One thing that is not the same. `what`: topic, partitions, setting and so on."""

    what: str
    name: str
    before: str | float | list[int] | None
    after: str | float | list[int] | None


async def taken(client: Client) -> ClusterState:
    """Return how a cluster is set up now. Internal topics are left out."""
    response = await client.metadata(None)
    found = ClusterState(response.cluster_id or "", {}, {}, [], {})
    listed = [facts for facts in await topics.list_topics(client) if not facts.internal]
    settings = await configs.own_of_topics(client, [facts.name for facts in listed])
    for facts in listed:
        if facts.name in settings:
            found.topics[facts.name] = TopicState(
                [p.replicas for p in facts.partitions], _texts(settings[facts.name])
            )
    for name, broker in [("default", configs.ALL_BROKERS)] + [
        (str(b), str(b)) for b in await client.broker_ids()
    ]:
        every = await configs.settings(client, configs.BROKER, broker)
        source = configs.own_source(configs.BROKER, broker)
        own = {s.key: s.value for s in every if s.source == source and not s.sensitive}
        if own:
            found.brokers[name] = _texts(own)
    for quota in await client_quotas.describe(client, None):
        found.quotas.append(QuotaState(dict(quota.entity), dict(quota.values)))
    found.quotas.sort(key=lambda q: sorted(q.entity.items(), key=str))
    for group in await groups.list_groups(client):
        if group.protocol_type in KINDS:
            offsets: dict[str, dict[str, int]] = {}
            for tp, committed in sorted(
                (await groups.committed_offsets(client, group.group)).items()
            ):
                offsets.setdefault(tp.topic, {})[str(tp.partition)] = committed.offset
            found.groups[group.group] = offsets
    return found


def _texts(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in sorted(settings.items()) if value is not None}


def parse(data: bytes, where: str) -> ClusterState:
    """Return what a file of `cluster snapshot` says; OttlaError names what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise OttlaError(f"{where}: more than {MAX_BYTES:,} bytes are no snapshot of a cluster")
    try:
        found = msgspec.json.decode(data, type=ClusterState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OttlaError(
            f"{where} is no snapshot of a cluster: {error}; `ottla cluster snapshot` writes one"
        ) from None
    if found.version != VERSION:
        raise OttlaError(f"{where}: version {found.version}, expected {VERSION}")
    for name, topic in found.topics.items():
        if not topic.replicas or not all(topic.replicas):
            raise OttlaError(f"{where}: topic {name} has a partition without replicas")
    return found


def differences(
    before: ClusterState, after: ClusterState, *, with_groups: bool = True
) -> Iterator[Difference]:
    """Yield what is not the same in two clusters, or in one at two times."""
    for name in sorted({*before.topics, *after.topics}):
        yield from _topic(name, before.topics.get(name), after.topics.get(name))
    for name in sorted({*before.brokers, *after.brokers}):
        yield from _settings(
            "broker setting", name, before.brokers.get(name, {}), after.brokers.get(name, {})
        )
    old = {client_quotas.shown(q.entity): q.values for q in before.quotas}
    new = {client_quotas.shown(q.entity): q.values for q in after.quotas}
    for name in sorted({*old, *new}):
        yield from _settings("quota", name, old.get(name, {}), new.get(name, {}))
    if with_groups:
        for name in sorted({*before.groups, *after.groups}):
            one, other = before.groups.get(name), after.groups.get(name)
            if one is None or other is None:
                yield Difference("group", name, _there(one), _there(other))
            else:
                yield from _settings("offset", name, _flat(one), _flat(other))


def _topic(name: str, before: TopicState | None, after: TopicState | None) -> Iterator[Difference]:
    if before is None or after is None:
        counts = [None if t is None else len(t.replicas) for t in (before, after)]
        yield Difference("topic", name, *counts)
        return
    if len(before.replicas) != len(after.replicas):
        yield Difference("partitions", name, len(before.replicas), len(after.replicas))
    for i, (one, other) in enumerate(zip(before.replicas, after.replicas, strict=False)):
        if one != other:
            yield Difference("replicas", f"{name}-{i}", one, other)
    yield from _settings("topic setting", name, before.settings, after.settings)


def _settings(
    what: str, name: str, before: Mapping[str, str | float], after: Mapping[str, str | float]
) -> Iterator[Difference]:
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield Difference(what, f"{name}: {key}", before.get(key), after.get(key))


def _there(value: object) -> str | None:
    return None if value is None else "there"


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {f"{t}-{p}": offset for t, by in offsets.items() for p, offset in by.items()}


class Step(msgspec.Struct, frozen=True):
    """One change that makes a cluster more like a file; `done` tells what it was, in words."""

    kind: str = msgspec.field(name="step")
    name: str
    done: str = msgspec.field(name="details")


async def apply(
    client: Client, wanted: ClusterState, now: ClusterState, *, delete: bool, dry_run: bool
) -> list[Step]:
    """Make a cluster like `wanted`, or with `dry_run` only say how; return the steps.

    Topics that the file does not have are deleted only with `delete`. Replicas of partitions that
    are there, and offsets of groups, are left: `reassign` and `groups reset-offsets` are for them.
    """
    steps = []
    live = set(await client.broker_ids())
    for name, topic in sorted(wanted.topics.items()):
        here = now.topics.get(name)
        if here is None:
            known = all(live.issuperset(replicas) for replicas in topic.replicas)
            factor = min(len(topic.replicas[0]), len(live))
            steps.append(
                Step(
                    "create topic",
                    name,
                    f"{plural(len(topic.replicas), 'partition')}, "
                    + (
                        "replicas as in the file"
                        if known
                        else f"{factor} replicas, placed by the controller"
                    ),
                )
            )
            if not dry_run:
                await topics.create_topic(
                    client,
                    name,
                    settings=topic.settings,
                    assignment=topic.replicas if known else (),
                    partitions=-1 if known else len(topic.replicas),
                    replication_factor=-1 if known else factor,
                )
            continue
        steps += await _changed_topic(client, name, topic, here, dry_run=dry_run)
    if delete:
        gone = sorted(set(now.topics) - set(wanted.topics))
        steps += [Step("delete topic", name, "with all records") for name in gone]
        if gone and not dry_run:
            await topics.delete_topics(client, gone)
    for name in sorted({*wanted.brokers, *now.brokers}):
        changed, removed = _edits(wanted.brokers.get(name, {}), now.brokers.get(name, {}))
        if not changed and not removed:
            continue
        steps.append(Step("alter broker", name, _in_words(changed, removed)))
        if not dry_run:
            broker = configs.ALL_BROKERS if name == "default" else name
            await configs.alter(client, configs.BROKER, broker, changed, removed)
    steps += await _quotas(client, wanted, now, dry_run=dry_run)
    return steps


async def _changed_topic(
    client: Client, name: str, wanted: TopicState, now: TopicState, *, dry_run: bool
) -> list[Step]:
    more = len(wanted.replicas) - len(now.replicas)
    if more < 0:
        raise OttlaError(
            f"topic {name} has {plural(len(now.replicas), 'partition')}, {len(wanted.replicas)} "
            "in the "
            "file: topics never shrink"
        )
    changed, removed = _edits(wanted.settings, now.settings)
    if not more and not changed and not removed:
        return []
    parts = [f"{plural(len(wanted.replicas), 'partition')}"] if more else []
    parts += [_in_words(changed, removed)] if changed or removed else []
    if not dry_run:
        await topics.alter_topic(
            client,
            name,
            partitions=len(wanted.replicas) if more else None,
            changed=changed,
            removed=removed,
        )
    return [Step("alter topic", name, "; ".join(parts))]


async def _quotas(
    client: Client, wanted: ClusterState, now: ClusterState, *, dry_run: bool
) -> list[Step]:
    steps = []
    here = {client_quotas.shown(q.entity): q for q in now.quotas}
    there = {client_quotas.shown(q.entity): q for q in wanted.quotas}
    for name in sorted({*here, *there}):
        entity = (there.get(name) or here[name]).entity
        wished = there[name].values if name in there else {}
        found = here[name].values if name in here else {}
        changed, removed = _edits(wished, found)
        if changed or removed:
            steps.append(
                Step(
                    "alter quota",
                    name,
                    _in_words({k: f"{v:g}" for k, v in changed.items()}, removed),
                )
            )
            if not dry_run:
                await client_quotas.alter(client, entity, changed, removed)
    return steps


def _edits(wanted: Mapping[str, V], now: Mapping[str, V]) -> tuple[dict[str, V], list[str]]:
    """Return the settings or quotas to set, and those to delete."""
    changed = {key: value for key, value in wanted.items() if now.get(key) != value}
    return changed, sorted(set(now) - set(wanted))


def _in_words(changed: Mapping[str, str], removed: list[str]) -> str:
    gone = (f"{k} back to its default" for k in removed)
    return ", ".join([*(f"{k}={v}" for k, v in changed.items()), *gone])
