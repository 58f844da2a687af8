"""Log dirs from outside: what lies where, how full the volumes are, replicas sent to another dir.

Invariants: a broker that does not answer is named, not waited for; works with any Kafka (KIP-113,
KIP-827). Kafka: `LogDirsCommand` and the log dir moves of `ReassignPartitionsCommand`.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from ottla.client import configs
from ottla.client.client import Client
from ottla.client.configs import BROKER
from ottla.client.error_texts import explained
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, error_name
from ottla.model.ids import Partition, TopicPartition, by_topic
from ottla.model.printable import plural
from ottla.placement.plans import Places
from ottla.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
NOT_HERE_YET_S = 10.0
"""How long a replica is waited for that has yet to be created, as by Kafka's tool."""
LOOK_AGAIN_S = 0.1


class LogDir(NamedTuple):
    """One log dir of a broker; sizes in bytes, -1 where the broker does not tell."""

    broker: int
    path: str
    problem: str
    total: int
    usable: int


class Lying(NamedTuple):
    """A replica, or the copy that is to replace it (`is_future`), in a log dir."""

    partition: TopicPartition
    broker: int
    path: str
    size: int
    lag: int
    is_future: bool


class Described(NamedTuple):
    """What brokers said, who did not respond, and what others refused."""

    dirs: list[LogDir]
    replicas: list[Lying]
    silent: list[int]
    refused: Sequence[str] = ()


class LogDirRow(Struct):
    """A log dir as it is printed; sizes in bytes, None where the broker does not tell."""

    broker: int
    path: str
    problem: str | None
    total: int | None
    usable: int | None
    replicas: int
    arriving: int
    size: int


class ReplicaRow(Partition, frozen=True):
    """A replica as it is printed: see `Lying`."""

    broker: int
    path: str
    size: int
    lag: int
    is_future: bool


class LogDirs(Struct):
    """The log dirs of brokers, and what lies in them."""

    dirs: list[LogDirRow]
    replicas: list[ReplicaRow]


def known(size: int) -> int | None:
    return None if size < 0 else size


class Placed(NamedTuple):
    """How far one replica of a plan is on its way to its log dir."""

    partition: TopicPartition
    broker: int
    path: str
    state: str

    @property
    def done(self) -> bool:
        return self.state == "done"


async def describe(
    client: Client,
    brokers: Iterable[int],
    topics: Collection[str] = (),
    *,
    only: Mapping[str, Collection[int]] | None = None,
    timeout_s: float | None = None,
) -> Described:
    """Ask brokers at once for their log dirs, and for replicas of these topics (none: of all).

    `only`: partitions by topic; brokers are asked for no others then.
    """
    wanted = None
    if only is not None:
        wanted = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=sorted(numbers))
            for name, numbers in only.items()
        ]
    dirs: list[LogDir] = []
    replicas: list[Lying] = []
    silent = []
    refused = []
    asked = sorted(brokers)
    request = DescribeLogDirsRequest(topics=wanted)
    responses = await asyncio.gather(
        *(_response(client, request, broker, timeout_s) for broker in asked)
    )
    for broker, response in zip(asked, responses, strict=True):
        if response is None:
            silent.append(broker)
            continue
        if response.error_code:
            refused.append(f"log dirs of broker {broker}: {explained(response.error_code)}")
        for found in sorted(response.results, key=lambda r: r.log_dir):
            problem = error_name(found.error_code) if found.error_code else ""
            dirs.append(
                LogDir(broker, found.log_dir, problem, found.total_bytes, found.usable_bytes)
            )
            replicas += [
                Lying(
                    TopicPartition(t.name, p.partition_index),
                    broker,
                    found.log_dir,
                    p.partition_size,
                    p.offset_lag,
                    p.is_future_key,
                )
                for t in found.topics
                for p in t.partitions
                if not topics or t.name in topics
            ]
    return Described(dirs, replicas, silent, refused)


