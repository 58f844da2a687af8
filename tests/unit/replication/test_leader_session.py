"""The follower's side of fetch sessions, on values."""

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.replication.leader_session import FetchPosition, LeaderSession

ID = b"i" * 16
NEW_ID = b"n" * 16


def wanted(index, topic_id=ID, topic="t"):
    return FetchPosition(TopicPartition(topic, index), topic_id, 4)


def listed(built):
    return [(t.topic, p.partition, p.fetch_offset) for t in built[0].topics for p in t.partitions]


def forgotten(built):
    return [(t.topic, list(t.partitions)) for t in built[0].forgotten_topics_data]


def test_full_then_only_changes():
    session = LeaderSession(17)
    one, two = wanted(0), wanted(1)
    session.add(one)
    session.add(two)
    built = session.build()
    assert (built[0].session_id, built[0].session_epoch, built[1]) == (0, 0, 17)
    assert listed(built) == [("t", 0, 0), ("t", 1, 0)]
    assert session.accept(5, ErrorCode.NONE)
    built = session.build()
    assert (built[0].session_id, built[0].session_epoch) == (5, 1)
    assert listed(built) == []
    session.accept(5, ErrorCode.NONE)
    one.offset = 9
    session.changed(one)
    session.remove(two.tp)
    built = session.build()
    assert built[0].session_epoch == 2
    assert listed(built) == [("t", 0, 9)]
    assert forgotten(built) == [("t", [1])]
    assert session.by_key == {(ID, 0): one}
    session.accept(5, ErrorCode.NONE)
    assert forgotten(session.build()) == []


def test_nothing_to_fetch():
    session = LeaderSession(17)
    assert session.build() is None
    session.add(wanted(0))
    session.build()
    session.accept(5, ErrorCode.NONE)
    session.remove(TopicPartition("t", 0))
    assert forgotten(session.build()) == [("t", [0])]
    session.accept(5, ErrorCode.NONE)
    assert session.build() is None


def test_leaving_and_coming_back_between_two_requests():
    session = LeaderSession(17)
    session.add(wanted(0))
    session.build()
    session.accept(5, ErrorCode.NONE)
    session.remove(TopicPartition("t", 0))
    again = wanted(0)
    session.add(again)
    built = session.build()
    assert listed(built) == [("t", 0, 0)]
    assert forgotten(built) == []
    assert session.by_key[ID, 0] is again


def test_a_topic_made_anew_is_another_partition():
    session = LeaderSession(17)
    session.add(wanted(0))
    session.build()
    session.accept(5, ErrorCode.NONE)
    session.remove(TopicPartition("t", 0))
    session.add(wanted(0, NEW_ID))
    built = session.build()
    assert built[0].topics[0].topic_id == NEW_ID
    assert [t.topic_id for t in built[0].forgotten_topics_data] == [ID]
    assert list(session.by_key) == [(NEW_ID, 0)]


def test_one_topic_without_id_means_names_for_all():
    session = LeaderSession(17)
    session.add(wanted(0))
    session.build()
    session.accept(5, ErrorCode.NONE)
    session.add(wanted(0, ZERO_UUID, "old"))
    built = session.build()
    assert (built[0].session_id, built[0].session_epoch, built[1]) == (5, 0, 12)
    assert set(session.by_key) == {("t", 0), ("old", 0)}
    session.accept(6, ErrorCode.NONE)
    session.remove(TopicPartition("old", 0))
    built = session.build()
    assert (built[0].session_epoch, built[1]) == (0, 17)


def test_errors_start_over():
    session = LeaderSession(17)
    session.add(wanted(0))
    session.build()
    session.accept(5, ErrorCode.NONE)
    assert not session.accept(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    built = session.build()
    assert (built[0].session_id, built[0].session_epoch) == (5, 0)
    assert not session.accept(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.build()[0].session_id == 0


def test_a_leader_without_room():
    session = LeaderSession(11)
    session.add(wanted(0))
    for _ in range(2):
        built = session.build()
        assert (built[0].session_id, built[0].session_epoch, built[1]) == (0, 0, 11)
        assert listed(built) == [("t", 0, 0)]
        assert session.accept(0, ErrorCode.NONE)


def test_a_partition_removed_during_a_response_is_not_sent_anew():
    """A response may name a partition twice: the first part has it dropped, the second is late."""
    session = LeaderSession(17)
    one, two = wanted(0), wanted(1)
    session.add(one)
    session.add(two)
    session.build()
    session.accept(5, ErrorCode.NONE)
    session.remove(one.tp)
    session.changed(one)
    assert listed(session.build()) == []
