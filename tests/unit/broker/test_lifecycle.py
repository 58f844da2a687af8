"""A whole broker's life in the simulated world: starts, ends, crashes, lost sessions, refusals."""

import pytest

from ottla.broker.state import BrokerState
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, StartupError, StorageError
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store
from ottla.zookeeper.znodes import encode_controller

FOLDER = "/data"


def test_a_start_registers_elects_and_hears_of_itself(scene):
    broker = scene.up(1)
    assert broker.services.broker_epoch == scene.znode("/brokers/ids/1").czxid
    assert broker.services.controller.is_active
    assert list(broker.services.metadata.snapshot.brokers) == [1]
    assert broker.port("PLAINTEXT") == 9092
    assert broker.services.features_epoch == 0
    meta = scene.simulation.node("b1").files.read_bytes(f"{FOLDER}/meta.properties").decode()
    assert f"cluster.id={broker.services.cluster_id}" in meta


def test_each_listener_is_told_its_own_addresses(scene):
    two = {
        "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter_broker_listener_name": "INSIDE",
    }
    for number in (1, 2):
        scene.up(
            number,
            listeners=f"INSIDE://b{number}:9092,OUTSIDE://b{number}:9093",
            advertised_listeners=f"INSIDE://b{number}:9092,OUTSIDE://gateway:{1000 + number}",
            **two,
        )
    scene.wait(lambda: len(scene.brokers["b1"].services.metadata.snapshot.brokers) == 2)
    inside = scene.ask(1, MetadataRequest(topics=[]), 12)
    outside = scene.ask(1, MetadataRequest(topics=[]), 12, port=9093)
    assert [(b.host, b.port) for b in inside.brokers] == [("b1", 9092), ("b2", 9092)]
    assert [(b.host, b.port) for b in outside.brokers] == [("gateway", 1001), ("gateway", 1002)]
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=2)
    created = scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, port=9093)
    assert created.topics[0].error_code == ErrorCode.NONE


def test_a_clean_end_leaves_the_marker_and_no_registration(scene):
    broker = scene.up(1)
    scene.stop(1)
    assert broker.state is BrokerState.NOT_RUNNING
    assert "b1" not in scene.errors
    assert scene.znode("/brokers/ids/1") is None
    assert scene.znode("/controller") is None
    assert scene.simulation.node("b1").disk.children(FOLDER).count(".kafka_cleanshutdown") == 1


def test_a_crashed_broker_that_returns_takes_its_old_place_at_once(scene):
    scene.up(1)
    first = scene.znode("/brokers/ids/1").czxid
    scene.simulation.node("b1").crash()
    assert scene.znode("/brokers/ids/1").czxid == first
    before = scene.simulation.now
    broker = scene.up(1)
    assert scene.simulation.now - before < 2.0
    assert broker.services.broker_epoch > first
    assert broker.services.controller.is_active


def test_without_its_memory_it_waits_for_the_old_session(scene):
    scene.up(1)
    node = scene.simulation.node("b1")
    node.files.remove(f"{FOLDER}/.ottla-session")
    node.crash()
    before = scene.simulation.now
    scene.up(1)
    assert 2.0 < scene.simulation.now - before < 9.0


def test_a_lost_session_is_followed_by_a_new_one(scene):
    broker = scene.up(1)
    scene.up(2)
    entry = scene.znode("/brokers/ids/1")
    scene.simulation.node("zk").loop.call_soon(scene.twin.expire, entry.owner)
    scene.wait(lambda: broker.services.broker_epoch > entry.czxid)
    assert broker.services.broker_epoch == scene.znode("/brokers/ids/1").czxid
    assert broker.state is BrokerState.RUNNING
    assert broker.services.replicas.may_propose
    scene.wait(lambda: sorted(broker.services.metadata.snapshot.brokers) == [1, 2])
    stale = UpdateMetadataRequest(
        controller_id=9, controller_epoch=99, broker_epoch=entry.czxid, live_brokers=[]
    )
    answer = scene.ask(1, stale, 8)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.services.metadata.controller_id != 9


def test_an_older_controller_is_not_believed(scene):
    broker = scene.up(1)
    old = UpdateMetadataRequest(controller_id=9, controller_epoch=0, broker_epoch=-1)
    answer = scene.ask(1, old, 8)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.services.metadata.controller_id == 1


def test_zookeeper_away_for_long_is_waited_for(scene):
    broker = scene.up(1)
    epoch = broker.services.broker_epoch
    scene.simulation.node("zk").pause()
    scene.simulation.run_for(30)
    assert not broker.services.replicas.may_propose
    assert broker.services.current_store is None
    scene.simulation.node("zk").resume()
    scene.wait(lambda: broker.services.broker_epoch > epoch and broker.services.metadata.ready)
    scene.wait(lambda: broker.services.controller.is_active)


def test_no_zookeeper_at_the_start_is_a_bounded_wait(scene):
    name = scene.boot(1, zookeeper_connect="zk:9999", zookeeper_connection_timeout_ms="2000")
    scene.wait(lambda: name in scene.errors, within_s=5)
    assert "zk:9999" in str(scene.errors[name])


