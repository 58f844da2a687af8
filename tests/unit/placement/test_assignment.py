"""Where replicas go: Kafka's tables, racks, and what can go wrong."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import InvalidPartitionsError, InvalidReplicationFactorError
from ottla.placement.assignment import (
    BrokerRack,
    PlacementError,
    alternate_racks,
    assign_added,
    assign_replicas,
)

FIVE = [BrokerRack(i) for i in range(5)]
SIX = [BrokerRack(i, r) for i, r in enumerate(["a", "b", "b", "c", "c", "a"])]


def test_the_table_of_the_documents():
    assert assign_replicas(FIVE, 10, 3, start=0, shift=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_alternate():
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]
    del racks[5]
    assert alternate_racks(racks) == [0, 3, 1, 4, 2]


def test_two_replicas_stand_in_two_racks_and_leaders_are_even():
    placed = assign_replicas(SIX, 12, 2, start=2, shift=0)
    racks = {b.id: b.rack for b in SIX}
    assert all(len({racks[r] for r in replicas}) == 2 for replicas in placed.values())
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {2}


@given(
    brokers=st.integers(1, 12),
    racks=st.integers(0, 4),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_every_placement_is_sound(brokers, racks, partitions, factor, seed):
    live = [BrokerRack(i, f"r{i % racks}" if racks else None) for i in range(brokers)]
    chance = random.Random(seed)
    if factor > brokers:
        with pytest.raises(InvalidReplicationFactorError):
            assign_replicas(live, partitions, factor, random=chance)
        return
    placed = assign_replicas(live, partitions, factor, random=chance)
    assert sorted(placed) == list(range(partitions))
    in_rack = {b.id: b.rack for b in live}
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        if racks:
            there = len({in_rack[r] for r in replicas})
            assert there == min(factor, len(set(in_rack.values())))
    leaders = Counter(replicas[0] for replicas in placed.values())
    most = max(leaders.values())
    least = min(leaders[b.id] for b in live)
    assert most - least <= 1


def test_growth_goes_on_where_the_topic_began():
    existing = assign_replicas(FIVE, 3, 2, start=1, shift=1)
    grown = assign_added(FIVE, existing, 2)
    again = assign_replicas(FIVE, 2, 2, start=1, shift=1, first_partition=3)
    assert grown == again
    assert list(grown) == [3, 4]


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "error"),
    [
        (FIVE, 0, 1, InvalidPartitionsError),
        (FIVE, 1, 0, InvalidReplicationFactorError),
        (FIVE, 1, 6, InvalidReplicationFactorError),
        ([], 1, 1, InvalidReplicationFactorError),
        ([BrokerRack(1, "a"), BrokerRack(2)], 1, 1, PlacementError),
    ],
)
def test_what_cannot_be_placed(brokers, partitions, factor, error):
    with pytest.raises(error):
        assign_replicas(brokers, partitions, factor, start=0, shift=0)


def test_one_broker_leads_everything():
    assert assign_replicas([BrokerRack(7)], 2, 1, start=0, shift=0) == {0: (7,), 1: (7,)}