async def _response(
    client: Client, request: DescribeLogDirsRequest, broker: int, timeout_s: float | None
) -> DescribeLogDirsResponse | None:
    """Return None if the broker does not respond."""
    with contextlib.suppress(ConnectionLostError):
        return await client.call(request, broker, timeout_s=timeout_s)
    return None


def moving(described: Described) -> set[int]:
    """Return the brokers with a replica on its way to another log dir."""
    return {replica.broker for replica in described.replicas if replica.is_future}


async def place(client: Client, places: Places, throttle: int | None = None) -> None:
    """Have replicas lie where it is said; OttlaError names the first one that is refused."""
    brokers = sorted({broker for _, broker in places})
    if throttle is not None:
        rate = {THROTTLE: str(throttle)}
        for broker in brokers:
            await configs.alter(client, BROKER, str(broker), rate)
        for broker in brokers:
            await configs.wait_in_force(client, broker, rate)
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + NOT_HERE_YET_S
    left = dict(places)
    with client.waiting() as wait:
        while True:
            later: dict[tuple[TopicPartition, int], str] = {}
            for broker in brokers:
                of_it = {key: path for key, path in left.items() if key[1] == broker}
                if of_it:
                    later |= await _place_on(client, broker, of_it)
            left = later
            if not left:
                return
            (tp, broker), path = next(iter(left.items()))
            wait.text = f"{tp} is not on broker {broker} yet"
            if loop.time() >= give_up_s:
                raise OttlaError(f"{wait.text}; the broker will create it in {path}")
            await asyncio.sleep(LOOK_AGAIN_S)


async def _place_on(
    client: Client, broker: int, places: Places
) -> dict[tuple[TopicPartition, int], str]:
    """Ask one broker; return those of its replicas that it has yet to create."""
    r = AlterReplicaLogDirsRequest
    by_dir: dict[str, list[TopicPartition]] = {}
    for (tp, _), path in places.items():
        by_dir.setdefault(path, []).append(tp)
    dirs = [
        r.AlterReplicaLogDir(
            path=path,
            topics=[
                r.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        )
        for path, partitions in by_dir.items()
    ]
    response = await client.call(r(dirs=dirs), broker)
    later: dict[tuple[TopicPartition, int], str] = {}
    for topic in response.results:
        for p in topic.partitions:
            key = TopicPartition(topic.topic_name, p.partition_index), broker
            if p.error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
                later[key] = places[key]
            elif p.error_code:
                raise OttlaError(
                    f"{key[0]} on broker {broker} was not sent to {places[key]}: "
                    f"{explained(p.error_code)}"
                )
    return later


async def progress(client: Client, places: Places) -> list[Placed]:
    """Return how far each replica is on its way."""
    found = await describe(client, {broker for _, broker in places})
    current = {(r.partition, r.broker): r for r in found.replicas if not r.is_future}
    future = {(r.partition, r.broker): r for r in found.replicas if r.is_future}
    return [
        Placed(tp, broker, path, _state(current.get(key), future.get(key), path))
        for key, path in sorted(places.items())
        for tp, broker in (key,)
    ]


def _state(current: Lying | None, future: Lying | None, path: str) -> str:
    if future is not None and future.path == path:
        return (
            f"in progress, {plural(future.lag, 'record')} to go"
            if future.lag >= 0
            else "in progress"
        )
    if current is not None and current.path == path:
        return "done"
    return "not there" if current is None else f"in {current.path}"


async def wait(client: Client, places: Places, bound_s: float) -> int:
    """Wait until all replicas lie where they are to; return how many do not when time is up."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + bound_s
    with client.waiting() as wait:
        while True:
            left = [p for p in await progress(client, places) if not p.done]
            if not left or loop.time() >= give_up_s:
                return len(left)
            on = ", ".join(map(str, sorted({p.broker for p in left})))
            wait.text = f"replicas of broker {on} to be copied into their new log dirs"
            await asyncio.sleep(LOOK_AGAIN_S)
