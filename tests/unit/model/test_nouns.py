"""Ids, assignments and error codes."""

import pytest

from ottla.model.cluster import BrokerInfo, Endpoint, LeaderAndIsr, ReplicaAssignment
from ottla.model.errors import RETRIABLE, ErrorCode, NotLeaderError, OttlaError
from ottla.model.ids import (
    ONE_UUID,
    ZERO_UUID,
    TopicPartition,
    is_usable_uuid,
    topic_name_problem,
    topics_collide,
    uuid_from_text,
    uuid_to_text,
)


def test_a_partition_prints_as_its_folder():
    assert str(TopicPartition("flights", 3)) == "flights-3"


def test_topic_ids_have_kafkas_text():
    raw = bytes(range(16))
    assert uuid_to_text(raw) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_from_text("AAECAwQFBgcICQoLDA0ODw") == raw
    with pytest.raises(ValueError, match="22-character"):
        uuid_from_text("AAEC")
    assert not is_usable_uuid(ZERO_UUID)
    assert not is_usable_uuid(ONE_UUID)
    assert not is_usable_uuid(b"\xf8" + bytes(15))  # its text starts with '-'
    assert is_usable_uuid(raw)


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * 249])
def test_legal_topic_names(name):
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n"])
def test_illegal_topic_names_say_why(name):
    assert topic_name_problem(name)


def test_names_that_differ_in_dot_and_underscore_collide():
    assert topics_collide("a.b", "a_b")
    assert not topics_collide("a.b", "a-b")


def test_original_and_target_replicas_of_a_reassignment():
    plain = ReplicaAssignment((1, 2, 3))
    assert (plain.original, plain.target, plain.being_reassigned) == ((1, 2, 3), (1, 2, 3), False)
    moving = ReplicaAssignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3))
    assert (moving.original, moving.target) == ((1, 2, 3), (4, 5, 6))
    assert moving.being_reassigned


def test_an_election_bumps_the_leader_epoch_only():
    before = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=9)
    after = before.with_leader(2, (2,))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2,), 5, 9)
    assert not LeaderAndIsr(leader=-1, leader_epoch=0, isr=()).has_leader


def test_endpoints_print_as_in_znodes():
    assert str(Endpoint("::1", 9092)) == "PLAINTEXT://[::1]:9092"
    broker = BrokerInfo(1, (Endpoint("h", 1),))
    assert broker.endpoint("PLAINTEXT").port == 1
    with pytest.raises(KeyError, match="no listener SSL"):
        broker.endpoint("SSL")


def test_error_codes_are_kafkas():
    assert sorted(ErrorCode) == list(range(-1, 128))
    assert ErrorCode(6).name == "NOT_LEADER_OR_FOLLOWER"
    # A newer broker may answer what we do not know: one unknown error, not the end of the answer.
    assert ErrorCode(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.FENCED_LEADER_EPOCH == 74
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in RETRIABLE
    assert ErrorCode.CORRUPT_MESSAGE in RETRIABLE
    assert ErrorCode.INVALID_RECORD not in RETRIABLE
    assert NotLeaderError("x").retriable
    assert OttlaError("x", ErrorCode.INVALID_CONFIG).code == 40
