"""Bytes of brokers are evened out; counts, racks and topics are kept; little is copied."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.placement.byte_goal import BAND, propose, unevenness

GIB = 1 << 30


def cluster(seed, partitions=200, topics=10, brokers=6, racks=2, factor=2, used=None):
    """Return replicas, racks and sizes: log-normal sizes on brokers drawn at random."""
    rng = random.Random(seed)
    where = {b: f"r{b % racks}" if racks else None for b in range(brokers)}
    current, sizes = {}, {}
    for n in range(partitions):
        tp = TopicPartition(f"t{n % topics}", n // topics)
        chosen: list[int] = []
        for broker in rng.sample(list(used or where), len(used or where)):
            fresh = where[broker] not in {where[b] for b in chosen} or not racks
            if len(chosen) < factor and (fresh or len(chosen) >= racks):
                chosen.append(broker)
        current[tp] = tuple(chosen)
        sizes[tp] = int(rng.lognormvariate(20, 1.5))
    return current, where, sizes


def checked(current, where, sizes, others=None):
    """Propose, and check what always holds."""
    found = propose(current, where, sizes, others or {})
    assert found == propose(current, where, sizes, others or {})
    assert found.assignment.keys() == current.keys()
    distinct = len(set(where.values()))
    for tp, there in found.assignment.items():
        assert len(set(there)) == len(there) == len(current[tp])
        assert set(there) <= set(where)
        assert len({where[b] for b in there}) >= min(
            distinct, len(there), len({where.get(b) for b in current[tp]})
        )
    assert found.copied_bytes == sum(
        sizes.get(tp, 0) for tp, there in found.assignment.items() for b in there
        if b not in current[tp]
    )  # fmt: skip
    return found


@pytest.mark.parametrize("seed", range(8))
def test_brokers_that_were_added_get_their_share(seed):
    current, where, sizes = cluster(seed, partitions=600, used=[0, 1, 2, 3])
    assert unevenness(current, list(where), sizes) == 1.0
    found = checked(current, where, sizes)
    assert unevenness(found.assignment, list(where), sizes) <= BAND * 1.01
    # What the empty ones lack of their bands has to be copied, by any plan.
    mean = sum(sizes[tp] * 2 for tp in current) / 6
    least = 2 * mean * (1 - BAND)
    assert least <= found.copied_bytes < 1.15 * least
    leaders = [there[0] for there in found.assignment.values()]
    assert max(map(leaders.count, where)) - min(map(leaders.count, where)) <= 3
    for topic in {tp.topic for tp in current}:
        before, after = (
            max(sum(b in there for tp, there in r.items() if tp.topic == topic) for b in where)
            for r in (current, found.assignment)
        )
        assert after <= max(before, 1.5 * 120 / 6)


def test_an_even_cluster_stays_as_it_is():
    current = {TopicPartition("t", n): (n % 3, (n + 1) % 3) for n in range(30)}
    found = checked(current, dict.fromkeys(range(3)), dict.fromkeys(current, GIB))
    assert (found.copies, found.copied_bytes) == (0, 0)


def test_a_replica_that_is_too_large_is_exchanged_for_a_smaller_one():
    current = {TopicPartition("t", n): (n % 2,) for n in range(4)}
    sizes = dict(zip(current, (10 * GIB, 5 * GIB, 7 * GIB, 6 * GIB), strict=True))
    found = checked(current, {0: None, 1: None}, sizes)
    assert unevenness(found.assignment, [0, 1], sizes) < 0.1
    assert found.copied_bytes <= 13 * GIB


def test_replicas_leave_brokers_that_are_not_named():
    current, where, sizes = cluster(3)
    del where[5]
    found = checked(current, where, sizes)
    assert unevenness(found.assignment, list(where), sizes) < 0.35  # racks of three and of two


def test_what_stays_counts():
    where = dict.fromkeys(range(3))
    others = {TopicPartition("large", 0): (0,)}
    current = {TopicPartition("t", n): (n % 3,) for n in range(30)}
    sizes = {**dict.fromkeys(current, GIB), TopicPartition("large", 0): 10 * GIB}
    found = checked(current, where, sizes, others)
    assert unevenness({**found.assignment, **others}, [0, 1, 2], sizes) <= 0.2
    assert sum(0 in there for there in found.assignment.values()) < 6


def test_too_few_brokers():
    with pytest.raises(ValueError, match="t-0 has 2 replicas, for 1 broker"):
        propose({TopicPartition("t", 0): (0, 1)}, {0: None}, {}, {})


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999), partitions=st.integers(1, 40), brokers=st.integers(2, 7),
    racks=st.integers(0, 3),
)  # fmt: skip
def test_it_is_never_worse(seed, partitions, brokers, racks):
    current, where, sizes = cluster(seed, partitions, 3, brokers, min(racks, brokers), 2)
    found = checked(current, where, sizes)
    before, after = (unevenness(r, list(where), sizes) for r in (current, found.assignment))
    assert after <= before + 1e-9 or after <= BAND
