"""A replica that hears in UpdateMetadata that it is out stops, and only then."""

from ottla.model.cluster import TopicInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication.strays import let_go

TP = TopicPartition("t", 0)


def test_a_leader_that_was_moved_away_stops_when_it_hears_of_it(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(2, isr=[2], replicas=[2], to=[2])
        assert (await c.produce(1, "lost for ever", acks=1)).error_code == 0
        assert let_go(c[1].replicas, [(TP, 1, [2])]) == [TP]
        answer = await c.produce(1, "b", acks=1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert c[1].log() is not None
        assert let_go(c[1].replicas, [(TP, 2, [2])]) == []

    wired(scenario, brokers=2)


def test_a_replica_stays_by_an_older_or_equal_epoch_and_when_it_is_assigned(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        assert let_go(c[2].replicas, [(TP, 0, [1]), (TP, 1, [1]), (TP, 2, [1, 2])]) == []
        assert (await c.produce(1, "a")).error_code == 0

    wired(scenario, brokers=2)


def test_a_stray_may_come_back(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        assert let_go(c[2].replicas, [(TP, 1, [1])]) == [TP]
        await c.controller.lead(1, isr=[1], replicas=[1, 2])
        assert (await c.produce(1, "b")).error_code == 0
        await c.settle(1.0)
        assert c[2].log().log_end_offset == 2

    wired(scenario, brokers=2)


def test_a_log_of_a_deleted_topic_makes_way_for_the_next_of_its_name(wired):
    async def scenario(c):
        new = bytes(15) + b"\x09"
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "old")
        state = c.controller.states["t", 0]
        state.leader_epoch = 0
        refused = await c.controller.tell(state, topic_id=new)
        code = refused[1].topics[0].partition_errors[0].error_code
        assert code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert c[1].log().log_end_offset == 1
        c.topics["t"] = TopicInfo("t", new, {})
        taken = await c.controller.tell(state, topic_id=new)
        assert taken[1].topics[0].partition_errors[0].error_code == 0
        assert c[1].log().log_end_offset == 0
        assert c[1].partition().topic_id == new

    wired(scenario, brokers=1)
