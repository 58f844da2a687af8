"""Asking a cluster from plain code: topics, offsets by time, leaders; with bounded retries.

Invariants: every question ends, with a response or an OttlaError of one line, after
`kafka.default.api.timeout.ms` at most; leaders that move, die or are not yet known are asked again
with fresh metadata. The loop runs only inside these calls. Kafka: `OffsetFetcher` and
`ConsumerMetadata`.
"""

import asyncio
import atexit
import re
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.client.client import Client, Patience
from ottla.client.offsets import LogOffset, all_offsets
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
from ottla.wire.messages.records import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

T = TypeVar("T")

UNKNOWN_FOR_S = 3.0
"""How long a topic may be unknown before it counts as missing: new ones spread in moments."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as metadata has it; its id is zeros where brokers know none."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


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
        return self.client.patience(self.options.api_timeout_ms / 1000)

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
    ) -> dict[TopicPartition, LogOffset]:
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
    ) -> dict[TopicPartition, LogOffset]:
        """Return what `offsets` does."""
        return await all_offsets(self.client, asked, self.patience(), int(committed))

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


_idle: list[Cluster] = []
"""At most one, with its connections: Spark runs task after task in a Python worker."""


@contextmanager
def lent(options: SourceOptions) -> Iterator[Cluster]:
    """Lend a cluster, with the connections of the last one that was asked with these options.

    It is kept for the next if nothing failed and nothing was left half read.
    """
    cluster = _kept(options) or Cluster(options)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    close_kept()
    _idle.append(cluster)


def close_kept() -> None:
    """Close connections that wait for another task."""
    while (cluster := _kept(None)) is not None:
        cluster.close()


def _kept(options: SourceOptions | None) -> Cluster | None:
    """Take the one that is kept, if it has these options; any for None."""
    try:
        cluster = _idle.pop()
    except IndexError:  # none, or another thread was faster
        return None
    if options is None:
        return cluster
    if cluster.options != options:
        cluster.close()
        return None
    cluster.run(asyncio.sleep(0))  # notices what the brokers closed meanwhile
    return cluster


atexit.register(close_kept)


def _topic(found: Any) -> Topic:
    partitions = tuple(sorted(p.partition_index for p in found.partitions))
    return Topic(found.name, found.topic_id or ZERO_UUID, partitions)
