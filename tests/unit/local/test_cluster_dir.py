"""The folder of a local cluster, and the processes it names."""

import os
import stat
import subprocess
import sys

import pytest

from ottla.local import cluster as local_cluster
from ottla.local import ports, processes
from ottla.local.cluster_dir import (
    ClusterDir,
    LocalBroker,
    LocalCluster,
    LocalZooKeeper,
    last_line,
)
from ottla.local.processes import ProcessId
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.properties import parse_properties


def cluster(brokers=3, **process):
    return LocalCluster(
        LocalZooKeeper("127.0.0.1:2181"),
        [LocalBroker(i, 9092 + i, **process) for i in range(brokers)],
    )


def test_what_is_saved_is_loaded(tmp_path):
    folder = ClusterDir(tmp_path)
    assert folder.load() is None
    described = cluster(process=ProcessId(1, "2"))
    folder.save(described)
    assert folder.load() == described


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(OttlaError, match=r"cluster\.json"):
        ClusterDir(tmp_path).load()


def test_a_pid_that_was_used_again_is_not_ours():
    me = processes.identify(os.getpid())
    assert me is not None
    assert processes.alive(me)
    assert not processes.alive(ProcessId(me.pid, "another moment"))
    assert not processes.send_signal(ProcessId(me.pid, "another moment"), 9)
    assert processes.resident_bytes(me) > 1_000_000
    assert processes.resident_bytes(ProcessId(me.pid, "another moment")) is None


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = processes.identify(child.pid)
    assert process is not None
    assert processes.alive(process)
    child.stdin.close()
    assert processes.wait_gone([process], 60) == []
    child.wait()


def test_two_commands_do_not_change_a_folder_at_once(tmp_path):
    folder = ClusterDir(tmp_path)
    with folder.locked(), pytest.raises(OttlaError, match="wait for it"), folder.locked():
        pass


def test_bootstrap_names_the_way_out(tmp_path):
    folder = ClusterDir(tmp_path)
    with pytest.raises(OttlaError, match="ottla up"):
        folder.bootstrap()
    folder.save(cluster())
    with pytest.raises(OttlaError, match="start them with"):
        folder.bootstrap()


def test_last_line(tmp_path):
    file = tmp_path / "log"
    assert last_line(file) == ""
    file.write_text("one\ntwo\n\n")
    assert last_line(file) == "two"


def test_properties_are_what_a_broker_reads(tmp_path):
    folder, described = ClusterDir(tmp_path), cluster()
    described.settings = {"log.segment.bytes": "1000000"}
    file = local_cluster.write_properties(folder, described, described.brokers[1])
    config = BrokerConfig(parse_properties(file.read_text()))
    assert config.broker_id == 1
    assert config.listeners[0].port == 9093
    assert config["log.segment.bytes"] == 1_000_000
    assert config["min.insync.replicas"] == 2
    assert config["default.replication.factor"] == 3
    assert config.unknown == []


def test_a_single_broker_replicates_nothing(tmp_path):
    described = cluster(brokers=1)
    file = local_cluster.write_properties(ClusterDir(tmp_path), described, described.brokers[0])
    config = BrokerConfig(parse_properties(file.read_text()))
    assert (config["default.replication.factor"], config["min.insync.replicas"]) == (1, 1)


def test_settings():
    assert local_cluster.parse_settings(["num.partitions = 3"]) == {"num.partitions": "3"}


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("num.partitions", "write key=value"),
        ("=3", "write key=value"),
        ("num.partition=3", "did you mean num.partitions"),
        ("num.partitions=many", "num.partitions"),
        ("listeners=PLAINTEXT://:1", "chooses this one"),
    ],
)
def test_bad_settings_are_named(pair, says):
    with pytest.raises(ConfigError, match=says):
        local_cluster.parse_settings([pair])


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (local_cluster.Wanted(brokers=2), "3 brokers"),
    ],
)
def test_what_an_existing_cluster_cannot_become(tmp_path, wanted, says):
    with pytest.raises(OttlaError, match=says):
        local_cluster._changed(cluster(), wanted, ClusterDir(tmp_path))


def test_one_zookeeper_elsewhere_is_not_exchanged_for_another(tmp_path):
    external = cluster()
    external.zookeeper = LocalZooKeeper("here:2181", external=True)
    wanted = local_cluster.Wanted(zookeeper="elsewhere:2181")
    with pytest.raises(OttlaError, match="lives in ZooKeeper here:2181, not elsewhere:2181"):
        local_cluster._changed(external, wanted, ClusterDir(tmp_path))


