"""The rate over the windows, and which replicas a throttle is for."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.replication.throttle import (
    EVERY_PARTITION,
    ReplicationQuota,
    WindowedRate,
    throttled_partitions,
)

MIB = 1 << 20


def test_a_burst_after_silence_counts_in_full():
    rate = WindowedRate(11, 1000)
    rate.record(500, 70_000)
    assert rate.bytes_per_s(70_000) == 500
    assert rate.bytes_per_s(71_000) == 500
    assert rate.bytes_per_s(75_000) == 100
    assert rate.bytes_per_s(81_000) == 0


def test_old_windows_are_forgotten_one_by_one():
    rate = WindowedRate(2, 1000)
    for second in range(5):
        rate.record(1000, second * 1000)
    assert rate.bytes_per_s(4000) == 2000, "3 s and 4 s remain, and one second has passed"
    assert rate.bytes_per_s(4999) == pytest.approx(2000 / 1.999)
    assert rate.bytes_per_s(5000) == 1000


@pytest.mark.parametrize("bound", [0, 1, 300, 1000, 5000])
def test_the_wait_ends_when_the_rate_is_down_and_not_before(bound):
    def rate():
        made = WindowedRate(11, 1000)
        made.record(1000, 0)
        made.record(1000, 1500)
        return made

    now, waits = 1600.0, 0
    waiting = rate()
    while wait := waiting.until_ms(bound, now):
        assert rate().bytes_per_s(now + wait - 1) > bound
        now += wait + 0.001
        waits += 1
    assert waits <= 3
    assert rate().bytes_per_s(now) <= bound
    assert now <= 12_501


def test_replicas_of_this_broker_only():
    assert throttled_partitions((), 1) == frozenset()
    assert throttled_partitions(("",), 1) == frozenset()
    assert throttled_partitions(("0:1", "1:2", "7:1"), 1) == {0, 7}
    assert throttled_partitions(("*",), 1) == EVERY_PARTITION


def test_a_quota_names_partitions_until_it_is_taken_away():
    quota = ReplicationQuota(11, 1000)
    quota.throttle("t", {3})
    assert quota.throttles("t", 3)
    assert not quota.throttles("t", 4)
    assert not quota.throttles("u", 3)
    quota.throttle("t", EVERY_PARTITION)
    assert quota.throttles("t", 4)
    quota.throttle("t", ())
    assert not quota.throttles("t", 3)
    assert not quota.topics


def test_without_a_bound_nothing_is_exceeded():
    quota = ReplicationQuota(11, 1000)
    quota.record(1 << 40, 0)
    assert not quota.exceeded(0)
    assert quota.until_ms(0) == 0
    quota.bound = 10
    assert quota.exceeded(0)


@given(
    st.floats(min_value=1.0, max_value=50 * MIB),
    st.lists(
        st.tuples(
            st.floats(min_value=0.0, max_value=3000.0), st.integers(min_value=1, max_value=MIB)
        ),
        min_size=1,
        max_size=60,
    ),
)
@example(1.0, [(0.0, 1), (1.0, 12), (1999.0, 1), (3000.0, 1), (3000.0, 1), (3000.0, 12)])
def test_no_ten_windows_pass_more_than_bound_and_one_burst(bound, offers):
    """Whoever asks first never sends more than the bound allows in eleven windows, and a response.

    That holds in any time of ten: what comes late in a window is forgotten with its first byte, up
    to one window early, as with Kafka's SampledStat.
    """
    quota = ReplicationQuota(11, 1000)
    quota.bound = bound
    now = 0.0
    sent = []
    for pause, size in offers:
        now += pause
        if not quota.exceeded(now):
            quota.record(size, now)
            sent.append((now, size))
    burst = max(size for _, size in offers)
    for start, _ in sent:
        window = [size for at, size in sent if start <= at < start + 10_000]
        assert sum(window) <= bound * 11 + burst
