"""What clients see of a cluster while brokers die: Metadata of one broker, and a producer.

Who may call: `crash.py`. Metadata is polled with a bare connection: an answer that is like the one
before is not even decoded, so that looking every few milliseconds costs the cluster and this
process little. Times are CLOCK_MONOTONIC.
"""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import ListOffsetsRequest

METADATA_VERSION = 9
LIST_OFFSETS_VERSION = 6
POLL_S = 0.005
ANSWER_S = 20.0
LATEST = -1
PROGRAM = Path(__file__).resolve().parent / "crash_producer.py"
MOST_BYTES = 2**22
LEFT_S = 40.0

Good = Callable[[Any], bool]
"""Says of one partition of a Metadata response whether it is as it is waited for."""


def led_without(broker: int) -> Good:
    """Another live broker leads."""
    return lambda p: p.error_code == 0 and p.leader_id not in (-1, broker)


def in_sync_without(broker: int) -> Good:
    """Another live broker leads, and the ISR is without this one."""
    return lambda p: led_without(broker)(p) and broker not in p.isr_nodes


def full(p: Any) -> bool:
    """A live broker leads, and all replicas are in sync."""
    return p.error_code == 0 and p.leader_id >= 0 and len(p.isr_nodes) == len(p.replica_nodes)


def preferred(p: Any) -> bool:
    """The first replica leads."""
    return full(p) and p.leader_id == p.replica_nodes[0]


class BrokerView:
    """One broker's answers, over one connection, one request at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        topics: dict[str, int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._topics = topics
        self._correlation_id = 0

    @classmethod
    async def open(cls, address: str, topics: dict[str, int]) -> Self:
        """Connect to host:port. `topics`: the number of partitions of each."""
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(ANSWER_S):
            streams = await asyncio.open_connection(host, int(port), limit=MOST_BYTES)
        return cls(*streams, topics)

    def close(self) -> None:
        self._writer.close()

    async def _ask(self, message: Any, version: int) -> memoryview:
        """Return a response, from its header on."""
        self._correlation_id += 1
        header = encode_request_header(message.API_KEY, version, self._correlation_id, "crash")
        self._writer.write(b"".join(frame(header, encode_request(message, version))))
        async with asyncio.timeout(ANSWER_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return memoryview(await self._reader.readexactly(size))

    async def call(self, message: Any, version: int) -> Any:
        """Return the decoded response to a request."""
        return _decoded(message, version, await self._ask(message, version))

    async def metadata(self) -> Any:
        """Return Metadata of all topics."""
        return await self.call(_metadata(list(self._topics)), METADATA_VERSION)

    async def until(self, good: Good, poll_s: float = POLL_S) -> float:
        """Poll until every partition is good; return when the answer came that says so.

        While the first topic that lacks something lacks it, only that one is asked for. The caller
        bounds the time.
        """
        lacking = list(self._topics)
        while True:
            await self._until_topic(lacking[0], good, poll_s)
            response = await self._ask(request := _metadata(lacking), METADATA_VERSION)
            at = time.monotonic()
            found = _decoded(request, METADATA_VERSION, response)
            lacking = [t.name for t in found.topics if not self._all_good(t, good)]
            if not lacking:
                return at
            await asyncio.sleep(poll_s)

    async def _until_topic(self, name: str, good: Good, poll_s: float) -> None:
        request, before = _metadata([name]), b""
        while True:
            response = await self._ask(request, METADATA_VERSION)
            data = response.tobytes()
            # What stands before the topics differs from answer to answer with KRaft: Metadata
            # names any broker as the controller.
            topic = data[data.find(name.encode()) :]
            if topic != before:
                before = topic
                (found,) = _decoded(request, METADATA_VERSION, response).topics
                if self._all_good(found, good):
                    return
            await asyncio.sleep(poll_s)

    def _all_good(self, topic: Any, good: Good) -> bool:
        return (
            topic.error_code == 0
            and len(topic.partitions) == self._topics[topic.name]
            and all(map(good, topic.partitions))
        )

    async def refusals(self, partitions: Sequence[tuple[str, int]]) -> int:
        """Ask this broker for the end of partitions; return for how many it refuses to."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        r = ListOffsetsRequest
        wanted = [
            r.ListOffsetsTopic(
                name=topic,
                partitions=[
                    r.ListOffsetsPartition(partition_index=p, timestamp=LATEST) for p in some
                ],
            )
            for topic, some in by_topic.items()
        ]
        request = r(replica_id=-1, isolation_level=0, topics=wanted)
        found = await self.call(request, LIST_OFFSETS_VERSION)
        served = sum(p.error_code == 0 for t in found.topics for p in t.partitions)
        return len(partitions) - served


def _metadata(names: list[str]) -> MetadataRequest:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(name=name) for name in names], allow_auto_topic_creation=False
    )


def _decoded(message: Any, version: int, response: memoryview) -> Any:
    _, position = decode_response_header(message.API_KEY, version, response)
    return decode_response(message.API_KEY, version, response, position)


class Producing:
    """A producer's process (`crash_producer.py`), for an `async with` block, and its reports."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        self._arguments = (bootstrap, topic, ",".join(map(str, partitions)))
        self.acked: dict[int, list[tuple[float, float]]] = {p: [] for p in partitions}
        """Of each partition: when records were sent and when acknowledged, in their order."""
        self.errors: list[int] = []
        """Codes of the errors that reached the application."""
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            if error[0] is None:
                async with asyncio.timeout(LEFT_S):
                    await self._reading
                    status = await self._process.wait()
                assert status == 0, f"the producer ended with {status}: records were left over"
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._reading.cancel()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            partition, sent, reported, code = line.split()
            if int(code):
                self.errors.append(int(code))
            else:
                self.acked[int(partition)].append((float(sent), float(reported)))
            self._news.set()
        self._news.set()

    async def until_acked(self, since: float) -> dict[int, float]:
        """Wait until each partition has a record acknowledged that was sent after `since`.

        Return when the first one of each was. The caller bounds the time.
        """
        while True:
            assert not self._reading.done(), "the producer ended"
            if all(acked and acked[-1][0] > since for acked in self.acked.values()):
                break
            self._news.clear()
            await self._news.wait()
        return {p: min(at for sent, at in acked if sent > since) for p, acked in self.acked.items()}

    def longest_gap(self, since: float) -> float:
        """Return the longest time between two acknowledgements of one partition, after `since`."""
        gaps = [0.0]
        for acked in self.acked.values():
            moments = [at for _, at in acked if at >= since]
            gaps += [later - one for one, later in itertools.pairwise(moments)]
        return max(gaps)
