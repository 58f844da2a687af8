"""Scenario files and options: what they say, and what is refused with a reason."""

import pytest

from ottla.model.errors import OttlaError
from ottla.model.properties import parse_properties
from ottla.sim.scenarios.scenario import (
    Scenario,
    checked,
    of_a_producer,
    of_the_cluster,
    parse,
    to_text,
)
from ottla.sim.scenarios.search import remedies


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"brokers": 5, "partitions": 3, "replication-factor": 3, "at-once": 2},
        {"brokers": 1},
        {"faults": [], "wait-for-in-sync": True, "catch-up-seconds": 0},
        {"longest-gap-seconds": 30, "topic": {"min.insync.replicas": 2}},
        {"server": {"unclean.leader.election.enable": True}, "producer": {"acks": 1}},
        {"promises": ["order"], "faults": ["crash", "pause"]},
    ],
)
def test_the_printed_file_says_the_whole_scenario(values):
    scenario = checked(values, "options")
    again = checked(parse(to_text(scenario).encode(), "file"), "file")
    assert to_text(again) == to_text(scenario)
    assert again.producer_settings() == scenario.producer_settings()
    for name in ("brokers", "partitions", "at_once", "faults", "promises", "server", "topic",
                 "longest_gap_seconds", "wait_for_in_sync", "catch_up_seconds"):  # fmt: skip
        assert getattr(again, name) == getattr(scenario, name)


def test_defaults_are_kafkas():
    scenario = checked({}, "options")
    assert scenario.min_isr == 1
    assert scenario.longest_detection_s == 30.0
    settings = scenario.producer_settings()
    assert (settings.acks, settings.idempotent, settings.in_flight) == (-1, True, 5)
    assert settings.delivery_timeout_s == 120.0


def test_fewer_brokers_mean_fewer_replicas():
    assert checked({"brokers": 2}, "options").replication_factor == 2


@pytest.mark.parametrize(
    ("producer", "idempotent"),
    [({"acks": "1"}, False), ({"acks": "0"}, False), ({"retries": "0"}, False), ({}, True),
     ({"max.in.flight.requests.per.connection": "6"}, False)],
)  # fmt: skip
def test_idempotence_is_off_where_kafkas_producer_turns_it_off(producer, idempotent):
    assert checked({"producer": producer}, "o").producer_settings().idempotent == idempotent


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"broker": 3}, ("unknown field", "broker")),
        ({"brokers": 0}, ("brokers", ">= 1")),
        ({"brokers": 2, "replication-factor": 3}, ("replication-factor 3", "2")),
        ({"faults": ["earthquake"]}, ("earthquake", "power-loss")),
        ({"promises": ["happy"]}, ("happy", "kept")),
        ({"promises": []}, ("at least one promise",)),
        ({"promises": ["gap"]}, ("longest-gap-seconds",)),
        ({"topic": {"min.insync.replica": "1"}}, ("min.insync.replica",)),
        ({"topic": {"min.insync.replicas": "4"}}, ("more than replication-factor 3",)),
        ({"topic": {"min": {"insync": 2}}}, ("names with dots in quotes",)),
        ({"topic": {"min.insync.replicas": "two"}}, ("min.insync.replicas", "two")),
        ({"topic": 5}, ("[topic] holds settings",)),
        (
            {"server": {"zookeeper.session.timeout.ms": 2**31 - 1}},
            ("zookeeper.session.timeout.ms", "300 s"),
        ),
        ({"server": {"broker.id": "3"}}, ("broker.id", "Leave it out")),
        ({"server": {"no.such.key": "3"}}, ("unknown setting no.such.key",)),
        ({"producer": {"acks": "2"}}, ("acks=2", "all, 1 or 0")),
        ({"producer": {"linger.ms": "2"}}, ("linger.ms", "simulated are acks")),
        ({"producer": {"retries": "-1"}}, ("retries=-1", "whole number")),
        ({"producer": {"acks": "1", "enable.idempotence": "true"}}, ("acks=1", "leave one")),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(values, words):
    with pytest.raises(OttlaError) as caught:
        checked(values, "mine.toml")
    text = str(caught.value)
    assert text.startswith("mine.toml: ")
    assert "\n" not in text
    for word in words:
        assert word in text


def test_no_toml_is_one_line():
    for data in (b"brokers = ", b"\xff", b"[" * 100_000, b"x" * 2_000_000):
        with pytest.raises(OttlaError) as caught:
            parse(data, "mine.toml")
        assert str(caught.value).startswith("mine.toml")
        assert "\n" not in str(caught.value)


def test_of_property_files_what_cannot_be_simulated_is_named():
    text = "broker.id=7\nlisteners=SASL_SSL://x:1\nreplica.lag.time.max.ms=10000\nmy.plugin=x\n"
    kept, left_out = of_the_cluster(parse_properties(text))
    assert kept == {"replica.lag.time.max.ms": "10000"}
    assert left_out == ["broker.id", "listeners", "my.plugin"]
    assert checked({"server": kept}, "o").longest_detection_s == 18.0
    kept, left_out = of_a_producer(parse_properties("acks=1\nbootstrap.servers=x:1\n"))
    assert (kept, left_out) == ({"acks": "1"}, ["bootstrap.servers"])


def test_remedies_build_on_each_other():
    scenario = checked(
        {"producer": {"acks": "1"}, "topic": {"unclean.leader.election.enable": True}}, "o"
    )
    found = [changes for changes, _ in remedies(scenario, {"kept"})]
    assert found == [
        {"acks": "all"},
        {"acks": "all", "unclean.leader.election.enable": "false"},
        {"acks": "all", "unclean.leader.election.enable": "false", "min.insync.replicas": "2"},
    ]
    changed = list(remedies(scenario, {"kept"}))[-1][1]
    assert changed.min_isr == 2
    assert changed.producer_settings().acks == -1
    two = checked({"at-once": 2, "topic": {"min.insync.replicas": 2}}, "o")
    ((changes, more),) = remedies(two, {"kept"})
    assert changes == {"min.insync.replicas": "3", "replication-factor": "5", "brokers": "5"}
    assert (more.brokers, more.replication_factor, more.min_isr) == (5, 5, 3)
    assert list(remedies(two, {"gap"})) == []


def test_all_changes_are_valid_scenarios():
    scenario = checked({"producer": {"acks": "1", "retries": "0"}}, "o")
    for _, changed in remedies(scenario, {"kept", "once", "order"}):
        assert isinstance(changed, Scenario)
        changed.producer_settings()
