"""Settings of brokers that change while they run, with the error texts of a JVM broker.

Each refusal's text is what Apache Kafka 3.9.1 in ZooKeeper mode answered.
"""

import json

import pytest

from ottla.broker.configs.dynamic_configs import BadDynamicConfigError, DynamicConfigs, layered
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.security.password_encoder import PasswordEncoder
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, LOGGER = 2, 4, 8
OWN, DEFAULT, STATIC, BUILT_IN = 2, 3, 4, 5

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster(scene):
    """Two brokers and topic `t` on both."""
    scene.up(1)
    scene.up(2, log_retention_hours="24")
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(
        partition_index=0, broker_ids=[1, 2]
    )
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    answer = scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    scene.wait(lambda: all(b.logs.logs() for b in scene.brokers.values()))
    return scene


def change(scene, name, *operations, kind=BROKER, broker=1, **fields):
    r = IncrementalAlterConfigsRequest
    entry = r.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[r.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in operations],
    )
    answer = scene.ask(broker, r(resources=[entry], **fields), 1).responses[0]
    return answer.error_code, answer.error_message


def described(scene, name, *keys, kind=BROKER, broker=1):
    r = DescribeConfigsRequest
    resource = r.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    answer = scene.ask(broker, r(resources=[resource], include_synonyms=True), 4).results[0]
    assert answer.error_code == ErrorCode.NONE
    return {
        c.name: (c.value, c.config_source, [(s.name, s.value, s.source) for s in c.synonyms])
        for c in answer.configs
    }


def retention(scene, broker):
    return {log.config.retention_ms for log in scene.brokers[f"b{broker}"].logs.logs()}


def test_a_setting_of_one_broker_and_one_of_all(cluster):
    assert change(cluster, "1", ("log.retention.ms", SET, "500000")) == (0, None)
    cluster.wait(lambda: retention(cluster, 1) == {500_000})
    assert retention(cluster, 2) == {24 * 3_600_000}
    assert change(cluster, "", ("log.retention.ms", SET, "400000"), broker=2) == (0, None)
    cluster.wait(lambda: retention(cluster, 2) == {400_000})
    assert retention(cluster, 1) == {500_000}

    name = "log.retention.ms"
    assert described(cluster, "1", name)[name] == (
        "500000",
        OWN,
        [
            (name, "500000", OWN),
            (name, "400000", DEFAULT),
            ("log.retention.hours", "168", BUILT_IN),
        ],
    )
    assert described(cluster, "")[name] == ("400000", DEFAULT, [(name, "400000", DEFAULT)])
    assert described(cluster, "t", "retention.ms", kind=TOPIC, broker=2)["retention.ms"] == (
        "400000",
        DEFAULT,
        [
            (name, "400000", DEFAULT),
            ("log.retention.hours", "24", STATIC),
            ("log.retention.hours", "168", BUILT_IN),
        ],
    )
    assert change(cluster, "1", (name, DELETE, None)) == (0, None)
    assert change(cluster, "", (name, DELETE, None)) == (0, None)
    cluster.wait(lambda: retention(cluster, 2) == {24 * 3_600_000})
    cluster.wait(lambda: retention(cluster, 1) == {168 * 3_600_000})


def test_a_topic_s_own_setting_stands_above_the_brokers(cluster):
    assert change(cluster, "t", ("retention.ms", SET, "7"), kind=TOPIC) == (0, None)
    cluster.wait(lambda: retention(cluster, 1) == {7})
    assert change(cluster, "1", ("log.retention.ms", SET, "9")) == (0, None)
    cluster.wait(lambda: cluster.brokers["b1"].config["log.retention.ms"] == 9)
    assert retention(cluster, 1) == {7}
    assert change(cluster, "t", ("retention.ms", DELETE, None), kind=TOPIC) == (0, None)
    cluster.wait(lambda: retention(cluster, 1) == {9})


