"""The response to a leader that proposes another ISR."""

import pytest
from msgspec.structs import replace

from ottla.controller.broker_epochs import note_former_lives
from ottla.controller.context import Context
from ottla.controller.isr_changes import respond, validate, version_of
from ottla.controller.leadership import (
    plan_epoch_bump,
    plan_isr_removal,
)
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.rules import Rule
from ottla.wire.messages.control import AlterPartitionRequest

TP = TopicPartition("t", 0)
ID = b"i" * 16
CURRENT = LeaderAndIsr(1, 5, (1, 2), 9)


def context(recovery=0):
    c = Context(3, 0)
    c.set_brokers(BrokerInfo(b, (), epoch=100 + b) for b in (1, 2, 3))
    c.add_topic(TopicInfo("t", ID, {0: ReplicaAssignment((1, 2, 3))}))
    state = LeaderAndIsr(1, 5, (1, 2), 9, recovery)
    c.leadership[TP] = LeaderIsrAndControllerEpoch(state, 3)
    return c


def ask(*isr, epoch=5, version=9, broker=1, broker_epoch=101, topic_id=ID, recovery=0, index=0):
    return AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=broker_epoch,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=topic_id,
                partitions=[
                    AlterPartitionRequest.PartitionData(
                        partition_index=index,
                        leader_epoch=epoch,
                        new_isr_with_epochs=[
                            AlterPartitionRequest.BrokerState(broker_id=b) for b in isr
                        ],
                        leader_recovery_state=recovery,
                        partition_epoch=version,
                    )
                ],
            )
        ],
    )


