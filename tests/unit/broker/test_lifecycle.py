"""A broker's lifecycle in the simulated world: starts, ends, crashes, lost sessions, refusals."""

import asyncio

import pytest

from ottla.broker.broker import Broker
from ottla.broker.lifecycle.membership import Membership
from ottla.broker.services import BrokerState
from ottla.controller import failover
from ottla.controller.loop import LogEndRequests
from ottla.log.manager import LogManager
from ottla.model.errors import (
    ConfigError,
    ConnectionLostError,
    ErrorCode,
    OttlaError,
    StartupError,
    StorageError,
)
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.control import ControlledShutdownRequest, UpdateMetadataRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.zookeeper.registration import Brokers
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store
from ottla.zookeeper.znodes import encode_controller

FOLDER = "/data"


def test_a_start_registers_elects_and_gets_its_own_metadata(scene):
    broker = scene.up(1)
    assert broker.services.session.broker_epoch == scene.znode("/brokers/ids/1").czxid
    assert broker.services.controller.is_active
    assert list(broker.services.metadata.snapshot.brokers) == [1]
    assert broker.port("PLAINTEXT") == 9092
    assert broker.services.features_epoch == 0
    meta = scene.simulation.node("b1").files.read_bytes(f"{FOLDER}/meta.properties").decode()
    assert f"cluster.id={broker.services.cluster_id}" in meta


def test_each_listener_gets_its_own_addresses(scene):
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
    assert broker.services.session.broker_epoch > first
    assert broker.services.controller.is_active


def test_without_its_memory_it_waits_for_the_old_session(scene):
    scene.up(1)
    node = scene.simulation.node("b1")
    node.files.remove(f"{FOLDER}/.ottla-life")
    node.crash()
    before = scene.simulation.now
    scene.up(1)
    assert 2.0 < scene.simulation.now - before < 9.0


def test_a_lost_session_is_followed_by_a_new_one(scene):
    broker = scene.up(1)
    scene.up(2)
    entry = scene.znode("/brokers/ids/1")
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, entry.owner)
    scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid)
    assert broker.services.session.broker_epoch == scene.znode("/brokers/ids/1").czxid
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
    epoch = broker.services.session.broker_epoch
    scene.simulation.node("zk").pause()
    scene.simulation.run_for(30)
    assert not broker.services.replicas.may_propose
    assert broker.services.session.current is None
    scene.simulation.node("zk").resume()
    scene.wait(
        lambda: broker.services.session.broker_epoch > epoch and broker.services.metadata.ready
    )
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
        ("java_security_auth_login_config", "/nosuch"),
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


def test_ignored_znodes_are_logged(scene, caplog):
    scene.up(1, my_plugin_setting="1")
    assert "keys=my.plugin.setting" in caplog.text


@pytest.mark.parametrize("level", ["2.2", "2.6-IV0"])
def test_r6_a_protocol_in_which_leaders_write_the_isr_is_refused(scene, level):
    """Below 2.7 the controller would get no request; the line names key, value, reason, way out."""
    name = scene.boot(1, inter_broker_protocol_version=level)
    scene.wait(lambda: name in scene.errors)
    said = str(scene.errors[name])
    for part in (f"inter.broker.protocol.version={level}", "leaders write the ISR", "2.7 to 3.9"):
        assert part in said
    assert scene.znode("/brokers/ids/1") is None


def test_an_older_protocol_is_spoken_among_older_brokers(scene):
    scene.up(1, inter_broker_protocol_version="2.7")
    assert b'"version":5' in scene.znode("/brokers/ids/1").data
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


def test_only_the_controller_serves_requests_to_the_controller(scene):
    scene.up(1)
    scene.up(2)
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=0)
    assert scene.ask(2, request, 3).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_metadata_wait_for_the_first_word_of_a_controller(scene):
    client = scene.simulation.node("client")

    async def hold_office():
        session = await Session.connect(client.world, "zk:2181", 60_000, 5_000)
        await Store(session).cluster.create_top_level_paths()
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


