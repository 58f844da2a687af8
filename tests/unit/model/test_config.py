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


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": ""}, "advertised.listeners is empty"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "share port 1"),
        ({"listeners": "PLAINTEXT://h x:1"}, "is not a listener"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "has no colon"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:TLS"}, "protocol 'TLS'"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,:SSL"}, "name is empty"),
        ({"inter.broker.listener.name": ""}, "brokers would not reach each other"),
        ({"log.retention.hours": "0"}, "log.retention.hours=0"),
        ({"log.retention.minutes": "0"}, "log.retention.minutes=0"),
        ({"log.retention.ms": "0", "log.retention.hours": "1"}, "log.retention.ms=0"),
        ({"log.roll.ms": "0"}, "log.roll.ms=0"),
        ({"log.flush.interval.ms": "-1"}, "flush.ms"),
        ({"log.dirs": ""}, "log.dirs is empty"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "at least 1MB per cleaner thread"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads=0"),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
         "conflict topic config setting"),
        ({"log.message.format.version": "9.9"}, "not a valid version"),
        ({"inter.broker.protocol.version": "3.9-IV1"}, "not a valid version"),
        ({"compression.gzip.level": "0"}, "between 1 and 9 or equal to -1"),
        ({"max.connections": "0"}, "no client and no other broker could connect"),
        ({"max.connections.per.ip": "0"}, "no client and no other broker could connect"),
        ({"max.connection.creation.rate": "0"}, "no client and no other broker could connect"),
        ({"max.connections.per.ip.overrides": "a"}, "has no colon"),
        ({"max.connections.per.ip.overrides": "a b:1"}, "invalid addresses : a b"),
        ({"max.connections.per.ip.overrides": "a:x"}, "Not a number of type INT"),
        ({"queued.max.request.bytes": "1000"}, "larger or equal to socket.request.max.bytes"),
        ({"connections.max.idle.ms": "0"}, "should always be less than"),
        ({"connection.failed.authentication.delay.ms": "600000"}, "should always be less than"),
        ({"offsets.topic.compression.codec": "9"}, "Value must be no more than 4"),
        ({"offsets.commit.required.acks": "4"}, "must be between -1 and"),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, "must be 0 or more"),
        ({"node.id": "5"}, "differ"),
        ({"controller.listener.names": "X"}, "must be empty"),
        ({"create.topic.policy.class.name": ""}, "a class is needed"),
        ({"num.partitions": "\xa05"}, "Not a number of type INT"),
    ],
)  # fmt: skip
def test_what_kafka_refuses_is_refused(settings, says):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**MINIMUM, **settings})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"listener.security.protocol.map": "PLAINTEXT : PLAINTEXT , B : SSL"},
        {"listeners": "PLAINTEXT://127.0.0.1:9,SSL://[::1]:9"},
        {"queued.max.request.bytes": "-1"},
        {"queued.max.request.bytes": "10", "socket.request.max.bytes": "10"},
        {"connections.max.idle.ms": "-1"},
        {"broker.id": "-1"},
        {"broker.id": "5000", "broker.id.generation.enable": "false"},
        {"log.retention.hours": "-2"},
        {"inter.broker.protocol.version": "3.9.1-IV0"},
    ],
)
def test_what_kafka_takes_is_taken(settings):
    BrokerConfig({**MINIMUM, **settings})


def test_node_id_stands_for_broker_id():
    settings = {key: value for key, value in MINIMUM.items() if key != "broker.id"}
    assert BrokerConfig({**settings, "node.id": "7"}).broker_id == 7


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"}, "conflict topic config"),
        ({"message.format.version": "9.9"}, "not a valid version"),
        ({"compression.gzip.level": "0"}, "between 1 and 9"),
        ({"local.retention.ms": "-3"}, "at least -2"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"remote.log.copy.disable": "true"}, "It is invalid to set"),
    ],
)
def test_a_topic_is_not_created_with_what_kafka_refuses(overrides, says):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(MINIMUM).checked_topic_config(overrides)
    assert says in str(caught.value)


def test_settings_of_a_topic_that_contradict_each_other_in_zookeeper_do_not_stop_a_broker():
    config = BrokerConfig(MINIMUM).topic_config(
        {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"}
    )
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (1000, 10)
