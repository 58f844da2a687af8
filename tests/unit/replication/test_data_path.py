"""What clients see of Produce, Fetch, ListOffsets and OffsetForLeaderEpoch, in every version."""

import asyncio
import gc
from collections import Counter

import pytest

from ottla.broker.requests.records import fetch, produce
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.wire.messages.records import OffsetForLeaderEpochRequest
from ottla.wire.records import iter_batches

ONE = {"brokers": 1}
A_FEW_MESSAGES_S = 0.005
"""What a connection, a request and its response take in the simulated network, with some more."""


def first(response):
    return response.responses[0].partitions[0]


def offsets(data):
    if not data.records:
        return []
    return [h.base_offset for _, h in iter_batches(memoryview(data.records))]


async def led(c, **fields):
    await c.controller.lead(1, replicas=[1], new=True, **fields)


# --- Produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_responds_in_every_version(wired, version, acks):
    """The patched answer (one partition) is the encoded one, byte for byte."""

    async def scenario(c):
        await led(c)
        for offset in range(2):
            item = await c.produce(1, "a", acks=acks, version=version)
            assert (item.index, item.error_code, item.base_offset) == (0, 0, offset)
            assert item.log_append_time_ms == -1
            assert item.log_start_offset == (0 if version >= 5 else -1)

    wired(scenario, **ONE)


def test_log_append_time_is_in_the_response(wired):
    async def scenario(c):
        await led(c)
        before_ms = c[1].world.clock.wall_ms()
        item = await c.produce(1, "a")
        assert before_ms <= item.log_append_time_ms <= c[1].world.clock.wall_ms()

    wired(scenario, topic={"message.timestamp.type": "LogAppendTime"}, **ONE)


