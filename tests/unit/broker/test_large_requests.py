"""Large control requests: read and applied in slices, refused completely, visible at once."""

import asyncio
import functools
import logging
from types import SimpleNamespace

from ottla.broker.connections import ControlConnection
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.control import replica_control, update_metadata
from ottla.broker.requests.router import LARGE_FRAME_BYTES, Router
from ottla.broker.tasks import Tasks
from ottla.model.errors import ErrorCode
from ottla.model.state_changes import LOGGER_NAME
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.control import StopReplicaRequest
from ottla.wire.messages.control import UpdateMetadataRequest as Update

TOPICS, PARTITIONS = 3, 2000


def on_a_loop(test):
    @functools.wraps(test)
    def run():
        asyncio.run(asyncio.wait_for(test(), 20))

    return run


class Answer:
    """Stands for a connection and its response to come."""

    peer, closed, parts = ("127.0.0.1", 1), None, None
    listener, id = "PLAINTEXT", 1

    def pending(self, pipelined):
        return self

    def complete(self, parts):
        self.parts = parts

    def fail(self, reason):
        self.closed = reason

    @property
    def error(self):
        whole = memoryview(b"".join(self.parts))
        return decode_response(6, 8, whole, decode_response_header(6, 8, whole)[1]).error_code


def make():
    server = SimpleNamespace(
        metadata=MetadataCache(),
        tasks=Tasks(),
        replicas=SimpleNamespace(partitions={}, broker_id=1),
        quotas=SimpleNamespace(active=False),
        served=(),
        authorizer=None,
        epoch=0,
        session=SimpleNamespace(broker_epoch=2),
        control_connection=ControlConnection(),
    )

    def accept(epoch):
        server.epoch = max(server.epoch, epoch)
        return epoch >= server.epoch

    server.is_stale = lambda broker_epoch: broker_epoch == 1
    server.accept_controller_epoch = accept
    return server, Router(server, [update_metadata.UPDATE_METADATA])


def large(leader, *, epoch=1, broker_epoch=2, partitions=PARTITIONS):
    state = Update.UpdateMetadataPartitionState
    topics = [
        Update.UpdateMetadataTopicState(
            topic_name=f"t{t}",
            topic_id=bytes([t + 1]) * 16,
            partition_states=[
                state(partition_index=p, leader=leader, isr=[leader], replicas=[1, 2])
                for p in range(partitions)
            ],
        )
        for t in range(TOPICS)
    ]
    endpoint = Update.UpdateMetadataEndpoint(host="h", port=1, listener="PLAINTEXT")
    return Update(
        controller_id=leader,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=topics,
        live_brokers=[Update.UpdateMetadataBroker(id=1, endpoints=[endpoint])],
    )


def frame(request):
    raw = encode_request_header(6, 8, 1, "c") + b"".join(encode_request(request, 8))
    return memoryview(raw)


def leaders(server):
    topics = server.metadata.snapshot.topics.values()
    return {p.leader for topic in topics for p in topic.partitions.values()}


async def count_turns_until(done):
    turns = 0
    while not done():
        await asyncio.sleep(0)
        turns += 1
        assert turns < 10_000
    return turns


@on_a_loop
async def test_others_run_while_a_large_update_is_taken_in_and_it_is_seen_at_once():
    server, router = make()
    changes = []
    server.metadata.on_change(changes.append)
    conn, raw = Answer(), frame(large(1))
    assert len(raw) > LARGE_FRAME_BYTES
    assert router.dispatch(conn, raw) is conn
    seen = set()

    def done():
        seen.add(len(server.metadata.snapshot.topics))
        return conn.parts is not None

    assert await count_turns_until(done) > 20
    assert seen == {0, TOPICS}
    assert conn.error == ErrorCode.NONE
    assert leaders(server) == {1}
    assert sum(len(t.partitions) for t in server.metadata.snapshot.topics.values()) == 6000
    assert [change.topics for change in changes] == [("t0", "t1", "t2")]


