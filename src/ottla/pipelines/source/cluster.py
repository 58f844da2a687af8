"""Asking a cluster from plain code: topics, offsets by time, leaders; with bounded retries.

Invariants: every question ends, with a response or an OttlaError of one line, after
`kafka.default.api.timeout.ms` at most; leaders that move, die or are not yet known are asked again
with fresh metadata. The loop runs only inside these calls. Kafka: `OffsetFetcher` and
`ConsumerMetadata`.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.client.client import Client
from ottla.log.files import OsFiles
from ottla.model.errors import (
    ConfigError,
    ConnectionLostError,
    ErrorCode,
    OttlaError,
    UnknownTopicError,
    error_name,
)
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.net import runtime
from ottla.pipelines.source.options import SourceOptions, Subscription
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.records import ListOffsetsRequest, OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

T = TypeVar("T")

UNKNOWN_FOR_S = 3.0
"""How long a topic may be unknown before it counts as missing: new ones spread in moments."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as metadata has it; its id is zeros where brokers know none."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A response to ListOffsets: -1 where no record is as late as the time asked for."""

    offset: int
    leader_epoch: int


class Patience:
    """Waits between attempts, longer each time, until the time that is granted is over."""

    def __init__(self, granted_s: float) -> None:
        self._granted_s = granted_s
        self.renew()

    def renew(self) -> None:
        """Start anew: something succeeded."""
        self._ends_s = time.monotonic() + self._granted_s
        self._wait_s = FIRST_WAIT_S

    async def wait(self, error: OttlaError) -> None:
        """Wait before the next attempt; raise the error if it lasts or there is no time left."""
        if not error.retriable or time.monotonic() + self._wait_s > self._ends_s:
            raise error
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)


async def metadata_within(
    client: Client, names: Iterable[str] | None, bootstrap: str, seconds: float
) -> MetadataResponse:
    """Return metadata; ConnectionLostError that names the brokers if that takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await client.metadata(names)
    except TimeoutError:
        why = "" if client.last_failure is None else f": {client.last_failure}"
        raise ConnectionLostError(
            f"no response from {bootstrap} within {seconds:g} s{why}"
        ) from None


def _security(options: SourceOptions) -> "ClientSecurity | None":
    """Return how to connect; None: in the clear."""
    settings = options.client_settings()
    if not settings:
        return None
    from ottla.security.client_properties import client_security

    return client_security(settings)


