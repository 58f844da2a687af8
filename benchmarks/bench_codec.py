"""Microseconds per message for the codec's hot paths, best of several rounds.

Run `python benchmarks/bench_codec.py`; figures double or triple on a busy machine.
"""

import os
import sys
import time
import timeit
from importlib import import_module

from ottla.wire import batch_header, codec, headers, records
from ottla.wire.apis import APIS
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.records import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse


def show(name, function, number=2000):
    best = min(timeit.repeat(function, number=number, repeat=7)) / number
    print(f"{name:58s} {best * 1e6:9.2f} us")


def produce_request(partitions, size):
    parts = [
        ProduceRequest.PartitionProduceData(index=i, records=bytes(size)) for i in range(partitions)
    ]
    topic = ProduceRequest.TopicProduceData(name="events", partition_data=parts)
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produce_response():
    part = ProduceResponse.PartitionProduceResponse(index=0, base_offset=12345)
    topic = ProduceResponse.TopicProduceResponse(name="events", partition_responses=[part])
    return ProduceResponse(responses=[topic])


def fetch_request(partitions):
    parts = [
        FetchRequest.FetchPartition(partition=i, fetch_offset=i, partition_max_bytes=1 << 20)
        for i in range(partitions)
    ]
    topic = FetchRequest.FetchTopic(topic="events", topic_id=bytes(16), partitions=parts)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(data):
    part = FetchResponse.PartitionData(
        high_watermark=5, last_stable_offset=5, log_start_offset=0, records=data
    )
    topic = FetchResponse.FetchableTopicResponse(topic="events", partitions=[part])
    return FetchResponse(responses=[topic])


def metadata_response(partitions):
    parts = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=i,
            leader_id=i % 3,
            leader_epoch=4,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for i in range(partitions)
    ]
    topic = MetadataResponse.MetadataResponseTopic(
        name="events", topic_id=bytes(16), partitions=parts
    )
    return MetadataResponse(topics=[topic])


def joined(message, version, *, request):
    encode = codec.encode_request if request else codec.encode_response
    return memoryview(bytearray(b"".join(encode(message, version))))


def bench_messages():
    header = memoryview(headers.encode_request_header(0, 9, 7, "producer-1"))
    show("request header v2, parse", lambda: headers.decode_request_header(header))
    show("response header, write", lambda: headers.response_header(0, 9, 7))
    for partitions, size in ((1, 1024), (1, 1 << 20), (10, 1024)):
        frame = joined(produce_request(partitions, size), 9, request=True)
        name = f"Produce v9 request, {partitions} x {size} B, parse"
        show(name, lambda frame=frame: codec.decode_request(0, 9, frame))
    answer = produce_response()
    show("Produce v9 response, build", produce_response)
    show("Produce v9 response, write", lambda: codec.encode_response(answer, 9))
    for version in (12, 17):
        frame = joined(fetch_request(1), version, request=True)
        name = f"Fetch v{version} request, parse"
        show(name, lambda frame=frame, v=version: codec.decode_request(1, v, frame))
    data = bytes(1 << 20)
    message = fetch_response(data)
    show("Fetch v12 response, build", lambda: fetch_response(data))
    show("Fetch v12 response, 1 MiB of records, write", lambda: codec.encode_response(message, 12))
    frame = joined(message, 12, request=False)
    show("Fetch v12 response, parse", lambda: codec.decode_response(1, 12, frame))
    metadata = metadata_response(1000)
    frame = joined(metadata, 12, request=False)
    show("Metadata v12, 1000 partitions, write", lambda: codec.encode_response(metadata, 12), 50)
    show("Metadata v12, 1000 partitions, parse", lambda: codec.decode_response(3, 12, frame), 50)


def bench_records():
    for count, size in ((1, 100), (1, 1024), (140, 100), (600, 100)):
        many = [records.Record(timestamp=1000 + i // 100, value=bytes(size)) for i in range(count)]
        batch = memoryview(bytearray(records.build_batch(many)))
        header = records.parse_batch_header(batch)
        what = f"{count} x {size} B"
        show("batch header, parse", lambda batch=batch: records.parse_batch_header(batch))
        show(f"batch {what}, CRC", lambda b=batch, h=header: records.crc_ok(b, 0, h))
        show(
            f"batch {what}, every record checked",
            lambda p=bytes(batch[batch_header.HEADER_BYTES :]), n=count: records.check_records(
                p, n
            ),
            500,
        )


def bench_loading():
    started = time.perf_counter()
    for spec in APIS.values():
        import_module(spec.module)
    print(f"{'all 62 message modules, import':58s} {(time.perf_counter() - started) * 1e3:9.2f} ms")
    started = time.perf_counter()
    compiled = 0
    for key, spec in APIS.items():
        for version in range(spec.min_version, spec.max_version + 1):
            codec.request_readers[key, version]
            codec.response_writers[key, version]
            compiled += 2
    spent = time.perf_counter() - started
    print(f"{compiled} functions, compile{'':33s} {spent * 1e3:9.2f} ms")


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}")
    bench_messages()
    bench_records()
    bench_loading()