@on_a_loop
async def test_a_large_update_of_an_old_controller_or_for_an_earlier_life_changes_nothing():
    server, router = make()
    server.epoch = 5
    for request, error in (
        (large(1, epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
        (large(1, epoch=5, broker_epoch=1), ErrorCode.STALE_BROKER_EPOCH),
    ):
        conn = Answer()
        router.dispatch(conn, frame(request))
        await count_turns_until(lambda conn=conn: conn.parts is not None)
        assert conn.error == error
    assert leaders(server) == set()


@on_a_loop
async def test_a_newer_controllers_small_update_waits_for_a_large_one_and_stands_after_it():
    server, router = make()
    old, new = Answer(), Answer()
    router.dispatch(old, frame(large(1, epoch=1)))
    await count_turns_until(server.metadata.taking_in.locked)
    assert router.dispatch(new, frame(large(2, epoch=2, partitions=5))) is new
    await count_turns_until(lambda: new.parts is not None)
    assert (old.error, new.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert server.metadata.controller_id == 2
    assert server.metadata.partition("t0", 4).leader == 2
    assert server.metadata.partition("t0", 5).leader == 1


@on_a_loop
async def test_a_large_frame_of_nonsense_closes_its_connection():
    server, router = make()
    conn = Answer()
    router.dispatch(conn, frame(large(1))[:-5])
    await count_turns_until(lambda: conn.closed is not None)
    assert leaders(server) == set()


@on_a_loop
async def test_what_is_forgotten_while_a_large_update_is_taken_in_stays_forgotten():
    server, router = make()
    first = large(1, partitions=5)
    first.topic_states[0].topic_name = "gone"
    router.dispatch(Answer(), frame(first))
    assert server.metadata.contains("gone")
    conn = Answer()
    request = large(1)
    del request.topic_states[0]
    router.dispatch(conn, frame(request))
    await count_turns_until(server.metadata.taking_in.locked)
    for _ in range(TOPICS + 2):  # strays of each topic come first, then slices
        await asyncio.sleep(0)
    server.metadata.forget(["gone"])
    assert conn.parts is None
    await count_turns_until(lambda: conn.parts is not None)
    assert set(server.metadata.snapshot.topics) == {"t1", "t2"}
    assert set(server.metadata.snapshot.names_by_id.values()) == {"t1", "t2"}


def test_the_state_change_log_counts_what_was_taken_in(caplog):
    caplog.set_level(logging.INFO, LOGGER_NAME)

    @on_a_loop
    async def scenario():
        _, router = make()
        for leader, partitions in ((1, 5), (1, PARTITIONS), (-2, 4)):
            conn = Answer()
            router.dispatch(conn, frame(large(leader, partitions=partitions)))
            if partitions == PARTITIONS:
                await count_turns_until(lambda conn=conn: conn.parts is not None)

    scenario()
    lines = [r.getMessage() for r in caplog.records if r.name == LOGGER_NAME]
    assert [line.partition(" from metadata")[0] for line in lines] == [
        "[Broker id=1] Add 15 partitions and deleted 0 partitions",
        "[Broker id=1] Add 6000 partitions and deleted 0 partitions",
        "[Broker id=1] Add 0 partitions and deleted 12 partitions",
    ]


@on_a_loop
async def test_c5_a_bug_in_a_large_update_becomes_a_response():
    server, router = make()
    server.metadata.apply_in_slices = None
    conn = Answer()
    router.dispatch(conn, frame(large(1)))
    await count_turns_until(lambda: conn.parts or conn.closed)
    assert conn.error == ErrorCode.UNKNOWN_SERVER_ERROR


@on_a_loop
async def test_f46_a_large_stop_replica_is_read_in_slices():
    server, _ = make()
    server.epoch = 5
    router = Router(server, [replica_control.STOP_REPLICA])
    state = StopReplicaRequest.StopReplicaPartitionState
    topics = [
        StopReplicaRequest.StopReplicaTopicState(
            topic_name=f"t{t}", partition_states=[state(partition_index=p) for p in range(10_000)]
        )
        for t in range(3)
    ]
    request = StopReplicaRequest(controller_epoch=4, broker_epoch=2, topic_states=topics)
    raw = encode_request_header(5, 3, 1, "c") + b"".join(encode_request(request, 3))
    conn = Answer()
    assert router.dispatch(conn, memoryview(raw)) is conn
    assert await count_turns_until(lambda: conn.parts or conn.closed) > 30
    whole = memoryview(b"".join(conn.parts))
    answer = decode_response(5, 3, whole, decode_response_header(5, 3, whole)[1])
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