def test_throttles_reach_the_quotas_also_of_a_broker_that_was_down(cluster):
    """KAFKA-13392: a throttle set meanwhile is found at the start."""
    cluster.stop(2)
    rate = "follower.replication.throttled.rate"
    assert change(cluster, "", (rate, SET, "2000")) == (0, None)
    assert change(cluster, "1", ("leader.replication.throttled.rate", SET, "1000")) == (0, None)
    replicas = "leader.replication.throttled.replicas"
    of_topic = [(replicas, SET, "0:1"), (replicas.replace("leader", "follower"), SET, "0:2")]
    assert change(cluster, "t", *of_topic, kind=TOPIC) == (0, None)
    first = cluster.brokers["b1"].services.replicas
    cluster.wait(lambda: first.leader_quota.throttles("t", 0))
    assert (first.leader_quota.bound, first.follower_quota.bound) == (1000, 2000)
    assert not first.follower_quota.throttles("t", 0)
    second = cluster.up(2, log_retention_hours="24").services.replicas
    assert second.follower_quota.bound == 2000
    assert second.follower_quota.throttles("t", 0)
    assert second.statistics()["follower_throttle"]["bound_bytes_per_s"] == 2000
    assert described(cluster, "1", rate)[rate] == ("2000", DEFAULT, [(rate, "2000", DEFAULT)])
    for operations, kind, name in (
        ([(r, DELETE, None) for r, _, _ in of_topic], TOPIC, "t"),
        ([(rate, DELETE, None)], BROKER, ""),
    ):
        assert change(cluster, name, *operations, kind=kind) == (0, None)
    cluster.wait(lambda: second.follower_quota.bound == float("inf"))
    cluster.wait(lambda: not second.follower_quota.topics and not first.leader_quota.topics)


def test_bounds_of_connections_and_fetchers_change_at_once(cluster):
    several = [("max.connections.per.ip", SET, "50"), ("max.connections", SET, "100")]
    assert change(cluster, "", *several, ("num.replica.fetchers", SET, "2")) == (0, None)
    broker = cluster.brokers["b2"]
    cluster.wait(lambda: broker._connection_quotas.max_connections == 100)
    assert broker._connection_quotas.max_per_ip == 50
    assert broker.services.replicas.fetchers._per_leader == 2


def test_unclean_elections_allowed_for_all_elect_at_once(cluster):
    """The last one in sync is down: its follower leads as soon as losing records is allowed."""
    cluster.wait(lambda: leader_of(cluster) == 1)
    cluster.stop(2)
    cluster.wait(lambda: isr_of(cluster) == [1])
    cluster.stop(1)
    cluster.up(2, log_retention_hours="24")
    cluster.wait(lambda: leader_of(cluster, 2) == -1)
    setting = ("unclean.leader.election.enable", SET, "true")
    assert change(cluster, "", setting, broker=2) == (0, None)
    cluster.wait(lambda: leader_of(cluster, 2) == 2)


def leader_of(scene, broker=1):
    known = scene.brokers[f"b{broker}"].services.metadata.partition("t", 0)
    return None if known is None else known.leader


def isr_of(scene, broker=1):
    return list(scene.brokers[f"b{broker}"].services.metadata.partition("t", 0).isr)


NOT_DYNAMIC = "Cannot update these configs dynamically: Set(log.dirs)"
LOW_RATE = (
    "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0"
)
THREADS = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update "
    "validation failed for num.io.threads=1000, value should not be greater than double the "
    "current value 8 for configuration Invalid dynamic configuration"
)
CLEANER = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be "
    "increased to more than double the current value 1 for configuration Invalid dynamic "
    "configuration"
)


