"""Rate and end of a copy, computed from sizes: beside copies whose end is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.progress import described
from ottla.placement.copy_estimate import Estimate, Estimator, Sizes

MB = 1e6


def followed(size, rate, *, growth=0.0, first=0.0, every_s=1.0):
    """Follow a copy of `size` bytes at `rate` while the leader grows: (moment, estimate), end.

    `first`: bytes that passed at once, before the throttle looked.
    """
    estimator, seen, t = Estimator(), [], 0.0
    end_s = (size - first) / (rate - growth)
    while t < end_s:
        of = size + growth * t
        seen.append((t, estimator.add(t, Sizes({1: first + rate * t}, {1: of}))))
        t += every_s
    return seen, end_s


@given(
    st.floats(100 * MB, 10_000 * MB),
    st.floats(1 * MB, 20 * MB),
    st.floats(0, 0.5),
    st.floats(0, 0.1),
)
def test_after_a_third_the_end_is_known(size, rate, grows, burst):
    seen, end_s = followed(
        size, rate, growth=grows * rate, first=burst * size, every_s=size / rate / 97
    )
    for t, estimate in seen:
        if t > end_s / 3 and estimate.left_s is not None:
            assert estimate.left_s == pytest.approx(end_s - t, rel=0.01, abs=0.001)
            assert estimate.rate == pytest.approx(rate, rel=0.01)
    assert seen[0][1].left_s is None


def test_the_end_is_that_of_the_last_broker():
    estimator = Estimator()
    estimator.add(0.0, Sizes({1: 0, 2: 0}, {1: 100, 2: 400}))
    found = estimator.add(20.0, Sizes({1: 100, 2: 100}, {1: 100, 2: 400}))
    assert found[:2] == (200, 500)
    assert found[2:] == pytest.approx((10.0, 60.0))


def test_what_comes_no_nearer_has_no_end():
    estimator = Estimator()
    estimator.add(0.0, Sizes({1: 50}, {1: 100}))
    assert estimator.add(20.0, Sizes({1: 50}, {1: 100})).left_s is None
    assert estimator.add(40.0, Sizes({1: 60}, {1: 130})).left_s is None
    assert estimator.add(60.0, Sizes({1: 130}, {1: 130})).left_s == 0.0


def test_a_change_of_the_throttle_is_followed():
    estimator = Estimator()
    for t in range(0, 101, 2):
        estimator.add(t, Sizes({1: t * 10}, {1: 100_000}))
    for t in range(102, 301, 2):
        found = estimator.add(t, Sizes({1: 1000 + (t - 100) * 100}, {1: 100_000}))
    assert found.left_s == pytest.approx((100_000 - 21_000) / 100, rel=0.01)


def test_bursts_are_smoothed():
    """As the throttle lets them pass: nothing for nine seconds, then ten seconds' worth."""
    estimator, size, rate = Estimator(), 1000 * MB, 3 * MB
    for t in range(int(size / rate * 0.9)):
        found = estimator.add(t, Sizes({1: rate * (t // 10) * 10}, {1: size}))
        really = size / rate - t
        if t > size / rate / 3:
            assert found.left_s == pytest.approx(really, rel=0.2)


def throttled(size, rate, *, at_once, pause_s, first=1):
    """Follow a copy whose throttle lets `at_once` bytes pass every `pause_s`, first `first` times.

    So do Kafka's brokers: a fetch brings 10 MiB from each leader, then nothing until the mean of
    the last ten seconds is below the rate.
    """
    estimator, seen, copied, t, next_s = Estimator(), [], 0.0, 0.0, 0.0
    while copied < size:
        if t >= next_s:
            copied += at_once * (first if t == 0 else 1)
            next_s = t + pause_s * (first if t == 0 else 1)
        left = size - copied
        seen.append((t, estimator.add(t, Sizes({1: min(size, copied)}, {1: size}, left / rate))))
        t += 1.0
    return seen, t - 1


def test_a_first_burst_under_a_throttle_does_not_mislead():
    seen, end_s = throttled(300 * MB, 3 * MB, at_once=15 * MB, pause_s=5, first=3)
    for t, found in seen[1:-1]:
        assert abs(t + found.left_s - end_s) <= 0.2 * end_s, (t, found)
    assert seen[0][1].left_s == pytest.approx(255 / 3)


def test_a_burst_far_above_a_small_throttle_does_not_mislead():
    """The first fetch brought a third of all; then a byte a millisecond is let pass."""
    estimator, size, rate, burst = Estimator(), 3 * MB, 1000.0, 1 * MB
    for t in range(60):
        copied = burst if t else 0.0
        found = estimator.add(float(t), Sizes({1: copied}, {1: size}, (size - copied) / rate))
        if t:
            assert found.left_s is not None
            assert found.left_s >= (size - burst) / rate, f"after {t} s"


def test_a_throttle_that_is_not_what_limits_the_copying_counts_little():
    estimator, size = Estimator(), 1000 * MB
    for t in range(60):
        copied = 5 * MB * t
        found = estimator.add(t, Sizes({1: copied}, {1: size}, (size - copied) / (100 * MB)))
    assert found.left_s == pytest.approx((size - copied) / (5 * MB), rel=0.01)


def test_where_nothing_passes_for_now_the_throttle_tells_the_end():
    estimator = Estimator()
    for t in range(5):
        found = estimator.add(t, Sizes({1: 50 * MB}, {1: 100 * MB}, 25.0))
        assert found.left_s == 25.0


def test_how_it_is_said():
    assert described(Estimate(0, 0, None, None)) == "0.0 of 0.0 MB"
    assert described(Estimate(1_500_000, 9_000_000, 250_000.0, 30.4)) == (
        "1.5 of 9.0 MB, 0.2 MB/s, 0:30 left"
    )
    assert described(Estimate(10**9, 5 * 10**9, 40e6, 7265.0)) == (
        "1.0 of 5.0 GB, 40.0 MB/s, 2:01:05 left"
    )