def test_a_good_request_is_to_be_written_over_the_version_it_names():
    judgement = validate(context(), ask(1, 2, 3), 3)
    assert judgement.writes == {TP: LeaderAndIsr(1, 5, (1, 2, 3), 9)}
    assert not judgement.results


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ask(1, epoch=6), ErrorCode.NOT_CONTROLLER),
        (ask(1, version=10), ErrorCode.NOT_CONTROLLER),
        (ask(1, epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (ask(1, version=8), ErrorCode.INVALID_UPDATE_VERSION),
        (ask(1, 2, broker=2, broker_epoch=102), ErrorCode.INVALID_REQUEST),
        (ask(1, 9), ErrorCode.INELIGIBLE_REPLICA),
        (ask(1, recovery=1), ErrorCode.INVALID_REQUEST),
        (ask(1, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refusals(request_, code):
    judgement = validate(context(), request_, 3)
    assert not judgement.writes
    assert list(judgement.results.values()) == [code]
    assert len(judgement.reasons) == 1


def test_a_repeated_request_gets_the_same_response_even_with_a_stale_version():
    judgement = validate(context(), ask(1, 2, version=8), 3)
    assert judgement.results == {TP: CURRENT}


def test_a_broker_that_is_shutting_down_is_not_eligible():
    c = context()
    c.shutting_down.add(3)
    assert validate(c, ask(1, 2, 3), 3).results == {TP: ErrorCode.INELIGIBLE_REPLICA}
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=101,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_name="t",
                partitions=[
                    AlterPartitionRequest.PartitionData(
                        partition_index=0, leader_epoch=5, new_isr=[1, 3], partition_epoch=9
                    )
                ],
            )
        ],
    )
    assert version_of(request) == 1
    assert validate(c, request, 1).results == {TP: ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_a_recovering_leader_is_alone_until_it_has_recovered():
    c = context(recovery=1)
    many = validate(c, ask(1, 2, recovery=1, version=9), 3)
    assert many.results == {TP: c.leadership[TP].leader_and_isr}  # nothing would change
    assert validate(c, ask(1, 2, 3, recovery=1), 3).results == {TP: ErrorCode.INVALID_REQUEST}
    assert validate(c, ask(1, 2, recovery=0), 3).writes


@pytest.mark.parametrize("broker_epoch", [100, 102])
def test_a_request_of_another_registration_is_refused(broker_epoch):
    judgement = validate(context(), ask(1, broker_epoch=broker_epoch), 3)
    assert judgement.error == ErrorCode.STALE_BROKER_EPOCH
    assert respond(context(), {}, 3, judgement).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_topic_id_is_an_error_per_partition():
    c = context()
    judgement = validate(c, ask(1, topic_id=b"?" * 16), 3)
    response = respond(c, {}, 3, judgement)
    (topic,) = response.topics
    assert topic.topic_id == b"?" * 16
    assert [p.error_code for p in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_responses_carry_the_new_state():
    c = context()
    judgement = validate(c, ask(1, 2), 3)
    response = respond(c, {TP: LeaderAndIsr(1, 5, (1, 2), 10)}, 3, judgement)
    (partition,) = response.topics[0].partitions
    assert response.topics[0].topic_id == ID
    assert (partition.leader_id, partition.isr, partition.partition_epoch) == (1, [1, 2], 10)


def named(*lives):
    """Propose an ISR by (broker, broker epoch)."""
    request = ask(*(b for b, _ in lives))
    for member, (_, epoch) in zip(
        request.topics[0].partitions[0].new_isr_with_epochs, lives, strict=True
    ):
        member.broker_epoch = epoch
    return request


def bounced(c, broker, epoch):
    """A broker dies and is back at once, out of the ISR: its partition's state is not written."""
    c.remove_broker(broker)
    known = c.leadership[TP]
    assert not plan_isr_removal(c, broker, [TP], {TP: known}).writes
    c.add_broker(BrokerInfo(broker, (), epoch=epoch))


def test_r8_a_member_of_the_present_life_is_accepted():
    c = context()
    bounced(c, 3, 500)
    assert validate(c, named((1, 101), (2, 102), (3, 500)), 3).writes


@pytest.mark.parametrize("lives", [[(1, 101), (2, 102), (3, 103)], [(1, -1), (2, -1), (3, 103)]])
def test_f11_a_member_named_by_a_former_life_is_ineligible(lives):
    """A4, KIP-903: 3 had caught up, then lost its tail; the change it was proposed in is late."""
    c = context()
    bounced(c, 3, 500)
    judgement = validate(c, named(*lives), 3)
    assert not judgement.writes
    assert judgement.results == {TP: ErrorCode.INELIGIBLE_REPLICA}
    assert judgement.stale == {TP: (3,)}
    assert not judgement.renew, "the leader can say better by itself"


def test_r8_a_member_of_the_isr_named_by_a_former_life_is_ineligible():
    judgement = validate(context(), named((1, 101), (2, 99), (3, 103)), 3)
    assert judgement.results == {TP: ErrorCode.INELIGIBLE_REPLICA}


def test_f11_a_newcomer_without_an_epoch_that_died_since_needs_a_new_leader_epoch():
    """A4 under a JVM leader, which names no epochs."""
    c = context()
    assert validate(c, ask(1, 2, 3), 3).writes, "no life of 3 has ended"
    bounced(c, 3, 500)
    judgement = validate(c, ask(1, 2, 3), 3)
    assert judgement.results == {TP: ErrorCode.INELIGIBLE_REPLICA}
    assert judgement.renew == [TP]
    assert validate(c, ask(1), 3).writes, "a change that lets nobody in is as good as before"
    read = {TP: c.leadership[TP]}
    after = plan_epoch_bump(c, [TP], read, Rule.EPOCH_FOR_RETURNED_REPLICA).writes[TP]
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2))
    c.leadership[TP] = LeaderIsrAndControllerEpoch(replace(after, partition_epoch=10), 3)
    assert validate(c, ask(1, 2, 3), 3).results == {TP: ErrorCode.FENCED_LEADER_EPOCH}
    assert validate(c, ask(1, 2, 3, epoch=6, version=10), 3).writes


def test_r8_a_death_that_was_written_needs_no_new_leader_epoch():
    """2 leaves the ISR as it dies: every earlier proposal has another partition epoch."""
    c = context()
    c.remove_broker(2)
    written = plan_isr_removal(c, 2, [TP], {TP: c.leadership[TP]}).writes[TP]
    c.leadership[TP] = LeaderIsrAndControllerEpoch(replace(written, partition_epoch=10), 3)
    c.add_broker(BrokerInfo(2, (), epoch=500))
    assert validate(c, ask(1, 2, epoch=6, version=10), 3).writes


@pytest.mark.parametrize(("zxid", "doubtful"), [(102, True), (104, False)])
def test_f11_a_new_controller_does_not_know_how_often_a_broker_died(zxid, doubtful):
    """3 registered after (102) or before (104) the state was last written."""
    c = context()
    note_former_lives(c, {TP: zxid})
    assert bool(validate(c, ask(1, 2, 3), 3).renew) == doubtful
    assert validate(c, named((1, 101), (2, 102), (3, 103)), 3).writes


def test_former_lives_go_with_their_topic():
    c = context()
    c.remove_broker(3)
    c.remove_topic("t")
    assert c.former_lives == {3: {}}


def test_r14_a_broker_that_is_no_replica_does_not_join_and_the_leader_learns_who_is():
    """Seed 25000667: the controller that had cancelled the reassignment died before it said so."""
    c = context()
    c.set_brokers(BrokerInfo(b, (), epoch=100 + b) for b in (1, 2, 3, 4))
    judgement = validate(c, ask(1, 2, 4), 3)
    assert judgement.results == {TP: ErrorCode.INELIGIBLE_REPLICA}
    assert judgement.renew == [TP]
    assert not judgement.writes


def test_one_that_was_removed_while_in_sync_may_stay_until_it_is_taken_out():
    c = context()
    c.set_assignment(TP, ReplicaAssignment((1, 3)))
    judgement = validate(c, ask(1, 2, 3), 3)
    assert TP in judgement.writes