def test_several_partitions_in_one_request(wired):
    async def scenario(c):
        await led(c)
        await led(c, index=1)
        request = wired.produce_request(["a"])
        parts = request.topic_data[0].partition_data
        parts += wired.produce_request(["b", "c"], index=1).topic_data[0].partition_data
        parts += wired.produce_request(["d"], index=2).topic_data[0].partition_data
        items = (await c[1].send(request, 9)).responses[0].partition_responses
        assert [(i.index, i.error_code, i.base_offset) for i in items] == [
            (0, 0, 0),
            (1, 0, 0),
            (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
        assert c[1].log(1).log_end_offset == 2

    wired(scenario, **ONE)


@pytest.mark.parametrize("acks", [2, -2, 3])
def test_invalid_acks(wired, acks):
    async def scenario(c):
        await led(c)
        item = await c.produce(1, "a", acks=acks)
        assert item.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert c[1].log().log_end_offset == 0

    wired(scenario, **ONE)


def test_acks_0_has_no_response_and_an_error_closes(wired):
    async def scenario(c):
        await led(c)
        peer = await c.client.open(c[1])
        peer.send_without_response(wired.produce_request(["a"], acks=0), 9)
        latest = await peer.send(wired.list_offsets_request(-1), 9, 5)
        assert latest.topics[0].partitions[0].offset == 1
        peer.send_without_response(wired.produce_request(["a"], acks=0, index=9), 9)
        await c.settle(0.1)
        assert peer.closed

    wired(scenario, **ONE)


def test_old_formats_and_empty_records(wired):
    async def scenario(c):
        await led(c)
        old = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(9)
        item = await c[1].send(wired.produce_request([], records=old), 2)
        item = item.responses[0].partition_responses[0]
        assert item.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        item = await c[1].send(wired.produce_request([], records=b""), 9)
        item = item.responses[0].partition_responses[0]
        assert (item.error_code, item.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert item.error_message is None  # Kafka says no more either
        broken = bytearray(wired.batch(["a"]))
        broken[-1] ^= 1
        item = await c[1].send(wired.produce_request([], records=broken), 9)
        assert item.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert c[1].log().log_end_offset == 0

    wired(scenario, **ONE)


def test_zstd_needs_version_7(wired):
    async def scenario(c):
        await led(c)
        records = wired.batch(["a"], codec=4)
        request = wired.produce_request([], records=bytearray(records))
        item = (await c[1].send(request, 6)).responses[0].partition_responses[0]
        assert item.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        request = wired.produce_request([], records=bytearray(records))
        item = (await c[1].send(request, 7)).responses[0].partition_responses[0]
        assert item.error_code == 0

    wired(scenario, **ONE)


def test_not_the_leader_names_the_leader(wired):
    async def scenario(c):
        await c.controller.lead(2, replicas=[1, 2], new=True)
        response = await c[1].send(wired.produce_request(["a"]), 10)
        item = response.responses[0].partition_responses[0]
        assert item.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (item.current_leader.leader_id, item.current_leader.leader_epoch) == (2, 0)
        assert [(n.node_id, n.port) for n in response.node_endpoints] == [(2, c[2].port)]
        response = await c[1].send(wired.produce_request(["a"]), 9)
        assert not response.node_endpoints
        response = await c[1].send(wired.fetch_request(0, epoch=0), 16)
        assert first(response).error_code == 0  # from version 11 on a follower serves consumers
        response = await c[1].send(wired.fetch_request(0), 10)
        assert first(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await c[1].send(wired.fetch_request(0, epoch=0, replica=2), 16)
        assert first(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert first(response).current_leader.leader_id == 2
        assert [n.node_id for n in response.node_endpoints] == [2]

    wired(scenario, brokers=2)


def test_a_produce_whose_client_left_does_no_harm(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        c.part(2, 1)
        peer = await c.client.open(c[1])
        sent = peer.send(wired.produce_request(["a"]), 9, 60)
        await c.settle(0.1)
        peer.close()
        await asyncio.gather(sent, return_exceptions=True)
        c.heal()
        await c.until(lambda: c[1].log().high_watermark == 1)
        assert c[1].replicas.purgatory.live == 1  # 2's own fetch

    wired(scenario, brokers=2)


# --- Fetch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_responds_in_every_version(wired, version):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a", "b")
        await c.produce(1, "c")
        response = await c[1].send(wired.fetch_request(0), version)
        data = first(response)
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
        assert offsets(data) == [0, 2]
        beyond = first(await c[1].send(wired.fetch_request(4), version))
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert beyond.high_watermark == -1

    wired(scenario, **ONE)


@pytest.mark.parametrize("version", range(4))
def test_fetch_versions_that_would_need_old_formats(wired, version):
    async def scenario(c):
        await led(c)
        data = first(await c[1].send(wired.fetch_request(0), version))
        assert data.error_code == ErrorCode.UNSUPPORTED_VERSION

    wired(scenario, **ONE)


def test_the_first_batch_always_comes(wired):
    async def scenario(c):
        await led(c)
        for v in ("a" * 500, "b" * 500, "c" * 500):
            await c.produce(1, v)
        for limits, expected in (
            ({"max_bytes": 1}, [0]),
            ({"partition_max_bytes": 1}, [0]),
            ({"max_bytes": 1300}, [0, 1]),
            ({"partition_max_bytes": 1300}, [0, 1]),
            ({}, [0, 1, 2]),
        ):
            data = first(await c[1].send(wired.fetch_request(0, **limits), 12))
            assert offsets(data) == expected, limits

    wired(scenario, **ONE)


def test_max_bytes_serves_partitions_in_turn(wired):
    """An incremental session rotates: who got records goes to the end (KIP-74, KIP-227)."""

    async def scenario(c):
        for index in range(3):
            await led(c, index=index)
            for _ in range(3):
                await c.produce(1, "x" * 500, index=index)
        request = wired.fetch_request(0, session_epoch=0, max_bytes=1)
        for index in (1, 2):
            request.topics[0].partitions += wired.fetch_request(0, index=index).topics[0].partitions
        response = await c[1].send(request, 17)
        served = [p.partition_index for p in response.responses[0].partitions if p.records]
        for epoch in range(1, 6):
            request = wired.fetch_request(
                0, session_id=response.session_id, session_epoch=epoch, max_bytes=1
            )
            request.topics = []
            answer = await c[1].send(request, 17)
            for topic in answer.responses:
                served += [p.partition_index for p in topic.partitions if p.records]
        assert served == [0, 1, 2, 0, 1, 2]

    wired(scenario, **ONE)


def test_min_bytes_waits_for_enough(wired):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a")
        request = wired.fetch_request(0, min_bytes=1000, max_wait_ms=5000)
        waits = asyncio.ensure_future(c[1].send(request, 17))
        await c.settle(1)
        await c.produce(1, "b")
        await c.settle(1)
        assert not waits.done()
        started = c.now
        await c.produce(1, "c" * 1000)
        assert offsets(first(await waits)) == [0, 1, 2]
        assert c.now - started < A_FEW_MESSAGES_S
        started = c.now
        request = wired.fetch_request(0, min_bytes=100_000, max_wait_ms=700)
        assert offsets(first(await c[1].send(request, 17))) == [0, 1, 2]
        assert 0.7 <= c.now - started < 0.71

    wired(scenario, **ONE)


def test_consumers_wait_for_the_watermark(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        data = first(await c[1].send(wired.fetch_request(0), 17))
        assert (data.high_watermark, offsets(data)) == (1, [0])
        waits = asyncio.ensure_future(c[1].send(wired.fetch_request(1, max_wait_ms=30_000), 17))
        await c.settle(0.5)
        assert not waits.done()
        debugging = wired.fetch_request(0, replica=-2)
        assert offsets(first(await c[1].send(debugging, 17))) == [0, 1]
        c.heal()
        assert offsets(first(await waits)) == [1]

    wired(scenario, brokers=2)


def test_an_incremental_session_sends_only_changes(wired):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a")
        response = await c[1].send(wired.fetch_request(1, session_epoch=0), 17)
        session = response.session_id
        assert session
        assert first(response).high_watermark == 1
        nothing = wired.fetch_request(1, session_id=session, session_epoch=1)
        nothing.topics = []
        response = await c[1].send(nothing, 17)
        assert (response.session_id, response.responses) == (session, [])
        waiting = wired.fetch_request(1, session_id=session, session_epoch=2, max_wait_ms=9000)
        waiting.topics = []
        waits = asyncio.ensure_future(c[1].send(waiting, 17))
        await c.settle(1)
        await c.produce(1, "b")
        response = await waits
        assert offsets(first(response)) == [1]
        # The client did not move on: it gets the same again.
        again = wired.fetch_request(1, session_id=session, session_epoch=3)
        again.topics = []
        assert offsets(first(await c[1].send(again, 17))) == [1]
        doubled = wired.fetch_request(1, session_id=session, session_epoch=3)
        response = await c[1].send(doubled, 17)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    wired(scenario, **ONE)


def test_topic_ids(wired):
    async def scenario(c):
        await led(c)
        request = wired.fetch_request(0)
        request.topics[0].topic_id = b"\x07" * 16
        assert first(await c[1].send(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        c.metadata.ids[b"\x07" * 16] = "t"
        data = first(await c[1].send(request, 13))
        assert data.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        request.topics[0].topic = "unknown"
        data = first(await c[1].send(request, 12))
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    wired(scenario, **ONE)


def test_a_topic_id_that_becomes_known_within_a_session(wired):
    async def scenario(c):
        await led(c)
        other = b"\x07" * 16
        request = wired.fetch_request(0, session_epoch=0)
        request.topics[0].topic_id = other
        response = await c[1].send(request, 17)
        assert first(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        c.metadata.ids[other] = "t"
        again = wired.fetch_request(0, session_id=response.session_id, session_epoch=1)
        again.topics = []
        data = first(await c[1].send(again, 17))
        assert data.error_code == ErrorCode.INCONSISTENT_TOPIC_ID  # the name is known now

    wired(scenario, **ONE)


def test_a_hosted_topic_is_served_before_update_metadata(wired):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a")
        del c.metadata.ids[wired.topic_id]
        assert offsets(first(await c[1].send(wired.fetch_request(0), 17))) == [0]
        await c.controller.stop_replica(1, delete=True)
        data = first(await c[1].send(wired.fetch_request(0), 17))
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    wired(scenario, **ONE)


def test_a_fetch_whose_client_left_is_forgotten(wired):
    async def scenario(c):
        await led(c)
        peer = await c.client.open(c[1])
        sent = peer.send(wired.fetch_request(0, max_wait_ms=60_000), 17, 60)
        await c.settle(0.1)
        assert c[1].replicas.purgatory.live == 1
        peer.close()
        await asyncio.gather(sent, return_exceptions=True)
        await c.settle(0.1)
        assert c[1].replicas.purgatory.live == 0
        assert not c[1].partition()._at_watermark

    wired(scenario, **ONE)


def test_records_do_not_wait_in_the_purgatory_for_the_end_of_a_fetch_that_has_left(wired):
    async def scenario(c):
        await led(c)
        for number in range(5):
            request = wired.fetch_request(number, max_wait_ms=600_000)
            waits = asyncio.ensure_future(c[1].send(request, 17))
            await c.settle(0.1)
            assert not waits.done()
            await c.produce(1, "a")
            assert offsets(first(await waits)) == [number]
        done = [entry[2] for entry in c[1].replicas.purgatory._heap]
        assert len(done) == 5
        assert [(fetch.done, fetch.found.responses, fetch.parts) for fetch in done] == 5 * [
            (True, [], None)
        ]

    wired(scenario, **ONE)


@pytest.mark.parametrize("what", ["produce", "fetch"])
def test_a_response_that_cannot_be_made_ends_the_connection(wired, monkeypatch, what):
    def lost(*_):
        raise ZeroDivisionError

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        c.part(2, 1)
        peer = await c.client.open(c[1])
        if what == "produce":
            waits = peer.send(wired.produce_request(["a"], timeout_ms=500), 9, 60)
        else:
            waits = peer.send(wired.fetch_request(0, max_wait_ms=500), 12, 60)
        await c.settle(0.1)
        monkeypatch.setattr(produce, "_patched", lost)
        monkeypatch.setattr(produce, "respond", lost)
        monkeypatch.setattr(fetch, "_respond", lost)
        started = c.now
        with pytest.raises(ConnectionLostError):
            await waits
        assert c.now - started < 1

    wired(scenario, brokers=2)


def test_a_diverging_fetch_gets_the_diverging_epoch(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], isr=[1], new=True, to=[1])
        await c.produce(1, "a")
        await c.controller.lead(1, to=[1])
        await c.produce(1, "b")
        data = first(await c[1].send(wired.fetch_request(5, epoch=1, last_epoch=0, replica=2), 17))
        assert (data.error_code, len(data.records or b"")) == (0, 0)
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
        assert c[1].partition().state.followers[2].log_end_offset == -1
        data = first(await c[1].send(wired.fetch_request(2, epoch=1, last_epoch=7, replica=2), 17))
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        data = first(await c[1].send(wired.fetch_request(0, epoch=1, replica=9), 17))
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    wired(scenario, brokers=2)


# --- offsets --------------------------------------------------------------------------------------


def test_list_offsets(wired):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a", "b")  # timestamps 1000, 1001
        await c.controller.lead(1)
        await c.produce(1, "c", "d", "e")  # 1000, 1001, 1002

        async def ask(timestamp, version=9, **fields):
            request = wired.list_offsets_request(timestamp, **fields)
            item = (await c[1].send(request, version)).topics[0].partitions[0]
            return item.error_code, item.timestamp, item.offset, item.leader_epoch

        assert await ask(-1) == (0, -1, 5, 1)
        assert await ask(-2) == (0, -1, 0, 0)
        assert await ask(-4) == (0, -1, 0, 0)
        assert await ask(-3) == (0, 1002, 4, 1)
        assert await ask(1001) == (0, 1001, 1, 0)
        assert await ask(1002) == (0, 1002, 4, 1)
        assert await ask(5000) == (0, -1, -1, -1)
        assert await ask(-1, version=3) == (0, -1, 5, -1)
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 9)):
            assert (await ask(timestamp, version))[0] == unsupported
        request = wired.list_offsets_request(-1)
        request.topics[0].partitions *= 2
        item = (await c[1].send(request, 9)).topics[0].partitions[1]
        assert item.error_code == ErrorCode.INVALID_REQUEST
        request = wired.list_offsets_request(-1)
        request.topics[0].partitions[0].max_num_offsets = 3
        item = (await c[1].send(request, 0)).topics[0].partitions[0]
        assert item.old_style_offsets == [5, 0]

    wired(scenario, **ONE)


def test_list_offsets_stops_at_the_watermark_for_consumers(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.part(2, 1)
        await c.produce(1, "b", "c", acks=1)
        for replica, timestamp, expected in ((-1, -1, 1), (2, -1, 3), (-1, 1001, -1), (2, 1001, 2)):
            request = wired.list_offsets_request(timestamp, replica=replica)
            item = (await c[1].send(request, 9)).topics[0].partitions[0]
            assert item.offset == expected, (replica, timestamp)

    wired(scenario, brokers=2)


def test_offset_for_leader_epoch(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.controller.lead(1)
        await c.produce(1, "b")

        async def ask(epoch, current=-1, broker=1):
            request = OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                        topic="t",
                        partitions=[
                            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                                partition=0, current_leader_epoch=current, leader_epoch=epoch
                            )
                        ],
                    )
                ],
            )
            item = (await c[broker].send(request, 4)).topics[0].partitions[0]
            return item.error_code, item.leader_epoch, item.end_offset

        assert await ask(0) == (0, 0, 1)
        assert await ask(1) == (0, 1, 2)
        assert await ask(5) == (0, -1, -1)
        assert (await ask(0, current=0))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await ask(0, current=2))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await ask(0, broker=2))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    wired(scenario, brokers=2)


# --- storage --------------------------------------------------------------------------------------


def test_r12_a_failed_log_takes_its_partitions_offline(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1, replicas=[1, 2], new=True, index=1)
        await c.produce(1, "a")
        told = []
        c[1].replicas.on_log_dir_offline = told.append

        c[1].disk.fail("/", ["write"])
        fetched = asyncio.ensure_future(c[1].send(wired.fetch_request(1, max_wait_ms=60_000), 17))
        await c.settle(0.1)
        item = await c.produce(1, "b")
        assert item.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert first(await fetched).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert told == [c[1].folder]
        for index in (0, 1):
            item = await c.produce(1, "c", index=index)
            assert item.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answers = await c.controller.lead(1, to=[1])
        code = answers[1].topics[0].partition_errors[0].error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        old = first(await c[1].send(wired.fetch_request(0), 5))
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not c.controller.requests  # an offline partition shrinks no ISR (KAFKA-7837)

    wired(scenario, brokers=2)


def test_the_watermark_survives_a_restart(wired):
    async def scenario(c):
        await led(c)
        await c.produce(1, "a", "b")
        await c.settle(6)  # past the checkpoint interval
        await c[1].stop(clean=False)
        await c[1].start()
        assert c[1].log().high_watermark == 2

    wired(scenario, **ONE)


def test_requests_leave_no_work_for_the_cycle_collector(wired):
    """Produce acks=all and fetches outside of sessions, parked ones too, die with their answer."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        peer = await c.client.open(c[1])

        async def work():
            for _ in range(20):
                await peer.send(wired.produce_request(["a"]), 9, 60)
                await peer.send(wired.fetch_request(0), 12, 60)
            end = c[1].log().log_end_offset
            await peer.send(wired.fetch_request(end, max_wait_ms=50), 12, 60)

        await work()
        gc.collect()
        gc.disable()
        try:
            await work()
            c[1].replicas.purgatory._sweep()  # finished ones wait there to be swept out
            kinds = {
                "PendingFetch",
                "FetchSession",
                "FetchEntry",
                "ProduceCall",
                "PartitionResult",
            }
            left = Counter(type(o).__name__ for o in gc.get_objects())
            found = {kind: left[kind] for kind in kinds if left[kind] > 6}
        finally:
            gc.enable()
        assert not found

    wired(scenario, brokers=2)