def told_of(broker, epoch, *topics):
    """Return an update of a controller of `epoch` about topics (name, id) led by broker 1."""
    r = UpdateMetadataRequest
    state = {"controller_epoch": epoch, "leader": 1, "isr": [1], "replicas": [1]}
    return r(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=broker.services.session.broker_epoch,
        live_brokers=[
            r.UpdateMetadataBroker(
                id=1,
                endpoints=[r.UpdateMetadataEndpoint(port=9092, host="b1", listener="PLAINTEXT")],
            )
        ],
        topic_states=[
            r.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[r.UpdateMetadataPartitionState(topic_name=name, **state)],
            )
            for name, topic_id in topics
        ],
    )


def test_f4_what_a_dead_controller_deleted_without_telling_us_is_forgotten(scene):
    """C3, R15: its successor never knew the topic and says nothing; ZooKeeper does not have it."""
    broker = scene.up(1)
    kept = CreateTopicsRequest.CreatableTopic(name="kept", num_partitions=1, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[kept], timeout_ms=10_000), 7)
    metadata = broker.services.metadata
    scene.wait(lambda: metadata.contains("kept"))
    ghosts = [("ghost", b"g" * 16), ("reborn", b"r" * 16)]
    assert scene.ask(1, told_of(broker, 2, *ghosts), 8).error_code == ErrorCode.NONE
    scene.simulation.run_for(1)
    assert metadata.contains("ghost"), "a controller that is there is believed"
    successor = told_of(broker, 3, ("reborn", b"s" * 16))
    assert scene.ask(1, successor, 8).error_code == ErrorCode.NONE
    scene.wait(lambda: not metadata.contains("ghost"))
    assert sorted(metadata.snapshot.topics) == ["kept", "reborn"]
    assert metadata.topic_name(b"g" * 16) is None


def beside_a_frozen_controller(scene):
    """Return broker 1 beside broker 2, the controller, that is frozen but not dead for 6 s."""
    scene.up(2)
    broker = scene.up(1)
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=2)
        for name in ("kept", "ghost")
    ]
    scene.ask(2, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    scene.wait(lambda: len(broker.services.replicas.partitions) == 2)
    scene.simulation.run_for(1)
    assert broker.services.metadata.controller_id == 2
    scene.simulation.node("b2").pause()
    return broker


def delete_znode(scene, broker, topic):
    work = broker.services.session.store.topics.delete(topic)
    scene.simulation.node("b1").call(work)


def test_f11_requests_to_a_former_registration_do_not_count_for_the_current_one(scene, monkeypatch):
    """C3, R15: the metadata had the topic until the new registration; its deletion never came."""
    broker = beside_a_frozen_controller(scene)
    delete_znode(scene, broker, "ghost")
    register = Brokers.register
    answers = []

    async def late(self, info, **rest):
        """As one that has to delete the registration of the former session before."""
        peer = await PeerConnection.open(self._zk.session.world, "b1", 9092, "t", timeout_s=5)
        answers.append(await peer.send(told_of(broker, 1, ("ghost", b"g" * 16)), 8, 5))
        peer.close()
        return await register(self, info, **rest)

    monkeypatch.setattr(Brokers, "register", late)
    owner = scene.znode("/brokers/ids/1").owner
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, owner)
    scene.wait(lambda: answers)
    assert answers[0].error_code == ErrorCode.NONE, "it was for the registration of that time"
    scene.wait(lambda: not broker.services.metadata.contains("ghost"), within_s=3)
    assert sorted(broker.services.metadata.snapshot.topics) == ["kept"]
    assert list(broker.services.replicas.partitions) == [TopicPartition("kept", 0)]


