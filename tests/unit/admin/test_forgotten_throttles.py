"""Forgotten throttles: which there are while nothing is reassigned, and how they go."""

from ottla.client.left_over_throttles import forgotten_throttles
from ottla.model.throttle_settings import LEASE, RATES, THROTTLED_REPLICAS

RATE = {RATES[0]: "1000", RATES[1]: "1000"}
LISTED = {THROTTLED_REPLICAS[0]: "0:1", THROTTLED_REPLICAS[1]: "0:2"}


def test_what_is_there_while_nothing_moves_is_found_with_its_way_out():
    brokers = {2: RATE, 1: {"log.retention.ms": "5"}, 3: {RATES[2]: "9"}}
    found = forgotten_throttles(brokers, {"t": LISTED, "u": {"retention.ms": "1"}})
    assert [(f.kind, f.name, f.settings) for f in found] == [
        ("broker", "2", RATE),
        ("broker", "3", {RATES[2]: "9"}),
        ("topic", "t", LISTED),
    ]
    assert found[0].fix == (
        f"ottla configs alter --broker 2 --delete {RATES[0]} --delete {RATES[1]}"
    )


def test_what_a_reassignment_needs_is_not_forgotten():
    assert forgotten_throttles({1: RATE}, {"t": LISTED}, reassigning=["t-0"]) == []
    found = forgotten_throttles({1: {**RATE, RATES[2]: "9"}}, {}, reassigning=["t-0"])
    assert [f.settings for f in found] == [{RATES[2]: "9"}], "no log dir is moved"
    assert forgotten_throttles({1: {RATES[2]: "9"}}, {}, moving_log_dirs=[1]) == []
    found = forgotten_throttles({1: {**RATE, RATES[2]: "9"}}, {}, moving_log_dirs=[1])
    assert [f.settings for f in found] == [RATE]


def test_what_a_lease_is_of_is_removed_by_its_broker():
    leased = {**RATE, LEASE: "t,v"}
    found = forgotten_throttles({1: leased, 2: RATE}, {"t": LISTED, "u": LISTED})
    assert [(f.kind, f.name) for f in found] == [("broker", "2"), ("topic", "u")]
