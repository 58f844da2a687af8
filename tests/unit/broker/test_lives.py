"""R22, adr/0025: older disks, copies, a second process of one id, a ZooKeeper that went back."""

import copy
import json

import pytest

from ottla.broker.services import BrokerState
from ottla.log.life_notes import LifeNotes
from ottla.log.lives import LIFE_FILE
from ottla.model.errors import ErrorCode, StartupError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.zookeeper.access import Access
from ottla.zookeeper.errors import ConnectionLossError
from ottla.zookeeper.operations import Create, Delete
from ottla.zookeeper.statements import decode_statement
from support.disk_copies import copied, put_back

FOLDER, OTHER_FOLDER = "/data", "/more"
TP = TopicPartition("t", 0)
OTHER_LIFE = "log dir is not of the last life of this broker"
WENT_BACK = "zookeeper went back to an older state"


def statement(scene, number=1):
    return decode_statement(number, scene.znode(f"/ottla/brokers/{number}").data)


def says_whole(scene, number=1):
    """Return what a broker stated of its logs with this registration."""
    said, entry = scene.znode(f"/ottla/brokers/{number}"), scene.znode(f"/brokers/ids/{number}")
    assert said.mzxid == entry.czxid
    return statement(scene, number).logs_whole


def create(scene, name="t", replicas=1, number=1):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=replicas
    )
    answer = scene.ask(number, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    scene.wait(
        lambda: (
            sum(
                TopicPartition(name, 0) in b.services.replicas.partitions
                for b in scene.brokers.values()
            )
            == replicas
        )
    )


def disk(scene, number=1):
    return scene.simulation.node(f"b{number}").disk


def crash(scene, number=1, **how):
    scene.simulation.node(f"b{number}").crash(**how)


# --- one broker's disk ---------------------------------------------------------------------------


def test_r22_what_a_life_writes_names_it(scene):
    broker = scene.up(1)
    epoch = broker.services.session.broker_epoch
    life = json.loads(disk(scene).inodes[f"{FOLDER}/{LIFE_FILE}"].data)
    assert life["broker_epoch"] == epoch
    assert life["life"] == broker.logs.lives.name == statement(scene).life
    scene.stop(1)
    marker = json.loads(disk(scene).inodes[f"{FOLDER}/.kafka_cleanshutdown"].data)
    assert marker == {"version": 0, "brokerEpoch": epoch}
    assert statement(scene).life == life["life"], "it outlives the session"
    assert not statement(scene).logs_whole


@pytest.mark.parametrize("end", ["stopped", "killed", "session expired, then killed"])
def test_r22_a_disk_that_stayed_is_whole_at_once(scene, end):
    scene.up(1)
    scene.stop(1)
    broker = scene.up(1)
    if end == "stopped":
        scene.stop(1)
    else:
        if end != "killed":
            entry = scene.znode("/brokers/ids/1")
            scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, entry.owner)
            scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid)
        crash(scene)
    before = scene.simulation.now
    scene.up(1)
    assert scene.simulation.now - before < 2
    assert says_whole(scene)


@pytest.mark.parametrize("copy_of", ["a clean stop", "the running broker", "a crash"])
@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("lives", [0, 1])
def test_f52_a_disk_that_is_replaced_by_a_copy(scene, caplog, copy_of, rebooted, lives):
    """A copy of a clean stop is whole until another life has registered; others never are."""
    scene.up(1)
    scene.stop(1)
    scene.up(1)
    create(scene)
    if copy_of == "a clean stop":
        scene.stop(1)
    elif copy_of == "a crash":
        crash(scene)
    kept = copied(disk(scene), FOLDER)
    for _ in range(lives):
        if not scene.simulation.node("b1").up:
            broker = scene.up(1)
            scene.wait(lambda broker=broker: broker.services.metadata.contains("t"))
            scene.produce("t", 3)
        scene.simulation.run_for(1)
        if copy_of == "a clean stop":
            scene.stop(1)
    if scene.simulation.node("b1").up:
        crash(scene)
    if rebooted:
        disk(scene).power_losses += 1
    put_back(disk(scene), FOLDER, kept)
    broker = scene.up(1)
    same = copy_of == "a clean stop" and not lives
    assert says_whole(scene) is same
    if copy_of == "a clean stop":
        assert (OTHER_LIFE in caplog.text) is bool(lives)
    scene.wait(lambda: not broker.logs.unclean)
    scene.stop(1)
    scene.up(1)
    assert says_whole(scene), "it has been led since: recognized from here on"


