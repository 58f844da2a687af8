"""The range assignor of `ottla consume --group`, beside Kafka's own examples."""

from ottla.admin.operations.group_consumer import assign_range


def test_two_members_two_topics_of_three_partitions():
    given = assign_range({"t0": 3, "t1": 3}, {"c0": ["t0", "t1"], "c1": ["t0", "t1"]})
    assert given == {
        "c0": {"t0": [0, 1], "t1": [0, 1]},
        "c1": {"t0": [2], "t1": [2]},
    }


def test_more_members_than_partitions_and_members_by_id():
    given = assign_range({"t": 2}, {"c": ["t"], "a": ["t"], "b": ["t"]})
    assert given == {"a": {"t": [0]}, "b": {"t": [1]}, "c": {}}


def test_only_who_subscribed_gets_a_topic():
    given = assign_range({"t": 2, "u": 1}, {"a": ["t", "u"], "b": ["t"], "c": ["gone"]})
    assert given == {"a": {"t": [0], "u": [0]}, "b": {"t": [1]}, "c": {}}