def test_f11_topics_deleted_before_the_controller_saw_our_registration_are_forgotten(scene):
    """C3, R15: it existed when we registered; its deletion was sent to the former one only."""
    broker = beside_a_frozen_controller(scene)
    entry = scene.znode("/brokers/ids/1")
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, entry.owner)
    scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid, within_s=2)
    scene.simulation.run_for(0.5)
    delete_znode(scene, broker, "ghost")
    metadata = broker.services.metadata
    assert metadata.contains("ghost")
    assert scene.ask(1, told_of(broker, 1), 8).error_code == ErrorCode.NONE
    scene.wait(lambda: not metadata.contains("ghost"), within_s=2)
    assert sorted(metadata.snapshot.topics) == ["kept"]
    assert list(broker.services.replicas.partitions) == [TopicPartition("kept", 0)]


def test_f6_deleted_topics_are_looked_for_until_zookeeper_responds(scene):
    broker = scene.up(1)
    assert scene.ask(1, told_of(broker, 2, ("ghost", b"g" * 16)), 8).error_code == 0
    scene.simulation.node("zk").pause()
    assert scene.ask(1, told_of(broker, 3), 8).error_code == ErrorCode.NONE
    scene.simulation.run_for(2)
    assert broker.services.metadata.contains("ghost")
    scene.simulation.node("zk").resume()
    scene.wait(lambda: not broker.services.metadata.contains("ghost"))


@pytest.mark.parametrize(
    ("owner", "step"),
    [(Broker, "_load_logs"), (Broker, "_listen"), (Membership, "_check_endpoints")],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_f19_a_session_that_expires_amid_the_start_does_not_end_it(scene, monkeypatch, owner, step):
    """Loading took longer than the session lasts; what was loaded is not loaded again."""
    scene.up(1)
    original = getattr(owner, step)
    calls = []

    async def slow(self, *args):
        result = await original(self, *args)
        calls.append(step)
        if len(calls) == 1:
            broker = scene.brokers["b2"]
            session_id = broker.membership._session.session_id
            scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, session_id)
            await asyncio.sleep(8)
        return result

    monkeypatch.setattr(owner, step, slow)
    loads = []
    startup = LogManager.loading
    monkeypatch.setattr(LogManager, "loading", lambda *a: loads.append(a) or startup(*a))
    broker = scene.up(2)
    assert broker.state is BrokerState.RUNNING
    assert len(loads) == 1
    assert broker.services.session.broker_epoch == scene.znode("/brokers/ids/2").czxid
    scene.wait(lambda: sorted(broker.services.metadata.snapshot.brokers) == [1, 2])


def test_f48_a_start_that_is_ended_amid_loading_leaves_the_folder_as_it_was(scene, monkeypatch):
    """It ends while logs are loaded: the clean marker is back, the checkpoints were not written."""
    broker = scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    scene.wait(lambda: len(broker.logs.logs()) == 3)
    scene.stop(1)
    disk = scene.simulation.node("b1").disk
    assert ".kafka_cleanshutdown" in disk.children(FOLDER)
    files = {p: bytes(i.data) for p, i in disk.inodes.items() if not p.endswith(".ottla-life")}
    original = LogManager.loading

    def stuck(self, configs):
        steps = original(self, configs)
        next(steps)
        assert ".kafka_cleanshutdown" not in disk.children(FOLDER)
        raise StartupError("ended here")

    monkeypatch.setattr(LogManager, "loading", stuck)
    name = scene.boot(1)
    scene.wait(lambda: name in scene.errors)
    left = {p: bytes(i.data) for p, i in disk.inodes.items() if not p.endswith(".ottla-life")}
    assert left == files


def says_whole(scene, number):
    """Return what a broker stated of its logs with this registration, None if with another one."""
    said, entry = scene.znode(f"/ottla/brokers/{number}"), scene.znode(f"/brokers/ids/{number}")
    return b'"logs_whole":true' in said.data if said.mzxid == entry.czxid else None


