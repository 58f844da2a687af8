"""docs/SEEDS.md: options and znodes of the documents, each beside one that exists here."""

import re
from pathlib import Path

import pytest

from ottla.model.config_keys import topic_keys
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from support.commands import every_command

PAGE = (Path(__file__).parents[3] / "docs" / "SEEDS.md").read_text(encoding="utf-8")

# What the five documents name, read out of them by hand.
TOOLS = {
    "kafka-topics.sh": {"--describe", "--topic"},
    "kafka-replica-verification.sh": {"--topic-white-list"},
    "kafka-preferred-replica-election.sh": set(),
    "kafka-reassign-partitions.sh": {
        "--topics-to-move-json-file", "--broker-list", "--generate", "--reassignment-json-file",
        "--execute", "--verify",
    },
    "StateChangeLogMerger": {"--logs", "--topic", "--partitions"},
}  # fmt: skip
TOPIC_SETTINGS = [
    "unclean.leader.election.enable",
    "delete.retention.ms",
    "segment.jitter.ms",
    "retention.ms",
    "flush.ms",
    "segment.bytes",
    "flush.messages",
    "segment.ms",
    "retention.bytes",
    "cleanup.policy",
    "segment.index.bytes",
    "min.cleanable.dirty.ratio",
    "max.message.bytes",
    "file.delete.delay.ms",
    "min.insync.replicas",
    "index.interval.bytes",
]
ZNODES = [
    "/admin/delete_topics",
    "/admin/preferred_replica_election",
    "/admin/reassign_partitions",
    "/brokers/ids",
    "/brokers/ids/[brokerId]",
    "/brokers/topics",
    "/brokers/topics/[topic]",
    "/brokers/topics/[topic]/partitions",
    "/brokers/topics/[topic]/partitions/[partition]",
    "/brokers/topics/[topic]/partitions/[partition]/state",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
]


def table(heading):
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return rows[1:], section


OPTIONS, TOOLS_SECTION = table("The documents' tools, option by option")
PATHS, _ = table("The documents' znodes")


def problems_of(text):
    """Return what of `ottla COMMAND --option …` does not exist."""
    words = text.split()
    assert words[0] == "ottla"
    name = next(n for n in every_command() if text.removeprefix("ottla ").startswith(n))
    left = words[1 + len(name.split()) :]
    declared = [p for p in every_command()[name].known if p.is_option]
    known = {n for p in declared for n in (*p.names, *p.declared.hidden)}
    return [w for w in left if w.startswith("-") and w not in known]


def test_each_tool_and_option_of_the_documents_has_its_line():
    for tool, wanted in TOOLS.items():
        cells = [option for name, option, _ in OPTIONS if name == f"`{tool}`"]
        assert cells, tool
        told = set(re.findall(r"--[a-z-]+", " ".join(cells)))
        assert wanted <= told, tool


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: " ".join(row[:2]))
def test_what_is_named_here_exists_in_the_command_line(row):
    commands = re.findall(r"`(ottla [^`]+)`", row[2])
    assert commands
    for command in commands:
        assert problems_of(command) == []


def test_an_option_that_does_not_exist_is_seen():
    assert problems_of("ottla topics list --nosuch --regex") == ["--nosuch"]


def test_the_sixteen_settings_of_a_topic_are_settings_here():
    assert len(TOPIC_SETTINGS) == 16
    text = TOOLS_SECTION.split("Settings of a topic")[1].split("Settings of a broker")[0]
    told = [name for name in re.findall(r"`([a-z.]+)`", text) if name.count(".")]
    assert sorted(told) == sorted(TOPIC_SETTINGS)
    assert set(TOPIC_SETTINGS) <= set(topic_keys())


def test_each_znode_of_the_documents_has_its_line():
    assert {path.strip("`") for path, _, _ in PATHS} >= set(ZNODES)


@pytest.mark.parametrize("row", PATHS, ids=lambda row: row[0])
def test_each_path_is_the_one_that_the_code_uses(row):
    path = row[0].strip("`")
    (name,) = re.findall(r"`(\w+)`$", row[2])
    found = getattr(znodes, name)
    if callable(found):
        arguments = {
            "broker_path": (1,), "topic_path": ("t",), "partitions_path": ("t",),
            "delete_topic_path": ("t",),
        }.get(name, (TopicPartition("t", 0),))  # fmt: skip
        found = found(*arguments)
    wanted = path.replace("[brokerId]", "1").replace("[topic]", "t").replace("[partition]", "0")
    assert found == wanted