def test_f52_one_of_two_log_dirs_is_older(scene, caplog):
    dirs = {"log_dirs": f"{FOLDER},{OTHER_FOLDER}"}
    scene.up(1, **dirs)
    scene.stop(1)
    kept = copied(disk(scene), OTHER_FOLDER)
    scene.up(1, **dirs)
    scene.stop(1)
    put_back(disk(scene), OTHER_FOLDER, kept)
    scene.up(1, **dirs)
    assert not says_whole(scene)
    (line,) = [r.getMessage() for r in caplog.records if OTHER_LIFE in r.getMessage()]
    assert f"dir={OTHER_FOLDER}" in line


def test_f52_an_older_clean_disk_does_not_lead_over_newer_replicas(scene):
    """All were in sync and died; the leader's disk alone came back older."""
    settings = {"min_insync_replicas": "2", "unclean_leader_election_enable": "false"}
    for number in (1, 2, 3):
        scene.up(number, **settings)
    create(scene, replicas=3)
    scene.produce("t", 2)
    leader = scene.brokers["b1"].services.metadata.partition("t", 0).leader
    scene.simulation.run_for(6)
    scene.stop(leader)
    kept = copied(disk(scene, leader), FOLDER)
    scene.up(leader, **settings)

    def in_sync():
        state = scene.znode("/brokers/topics/t/partitions/0/state")
        return set(json.loads(state.data)["isr"]) == {1, 2, 3}

    scene.wait(in_sync)
    scene.produce("t", 5)
    scene.simulation.run_for(6)
    for number in (1, 2, 3):
        crash(scene, number)
    put_back(disk(scene, leader), FOLDER, kept)
    scene.boot(leader, **settings)
    scene.simulation.run_for(8)
    for number in (1, 2, 3):
        if number != leader:
            scene.up(number, **settings)
    scene.wait(in_sync)
    ends = {n: scene.brokers[f"b{n}"].logs.get(TP).log_end_offset for n in (1, 2, 3)}
    assert ends == {1: 7, 2: 7, 3: 7}


@pytest.mark.parametrize("step", ["announce", "registered"])
def test_r22_a_crash_between_registration_and_its_note_costs_nothing(scene, monkeypatch, step):
    scene.up(1)
    scene.stop(1)
    original = getattr(LifeNotes, step)

    async def crashing(self, *args):
        if step == "announce":
            await original(self, *args)
        scene.simulation.scheduler.after(0, lambda: crash(scene))
        await scene.simulation.node("b1").loop.create_future()

    monkeypatch.setattr(LifeNotes, step, crashing)
    scene.boot(1)
    scene.wait(lambda: not scene.simulation.node("b1").up)
    monkeypatch.undo()
    scene.up(1)
    assert says_whole(scene)


def test_r22_a_jvm_broker_in_between_changes_nothing(scene):
    scene.up(1)
    scene.stop(1)
    marker = disk(scene).inodes[f"{FOLDER}/.kafka_cleanshutdown"]
    marker.truncate(0)
    marker.write(0, b'{"version":0,"brokerEpoch":-1}')
    scene.up(1)
    assert says_whole(scene)


def test_r22_the_first_start_after_an_upgrade_leads_but_proves_nothing(scene, caplog):
    """An earlier version left a clean marker, an empty statement, and no life."""
    scene.up(1)
    create(scene)
    scene.stop(1)
    disk(scene).remove(f"{FOLDER}/{LIFE_FILE}")
    scene.znode("/ottla/brokers/1").data = b""
    scene.up(1)
    assert not says_whole(scene)
    assert OTHER_LIFE not in caplog.text
    assert WENT_BACK not in caplog.text
    scene.stop(1)
    scene.up(1)
    assert says_whole(scene)