@pytest.mark.parametrize(
    ("name", "operation", "code", "text"),
    [
        ("1", ("log.dirs", SET, "/x"), 42, NOT_DYNAMIC),
        ("", ("log.dirs", SET, "/x"), 42, NOT_DYNAMIC),
        (
            "7",
            ("log.retention.ms", SET, "5"),
            42,
            "Unexpected broker id, expected 1, but received 7",
        ),
        ("x", ("log.retention.ms", SET, "5"), 42, "Node id must be an integer, but it is: x"),
        (
            "1",
            ("log.retention.ms", SET, "soon"),
            42,
            "Invalid value soon for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "1",
            ("leader.replication.throttled.rate", SET, "-1"),
            42,
            LOW_RATE,
        ),
        (
            "1",
            ("log.retention.ms", SET, None),
            42,
            "Null value not supported for : log.retention.ms",
        ),
        (
            "1",
            ("log.retention.ms", APPEND, "1"),
            40,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        ("1", ("num.io.threads", SET, "1000"), 42, THREADS),
        ("1", ("log.cleaner.threads", SET, "9"), 42, CLEANER),
        ("1", ("node.id", SET, "5"), 42, "Cannot update these configs dynamically: Set(node.id)"),
        ("1", ("log.retention.ms", 9, "1"), 42, "Unknown operations type 9"),
        # Here Kafka would agree: it could open another listener.
        ("1", ("listeners", SET, "A://:1"), 42, NOT_DYNAMIC.replace("log.dirs", "listeners")),
    ],
)
def test_settings_of_brokers_that_are_refused(cluster, name, operation, code, text):
    assert change(cluster, name, operation) == (code, text)
    assert described(cluster, "") == {}


@pytest.mark.parametrize("value", ["none", "*,0:1", "0", "0:", "a:1"])
def test_lists_of_throttled_replicas_are_checked(cluster, value):
    operation = ("leader.replication.throttled.replicas", SET, value)
    code, text = change(cluster, "t", operation, kind=TOPIC)
    assert code == ErrorCode.INVALID_CONFIG
    assert text.startswith("Invalid config value for resource ConfigResource(type=TOPIC, name='t')")
    assert "must be the literal '*' or a list of replicas in the following format" in text


def test_only_checked(cluster):
    one = ("log.retention.ms", SET, "5")
    assert change(cluster, "", one, validate_only=True) == (0, None)
    assert described(cluster, "") == {}


def test_settings_replaced_at_once(cluster):
    assert change(cluster, "1", ("log.retention.ms", SET, "500000")) == (0, None)
    r = AlterConfigsRequest
    entry = r.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[r.AlterableConfig(name="log.segment.bytes", value="2000000")],
    )
    answer = cluster.ask(1, r(resources=[entry, entry]), 2)
    assert {a.error_message for a in answer.responses} == {
        "Each resource must appear at most once."
    }
    assert cluster.ask(1, r(resources=[entry]), 2).responses[0].error_code == ErrorCode.NONE
    cluster.wait(lambda: cluster.brokers["b1"].config.integer("log.segment.bytes") == 2_000_000)
    assert cluster.brokers["b1"].config["log.retention.ms"] is None


def test_bad_settings_in_zookeeper_are_survived(cluster):
    """F41: znodes written by hand may hold anything; the valid ones are used."""
    path = "/config/brokers/<default>"
    assert change(cluster, "", ("log.retention.ms", SET, "400000")) == (0, None)
    node = cluster.znode(path)
    node.data = node.data.replace(b"}", b',"log.dirs":"/x","num.partitions":"many"}', 1)
    broker = cluster.up(3)
    assert broker.config.integer("log.retention.ms") == 400_000
    assert broker.services.dynamic_configs.defaults == {"log.retention.ms": "400000"}


def test_synonyms_make_way_and_the_file_s_own_do_not():
    static = {"log.retention.hours": "1", "log.retention.ms": "5", "broker.id": "1"}
    assert layered(static, {}) == static
    assert layered(static, {"log.retention.ms": "9"}) == {"broker.id": "1", "log.retention.ms": "9"}
    assert layered(static, {"log.retention.ms": "9"}, {"log.retention.ms": "8"}) == {
        "broker.id": "1",
        "log.retention.ms": "8",
    }


# -- passwords -------------------------------------------------------------------------------------

PASSWORD_KEY = "listener.name.plaintext.ssl.key.password"
PASSWORD = "planted-password"
CONFIGS_OF_1 = "/config/brokers/1"


def stored(scene):
    """Return what stands in the broker's znode, as JSON."""
    return json.loads(scene.znode(CONFIGS_OF_1).data)["config"]


def test_a_password_without_a_secret_is_refused_as_by_kafka(cluster):
    where = "ConfigResource(type=BROKER, name='1')"
    why = f"Invalid config value for resource {where}: Password encoder secret not configured"
    refused = change(cluster, "1", (PASSWORD_KEY, SET, PASSWORD))
    assert refused == (ErrorCode.INVALID_CONFIG, why)
    assert cluster.znode(CONFIGS_OF_1) is None
    # Kafka finds that out when it writes, so a dry run says nothing of it.
    assert change(cluster, "1", (PASSWORD_KEY, SET, PASSWORD), validate_only=True)[0] == 0


