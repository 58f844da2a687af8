"""Types and defaults of all settings beside those of Kafka 3.9.1's own classes."""

import subprocess
from pathlib import Path

import pytest

from ottla.model.config import OUR_DEFAULTS
from ottla.model.config_keys import broker_keys, topic_keys
from support import kafka_tools

PROGRAM = Path(__file__).parents[1] / "support" / "ConfigDefaults.java"
pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
# Settings of parts that are not served: KRaft, its groups and share groups, tiered storage, OAuth.
NOT_SERVED = (
    "broker.heartbeat.", "broker.session.", "controller.listener.", "controller.quorum.",
    "early.start.", "eligible.leader.replicas.", "group.consumer.", "group.coordinator.",
    "group.share.", "initial.broker.", "log.initial.task.delay.ms", "metadata.", "node.id",
    "process.roles", "producer.id.expiration.check.interval.ms", "remote.", "sasl.login.",
    "sasl.oauthbearer.", "server.max.startup.", "telemetry.", "unclean.leader.election.interval.",
    "unstable.", "zookeeper.metadata.migration.",
)  # fmt: skip


@pytest.fixture(scope="module")
def kafkas():
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.rstrip("\n").split("\n")]
    assert len(rows) > 300
    return {(of, name): (kind.lower(), default) for of, name, kind, default in rows}


def ours():
    for of, keys in (("broker", broker_keys()), ("topic", topic_keys())):
        for name, key in keys.items():
            yield (of, name), (key.type, "~" if key.default is None else key.default)


def test_types_and_defaults_are_kafkas(kafkas):
    different = {
        name: (found, kafkas.get(name)) for name, found in ours() if kafkas.get(name) != found
    }
    assert different == {}


def test_the_defaults_that_differ_differ(kafkas):
    """Each of `OUR_DEFAULTS` is an exception that the documents name; one that is not has to go."""
    same = [n for n, text in OUR_DEFAULTS.items() if kafkas["broker", n][1] == text]
    assert OUR_DEFAULTS
    assert not same


def test_no_setting_of_kafkas_is_missing(kafkas):
    missing = set(kafkas) - {name for name, _ in ours()}
    assert not [name for of, name in missing if of == "topic" or not name.startswith(NOT_SERVED)]