def test_r13_a_broker_registers_with_whether_it_kept_its_logs(scene):
    """adr/0007: after a clean stop of all log dirs, or if only the process died; no empty disk."""
    scene.up(1)
    assert says_whole(scene, 1) is False, "an empty disk"
    scene.stop(1)
    scene.up(1)
    assert says_whole(scene, 1) is True
    scene.simulation.node("b1").crash()
    scene.up(1)
    assert says_whole(scene, 1) is True, "only the process died"
    scene.simulation.node("b1").crash(power_loss=True)
    scene.up(1)
    assert says_whole(scene, 1) is False, "the machine crashed"


def test_r13_an_emptied_disk_that_no_controller_has_heard_of_is_not_forgotten(scene):
    """Seed 22000126: it stopped cleanly, and then passed for one that had kept its logs."""
    beside_a_frozen_controller(scene)
    node, controller = scene.simulation.node("b1"), scene.znode("/controller").owner
    former = scene.znode("/brokers/ids/1").owner
    node.crash()
    node.disk.wipe()
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, former)
    scene.simulation.run_for(0.1)
    for _ in range(2):
        scene.boot(1, controlled_shutdown_enable="false")
        scene.wait(lambda: scene.znode("/brokers/ids/1") is not None, within_s=2)
        assert says_whole(scene, 1) is False
        scene.simulation.run_for(0.2)
        scene.stop(1)
    assert scene.znode("/controller").owner == controller, "it knew nothing of all this"
    scene.simulation.node("b2").resume()
    broker = scene.up(1)
    assert says_whole(scene, 1) is False
    scene.wait(lambda: broker.logs.get(TopicPartition("kept", 0)) and not broker.logs.unclean)
    scene.stop(1)
    scene.up(1)
    assert says_whole(scene, 1) is True


def test_r13_a_session_that_ends_takes_nothing_from_the_logs(scene):
    scene.up(1)
    scene.stop(1)
    broker = scene.up(1)
    entry = scene.znode("/brokers/ids/1")
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, entry.owner)
    scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid)
    assert says_whole(scene, 1) is True


def test_f43_brokers_tell_where_their_logs_end(scene):
    """What an unclean election rests on: leaders and followers answer, who is dead is left out."""
    for number in (1, 2, 3):
        scene.up(number)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    tp = TopicPartition("t", 0)

    def logs():
        return {b: scene.brokers[f"b{b}"].logs.get(tp) for b in (1, 2, 3)}

    scene.wait(lambda: all(logs().values()))
    leader = scene.brokers["b1"].services.metadata.partition("t", 0).leader
    scene.produce("t")
    scene.wait(lambda: all(log.log_end_offset == 1 for log in logs().values()))
    scene.simulation.node("b3").crash()
    controller = scene.brokers["b1"].services.controller
    questions = LogEndRequests(controller.context, controller._open, "PLAINTEXT")
    node = scene.simulation.node("b1")
    asked = []
    node.loop.call_soon(
        lambda: asked.append(node.loop.create_task(questions.fetch({b: [tp] for b in (1, 2, 3)})))
    )
    scene.wait(lambda: asked and asked[0].done())
    epoch = logs()[leader].epochs.latest
    assert asked[0].result() == {tp: {1: (epoch, 1), 2: (epoch, 1)}}


def test_r13_a_controller_that_knows_no_eligible_replicas_is_named(scene, caplog):
    """JVM brokers say nothing of their logs when they register."""
    broker = scene.up(1)
    assert scene.ask(1, told_of(broker, 2, ("t", b"t" * 16)), 8).error_code == 0
    scene.simulation.run_for(1)
    assert "not in force" not in caplog.text
    scene.zookeeper.tree.nodes["/ottla/brokers/1"].mzxid -= 1  # as if of an earlier registration
    assert scene.ask(1, told_of(broker, 3), 8).error_code == ErrorCode.NONE
    scene.wait(lambda: "eligible leader replicas" in caplog.text)
    assert "controller=1" in caplog.text


def slow_election(monkeypatch, seconds):
    """Let a new controller pause between sending who lives and electing leaders."""
    start = failover._start

    async def slow(changes):
        await asyncio.sleep(seconds)
        await start(changes)

    monkeypatch.setattr(failover, "_start", slow)


