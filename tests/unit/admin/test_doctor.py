"""The rules of `ottla doctor`: each finds what is planted, and nothing in a sound cluster."""

import dataclasses
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from ottla.admin.diagnosis import asking
from ottla.admin.diagnosis.facts import (
    Descriptors,
    Facts,
    GroupFacts,
    LogDirFacts,
    OpenTransaction,
    PartitionFacts,
    Registration,
    Severity,
    Stray,
    Throttle,
    TopicSettings,
    some,
)
from ottla.admin.diagnosis.rules import judged
from ottla.model.ids import TopicPartition
from support.commands import parsed

TP, TP2 = TopicPartition("t", 0), TopicPartition("t", 1)
GB = 10**9


def group(state="Stable", members=1, offset=50, start=0, end=100, moved=False, watched=20.0):
    return GroupFacts((state, state), members, {TP: (offset, start, end)}, moved, watched)


def sound():
    return Facts(
        1, {1: "a", 2: "b", 3: "c"},
        {TP: PartitionFacts(1, 5, (1, 2, 3), (1, 2, 3)),
         TP2: PartitionFacts(2, 5, (2, 3, 1), (3, 2, 1))},
        {"t": TopicSettings(2, unclean=False)},
        views={b: {TP: (1, 5), TP2: (2, 5)} for b in (1, 2, 3)},
        isr_changes={TP: 1}, watched_s=10.0, deleting={},
        registrations={1: Registration(1000, 2000)},
        zookeepers=dict.fromkeys((1, 2, 3), "z1:2181,z2:2181,z3:2181/root"),
        log_dirs=[
            LogDirFacts(1, "/d", "", 100 * GB, 50 * GB, GB),
            LogDirFacts(2, "/e", "", -1, -1),
        ],
        descriptors={1: Descriptors(100, 1024)},
        groups={"g": group(moved=True), "short": group(watched=3.0), "done": group(offset=100),
                "gone": group(state="Empty", members=0, offset=100)},
    )  # fmt: skip


def changed(**more):
    return dataclasses.replace(sound(), **more)


def partitions(first, settings=None):
    return changed(
        partitions={TP: first}, settings={"t": settings or TopicSettings(1, unclean=False)}
    )


def test_a_sound_cluster_has_no_findings():
    assert judged(sound()) == []