class Cluster:
    """One cluster; open it with `with`."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._runner = asyncio.Runner(loop_factory=runtime.loop_factory())
        self._client: Client | None = None
        self._reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; may be called again."""
        client, self._client = self._client, None
        if client is not None:
            self.run(client.close())
            self.run(asyncio.sleep(0))
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._runner.get_loop().run_until_complete(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a coroutine: it runs until it waits, and goes on while others are run."""
        task = self._runner.get_loop().create_task(work)
        self.run(asyncio.sleep(0))
        return task

    def finish(self, task: asyncio.Task[T]) -> T:
        """Run what was started to its end."""
        return self._runner.get_loop().run_until_complete(task)

    @property
    def client(self) -> Client:
        """The client, made inside the loop."""
        if self._client is None:
            self._client = Client(
                runtime.real_world(OsFiles()),
                self.options.bootstrap,
                self.options.client_id,
                timeout_s=self.options.request_timeout_ms / 1000,
                security=_security(self.options),
            )
        return self._client

    def patience(self) -> Patience:
        return Patience(self.options.api_timeout_ms / 1000)

    # -- questions ------------------------------------------------------------------------------

    def topics(self, subscription: Subscription) -> dict[str, Topic]:
        """Return the topics subscribed to; UnknownTopicError for one that does not exist.

        A pattern may match none. Single partitions that do not exist are a ConfigError.
        """
        return self.run(self._topics(subscription))

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of the topics that exist."""
        return self.run(self._existing(sorted(names)))

    def offsets(
        self, asked: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the offset of each partition at a timestamp in ms, or at EARLIEST or LATEST.

        LATEST is the high watermark, with `committed` the last stable offset.
        """
        return self.run(self.offsets_of(asked, committed=committed))

    async def _topics(self, subscription: Subscription) -> dict[str, Topic]:
        if subscription.pattern is not None:
            metadata = await self._metadata(None)
            matches = re.compile(subscription.pattern).fullmatch
            names = [t.name or "" for t in metadata.topics if not t.is_internal]
            return await self._existing(sorted(filter(matches, names)))
        chosen = subscription.partitions
        wanted = subscription.topics if chosen is None else sorted(chosen)
        found = await self._existing(wanted)
        for name in wanted:
            if name not in found:
                raise UnknownTopicError(f"topic {name} does not exist at {self.options.bootstrap}")
        if chosen is None:
            return found
        for name, partitions in chosen.items():
            missing = sorted(set(partitions) - set(found[name].partitions))
            if missing:
                raise ConfigError(f"option assign: {name} has no partition {missing[0]}")
        return {n: Topic(n, found[n].topic_id, tuple(chosen[n])) for n in wanted}

    async def _existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Ask until all are known without an error, or the unknown ones have been so for long."""
        wanted = list(names)
        if not wanted:
            return {}
        patience = self.patience()
        until_s = time.monotonic() + UNKNOWN_FOR_S
        while True:
            metadata = await self._metadata(wanted)
            errors = {t.name: t.error_code for t in metadata.topics if t.error_code}
            for name, code in errors.items():
                if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise ConfigError(f"{name!r} is no name of a topic")
            unknown = set(errors.values()) <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if not errors or (unknown and time.monotonic() > until_s):
                return {t.name or "": _topic(t) for t in metadata.topics if not t.error_code}
            name, code = next(iter(errors.items()))
            await patience.wait(
                OttlaError(f"metadata of topic {name}: {error_name(code)}", ErrorCode(code))
            )

    async def _metadata(self, names: list[str] | None) -> MetadataResponse:
        patience = self.patience()
        longest_s = self.options.api_timeout_ms / 1000
        while True:
            try:
                found = await metadata_within(self.client, names, self.options.bootstrap, longest_s)
                self._reached = True
                return found
            except ConnectionLostError as error:
                # A cluster that was there may come back; a wrong address never responds.
                if not self._reached:
                    raise ConnectionLostError(
                        f"{error}; is kafka.bootstrap.servers={self.options.bootstrap} right?"
                    ) from None
                await patience.wait(error)

    async def offsets_of(
        self, asked: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return what `offsets` does."""
        found: dict[TopicPartition, FoundOffset] = {}
        patience = self.patience()
        while True:
            left = {tp: at for tp, at in asked.items() if tp not in found}
            if not left:
                return found
            before = len(found)
            problem = await self._ask_leaders(left, found, committed=committed)
            if problem is not None:
                if len(found) > before:
                    patience.renew()
                await patience.wait(problem)
                await self._metadata(sorted({tp.topic for tp in left}))

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int:
        """Return where the log ends that leaders up to an epoch have written (KIP-320).

        -1 if the leader does not know. OttlaError if the response is an error.
        """
        leader = await self.client.leader(*tp)
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=self.client.leader_epoch(*tp),
            leader_epoch=epoch,
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=tp.topic, partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        response = (await self.client.call(request, leader)).topics[0].partitions[0]
        if response.error_code:
            code = ErrorCode(response.error_code)
            raise OttlaError(f"leader epochs of {tp}: {error_name(code)}", code)
        return int(response.end_offset)

    async def _ask_leaders(
        self,
        asked: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        *,
        committed: bool,
    ) -> OttlaError | None:
        """Ask each leader once, all at the same time; return what is to be tried again, and why."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        problem: OttlaError | None = None
        for tp, at in asked.items():
            try:
                leader = await self.client.leader(tp.topic, tp.partition)
            except OttlaError as error:
                problem = error
            else:
                by_leader.setdefault(leader, {})[tp] = at
        responses = await asyncio.gather(
            *(
                self.client.call(
                    offsets_request(part, self.client.leader_epoch, committed=committed), leader
                )
                for leader, part in by_leader.items()
            ),
            return_exceptions=True,
        )
        for response in responses:
            if isinstance(response, OttlaError):
                problem = response
            elif isinstance(response, BaseException):
                raise response
            else:
                problem = _take(response, found) or problem
        return problem


def refuse_unknown(options: SourceOptions) -> None:
    """Ask for what is subscribed to; OttlaError if it does not exist, or no broker responds."""
    with Cluster(options) as cluster:
        cluster.topics(options.subscription)


def offsets_request(
    asked: Mapping[TopicPartition, int],
    leader_epoch: Callable[[str, int], int] = lambda _topic, _partition: -1,
    *,
    committed: bool = False,
) -> Any:
    """Return a ListOffsetsRequest for partitions of one leader, each at a timestamp."""
    topics: dict[str, list[Any]] = {}
    for tp, timestamp in asked.items():
        topics.setdefault(tp.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=leader_epoch(tp.topic, tp.partition),
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _take(response: Any, found: dict[TopicPartition, FoundOffset]) -> OttlaError | None:
    """Keep the offsets of a response; return the last error in it."""
    problem = None
    for topic in response.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                problem = OttlaError(
                    f"offsets of {tp}: {error_name(one.error_code)}", ErrorCode(one.error_code)
                )
            else:
                found[tp] = FoundOffset(one.offset, one.leader_epoch)
    return problem


def _topic(found: Any) -> Topic:
    partitions = tuple(sorted(p.partition_index for p in found.partitions))
    return Topic(found.name, found.topic_id or ZERO_UUID, partitions)
