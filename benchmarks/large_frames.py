"""The longest callback of a broker's event loop for one frame of very many tiny elements.

A broker and ZooKeeper's zookeeper run in this process, on asyncio's own loop, with each callback
timed. PYTHONPATH=src python benchmarks/large_frames.py [--bytes 1000000] [--only ListOffsets ...]
Prints per API the longest callback in milliseconds of processor time, and how long the answer took.
`closed` says that the broker refused the frame.
"""

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ottla.broker.broker import Broker
from ottla.log.files import OsFiles
from ottla.model.config import BrokerConfig
from ottla.net import garbage
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.codec import encode_request, request_class
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.zookeeper.memory import MemoryZooKeeper

Make = Callable[[int], Any]


def _nested(key: int, outer: str, item: str, inner: str, leaf: Any, **fixed: Any) -> Make:
    """Return a maker of requests with one topic (or group) that holds n elements."""

    def make(n: int) -> Any:
        r = request_class(key)
        elements = [leaf(r, i) for i in range(n)]
        name = next(f.name for f in getattr(r, item).LAYOUT.fields if f.type == "string")
        return r(**{outer: [getattr(r, item)(**{name: "t", inner: elements})]}, **fixed)

    return make


def _flat(key: int, field: str, leaf: Any, **fixed: Any) -> Make:
    def make(n: int) -> Any:
        r = request_class(key)
        return r(**{field: [leaf(r, i) for i in range(n)]}, **fixed)

    return make


CASES: dict[str, tuple[int, int, Make]] = {
    "Fetch": (1, 11, _nested(1, "topics", "FetchTopic", "partitions",
        lambda r, i: r.FetchPartition(partition=i), replica_id=-1)),
    "ListOffsets": (2, 5, _nested(2, "topics", "ListOffsetsTopic", "partitions",
        lambda r, i: r.ListOffsetsPartition(partition_index=i), replica_id=-1)),
    "Metadata": (3, 9, _flat(3, "topics",
        lambda r, i: r.MetadataRequestTopic(name=f"{i:x}"), allow_auto_topic_creation=False)),
    "OffsetCommit": (8, 8, _nested(8, "topics", "OffsetCommitRequestTopic", "partitions",
        lambda r, i: r.OffsetCommitRequestPartition(partition_index=i), group_id="g")),
    "OffsetFetch": (9, 7, _nested(9, "topics", "OffsetFetchRequestTopic", "partition_indexes",
        lambda _r, i: i, group_id="g")),
    "FindCoordinator": (10, 4, _flat(10, "coordinator_keys", lambda _r, i: f"{i:x}", key_type=5)),
    "JoinGroup": (11, 6, _flat(11, "protocols",
        lambda r, i: r.JoinGroupRequestProtocol(name=f"{i:x}"), group_id="g",
        protocol_type="consumer", session_timeout_ms=10000)),
    "DescribeGroups": (15, 5, _flat(15, "groups", lambda _r, i: f"{i:x}")),
    "CreateTopics": (19, 5, _flat(19, "topics",
        lambda r, i: r.CreatableTopic(name=f"{i:x}", num_partitions=1, replication_factor=9))),
    "DeleteTopics": (20, 5, _flat(20, "topic_names", lambda _r, i: f"{i:x}")),
    "DeleteRecords": (21, 2, _nested(21, "topics", "DeleteRecordsTopic", "partitions",
        lambda r, i: r.DeleteRecordsPartition(partition_index=i))),
    "OffsetForLeaderEpoch": (23, 4, _nested(23, "topics", "OffsetForLeaderTopic", "partitions",
        lambda r, i: r.OffsetForLeaderPartition(partition=i), replica_id=-1)),
    "AddPartitionsToTxn": (24, 3, _nested(24, "v3_and_below_topics", "AddPartitionsToTxnTopic",
        "partitions", lambda _r, i: i, v3_and_below_transactional_id="x")),
    "TxnOffsetCommit": (28, 3, _nested(28, "topics", "TxnOffsetCommitRequestTopic", "partitions",
        lambda r, i: r.TxnOffsetCommitRequestPartition(partition_index=i), group_id="g")),
    "DescribeConfigs": (32, 4, _flat(32, "resources",
        lambda r, _i: r.DescribeConfigsResource(resource_type=4, resource_name="1"))),
    "IncrementalAlterConfigs": (44, 1, _flat(44, "resources",
        lambda r, i: r.AlterConfigsResource(resource_type=2, resource_name=f"{i:x}"))),
    "CreatePartitions": (37, 2, _flat(37, "topics",
        lambda r, i: r.CreatePartitionsTopic(name=f"{i:x}", count=2))),
    "DeleteGroups": (42, 2, _flat(42, "groups_names", lambda _r, i: f"{i:x}")),
    "ElectLeaders": (43, 2, _nested(43, "topic_partitions", "TopicPartitions", "partitions",
        lambda _r, i: i)),
    "AlterPartitionReassignments": (45, 0, _nested(45, "topics", "ReassignableTopic", "partitions",
        lambda r, i: r.ReassignablePartition(partition_index=i, replicas=None))),
    "DescribeProducers": (61, 0, _nested(61, "topics", "TopicRequest", "partition_indexes",
        lambda _r, i: i)),
    "DescribeTransactions": (65, 0, _flat(65, "transactional_ids", lambda _r, i: f"{i:x}")),
}  # fmt: skip
"""Name -> (API key, version, maker)."""


