"""The sixteen settings of a topic that the documents name: what Kafka 3.9 takes of each.

Every setting is tried with values at the bounds of numbers, and with words, by CreateTopics that
only validates, at a broker of Ottla's and at one of Kafka's.
"""

import asyncio

import pytest

from ottla.admin.session import world
from ottla.client.client import Client
from ottla.wire.messages.topics import CreateTopicsRequest
from support import kafka_tools
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

SETTINGS = (
    "unclean.leader.election.enable", "delete.retention.ms", "segment.jitter.ms", "retention.ms",
    "flush.ms", "segment.bytes", "flush.messages", "segment.ms", "retention.bytes",
    "cleanup.policy", "segment.index.bytes", "min.cleanable.dirty.ratio", "max.message.bytes",
    "file.delete.delay.ms", "min.insync.replicas", "index.interval.bytes",
)  # fmt: skip
VALUES = (
    "-9223372036854775809", "-9223372036854775808", "-2147483649", "-2", "-1", "-0", "0", "1", "3",
    "4", "13", "14", "1000", "1048576", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "+5", " 5 ", "05", "1e3", "0x10", "1_000", "1f", "0.5d", "+.5", "inf",
    "nan", "-NaN", "1e400", "1e-5", "-1e-5", "-0.1", "0.0", "0.5", ".5",
    "1.0", "1.1", "NaN", "Infinity", "true", "TRUE", "false", "yes", "", " ", "soon", "delete",
    "compact", "compact,delete", "delete,compact", "delete,delete", " delete , compact ",
    "delete,", ",", "Delete", "burn",
)  # fmt: skip
CASES = [(setting, value) for setting in SETTINGS for value in VALUES]


async def judged(bootstrap):
    """Return what a broker says of each case: error code and message."""
    r = CreateTopicsRequest
    topics = [
        r.CreatableTopic(
            name=f"t{number}", num_partitions=1, replication_factor=1,
            configs=[r.CreatableTopicConfig(name=setting, value=value)],
        )
        for number, (setting, value) in enumerate(CASES)
    ]  # fmt: skip
    client = Client(world(), bootstrap)
    try:
        request = r(topics=topics, timeout_ms=30_000, validate_only=True)
        response = await client.call(request, "controller")
    finally:
        await client.close()
    found = {topic.name: (topic.error_code, topic.error_message) for topic in response.topics}
    return {case: found[f"t{number}"] for number, case in enumerate(CASES)}


def test_each_value_of_each_setting_is_taken_or_refused_as_by_kafka(tmp_path):
    said = {}
    for kind in (OttlaCluster, Kafka39Cluster):
        with kind(tmp_path / kind.__name__, brokers=1) as cluster:
            said[kind] = asyncio.run(judged(cluster.bootstrap))
    ours, kafkas = said[OttlaCluster], said[Kafka39Cluster]
    assert len({code for code, _ in kafkas.values()}) == 2, "some are taken, some are refused"
    taken = [setting for (setting, _), (code, _) in kafkas.items() if code == 0]
    assert set(taken) == set(SETTINGS)
    assert {case: (ours[case], kafkas[case]) for case in CASES if ours[case] != kafkas[case]} == {}