def restarted_with_a_topic(scene):
    scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    scene.stop(1)
    scene.boot(1)
    scene.wait(lambda: "b1" in scene.brokers and known_to(scene.brokers["b1"]))
    assert not scene.brokers["b1"].services.metadata.contains("t")


def known_to(broker):
    return broker.services.metadata.snapshot.brokers


def asked_for_t(scene):
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
    )
    (topic,) = scene.ask(1, request, 9).topics
    return topic.error_code


def test_no_topic_is_unknown_before_the_first_metadata_of_a_controller(scene, monkeypatch):
    slow_election(monkeypatch, 0.5)
    restarted_with_a_topic(scene)
    assert asked_for_t(scene) == ErrorCode.NONE


def test_a_client_is_sent_elsewhere_before_the_first_metadata_of_a_controller(scene, monkeypatch):
    slow_election(monkeypatch, 60)
    restarted_with_a_topic(scene)
    before = scene.simulation.now
    with pytest.raises(ConnectionLostError):
        asked_for_t(scene)
    assert 0.9 < scene.simulation.now - before < 2
    # Of a topic that never had a leader no controller ever tells.
    scene.simulation.run_for(10)
    assert asked_for_t(scene) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_high_watermarks_are_looked_at_when_a_broker_goes(scene, monkeypatch):
    """Producers may wait for a broker that is gone, and nothing else would come."""
    broker = scene.up(1)
    scene.up(2)
    scene.wait(lambda: len(broker.services.metadata.snapshot.brokers) == 2)
    looked = []

    async def look():
        looked.append(list(broker.services.metadata.snapshot.brokers))

    monkeypatch.setattr(broker.services.replicas, "raise_high_watermarks", look)
    scene.stop(2)
    scene.wait(lambda: looked)
    assert looked == [[1]]


LOOPS = {
    "log-tasks": lambda broker: (broker.logs, "flush_dirty"),
    "removal": lambda broker: (broker.logs, "remove_due"),
    "cleaner": lambda broker: (broker.cleaner, "clean_dirtiest"),
    "membership": lambda broker: (broker.membership, "join"),
    "membership-lost": lambda broker: (broker.membership, "_lose"),
    "isr-expiration": lambda broker: (broker.services.replicas, "expire_isr_once"),
    "high-watermark-checkpoint": lambda broker: (broker.logs, "write_high_watermarks"),
    "group-cleaner": lambda broker: (broker.services.coordination.groups, "_clean_once"),
    "txn-abort": lambda broker: (broker.services.coordination.transactions, "_abort_timed_out"),
    "changes": lambda broker: (broker.services.topic_configs._listener, "_handle_pending"),
}
"""One step of each loop that lives as long as its broker, by its task."""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_of_a_broker_goes_on_whatever_it_fails_with(scene, loop, monkeypatch, caplog):
    broker = scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    owner, step = LOOPS[loop](broker)
    real, calls = getattr(owner, step), []

    def fails_twice(*args, **settings):
        calls.append(scene.simulation.now)
        if len(calls) <= 2:
            raise RuntimeError("can't start new thread")
        return real(*args, **settings)

    if loop == "txn-abort":
        owner._loops[0].cancel()
        monkeypatch.setattr(owner, step, fails_twice)
        scene.simulation.node("b1").loop.call_soon(owner.start)
    else:
        monkeypatch.setattr(owner, step, fails_twice)
    if loop.startswith("membership"):
        scene.zookeeper.expire(broker.services.session.current.session.session_id)
    if loop == "changes":
        scene.simulation.node("b1").loop.call_soon(owner._on_watch, None)
    scene.wait(lambda: len(calls) > 2, within_s=3000)
    assert "RuntimeError: can't start new thread" in caplog.text
    scene.wait(lambda: scene.znode("/brokers/ids/1") is not None and broker.membership._joined)