def longest_callback() -> Callable[[], float]:
    """Time each callback of asyncio from now on; return a function that tells and forgets."""
    longest = 0.0
    plain = asyncio.events.Handle._run  # noqa: SLF001

    def run(handle: Any) -> None:
        nonlocal longest
        began = time.thread_time()
        plain(handle)
        longest = max(longest, time.thread_time() - began)

    asyncio.events.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001

    def told() -> float:
        nonlocal longest
        value, longest = longest, 0.0
        return value

    return told


def _of_size(make: Make, version: int, size: int) -> Any:
    """Return the request that takes about `size` bytes."""
    probe = 2000
    per_element = len(b"".join(encode_request(make(probe), version))) / probe
    return make(max(int(size / per_element), 1))


async def main(size: int, only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = real_world(OsFiles())
        zookeeper = MemoryZooKeeper(world)
        await zookeeper.start()
        settings = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{zookeeper.port}",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": f"{folder}/data",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
        }
        broker = Broker(BrokerConfig(settings), world, host_name="127.0.0.1")
        await broker.start()
        await broker.services.metadata.wait_ready(10)
        port = broker.services.metadata.snapshot.endpoint(1, "PLAINTEXT").port
        peer = await PeerConnection.open(world, "127.0.0.1", port, "t", timeout_s=5)
        r = CreateTopicsRequest
        wanted = [r.CreatableTopic(name="t", num_partitions=2, replication_factor=1)]
        await peer.send(r(topics=wanted, timeout_ms=5000), 5, 10)
        told = longest_callback()
        for name, (key, version, make) in CASES.items():
            if only and name not in only:
                continue
            request = _of_size(make, version, size)
            raw = b"".join(encode_request(request, version))
            del request
            warm = b"".join(encode_request(_of_size(make, version, 40_000), version))
            await _one(port, key, version, warm, told)  # what is compiled once is not measured
            stall, outcome = await _one(port, key, version, raw, told)
            print(f"{name:28} {stall * 1000:8.0f} ms {outcome}", flush=True)
        peer.close()
        await broker.shutdown()


async def _one(
    port: int, key: int, version: int, raw: bytes, told: Callable[[], float]
) -> tuple[float, str]:
    head = encode_request_header(key, version, 1, "hostile")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    whole = (len(head) + len(raw)).to_bytes(4, "big") + head + raw
    writer.write(whole[:-1])
    await writer.drain()
    await asyncio.sleep(0.3)
    told()
    began = time.perf_counter()
    writer.write(whole[-1:])
    try:
        got = int.from_bytes(await reader.readexactly(4), "big")
        # The longest callback up to the answer's first bytes: reading it here counts for nothing.
        stall = told()
        outcome = f"{got:>10} bytes"
    except asyncio.IncompleteReadError:
        stall, outcome = told(), "closed"
    took = time.perf_counter() - began
    writer.close()
    return stall, f"{took:6.2f} s {outcome:>16} for {len(whole)} bytes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    garbage.begin()
    asyncio.run(main(arguments.bytes, arguments.only))
