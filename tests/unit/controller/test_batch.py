"""What brokers are sent: one request of each kind, in order, in 3.9's versions."""

from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, RequestBatch
from ottla.controller.context import Context
from ottla.model.cluster import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition
from ottla.wire.codec import decode_request, encode_request

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def context():
    c = Context(8, 0)
    c.set_brokers(
        BrokerInfo(b, (Endpoint("x", 1, "CONTROL"), Endpoint(f"h{b}", 9092)), f"r{b}", 2**40 + b)
        for b in (3, 1, 2)
    )
    c.add_topic(TopicInfo("t", b"t" * 16, {i: ReplicaAssignment((1, 2, 9)) for i in range(2)}))
    c.add_topic(TopicInfo("u", None, {0: ReplicaAssignment((2,))}))
    for tp in (T0, T1):
        c.leadership[tp] = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 4, (1, 2), 6), 7)
    return c


def built(c, fill):
    batch = RequestBatch(c, 1, "PLAINTEXT")
    fill(batch)
    out = batch.build()
    assert batch.build() == []
    return [
        (o.broker, o.api_key, decode_request(o.api_key, o.version, b"".join(o.encode())))
        for o in out
    ]


def lead(c, batch, *tps, brokers=(1, 2), is_new=False):
    for tp in tps:
        batch.lead_or_follow(brokers, tp, c.leadership[tp], c.assignment(tp), is_new=is_new)


def test_leader_and_isr_comes_first_and_metadata_goes_to_all_brokers():
    c = context()

    def fill(batch):
        batch.stop([2], T0, delete=True)
        lead(c, batch, T0, T1, is_new=True)

    sent = built(c, fill)
    assert [(b, k) for b, k, _ in sent] == [
        (1, LEADER_AND_ISR),
        (2, LEADER_AND_ISR),
        (1, UPDATE_METADATA),
        (2, UPDATE_METADATA),
        (3, UPDATE_METADATA),
        (2, STOP_REPLICA),
    ]
    message = sent[0][2]
    assert (message.controller_id, message.controller_epoch) == (1, 8)
    assert (message.is_kraft_controller, message.type) == (False, 0)
    assert message.broker_epoch == 2**40 + 1
    (topic,) = message.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", b"t" * 16)
    first = topic.partition_states[0]
    assert (first.leader, first.leader_epoch, first.isr, first.partition_epoch) == (1, 4, [1, 2], 6)
    assert (first.controller_epoch, first.replicas, first.is_new) == (7, [1, 2, 9], True)
    (leader,) = message.live_leaders
    assert (leader.broker_id, leader.host_name, leader.port) == (1, "h1", 9092)


def test_one_metadata_body_serves_all_but_for_the_broker_epoch():
    c = context()
    batch = RequestBatch(c, 1, "PLAINTEXT")
    batch.metadata(c.brokers, [T0, U0])
    out = batch.build()
    bodies = [b"".join(o.encode()) for o in out]
    for o, body in zip(out, bodies, strict=True):
        message = decode_request(UPDATE_METADATA, 8, body)
        assert message.broker_epoch == 2**40 + o.broker
        message.broker_epoch = 0
        assert message == _without_epoch(bodies[0])
    tails = {bytes(o.encode()[1]) for o in out}
    assert len(tails) == 1


def _without_epoch(body):
    message = decode_request(UPDATE_METADATA, 8, body)
    message.broker_epoch = 0
    return message


def test_metadata_names_offline_replicas_and_leaves_out_the_leaderless():
    c = context()
    sent = built(c, lambda batch: batch.metadata([3], [T0, U0]))
    message = sent[0][2]
    assert [b.id for b in message.live_brokers] == [1, 2, 3]
    assert [e.listener for e in message.live_brokers[0].endpoints] == ["CONTROL", "PLAINTEXT"]
    assert message.live_brokers[0].rack == "r1"
    (topic,) = message.topic_states
    (partition,) = topic.partition_states
    assert partition.offline_replicas == [9]
    assert partition.zk_version == 6


def test_a_topic_being_deleted_has_leader_minus_two():
    c = context()
    c.deleting["t"] = None
    sent = built(c, lambda batch: batch.metadata([1], [T0]))
    partition = sent[0][2].topic_states[0].partition_states[0]
    assert (partition.leader, partition.leader_epoch, partition.zk_version) == (-2, 0, 0)
    stop = built(c, lambda batch: batch.stop([1], T0, delete=False))[0][2]
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2