def test_a_stopped_cluster_can_change(tmp_path):
    wanted = local_cluster.Wanted(brokers=4, port_base=7000, settings={"num.partitions": "2"})
    changed = local_cluster._changed(cluster(), wanted, ClusterDir(tmp_path))
    assert [b.port for b in changed.brokers[:3]] == [7000, 7001, 7002]
    assert changed.zookeeper.port == 7003
    assert [b.id for b in changed.brokers] == [0, 1, 2, 3]
    assert changed.settings == {"num.partitions": "2"}


def test_a_running_cluster_does_not_change_its_settings(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.local.cluster_dir.is_ours", lambda _: True)
    me = processes.identify(os.getpid())
    wanted = local_cluster.Wanted(settings={"num.partitions": "2"})
    with pytest.raises(OttlaError, match="ottla down"):
        local_cluster._changed(cluster(process=me), wanted, ClusterDir(tmp_path))
    with pytest.raises(OttlaError, match="ottla down"):
        local_cluster._changed(
            cluster(process=me), local_cluster.Wanted(port_base=7000), ClusterDir(tmp_path)
        )


def test_settings_may_be_passwords_so_their_files_are_the_owners_alone(tmp_path):
    folder = ClusterDir(tmp_path)
    described = cluster(1)
    described.settings = {"ssl.keystore.password": "s3cret", "ssl.keystore.type": "JKS"}
    folder.save(described)
    files = (
        local_cluster.write_properties(folder, described, described.brokers[0]),
        tmp_path / "cluster.json",
    )
    for file in files:
        assert "s3cret" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def metrics_ports(described, monkeypatch, taken=()):
    monkeypatch.setattr(ports, "port_is_free", lambda port, _host="": port not in taken)
    for broker in described.brokers:
        ports.choose_metrics_port(described, broker)
    return [broker.metrics_port for broker in described.brokers]


def test_metrics_have_a_port_that_is_free_and_keep_it(tmp_path, monkeypatch):
    described = cluster(brokers=3)
    assert metrics_ports(described, monkeypatch) == [9192, 9193, 9194]
    assert metrics_ports(described, monkeypatch, taken={9193})[0::2] == [9192, 9194]
    elsewhere = described.brokers[1].metrics_port
    assert elsewhere not in {9192, 9193, 9194, 9092, 9093, 9094}
    assert metrics_ports(described, monkeypatch) == [9192, elsewhere, 9194], "scrapers know it"
    file = local_cluster.write_properties(ClusterDir(tmp_path), described, described.brokers[0])
    assert "ottla.metrics.listener=127.0.0.1:9192\n" in file.read_text()
    assert described.brokers[0].metrics_address == "127.0.0.1:9192"


def test_whoever_sets_the_listener_of_metrics_has_it(tmp_path, monkeypatch):
    described = cluster(brokers=2)
    described.settings["ottla.metrics.listener"] = ""
    assert metrics_ports(described, monkeypatch) == [0, 0]
    file = local_cluster.write_properties(ClusterDir(tmp_path), described, described.brokers[0])
    assert "ottla.metrics.listener=\n" in file.read_text()
    assert described.brokers[0].metrics_address is None


def test_up_takes_each_key_of_server_properties_and_says_what_was_meant():
    for pair in (
        "super.users=User:admin",
        "allow.everyone.if.no.acl.found=true",
        "listener.name.plaintext.plain.sasl.jaas.config=x",
        "config.providers.f.class=y",
        "ottla.slow.request.ms=5",
    ):
        key, _, value = pair.partition("=")
        assert local_cluster.parse_settings([pair]) == {key: value}
    for pair, like in (
        ("super.user=User:a", "super.users"),
        ("log.retention.hour=1", "log.retention.hours"),
        ("listener.name.x.ssl.keystore.locatoin=a", "listener.name.x.ssl.keystore.location"),
    ):
        with pytest.raises(ConfigError, match=f"no broker setting .*did you mean {like}[?]"):
            local_cluster.parse_settings([pair])
    with pytest.raises(ConfigError, match="would delete every record"):
        local_cluster.parse_settings(["log.retention.hours=0"])