def test_the_folder_of_another_cluster_is_refused_untouched(scene):
    files = scene.simulation.node("b1").files
    files.make_dirs(FOLDER)
    files.write_atomic(
        f"{FOLDER}/meta.properties", b"version=0\nbroker.id=1\ncluster.id=elsewhere\n"
    )
    files.write_atomic(f"{FOLDER}/.kafka_cleanshutdown", b"x")
    name = scene.boot(1)
    scene.wait(lambda: name in scene.errors)
    assert isinstance(scene.errors[name], StartupError)
    assert "elsewhere" in str(scene.errors[name])
    assert files.exists(f"{FOLDER}/.kafka_cleanshutdown")
    assert scene.znode("/brokers/ids/1") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zookeeper_set_acl", "true"),
        ("zookeeper_ssl_client_enable", "TRUE"),
        ("zookeeper_metadata_migration_enable", "true"),
        ("remote_log_storage_system_enable", "true"),
        ("create_topic_policy_class_name", "com.example.NoTopics"),
        ("client_quota_callback_class", "com.example.Quotas"),
        ("replica_selector_class", "com.example.Nearest"),
        ("inter_broker_protocol_version", "nonsense"),
        ("inter_broker_protocol_version", "0.9.0"),
        ("inter_broker_protocol_version", "4.0-IV3"),
    ],
)
def test_a_promise_that_would_be_broken_is_refused(scene, key, value):
    name = scene.boot(1, **{key: value})
    scene.wait(lambda: name in scene.errors)
    assert isinstance(scene.errors[name], ConfigError)
    assert key.replace("_", ".") in str(scene.errors[name])


def test_what_is_ignored_is_said(scene, caplog):
    scene.up(1, my_plugin_setting="1")
    assert "keys=my.plugin.setting" in caplog.text


def test_an_older_protocol_is_spoken_among_older_brokers(scene):
    scene.up(1, inter_broker_protocol_version="2.3")
    assert b'"version":4' in scene.znode("/brokers/ids/1").data
    before = scene.simulation.now
    scene.stop(1)
    assert scene.simulation.now - before < 3.0


def test_an_id_that_is_taken_is_refused_after_a_patient_wait(scene):
    scene.up(1)
    before = scene.simulation.now
    name = scene.boot(1, node="b7", listeners="PLAINTEXT://b7:9092")
    scene.wait(lambda: name in scene.errors)
    assert isinstance(scene.errors[name], StartupError)
    assert "broker.id=1" in str(scene.errors[name])
    assert scene.simulation.now - before > 6.0


def test_an_address_that_is_taken_is_refused(scene):
    scene.up(1)
    name = scene.boot(2, advertised_listeners="PLAINTEXT://b1:9092")
    scene.wait(lambda: name in scene.errors)
    assert "already registered by broker 1" in str(scene.errors[name])
    assert scene.znode("/brokers/ids/2") is None


def test_leadership_is_handed_over_before_the_end(scene):
    scene.up(1)
    second = scene.up(2)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=4, replication_factor=2)
    created = scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert created.topics[0].error_code == ErrorCode.NONE
    before = scene.simulation.now
    scene.stop(1)
    assert scene.simulation.now - before < 3.0
    leaders = {p.leader for p in second.services.metadata.snapshot.topics["t"].partitions.values()}
    assert leaders == {2}
    before = scene.simulation.now
    scene.stop(2)  # nobody is left to lead: no retries
    assert scene.simulation.now - before < 3.0


def test_only_the_controller_answers_for_the_controller(scene):
    scene.up(1)
    scene.up(2)
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=0)
    assert scene.ask(2, request, 3).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_metadata_wait_for_the_first_word_of_a_controller(scene):
    client = scene.simulation.node("client")

    async def hold_office():
        session = await Session.connect(client.world, "zk:2181", 60_000, 5_000)
        await Store(session).create_top_level_paths()
        await session.create("/controller", encode_controller(9, 0), ephemeral=True)
        return session

    session = client.call(hold_office())
    name = scene.boot(1)
    scene.wait(lambda: scene.znode("/brokers/ids/1") is not None)
    assert not scene.brokers[name].services.metadata.ready
    before = scene.simulation.now
    with pytest.raises(OttlaError):
        scene.ask(1, MetadataRequest(topics=None), 12)
    assert 0.9 < scene.simulation.now - before < 2.0
    client.loop.call_later(0.5, session.delete, "/controller")
    answer = scene.ask(1, MetadataRequest(topics=None), 12)
    assert [b.node_id for b in answer.brokers] == [1]


def test_the_last_folder_that_fails_ends_the_broker(scene):
    broker = scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    loop = scene.simulation.node("b1").loop
    loop.call_soon(broker.logs._dir_failed, broker.logs._dirs[FOLDER], OSError(5, "I/O error"))
    scene.wait(lambda: "b1" in scene.errors)
    assert isinstance(scene.errors["b1"], StorageError)