def test_dead_brokers_are_sent_nothing():
    c = context()

    def fill(batch):
        lead(c, batch, T0, brokers=(9, -1))
        batch.stop([9], T0, delete=True)

    assert {b for b, _, _ in built(c, fill)} == {1, 2, 3}


def test_new_and_delete_stick_within_a_batch():
    c = context()

    def fill(batch):
        lead(c, batch, T0, brokers=(1,), is_new=True)
        lead(c, batch, T0, brokers=(1,), is_new=False)
        batch.stop([2], T0, delete=True)
        batch.stop([2], T0, delete=False)

    sent = built(c, fill)
    assert sent[0][2].topic_states[0].partition_states[0].is_new
    assert sent[-1][2].topic_states[0].partition_states[0].delete_partition


def test_summaries_and_deletes_for_the_response():
    c = context()
    batch = RequestBatch(c, 1, "PLAINTEXT")
    batch.stop([1], T0, delete=True)
    batch.stop([1], T1, delete=False)
    (out,) = batch.build()
    assert out.deletes == {T0}
    assert out.partitions == 2


def test_brokers_that_shut_down_are_sent_requests_like_live_ones():
    c = context()
    c.shutting_down.add(2)

    def fill(batch):
        lead(c, batch, T0)
        batch.stop([1, 2, 3, 9], T1, delete=False)

    sent = built(c, fill)
    assert [b for b, key, _ in sent if key == LEADER_AND_ISR] == [1, 2]
    assert [b for b, key, _ in sent if key == UPDATE_METADATA] == [1, 2, 3]
    assert [b for b, key, _ in sent if key == STOP_REPLICA] == [1, 2, 3]
    metadata = next(m for _, key, m in sent if key == UPDATE_METADATA)
    assert [b.id for b in metadata.live_brokers] == [1, 2, 3]


def test_stops_are_one_request_per_broker_whether_they_delete_or_not():
    c = context()

    def fill(batch):
        batch.stop([2], T0, delete=True)
        batch.stop([2, 3], T1, delete=False)
        batch.stop([2], U0, delete=True)

    sent = built(c, fill)
    assert [(b, key) for b, key, _ in sent] == [(2, STOP_REPLICA), (3, STOP_REPLICA)]
    stopped = {
        (topic.topic_name, p.partition_index): p.delete_partition
        for topic in sent[0][2].topic_states
        for p in topic.partition_states
    }
    assert stopped == {("t", 0): True, ("t", 1): False, ("u", 0): True}
    assert sent[0][2].topic_states[0].partition_states[0].leader_epoch == 4


def test_requests_are_in_the_versions_of_3_9():
    c = context()
    batch = RequestBatch(c, 1, "PLAINTEXT")
    lead(c, batch, T0)
    batch.stop([2], T1, delete=False)
    versions = {o.api_key: o.version for o in batch.build()}
    assert versions == {LEADER_AND_ISR: 7, UPDATE_METADATA: 8, STOP_REPLICA: 4}


def test_joined_parts_are_the_bytes_of_the_request():
    c = context()
    for n in range(300):
        c.assignments["t"][n] = ReplicaAssignment((1, 2), (2,), ())
        state = LeaderAndIsr(1 + n % 2, n, (1, 2), n, n % 2)
        c.leadership[TopicPartition("t", n)] = LeaderIsrAndControllerEpoch(state, 7)
    c.leadership[U0] = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 0, (2,), 0), 8)
    batch = RequestBatch(c, 1, "PLAINTEXT")
    lead(c, batch, *c.partitions_of("t"))
    lead(c, batch, U0, is_new=True)
    first, second = (o for o in batch.build() if o.api_key == LEADER_AND_ISR)
    for out in (first, second):
        body = b"".join(out.encode())
        message = decode_request(LEADER_AND_ISR, out.version, body)
        assert b"".join(encode_request(message, out.version)) == body
        assert [len(t.partition_states) for t in message.topic_states] == [300, 1]
        assert [p.partition_index for p in message.topic_states[0].partition_states] == [
            *range(300)
        ]
        assert message.topic_states[1].partition_states[0].is_new
        assert [leader.broker_id for leader in message.live_leaders] == [1, 2]
