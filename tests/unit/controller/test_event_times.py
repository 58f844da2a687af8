"""How long the controller's events took, by the names of Kafka's metrics."""

from ottla.controller import events as happened
from ottla.controller.loop import LEADER_ELECTION, METRICS, EventTimes
from ottla.model.recent_times import KEPT


def test_times_are_kept_within_a_bound_and_counted_without_one():
    times = EventTimes()
    assert dict(times.counts()) == dict.fromkeys(METRICS.values(), 0)
    assert list(times.times()) == []
    for n in range(KEPT + 10):
        times.note(happened.BrokersChanged(), n / 1000)
    times.note(happened.FullResyncDue(1), 5.0)  # Kafka has no such metric
    assert dict(times.counts())[LEADER_ELECTION] == KEPT + 10
    ((name, kept),) = times.times()
    assert (name, len(kept), kept[0], kept[-1]) == (LEADER_ELECTION, KEPT, 10.0, KEPT + 9.0)
