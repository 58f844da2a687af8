"""Znodes byte for byte as Kafka 3.9.1 writes them (recorded by calling its own encoders)."""

import pytest

from ottla.model.cluster import (
    RECOVERING,
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition, uuid_from_text
from ottla.zookeeper import acls as acl
from ottla.zookeeper import znodes as z
from ottla.zookeeper.errors import MalformedZnodeError

TP = TopicPartition("t", 0)
UUID = uuid_from_text("AAAAAAAAAAAAAAAAAAAAAg")


def brokers(count: int) -> BrokerInfo:
    names = ["PLAINTEXT", *(f"L{i}" for i in range(1, count))]
    return BrokerInfo(
        1,
        tuple(
            Endpoint("h", 9092 + i, name, "SSL" if i == 3 else "PLAINTEXT")
            for i, name in enumerate(names)
        ),
    )


def topic(partitions: int) -> TopicInfo:
    return TopicInfo(
        "t",
        UUID,
        {
            p: ReplicaAssignment((1, 2, 3), (3,), (3,))
            if p % 2 == 0
            else ReplicaAssignment((1, 2, 3))
            for p in range(partitions)
        },
    )


MAP7 = (
    '{"L1":"PLAINTEXT","L5":"PLAINTEXT","L4":"PLAINTEXT","L6":"PLAINTEXT","L3":"SSL",'
    '"L2":"PLAINTEXT","PLAINTEXT":"PLAINTEXT"}'
)
GOLDEN = [
    (z.encode_cluster_id("abc"), '{"version":"1","id":"abc"}'),
    (
        z.encode_controller(1, 1234),
        '{"version":2,"brokerid":1,"timestamp":"1234","kraftControllerEpoch":-1}',
    ),
    (z.encode_controller_epoch(7), "7"),
    (
        z.encode_broker(brokers(1), 99),
        (
            '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
            '"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"port":9092,"host":"h","version":5,'
            '"timestamp":"99"}'
        ),
    ),
    (
        z.encode_broker(BrokerInfo(1, (Endpoint("h", 9092),), "r1"), 99),
        (
            '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
            '"endpoints":["PLAINTEXT://h:9092"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h",'
            '"version":5,"timestamp":"99"}'
        ),
    ),
    (
        z.encode_broker(BrokerInfo(1, (Endpoint("h", 9092),), "r1"), 99, version=4),
        (
            '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
            '"endpoints":["PLAINTEXT://h:9092"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h",'
            '"version":4,"timestamp":"99"}'
        ),
    ),
    (
        z.encode_broker(
            BrokerInfo(
                1, (Endpoint("h", 9092, "SSL", "SSL"),), "r", -1, {"metadata.version": (1, 3)}
            ),
            99,
        ),
        (
            '{"features":{"metadata.version":{"min_version":1,"max_version":3}},'
            '"listener_security_protocol_map":{"SSL":"SSL"},"endpoints":["SSL://h:9092"],"rack":"r",'
            '"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"99"}'
        ),
    ),
    (
        z.encode_broker(brokers(7), 99),
        '{"features":{},"listener_security_protocol_map":' + MAP7 + ',"endpoints":['
        '"PLAINTEXT://h:9092","L1://h:9093","L2://h:9094","L3://h:9095","L4://h:9096",'
        '"L5://h:9097","L6://h:9098"],"jmx_port":-1,"port":9092,"host":"h","version":5,'
        '"timestamp":"99"}',
    ),
    (
        z.encode_topic(TopicInfo("t", None, {})),
        '{"partitions":{},"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        z.encode_topic(topic(2)),
        (
            '{"partitions":{"0":[1,2,3],"1":[1,2,3]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAg",'
            '"adding_replicas":{"0":[3]},"removing_replicas":{"0":[3]},"version":3}'
        ),
    ),
    (
        z.encode_topic(topic(12)),
        '{"partitions":{"11":[1,2,3],'
        + ",".join(f'"{p}":[1,2,3]' for p in range(11))
        + '},"topic_id":"AAAAAAAAAAAAAAAAAAAAAg",'
        '"adding_replicas":{"0":[3],"2":[3],"4":[3],"6":[3],"8":[3],"10":[3]},'
        '"removing_replicas":{"0":[3],"2":[3],"4":[3],"6":[3],"8":[3],"10":[3]},"version":3}',
    ),
    (
        z.encode_state(LeaderAndIsr(1, 0, (1, 2)), 1),
        '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    ),
    (
        z.encode_state(LeaderAndIsr(1, 0, (1, 2), recovery_state=RECOVERING), 1),
        (
            '{"controller_epoch":1,"leader":1,"version":1,"leader_recovery_state":1,'
            '"leader_epoch":0,"isr":[1,2]}'
        ),
    ),
    (
        z.encode_config(
            dict.fromkeys(
                [
                    "retention.ms",
                    "cleanup.policy",
                    "min.insync.replicas",
                    "segment.bytes",
                    "max.message.bytes",
                    "compression.type",
                    "unclean.leader.election.enable",
                ],
                "x",
            )
        ),
        (
            '{"version":1,"config":{"compression.type":"x","cleanup.policy":"x",'
            '"max.message.bytes":"x","min.insync.replicas":"x","retention.ms":"x",'
            '"segment.bytes":"x","unclean.leader.election.enable":"x"}}'
        ),
    ),
    (
        z.encode_config({f"key.{i}": "v" for i in range(30)}),
        '{"version":1,"config":{'
        + ",".join(
            f'"key.{i}":"v"'
            for i in (
                *(17, 16, 19, 18, 13, 12, 15, 14, 11, 10, 28, 27, 29, 24, 23, 26, 25, 2, 20),
                *(1, 0, 22, 21, 6, 5, 4, 3, 9, 8, 7),
            )
        )
        + "}}",
    ),
    (z.encode_config({}), '{"version":1,"config":{}}'),
    (z.encode_config({"uni": 'é\x01"\\/'}), '{"version":1,"config":{"uni":"é\\u0001\\"\\\\/"}}'),
    (z.encode_config_change("topics/T"), '{"version":2,"entity_path":"topics/T"}'),
    (
        z.encode_reassignment({TP: (1, 2)}),
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    ),
    (
        z.encode_preferred_election([TP, TopicPartition("t", 1)]),
        '{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}',
    ),
    (
        z.encode_isr_change([TP]),
        '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    ),
    (z.encode_log_dir_event(3), '{"version":1,"broker":3,"event":1}'),
    (
        z.encode_producer_id_block(z.ProducerIdBlock(1, 0, 999)),
        '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
    (
        z.encode_features(z.Features(enabled=True, levels={})),
        '{"features":{},"version":2,"status":1}',
    ),
    (
        z.encode_features(z.Features(enabled=True, levels={"f": 3})),
        '{"features":{"f":{"max_version_level":3}},"version":2,"status":1}',
    ),
    (
        z.encode_features(z.Features(enabled=False, levels={"f": 3}, version=1)),
        '{"features":{"f":{"max_version_level":3,"min_version_level":3}},"version":1,"status":0}',
    ),
    (
        acl.encode_acls(
            [
                acl.AclEntry("User:a", "Allow", "Read", "*"),
                acl.AclEntry("User:b", "Deny", "DescribeConfigs", "h"),
            ]
        ),
        (
            '{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"},'
            '{"principal":"User:b","permissionType":"Deny","host":"h",'
            '"operation":"DescribeConfigs"}],"version":1}'
        ),
    ),
    (
        acl.encode_extended_acl_change("TRANSACTIONAL_ID", "n", "PREFIXED"),
        '{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"n","patternType":"PREFIXED"}',
    ),
    (acl.encode_acl_change("TRANSACTIONAL_ID", "n:x"), "TRANSACTIONAL_ID:n:x"),
]


@pytest.mark.parametrize(("ours", "theirs"), GOLDEN, ids=range(len(GOLDEN)))
def test_the_same_bytes_as_the_jvm(ours, theirs):
    assert ours.decode() == theirs


def test_paths():
    assert z.state_path(TP) == "/brokers/topics/t/partitions/0/state"
    assert acl.acl_path("TransactionalId", "n", prefixed=True) == (
        "/kafka-acl-extended/prefixed/TransactionalId/n"
    )
    assert acl.acl_path("User", "n") == "/kafka-acl/User/n"
    assert z.config_path("users", "u/clients/c") == "/config/users/u/clients/c"
    assert len(z.PERSISTENT_PATHS) == 14


def test_names_are_sanitized_as_in_java():
    assert z.sanitize("a b*c/é~+%<>") == "a%20b%2Ac%2F%C3%A9%7E%2B%25%3C%3E"
    assert z.desanitize(z.sanitize("a b*c/é~+%<>")) == "a b*c/é~+%<>"


def test_what_we_write_we_read():
    info = BrokerInfo(1, brokers(7).endpoints, "r", 55, {"f": (1, 2)})
    assert z.decode_broker(1, z.encode_broker(info, 1), 55) == info
    assert z.decode_topic("t", z.encode_topic(topic(14))) == topic(14)
    state = LeaderAndIsr(2, 3, (2, 1), 9, RECOVERING)
    assert z.decode_state(TP, z.encode_state(state, 4), 9) == LeaderIsrAndControllerEpoch(state, 4)
    assert z.decode_cluster_id(z.encode_cluster_id("x")) == "x"
    assert z.decode_controller(z.encode_controller(3, 1), 8) == z.ControllerRegistration(3, -1, 8)
    assert z.decode_config("/p", z.encode_config({"a": "b"})) == {"a": "b"}
    assert z.decode_reassignment(z.encode_reassignment({TP: (1, 2)})) == {TP: (1, 2)}
    assert z.decode_preferred_election(z.encode_preferred_election([TP])) == [TP]
    assert z.decode_isr_change("n", z.encode_isr_change([TP, TP])) == [TP]
    assert z.decode_log_dir_event("n", z.encode_log_dir_event(3)) == 3
    block = z.ProducerIdBlock(1, 1000, 1999)
    assert z.decode_producer_id_block(z.encode_producer_id_block(block)) == block
    features = z.Features(enabled=True, levels={"f": 2})
    assert z.decode_features(z.encode_features(features)) == features
    rules = [acl.AclEntry("User:a", "Allow", "Read", "*")]
    assert acl.decode_acls("/p", acl.encode_acls(rules)) == rules
    assert acl.decode_acl_change("n", b"TOPIC:a:b") == ("TOPIC", "a:b")
    assert z.decode_config_change("n", z.encode_config_change("users/u/clients/c")) == (
        "users/u/clients/c"
    )


def test_older_versions_are_read():
    v1 = b'{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert z.decode_broker(1, v1).endpoints == (Endpoint("localhost", 9092),)
    v2 = (
        b'{"version":2,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"1",'
        b'"endpoints":["PLAINTEXT://host1:9092","SSL://host1:9093"]}'
    )
    assert [e.protocol for e in z.decode_broker(1, v2).endpoints] == ["PLAINTEXT", "SSL"]
    v4 = (
        b'{"version":4,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"1",'
        b'"endpoints":["CLIENT://host1:9092","REPLICATION://[::1]:9093"],"rack":"dc1",'
        b'"listener_security_protocol_map":{"CLIENT":"SSL","REPLICATION":"PLAINTEXT"}}'
    )
    info = z.decode_broker(1, v4)
    assert info.endpoint("REPLICATION") == Endpoint("::1", 9093, "REPLICATION", "PLAINTEXT")
    assert info.rack == "dc1"
    assert z.decode_topic("t", b'{"version":1,"partitions":{"1":[1,2],"0":[2]}}') == TopicInfo(
        "t", None, {0: ReplicaAssignment((2,)), 1: ReplicaAssignment((1, 2))}
    )
    assert z.decode_controller(b'{"version":1,"brokerid":7,"timestamp":"1"}').broker_id == 7
    change = b'{"version":1,"entity_type":"topics","entity_name":"T"}'
    assert z.decode_config_change("n", change) == "topics/T"
    assert z.decode_config("/p", b"") == {}
    assert z.decode_features(
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    ).levels == {"f": 2}


DECODERS = {
    "cluster": z.decode_cluster_id,
    "controller": z.decode_controller,
    "epoch": z.decode_controller_epoch,
    "broker": lambda d: z.decode_broker(1, d),
    "topic": lambda d: z.decode_topic("t", d),
    "state": lambda d: z.decode_state(TP, d, 0),
    "reassign": z.decode_reassignment,
    "election": z.decode_preferred_election,
    "isr": lambda d: z.decode_isr_change("n", d),
    "log dir": lambda d: z.decode_log_dir_event("n", d),
    "config": lambda d: z.decode_config("/config/topics/t", d),
    "change": lambda d: z.decode_config_change("n", d),
    "block": z.decode_producer_id_block,
    "features": z.decode_features,
    "acls": lambda d: acl.decode_acls("/kafka-acl/Topic/t", d),
}
NONSENSE = [
    b"nope",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"version":',
    b"NaN",
    b'{"x":' + b"[" * 100_000,
]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("data", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_named_never_a_crash(name, data):
    """Fault F41."""
    with pytest.raises(MalformedZnodeError) as caught:
        DECODERS[name](data)
    assert caught.value.path.startswith("/")
    assert caught.value.reason
    assert caught.value.path in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("controller", b'{"version":2,"brokerid":"x"}'),
        ("controller", b'{"version":2,"brokerid":99999999999}'),
        ("epoch", b""),
        ("epoch", b"1.5"),
        ("epoch", b"99999999999"),
        ("broker", b'{"version":5,"jmx_port":-1}'),
        ("broker", b'{"version":0,"jmx_port":-1,"endpoints":[]}'),
        ("broker", b'{"version":1,"jmx_port":-1}'),
        ("broker", b'{"version":5,"jmx_port":-1,"endpoints":["h:1"]}'),
        ("broker", b'{"version":5,"jmx_port":-1,"endpoints":["P://h:99999"]}'),
        (
            "broker",
            b'{"version":5,"jmx_port":-1,"endpoints":["X://h:1"],"listener_security_protocol_map":{}}',
        ),
        ("broker", b'{"version":5,"endpoints":["P://h:1"]}'),
        ("topic", b'{"partitions":{"x":[1]}}'),
        ("topic", b'{"partitions":{"-1":[1]}}'),
        ("topic", b'{"partitions":{"0":[null]}}'),
        ("state", b'{"leader":1,"leader_epoch":0,"controller_epoch":1}'),
        ("state", b'{"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1.5]}'),
        (
            "state",
            b'{"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1],"leader_recovery_state":7}',
        ),
        ("reassign", b'{"partitions":[{"topic":"t","partition":0}]}'),
        ("reassign", b'{"partitions":[{"topic":"t","partition":0,"replicas":[NaN]}]}'),
        ("change", b'{"version":3,"entity_path":"topics/t"}'),
        ("change", b'{"version":2,"entity_path":"topics"}'),
        ("change", b'{"version":1,"entity_type":"users","entity_name":"u"}'),
        ("block", b'{"broker":1,"block_start":"9","block_end":"0"}'),
        ("block", b'{"broker":1,"block_start":"0","block_end":"99999999999999999999"}'),
        ("features", b'{"version":3,"status":1,"features":{}}'),
        ("features", b'{"version":2,"status":1,"features":{"f":{}}}'),
        ("features", b'{"version":2,"features":{}}'),
        ("config", b'{"version":1,"config":{"a":1}}'),
        ("acls", b'{"version":2,"acls":[]}'),
    ],
)
def test_what_kafka_would_not_write_is_refused(name, data):
    with pytest.raises(MalformedZnodeError):
        DECODERS[name](data)


def test_unknown_keys_are_ignored():
    assert z.decode_controller(b'{"brokerid":1,"new":{"deep":[1]}}').broker_id == 1