def test_a_password_is_encrypted_in_zookeeper_and_shown_to_no_one(scene, caplog):
    caplog.set_level("DEBUG")
    broker = scene.up(1, password_encoder_secret="planted-secret")
    assert change(scene, "1", (PASSWORD_KEY, SET, PASSWORD)) == (0, None)
    text = stored(scene)[PASSWORD_KEY]
    assert PasswordEncoder("planted-secret").decode(text) == PASSWORD
    scene.wait(lambda: broker.config.properties.get(PASSWORD_KEY) == PASSWORD)
    assert described(scene, "1", PASSWORD_KEY) == {
        PASSWORD_KEY: (None, OWN, [(PASSWORD_KEY, None, OWN)])
    }
    # Another setting changes: the password stays, encrypted anew.
    assert change(scene, "1", ("log.cleaner.threads", SET, "2")) == (0, None)
    assert stored(scene)[PASSWORD_KEY] != text
    assert PasswordEncoder("planted-secret").decode(stored(scene)[PASSWORD_KEY]) == PASSWORD
    assert change(scene, "1", (PASSWORD_KEY, DELETE, None)) == (0, None)
    scene.wait(lambda: PASSWORD_KEY not in broker.config.properties)
    for secret in (PASSWORD, "planted-secret"):
        assert secret not in caplog.text


def test_passwords_of_all_brokers_are_refused(scene):
    scene.up(1, password_encoder_secret="planted-secret")
    code, text = change(scene, "", (PASSWORD_KEY, SET, PASSWORD))
    assert code == ErrorCode.INVALID_REQUEST
    assert text.startswith("Cannot update these configs at default cluster level")


def test_the_old_secret_is_replaced_at_the_start(scene):
    old, new = PasswordEncoder("old-secret"), PasswordEncoder("new-secret")
    scene.up(1, password_encoder_secret="old-secret")
    assert change(scene, "1", (PASSWORD_KEY, SET, PASSWORD)) == (0, None)
    first = stored(scene)[PASSWORD_KEY]
    assert old.decode(first) == PASSWORD
    scene.stop(1)
    both = {"password_encoder_secret": "new-secret", "password_encoder_old_secret": "old-secret"}
    broker = scene.up(1, **both)
    scene.wait(lambda: broker.config.properties.get(PASSWORD_KEY) == PASSWORD)
    second = stored(scene)[PASSWORD_KEY]
    assert new.decode(second) == PASSWORD
    scene.stop(1)
    broker = scene.up(1, **both)
    scene.wait(lambda: broker.config.properties.get(PASSWORD_KEY) == PASSWORD)
    assert stored(scene)[PASSWORD_KEY] == second, "it is of the new secret already"


@pytest.mark.parametrize("settings", [{"password_encoder_secret": "planted-secret"}, {}])
def test_what_cannot_be_decoded_is_left_out_and_said(scene, caplog, settings):
    scene.up(1, password_encoder_secret="another-secret")
    both = (PASSWORD_KEY, SET, PASSWORD), ("log.cleaner.threads", SET, "2")
    assert change(scene, "1", *both) == (0, None)
    scene.stop(1)
    caplog.clear()
    broker = scene.up(1, **settings)
    scene.wait(lambda: broker.config.properties.get("log.cleaner.threads") == "2")
    assert PASSWORD_KEY not in broker.config.properties
    assert f"dynamic password ignored key={PASSWORD_KEY}" in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max.connections": "0"}, "Invalid max.connections 0"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0"),
        ({"max.connection.creation.rate": "0"}, "Invalid max.connection.creation.rate 0"),
        ({"log.retention.ms": "0"}, "would delete every record"),
        ({"num.replica.fetchers": "0"}, "value should be at least 1"),
        ({"log.cleaner.dedupe.buffer.size": "5"}, "at least 1MB per cleaner thread"),
        ({"log.retention.ms": "9", "log.local.retention.ms": "10"}, "more than log.retention.ms"),
        ({"log.local.retention.ms": "-1"}, "must not be -1"),
        ({"compression.gzip.level": "0"}, "between 1 and 9"),
    ],
)
@pytest.mark.parametrize("per_broker", [True, False])
def test_what_would_lock_out_or_delete_is_refused_while_a_broker_runs(settings, says, per_broker):
    config = BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "0"})
    with pytest.raises(BadDynamicConfigError) as caught:
        DynamicConfigs(config, lambda _: None).check(settings, per_broker=per_broker)
    assert says in str(caught.value)


def test_a_stored_setting_that_locks_out_is_ignored_and_others_are_in_force():
    """An earlier version, or a tool, may have written it into ZooKeeper."""
    config = BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "0"})
    dynamic = DynamicConfigs(config, lambda _: None)
    dynamic._take({"max.connections": "0", "log.retention.ms": "5000"}, {"log.roll.ms": "0"})
    assert config.integer("max.connections") == 10_000
    assert config["log.retention.ms"] == 5000
    assert (dynamic.defaults, dynamic.own) == ({"log.retention.ms": "5000"}, {})
