"""What a cluster is asked for before an even spread of topics is proposed (`spread`).

Invariants: nothing is changed; works with any Kafka; a broker that does not respond leaves bytes
unknown, nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.client import log_dirs
from ottla.client.client import Client
from ottla.client.reassignments import in_progress, racks, replicas_of
from ottla.model.errors import UnknownTopicError
from ottla.model.ids import TopicPartition
from ottla.placement import byte_goal, spread
from ottla.placement.plans import Assignment, PlanError
from ottla.placement.spread import Proposal


async def propose(
    client: Client,
    topics: Sequence[str] | None,
    brokers: Sequence[int],
    replication_factor: int | None,
    *,
    rack_aware: bool = True,
    by_bytes: bool = False,
) -> tuple[Assignment, Proposal]:
    """Return the replicas of topics (None: all) and a proposal; no brokers means all that live.

    Topics not named count as load; so do bytes, if the brokers say how many there are. `by_bytes`:
    bytes are evened out, not the number of replicas.
    """
    live = await racks(client)
    chosen = _chosen(live, brokers, rack_aware=rack_aware)
    every = await replicas_of(client, None)
    wanted = {tp.topic for tp in every} if topics is None else set(topics)
    current = {tp: replicas for tp, replicas in every.items() if tp.topic in wanted}
    unknown = wanted.difference(tp.topic for tp in current)
    if unknown:
        raise UnknownTopicError(
            f"topic {min(unknown)} does not exist; `ottla topics list` shows those that do"
        )
    if not current:
        raise PlanError("there are no topics; `ottla topics create NAME` makes one")
    moving = [tp for tp in await in_progress(client) if tp in current]
    if moving:
        raise PlanError(
            f"{moving[0]} is being reassigned: wait for it (`ottla reassign list`) or cancel it"
        )
    others = {tp: replicas for tp, replicas in every.items() if tp not in current}
    held = await sizes(client, live)
    try:
        if by_bytes:
            return current, byte_goal.propose(current, chosen, held, others)
        return current, spread.propose(
            current, chosen, replication_factor, others=others, sizes=held
        )
    except ValueError as error:
        raise PlanError(f"{error}: name more of them, or fewer replicas") from None


def _chosen(
    live: Mapping[int, str | None], brokers: Sequence[int], *, rack_aware: bool
) -> dict[int, str | None]:
    dead = [b for b in brokers if b not in live]
    if dead:
        raise PlanError(
            f"--brokers: {dead[0]} is not alive; alive are {','.join(map(str, live)) or 'none'}"
        )
    if len(set(brokers)) != len(brokers):
        raise PlanError("--brokers names a broker twice; name each once")
    chosen = {b: live[b] if rack_aware else None for b in brokers or live}
    without = [b for b, rack in chosen.items() if rack is None]
    if 0 < len(without) < len(chosen):
        raise PlanError(
            f"broker {without[0]} has no rack while others have one; give all of them a "
            "broker.rack, or plan without racks by --ignore-racks"
        )
    return chosen


async def sizes(client: Client, brokers: Iterable[int]) -> dict[TopicPartition, int]:
    """Return the bytes of each partition's largest replica; those that no one tells are missing."""
    found: dict[TopicPartition, int] = {}
    for lying in (await log_dirs.describe(client, brokers)).replicas:
        if not lying.is_future:
            found[lying.partition] = max(lying.size, found.get(lying.partition, 0))
    return found
