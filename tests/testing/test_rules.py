"""Which faults a broker gets, from what was asked for; which settings a cluster accepts."""

import pytest

from ottla.model.errors import ConfigError, OttlaError
from ottla.net.faults import Link
from ottla.testing.cluster import Cluster
from ottla.testing.faults import Faults, Rules, names
from ottla.testing.requests import checked_settings, defaults
from ottla.testing.sync_cluster import SyncCluster

ADDRESSES = {1: "127.0.0.1:101", 2: "127.0.0.1:102", 3: "127.0.0.1:103"}
ZOOKEEPER = "zk1:2181,zk2/chroot"
DROP, CUT = Link("drop"), Link("cut")


def rules(faults):
    return {broker: faults.rules(broker, ADDRESSES, ZOOKEEPER) for broker in ADDRESSES}


def test_two_brokers_are_separated_on_both_sides():
    faults = Faults()
    assert faults.add(1, [2], DROP, ADDRESSES) == {1, 2}
    assert rules(faults) == {
        1: Rules({"127.0.0.1:102": DROP}),
        2: Rules({"127.0.0.1:101": DROP}),
        3: Rules(),
    }
    assert [faults.cut_off(broker) for broker in ADDRESSES] == [1, 1, 0]


def test_all_are_brokers_zookeeper_and_clients():
    faults = Faults()
    assert faults.add(3, "all", CUT, ADDRESSES) == {1, 2, 3}
    found = rules(faults)
    zookeeper = {"zk1:2181": CUT, "zk2:2181": CUT}
    assert found[3] == Rules({"127.0.0.1:101": CUT, "127.0.0.1:102": CUT, **zookeeper}, CUT)
    assert found[1] == Rules({"127.0.0.1:103": CUT})
    assert [faults.cut_off(broker) for broker in ADDRESSES] == [1, 1, 3]


def test_clients_are_no_reason_to_distrust_a_broker_and_slowness_is_none():
    faults = Faults()
    assert faults.add(1, "clients", DROP, ADDRESSES) == {1}
    assert faults.add(2, ["zookeeper", 3], Link("slow", 0.1), ADDRESSES) == {2, 3}
    assert [faults.cut_off(broker) for broker in ADDRESSES] == [0, 0, 0]
    faults.full.add(3)
    assert rules(faults)[3].disk_full
    faults.clear()
    assert rules(faults) == dict.fromkeys(ADDRESSES, Rules())


def test_later_faults_replace_earlier_ones_and_none_is_with_oneself():
    faults = Faults()
    faults.add(1, "brokers", DROP, ADDRESSES)
    faults.add(2, 1, CUT, ADDRESSES)
    assert rules(faults)[1] == Rules({"127.0.0.1:102": CUT, "127.0.0.1:103": DROP})
    assert Faults().add(1, 1, DROP, ADDRESSES) == {1}


def test_targets_that_do_not_exist():
    with pytest.raises(OttlaError, match="no broker 4; there are 1, 2, 3"):
        Faults().add(1, [4], DROP, ADDRESSES)
    with pytest.raises(ConfigError, match="from_='everyone': write ids, brokers, clients"):
        Faults().add(1, "everyone", DROP, ADDRESSES)
    assert names([1, "clients"]) == "1, clients"


def test_settings_are_text_as_brokers_read_them():
    found = checked_settings({"auto.create.topics.enable": False, "num.partitions": 7})
    assert found == {"auto.create.topics.enable": "false", "num.partitions": "7"}
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        checked_settings({"num.partitions": "many"})
    for key in ("listeners", "broker.id", "zookeeper.connect"):
        with pytest.raises(ConfigError, match="the cluster chooses this one"):
            checked_settings({key: 1})


def test_defaults_replicate_what_can_be_replicated():
    assert [defaults(n)["default.replication.factor"] for n in (1, 2, 3, 5)] == ["1", "2", "3", "3"]
    assert [defaults(n)["min.insync.replicas"] for n in (1, 2, 3)] == ["1", "1", "2"]
    assert checked_settings({k: v for k, v in defaults(3).items() if "listener" not in k})


def test_a_cluster_has_all_that_a_sync_cluster_has():
    public = {name for name in vars(SyncCluster) if not name.startswith("_")}
    assert public - vars(Cluster).keys() == {"open", "close", "age_s", "note"}