# --- two processes of one id ---------------------------------------------------------------------


def test_f53_a_copy_waits_for_a_living_broker_and_ends(scene):
    broker = scene.up(1)
    epoch, controller = broker.services.session.broker_epoch, scene.znode("/controller").czxid
    put_back(scene.simulation.node("b7").disk, FOLDER, copied(disk(scene), FOLDER))
    name = scene.boot(1, node="b7", listeners="PLAINTEXT://b7:9092")
    scene.wait(lambda: name in scene.errors)
    assert isinstance(scene.errors[name], StartupError)
    assert "broker.id=1" in str(scene.errors[name])
    assert broker.state is BrokerState.RUNNING
    assert scene.znode("/brokers/ids/1").czxid == epoch
    assert scene.znode("/controller").czxid == controller


def test_f53_a_copy_of_a_dead_broker_waits_for_its_session(scene):
    scene.up(1)
    kept = copied(disk(scene), FOLDER)
    crash(scene)
    put_back(disk(scene), FOLDER, kept)
    before = scene.simulation.now
    scene.up(1)
    assert scene.simulation.now - before > 2, "the lock is not the one that the session's owner had"


def take_registration(scene, data=None):
    """Do what a process of an earlier version did: delete broker 1's registration, make its own."""
    entry = scene.znode("/brokers/ids/1")
    data = data or entry.data.replace(b"b1", b"b9")

    async def take():
        store = scene.brokers["b2"].services.session.store
        await store.session.multi(
            [Delete("/brokers/ids/1"), Create("/brokers/ids/1", data, ephemeral=True)]
        )

    scene.simulation.node("b2").call(take())


def test_f53_a_broker_whose_registration_was_taken_ends_at_once(scene, caplog):
    broker = scene.up(1)
    scene.up(2)
    before = scene.simulation.now
    take_registration(scene)
    scene.wait(lambda: not scene.simulation.node("b1").up)
    assert scene.simulation.now - before < 2, "without a controlled shutdown"
    assert "PLAINTEXT://b9:9092" in str(scene.errors["b1"])
    assert "registration was taken by another process" in caplog.text
    assert broker.state is BrokerState.NOT_RUNNING
    assert scene.znode("/brokers/ids/1") is not None, "the other's stays"


def test_f53_so_it_does_where_it_finds_out_only_when_it_registers_again(scene):
    scene.up(1)
    scene.up(2)
    session = scene.znode("/brokers/ids/1").owner
    scene.simulation.node("b1").pause()
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, session)
    scene.wait(lambda: scene.znode("/brokers/ids/1") is None)

    async def register():
        store = scene.brokers["b2"].services.session.store
        await store.session.multi([Create("/brokers/ids/1", b"{}", ephemeral=True)])

    scene.simulation.node("b2").call(register())
    scene.simulation.node("b1").resume()
    scene.wait(lambda: not scene.simulation.node("b1").up)
    assert "broker.id=1" in str(scene.errors["b1"])


@pytest.mark.parametrize("data", [b"{}", None])
def test_f53_a_registration_that_was_rewritten_is_made_anew(scene, caplog, data):
    broker = scene.up(1)
    entry = scene.znode("/brokers/ids/1")
    data = data or entry.data.replace(b"b1", b"b9")

    async def rewrite():
        await broker.services.session.store.session.set("/brokers/ids/1", data)

    scene.simulation.node("b1").call(rewrite())
    scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid)
    assert b"b1:9092" in scene.znode("/brokers/ids/1").data
    assert "registration was rewritten by another client" in caplog.text


def test_f53_the_registration_is_watched_again_after_an_error(scene, monkeypatch):
    scene.up(2)
    original, failed = Access.get_data_and_stat, []

    async def failing(self, path, watch=None):
        if path == "/brokers/ids/1" and len(failed) < 3:
            failed.append(path)
            raise ConnectionLossError(path=path)
        return await original(self, path, watch)

    monkeypatch.setattr(Access, "get_data_and_stat", failing)
    scene.up(1)
    assert len(failed) == 3
    take_registration(scene)
    scene.wait(lambda: not scene.simulation.node("b1").up)


