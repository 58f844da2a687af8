"""The ports of a new local cluster: the usual ones, or others and a line that says so."""

import pytest

from ottla.local import ports
from ottla.local.cluster_dir import LocalBroker, LocalCluster, LocalZooKeeper

USUAL = [9092, 9093, 9094]


@pytest.fixture
def taken(monkeypatch):
    """The ports that somebody has."""
    found: set[int] = set()
    monkeypatch.setattr(ports, "port_is_free", lambda port, *_: port not in found)
    return found


def cluster(numbers, zookeeper_port, *, external=False):
    brokers = [LocalBroker(i, port) for i, port in enumerate(numbers)]
    return LocalCluster(
        LocalZooKeeper(f"127.0.0.1:{zookeeper_port}", external=external), brokers, {}
    )


def test_the_usual_ports(taken):
    assert ports.choose_ports(3, None) == (USUAL, 2181)
    assert ports.usual_ports_taken(cluster(USUAL, 2181), None) is None


@pytest.mark.parametrize("port", [9093, 2181])
def test_others_where_one_is_in_use_and_a_line_that_says_so(taken, port):
    taken.add(port)
    numbers, zookeeper = ports.choose_ports(3, None)
    assert not {*numbers, zookeeper} & {*USUAL, 2181}
    said = ports.usual_ports_taken(cluster(numbers, zookeeper), None)
    assert said == (
        "of the usual ports (9092 to 9094 and 2181) some are in use: this cluster begins at "
        f"{numbers[0]}; --port-base chooses"
    )


def test_an_external_zookeeper_may_have_its_usual_port(taken):
    taken.add(2181)
    assert ports.choose_ports(3, None, external=True)[0] == USUAL
    taken.add(9092)
    numbers, _ = ports.choose_ports(1, None, external=True)
    said = ports.usual_ports_taken(cluster(numbers, 2181, external=True), None)
    assert said.startswith("of the usual ports (9092) some are in use")


def test_who_names_ports_is_told_nothing(taken):
    taken.update(USUAL)
    assert ports.choose_ports(3, 7000) == ([7000, 7001, 7002], 7003)
    assert ports.usual_ports_taken(cluster([7000], 7003), 7000) is None
