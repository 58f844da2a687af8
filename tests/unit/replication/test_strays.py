"""A replica that UpdateMetadata does not list any more stops, and only then."""

import asyncio

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.replication.strays import Assignment, stop_deleted, stop_unassigned
from ottla.wire.messages.control import LeaderAndIsrRequest

TP = TopicPartition("t", 0)


def test_a_leader_that_was_moved_away_stops_with_the_new_metadata(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(2, isr=[2], replicas=[2], to=[2])
        assert (await c.produce(1, "lost for ever", acks=1)).error_code == 0
        assert stop_unassigned(c[1].replicas, [Assignment(TP, ZERO_UUID, 1, [2])]) == [TP]
        answer = await c.produce(1, "b", acks=1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert c[1].log() is not None
        assert stop_unassigned(c[1].replicas, [Assignment(TP, ZERO_UUID, 2, [2])]) == []

    wired(scenario, brokers=2)


def test_a_replica_stays_by_an_older_or_equal_epoch_and_when_it_is_assigned(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        assert (
            stop_unassigned(
                c[2].replicas,
                [
                    Assignment(TP, ZERO_UUID, 0, [1]),
                    Assignment(TP, ZERO_UUID, 1, [1]),
                    Assignment(TP, ZERO_UUID, 2, [1, 2]),
                ],
            )
            == []
        )
        assert (await c.produce(1, "a")).error_code == 0

    wired(scenario, brokers=2)


def test_r15_a_replica_of_a_former_topic_is_none_of_the_next_one_of_its_name(wired):
    """Seed 9992177: moved away, deleted and created anew while this broker was stopped."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        known = bytes(c[2].partition().state.topic_id)
        assert stop_unassigned(c[2].replicas, [Assignment(TP, known, 0, [1])]) == []
        assert stop_unassigned(c[2].replicas, [Assignment(TP, ZERO_UUID, 0, [1])]) == []
        another = bytes(15) + b"\x07"
        assert stop_unassigned(c[2].replicas, [Assignment(TP, another, 0, [1, 2])]) == []
        assert stop_unassigned(c[2].replicas, [Assignment(TP, another, 0, [1])]) == [TP]
        assert c[2].log() is not None  # its files stay until the name is assigned to it again

    wired(scenario, brokers=2)


def test_replicas_of_topics_that_went_while_we_were_cut_off_stop(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        had = list(c[1].replicas.partitions.values())
        stop_deleted(c[1].replicas, had, {"another"})
        assert (await c.produce(1, "a", acks=1)).error_code == 0
        stop_deleted(c[1].replicas, had, {TP.topic})
        answer = await c.produce(1, "b", acks=1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert c[1].log() is not None
        # What has come since is not what we had.
        await c.controller.lead(1, replicas=[1, 2])
        stop_deleted(c[1].replicas, had, {TP.topic})
        assert (await c.produce(1, "c", acks=1)).error_code == 0

    wired(scenario, brokers=2)


def test_a_stray_may_come_back(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        assert stop_unassigned(c[2].replicas, [Assignment(TP, ZERO_UUID, 1, [1])]) == [TP]
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
        c.topics["t"] = new
        taken = await c.controller.tell(state, topic_id=new)
        assert taken[1].topics[0].partition_errors[0].error_code == 0
        assert c[1].log().log_end_offset == 0
        assert c[1].partition().state.topic_id == new

    wired(scenario, brokers=1)


def test_a_new_log_is_not_taken_for_the_old_one_when_the_request_came_twice(wired):
    """The second still waits for ZooKeeper's word while the first has done what it says."""

    async def scenario(c):
        new = bytes(15) + b"\x09"
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "old")
        state = c.controller.states["t", 0]
        asked = []

        async def was_created_as(_name, _topic_id):
            asked.append(asyncio.get_running_loop().create_future())
            await asked[-1]
            return True

        c[1].services.session.store.topic_ids.was_created_as = was_created_as
        state.leader_epoch = 0
        first = asyncio.ensure_future(c.controller.tell(state, topic_id=new))
        second = asyncio.ensure_future(c.controller.tell(state, topic_id=new))
        await c.until(lambda: len(asked) == 2)
        asked[0].set_result(None)
        await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        assert (await c.produce(1, "new")).error_code == 0
        asked[1].set_result(None)
        await asyncio.gather(first, second)
        assert [value for _, _, value in c[1].records()] == [b"new"]
        assert c[1].partition().state.topic_id == new

    wired(scenario, brokers=1)


def test_a_request_ends_half_way_when_a_newer_controller_epoch_comes(wired, monkeypatch):
    """Else it would bring back what that controller let go in the meantime."""

    async def scenario(c):
        node, count = c[1], 50
        c.clock.slice_s = -1
        state = LeaderAndIsrRequest.LeaderAndIsrPartitionState
        request = LeaderAndIsrRequest(
            controller_id=99,
            controller_epoch=1,
            broker_epoch=node.epoch,
            topic_states=[
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=bytes(15) + b"\x07",
                    partition_states=[
                        state(partition_index=p, leader=1, isr=[1], replicas=[1], is_new=True)
                        for p in range(count)
                    ],
                )
            ],
        )
        create, arrived = node.logs.get_or_create, asyncio.Event()

        def created(*arguments, **more):
            arrived.set()
            return create(*arguments, **more)

        monkeypatch.setattr(node.logs, "get_or_create", created)
        answer = asyncio.ensure_future(node.send(request, 7))
        await arrived.wait()
        while not node.replicas.partitions:
            await asyncio.sleep(0)
        assert stop_unassigned(node.replicas, [Assignment(TP, ZERO_UUID, 1, [2])]) == [TP]
        node.replicas.controller_epoch = 2
        assert (await answer).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert TP not in node.replicas.partitions
        assert len(node.replicas.partitions) < count - 1
        assert node.replicas.controller_epoch == 2

    wired(scenario, brokers=1)
