"""What a group has committed (the offsets of Kafka's GroupMetadataTest)."""

from ottla.coordinators.offsets import Commit, GroupOffsets
from ottla.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = 13


def commit(offset, **more):
    return Commit(offset, -1, "", 1000)._replace(**more)


def test_offset_commit():
    offsets = GroupOffsets()
    offsets.prepare({T0: commit(37)})
    assert offsets.any
    assert offsets.get(T0) is None
    assert offsets.unstable(T0)
    offsets.appended({T0: commit(37)}, 3)
    assert offsets.get(T0) == commit(37)
    assert not offsets.unstable(T0)


def test_offset_commit_failure():
    offsets = GroupOffsets()
    offsets.prepare({T0: commit(37)})
    offsets.failed({T0: commit(37)})
    assert not offsets.any
    assert offsets.get(T0) is None


def test_failure_with_another_pending():
    offsets = GroupOffsets()
    first, second = commit(37), commit(57)
    offsets.prepare({T0: first})
    offsets.prepare({T0: second})
    offsets.failed({T0: first})
    assert offsets.unstable(T0)
    offsets.appended({T0: second}, 3)
    assert offsets.get(T0) == second
    assert not offsets.unstable(T0)


def test_commit_with_another_pending():
    offsets = GroupOffsets()
    first, second = commit(37), commit(57)
    offsets.prepare({T0: first})
    offsets.prepare({T0: second})
    offsets.appended({T0: first}, 4)
    assert offsets.get(T0) == first
    assert offsets.unstable(T0)
    offsets.appended({T0: second}, 5)
    assert offsets.get(T0) == second


def test_the_record_with_the_larger_offset_wins_whatever_the_order_of_the_responses():
    offsets = GroupOffsets()
    offsets.prepare({T0: commit(1)})
    offsets.prepare({T0: commit(2)})
    offsets.appended({T0: commit(2)}, 11)
    offsets.prepare({T0: commit(1)})
    offsets.appended({T0: commit(1)}, 10)
    assert offsets.get(T0) == commit(2)


def test_consumer_beats_transactional_commit():
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(37)})
    assert offsets.unstable(T0)
    offsets.prepare({T0: commit(57)})
    offsets.appended_in_transaction(PRODUCER, {T0: commit(37)}, 3)
    offsets.appended({T0: commit(57)}, 4)
    assert offsets.get(T0) == commit(57)
    assert offsets.unstable(T0)
    offsets.complete_transaction(PRODUCER, committed=True)
    assert offsets.get(T0) == commit(57)
    assert not offsets.unstable(T0)


def test_transaction_beats_consumer_commit():
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(37)})
    offsets.prepare({T0: commit(57)})
    offsets.appended({T0: commit(57)}, 3)
    offsets.appended_in_transaction(PRODUCER, {T0: commit(37)}, 4)
    assert offsets.get(T0) == commit(57)
    offsets.complete_transaction(PRODUCER, committed=True)
    assert offsets.get(T0) == commit(37)


def test_an_aborted_transaction_leaves_nothing():
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(37)})
    offsets.prepare({T0: commit(57)})
    offsets.appended({T0: commit(57)}, 3)
    offsets.appended_in_transaction(PRODUCER, {T0: commit(37)}, 4)
    offsets.complete_transaction(PRODUCER, committed=False)
    assert offsets.get(T0) == commit(57)
    assert not offsets.unstable(T0)


def test_a_failed_transactional_commit_leaves_no_pending_state():
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(37)})
    offsets.failed_in_transaction(PRODUCER, {T0: commit(37)})
    assert not offsets.any


def test_a_later_commit_that_failed_does_not_take_an_earlier_one_with_it():
    """Kafka's keeps only the last pending one, so the earlier, acknowledged, was not seen."""
    offsets = GroupOffsets()
    offsets.prepare({T0: commit(1)})
    offsets.prepare({T0: commit(2)})
    offsets.failed({T0: commit(2)})
    assert offsets.unstable(T0)
    offsets.appended({T0: commit(1)}, 5)
    assert offsets.get(T0) == commit(1)
    assert not offsets.unstable(T0)


def test_neither_does_one_of_a_transaction():
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(1)})
    offsets.prepare_in_transaction(PRODUCER, {T0: commit(2)})
    offsets.appended_in_transaction(PRODUCER, {T0: commit(1)}, 5)
    offsets.failed_in_transaction(PRODUCER, {T0: commit(2)})
    assert offsets.unstable(T0)
    offsets.complete_transaction(PRODUCER, committed=True)
    assert offsets.get(T0) == commit(1)


def test_removing_needs_tombstones_for_what_may_be_in_the_log():
    offsets = GroupOffsets()
    offsets.prepare({T0: commit(1)})
    offsets.appended({T0: commit(1)}, 1)
    offsets.prepare({T1: commit(2)})
    # T1's commit stands in the log, or will: without a tombstone it would come back.
    assert offsets.remove([T0, T1, TopicPartition("u", 0)]) == [T0, T1]
    offsets.appended({T1: commit(2)}, 2)
    assert not offsets.any


def test_expiry_goes_by_the_given_base_or_the_commits_own_time():
    offsets = GroupOffsets()
    for tp, one in ((T0, commit(1)), (T1, commit(2, expire_timestamp=5000))):
        offsets.prepare({tp: one})
        offsets.appended({tp: one}, 1)

    def expired(now, *, kept=()):
        kept = frozenset(kept)
        return offsets.expired(now, 2000, lambda c: c.commit_timestamp, kept)

    assert expired(2999) == []
    assert expired(3000) == [T0]
    assert expired(5000) == [T0, T1]
    assert expired(5000, kept=["t"]) == []
    offsets.prepare({T0: commit(3)})
    assert expired(5000) == [T1]
