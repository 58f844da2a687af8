"""Settings: Kafka's defaults and synonyms, and one clear line for everything wrong."""

import pytest

from ottla.model.config import BrokerConfig, default_topic_config
from ottla.model.config_keys import broker_keys, topic_keys
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.properties import parse_properties

MINIMUM = {"zookeeper.connect": "127.0.0.1:2181", "broker.id": "1"}


def test_defaults_are_kafkas():
    config = BrokerConfig(MINIMUM)
    assert config.integer("zookeeper.session.timeout.ms") == 18000
    assert config.integer("replica.lag.time.max.ms") == 30000
    assert config.flag("unclean.leader.election.enable") is False
    assert config.flag("auto.create.topics.enable") is True
    topic = config.topic_config({})
    assert (topic.segment_bytes, topic.retention_ms, topic.max_message_bytes) == (
        1 << 30,
        7 * 24 * 3600 * 1000,
        1048588,
    )
    assert topic.cleanup_policy == ("delete",)


def test_every_default_passes_its_own_check():
    for key in (*broker_keys().values(), *topic_keys().values()):
        if key.default is not None:
            key.parse(key.default)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_topic_settings_fall_back_to_the_first_broker_setting(settings, retention_ms):
    config = BrokerConfig({**MINIMUM, **settings})
    assert config.topic_config({}).retention_ms == retention_ms
    assert config.topic_config({"retention.ms": "77"}).retention_ms == 77


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"zookeeper.connect": ""}, "zookeeper.connect is missing"),
        ({"broker.id": "-2"}, "broker.id=-2"),
        ({"broker.id": "1001"}, "between -1 (generate one) and reserved.broker.max.id=1000"),
        ({"broker.id": "one"}, "Invalid value one for configuration broker.id"),
        ({"listeners": "localhost:9092"}, "write NAME://host:port"),
        (
            {"listeners": "A://h:9092", "listener.security.protocol.map": "A:SASL_TLS"},
            "unknown security protocol 'SASL_TLS'",
        ),
        ({"listeners": "FOO://h:9092"}, "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "is named twice"),
        (
            {"inter.broker.listener.name": "INSIDE"},
            "inter.broker.listener.name=INSIDE: brokers would not reach each other",
        ),
        ({"log.dirs": "/a,/a"}, "twice"),
        ({"process.roles": "broker"}, "KRaft"),
        ({"min.insync.replicas": "0"}, "Value must be at least 1"),
        ({"log.cleanup.policy": "shred"}, "String must be one of: "),
        ({"num.partitions": "1_000"}, "Invalid value 1_000 for configuration num.partitions"),
        ({"num.partitions": "99999999999"}, "Not a number of type INT"),
        ({"auto.create.topics.enable": "yes"}, "Expected value to be either true or false"),
        ({"replica.fetch.wait.max.ms": "40000"}, "must not exceed"),
    ],
)
def test_bad_settings_are_one_clear_line(settings, says):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**MINIMUM, **settings})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_unknown_broker_keys_are_kept_and_unknown_topic_keys_refused():
    assert BrokerConfig({**MINIMUM, "my.plugin.key": "x"}).unknown == ["my.plugin.key"]
    with pytest.raises(ConfigError, match=r"Unknown topic config name: retention.hours"):
        default_topic_config(retention_hours="1")


def test_listeners_choose_the_inter_broker_one():
    config = BrokerConfig(
        {
            **MINIMUM,
            "listeners": "OUT://0.0.0.0:9092,IN://[::1]:9093",
            "advertised.listeners": "OUT://example:9092,IN://[::1]:9093",
            "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT",
            "inter.broker.listener.name": "IN",
        }
    )
    assert config.inter_broker_listener == "IN"
    assert [str(e) for e in config.advertised_listeners] == [
        "OUT://example:9092",
        "IN://[::1]:9093",
    ]


def test_properties_files_are_javas():
    text = (
        "# comment\n! other\n a = 1 \nb:2\nc 3\nlong=x,\\\n    y\nempty=\n"
        "path=C\\:\\\\tmp\nu=\\u00e9\nq=a=b\n"
    )
    assert parse_properties(text) == {
        "a": "1 ",
        "b": "2",
        "c": "3",
        "long": "x,y",
        "empty": "",
        "path": "C:\\tmp",
        "u": "é",
        "q": "a=b",
    }