def test_f53_another_life_in_between_is_noticed_at_the_next_registration(scene, caplog):
    """A copy registered while this broker was cut off, and is gone again."""
    scene.up(1)
    scene.stop(1)
    broker = scene.up(1)
    entry = scene.znode("/brokers/ids/1")
    said = statement(scene)
    assert says_whole(scene)
    scene.znode("/ottla/brokers/1").data = scene.znode("/ottla/brokers/1").data.replace(
        said.life.encode(), b"another"
    )
    scene.simulation.node("zk").loop.call_soon(scene.zookeeper.expire, entry.owner)
    scene.wait(lambda: broker.services.session.broker_epoch > entry.czxid)
    assert not says_whole(scene)
    assert OTHER_LIFE in caplog.text


# --- ZooKeeper went back -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "moved_on"),
    [("stopped", False), ("stopped", True), ("killed", False), ("alive", False)],
)
def test_f51_a_zookeeper_that_went_back_is_told(scene, caplog, end, moved_on):
    """Its copy is of the very life that runs, so that this life's registration is known there.

    `moved_on`: it has newer zxids by now than those that the broker saw before; then what a stop
    wrote to the statement shows it.
    """
    scene.up(1)
    scene.stop(1)
    broker = scene.up(1)
    tree = copy.deepcopy(scene.zookeeper.tree)
    create(scene)
    for more in range(5):
        create(scene, f"more{more}")
    scene.simulation.run_for(6)
    assert scene.brokers["b1"].logs.get(TP)
    if end == "stopped":
        scene.stop(1)
    elif end == "killed":
        crash(scene)
    scene.simulation.node("zk").call(restart(scene, tree, moved_on))
    if end == "alive":
        scene.wait(lambda: broker.services.zookeeper_went_back, within_s=30)
        scene.wait(lambda: statement(scene).zookeeper_went_back)
    else:
        broker = scene.up(1)
    assert caplog.text.count(WENT_BACK) >= 1
    assert broker.services.zookeeper_went_back
    assert statement(scene).zookeeper_went_back == broker.services.zookeeper_went_back
    assert not says_whole(scene)
    assert broker.logs.get(TP), "kept"
    assert f"{FOLDER}/{TP}" in disk(scene).folders
    caplog.clear()
    if scene.simulation.node("b1").up:
        scene.stop(1)
    again = scene.up(1)
    assert WENT_BACK not in caplog.text, "once"
    assert not again.services.zookeeper_went_back
    assert not statement(scene).zookeeper_went_back


async def restart(scene, tree, moved_on):
    """Stop the server, put back its older tree, start it; no session of before lives."""
    scene.zookeeper.stop()
    scene.zookeeper.sessions.clear()
    newest = scene.zookeeper.tree.zxid
    scene.zookeeper.tree = copy.deepcopy(tree)
    for session in list(scene.zookeeper.tree.ephemerals):
        scene.zookeeper.tree.close_session(session)
    if moved_on:
        scene.zookeeper.tree.zxid = newest + 1000
    await scene.zookeeper.start("zk", 2181)


def test_f51_a_zookeeper_without_our_statement_went_back(scene, caplog):
    scene.up(1)
    scene.stop(1)
    scene.znode("/ottla/brokers/1").data = b""
    scene.up(1)
    assert WENT_BACK in caplog.text
    assert not says_whole(scene)


def test_f51_a_controller_epoch_that_went_back_is_told(scene, caplog):
    scene.up(1)
    scene.stop(1)
    scene.up(1)
    scene.stop(1)
    assert scene.znode("/controller_epoch").data == b"2"
    scene.znode("/controller_epoch").data = b"1"
    scene.up(1)
    assert "knew controller epoch 2" in caplog.text
    assert not says_whole(scene)