PLANTED = {
    "no-controller": (Severity.error, changed(controller=-1), ()),
    "silent-broker": (Severity.warning, changed(silent=[3]), ("broker 3",)),
    "no-leader": (Severity.error, partitions(PartitionFacts(-1, 6, (1, 2, 9), (9,))), ("t-0",)),
    "under-min-isr": (
        Severity.error,
        partitions(PartitionFacts(1, 6, (1, 2, 9), (1,)), TopicSettings(2, unclean=False)),
        ("t-0",),
    ),
    "under-replicated": (
        Severity.warning, partitions(PartitionFacts(1, 6, (1, 2, 9), (1, 2))), ("t-0",),
    ),
    "isr-flapping": (Severity.warning, changed(isr_changes={TP: 4}), ("t-0",)),
    "stale-metadata": (
        Severity.warning, changed(views={1: {TP: (1, 5)}, 2: {TP: (3, 4)}}), ("broker 2",),
    ),
    "reassignment-stuck": (Severity.warning, changed(moves={TP: (9,), TP2: (3,)}), ("t-0",)),
    "deletion-stuck": (
        Severity.warning,
        changed(deleting={"t": (1, 2, 9), "u": (1, 2, 3)}),
        ("t",),
    ),
    "leaders-elsewhere": (
        Severity.risk, partitions(PartitionFacts(2, 6, (1, 2, 3), (1, 2, 3))), ("t-0",),
    ),
    "few-replicas": (Severity.risk, partitions(PartitionFacts(1, 6, (1, 2), (1, 2))), ("t",)),
    "min-isr-is-all": (
        Severity.risk,
        partitions(PartitionFacts(1, 6, (1, 2, 3), (1, 2, 3)), TopicSettings(3, unclean=False)),
        ("t",),
    ),
    "some-without-rack": (
        Severity.risk, changed(brokers={1: "a", 2: None, 3: "c"}), ("broker 2",),
    ),
    "racks-violated": (Severity.risk, changed(brokers={1: "a", 2: "a", 3: "c", 4: "d"}),
                       ("t-0", "t-1")),
    "unclean-allowed": (
        Severity.risk, changed(settings={"t": TopicSettings(2, unclean=True)}), ("t",),
    ),
    "log-dir-failed": (
        Severity.error,
        changed(log_dirs=[LogDirFacts(2, "/e", "KAFKA_STORAGE_ERROR", -1, -1)]),
        ("broker 2: /e",),
    ),
    "disk-filling": (
        Severity.warning,
        changed(log_dirs=[LogDirFacts(1, "/d", "", 100 * GB, 50 * GB, 60 * GB)]),
        ("broker 1: /d",),
    ),
    "disk-full": (
        Severity.error,
        changed(log_dirs=[LogDirFacts(1, "/d", "", 100 * GB, 0, GB, "0 bytes free on /d")]),
        ("broker 1: /d",),
    ),
    "strays": (
        Severity.warning,
        changed(strays=[Stray(1, "/d/u-0.1-stray", "u-0", "x", 5, "then", "later")]),
        ("broker 1: /d/u-0.1-stray",),
    ),
    "descriptors": (
        Severity.warning, changed(descriptors={3: Descriptors(900, 1024)}), ("broker 3",),
    ),
    "clock-skew": (
        Severity.warning, changed(registrations={2: Registration(9000, 5000)}), ("broker 2",),
    ),
    "zookeeper-went-back": (
        Severity.error, changed(went_back={3: "it saw zxid 0x9"}), ("broker 3",),
    ),
    "forgotten-throttles": (
        Severity.warning, changed(throttles=[Throttle("broker", "2", {"x": "1"})]), ("broker 2",),
    ),
    "zookeeper-down": (Severity.error, changed(refusing_zookeeper="z1:2181"), ()),
    "few-zookeepers": (Severity.risk, changed(zookeepers={1: "z1:2181/r"}), ("broker 1",)),
    "zookeepers-differ": (
        Severity.risk, changed(zookeepers={1: "a:1,b:1,c:1", 2: "a:1,b:1,d:1"}),
        ("broker 1", "broker 2"),
    ),
    "hanging-transaction": (
        Severity.error, changed(hanging=[OpenTransaction(TP, 7, 40, 900.0)]), ("t-0",),
    ),
    "group-rebalancing": (
        Severity.warning, changed(groups={"g": group("PreparingRebalance")}), ("g",),
    ),
    "group-stuck": (Severity.warning, changed(groups={"g": group()}), ("g",)),
    "group-without-members": (
        Severity.risk, changed(groups={"g": group("Empty", members=0)}), ("g",),
    ),
    "group-behind-log-start": (
        Severity.warning, changed(groups={"g": group(start=60, moved=True)}), ("g",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_alone(name):
    severity, facts, subjects = PLANTED[name]
    (finding,) = judged(facts)
    assert (finding.name, finding.severity) == (name, severity)
    assert tuple(finding.subjects) == subjects
    assert finding.evidence
    assert finding.rule
    assert finding.fix
    for words in (shlex.split(text)[1:] for text in finding.commands):
        assert words[0] not in ("ottla", "")


@pytest.mark.parametrize(
    "of_group", [group("PreparingRebalance"), group(), group("Empty", members=0),
                 group(start=60, moved=True)]
)  # fmt: skip
def test_a_groups_name_is_one_word_in_the_command_to_copy(of_group):
    """Any client may name a group so that a shell would run its name."""
    hostile = "x; touch /tmp/owned '$(id)'"
    (finding,) = judged(changed(groups={hostile: of_group}))
    command = finding.fix[finding.fix.index("ottla groups") :]
    assert shlex.split(command.replace(": ", " : "))[3] == hostile


def test_a_controller_that_does_not_respond_is_none():
    found = judged(changed(silent=[1]))
    assert [f.name for f in found] == ["no-controller", "silent-broker"]
    assert "broker 1 is named as the controller" in found[0].evidence


def test_a_full_disk_is_found_though_its_broker_has_just_died():
    (found,) = judged(changed(disk="0 bytes free on /d"))
    assert (found.name, found.evidence) == ("disk-full", "0 bytes free on /d")


def test_one_zookeeper_is_no_risk_where_ottla_up_made_the_cluster():
    facts = changed(zookeepers={1: "127.0.0.1:2181"})
    assert [f.name for f in judged(facts)] == ["few-zookeepers"]
    facts.made_here = True
    assert judged(facts) == []


@pytest.mark.parametrize(
    ("seen", "settled"),
    [
        ({}, True),
        ({"views": {1: {TP: (1, 5)}}}, False),
        ({"views": {1: {TP: (1, 5)}, 2: {TP: (1, 4)}, 3: {TP: (1, 5)}}}, False),
        ({"isr": (1, 2)}, False),
        ({"state": "PreparingRebalance"}, False),
        ({"state": "CompletingRebalance"}, False),
        ({"state": "Empty"}, True),
    ],
)
def test_a_cluster_that_is_settled_is_not_watched(seen, settled):
    """Nothing of it would be otherwise in three seconds: they were most of a diagnosis."""
    facts = changed()
    facts.partitions = {TP: PartitionFacts(1, 5, (1, 2, 3), seen.get("isr", (3, 2, 1)))}
    views = seen.get("views", {key: {TP: (1, 5)} for key in facts.brokers})
    groups = {"g": asking._GroupLook(seen.get("state", "Stable"), 1, {})}
    assert asking._settled(facts, views, groups) is settled


def test_each_finding_is_planted_here_and_in_real_clusters():
    """In tests/compat/test_doctor.py on Ottla and on Kafka 3.9."""
    root = Path(__file__).parents[3]
    texts = root / "src" / "ottla" / "admin" / "diagnosis" / "rules.toml"
    names = set(tomllib.loads(texts.read_text(encoding="utf-8")))
    assert names == set(PLANTED)
    planted = (root / "tests" / "compat" / "test_doctor.py").read_text(encoding="utf-8")
    seen = set(re.findall(r'(?:found|doctor\([^()]*\))\["([a-z-]+)"\]\["', planted))
    seen |= set(re.findall(r'"([a-z-]+)" in doctor\(', planted))
    assert sorted(names - seen) == []


def test_the_commands_of_fixes_are_commands():
    """Each fix that can be carried out parses as what somebody types."""
    seen = 0
    for _, facts, _ in PLANTED.values():
        for finding in judged(facts):
            for words in (shlex.split(text)[1:] for text in finding.commands):
                parsed(words)
                seen += 1
    assert seen >= 6


def test_many_are_named_in_part():
    assert some(list(range(7))) == "0, 1, 2, 3, 4 and 2 more"
    assert some([1]) == "1"


def test_the_worst_comes_first():
    found = judged(
        changed(
            controller=-1, zookeepers={1: "z1:2181"}, isr_changes={TP: 9},
        )
    )  # fmt: skip
    assert [f.severity for f in found] == [Severity.error, Severity.warning, Severity.risk]
