"""When `ottla broker restart` waits: never for replicas of the broker that it would restart."""

import pytest

from ottla.local import brokers
from ottla.local.brokers import needed_by
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper
from ottla.model.errors import OttlaError
from ottla.model.waits import Wait
from ottla.wire.messages.cluster import MetadataResponse


def view(*partitions, controller=0):
    """Return metadata with the partitions t-0, t-1, …: (leader, replicas, in sync, offline)."""
    rows = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=i, leader_id=leader, replica_nodes=replicas, isr_nodes=isr,
            offline_replicas=offline[0] if offline else [],
        )
        for i, (leader, replicas, isr, *offline) in enumerate(partitions)
    ]  # fmt: skip
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=rows)
    return MetadataResponse(controller_id=controller, topics=[topic])


@pytest.mark.parametrize(
    ("partition", "needed"),
    [
        ((0, [0, 1, 2], [0, 1, 2]), False),
        ((1, [0, 1, 2], [1, 2]), False),  # it lags, or was shut down: it is the reason
        ((1, [0, 1, 2], [1]), False),  # another lags, too, but nothing depends on broker 0
        ((0, [0, 1, 2], [0, 1]), True),
        ((0, [0, 1], [0]), True),
        ((0, [0], [0]), False),  # unavailable for a moment; said before
        ((-1, [0, 1], [1]), False),
        ((-1, [0, 1], [0], [0]), False),  # its log dir failed
        ((1, [1, 2], [1]), False),  # it has no replica
    ],
)
def test_a_broker_is_needed_where_it_is_in_sync_and_others_are_not(partition, needed):
    assert bool(needed_by(view(partition), 0, ())) is needed


@pytest.mark.parametrize(
    ("partition", "waits"),
    [
        ((1, [0, 1], [1]), True),
        ((-1, [0], [0]), True),
        ((0, [0, 1], [0, 1]), False),
        ((1, [1, 2], [1]), False),  # broker 2 is not among those that this command restarted
    ],
)
def test_those_that_were_restarted_are_waited_for(partition, waits):
    assert bool(needed_by(view(partition), 3, {0})) is waits


class Restarted:
    """A cluster whose metadata is given; a restarted broker is in sync again."""

    def __init__(self, monkeypatch, tmp_path, partitions, paused=()):
        self.partitions, self.order, self.told = partitions, [], []
        self.folder = ClusterDir(tmp_path)
        found = [LocalBroker(i, 1) for i in range(4)]
        monkeypatch.setattr(LocalBroker, "running", True)
        monkeypatch.setattr(LocalBroker, "paused", property(lambda b: b.id in paused))
        cluster = LocalCluster(LocalZooKeeper("127.0.0.1:1", external=True), found)
        monkeypatch.setattr(ClusterDir, "existing", lambda _: cluster)
        monkeypatch.setattr(ClusterDir, "zookeeper_problem", lambda _: None)
        monkeypatch.setattr(brokers, "_view", lambda *_: view(*self.partitions, controller=1))
        monkeypatch.setattr(brokers, "_stop", lambda *_: None)
        monkeypatch.setattr(
            brokers, "_start", lambda _f, _c, those, _tell: self._started(those[0].id)
        )
        self.wait = Wait("")
        monkeypatch.setattr(brokers, "waiting", lambda: self.wait)
        monkeypatch.setattr(brokers, "POLL_S", 0.01)

    def _started(self, broker):
        self.order.append(broker)
        self.back(broker)

    def back(self, broker):
        self.partitions = [
            (max(leader, isr[0]), replicas, sorted({*isr, broker} & set(replicas)))
            for leader, replicas, isr in self.partitions
        ]

    def restart(self, *ids):
        order = brokers.restart_order(self.folder, ids)
        brokers.restart(self.folder, order, 0.1, self.told.append)
        return self.order


HEALTHY = (0, [0, 1, 2], [0, 1, 2])


def test_the_controller_is_restarted_last_and_one_that_lags_first(monkeypatch, tmp_path):
    assert Restarted(monkeypatch, tmp_path, [HEALTHY]).restart() == [0, 2, 3, 1]
    lagging = Restarted(monkeypatch, tmp_path, [HEALTHY, (0, [0, 1, 2], [0, 1])])
    assert lagging.restart() == [2, 0, 3, 1]
    assert Restarted(monkeypatch, tmp_path, [HEALTHY], paused=[3]).restart() == [3, 0, 2, 1]


def test_brokers_that_lag_for_different_partitions_do_not_wait_for_each_other(
    monkeypatch, tmp_path
):
    both = Restarted(monkeypatch, tmp_path, [(2, [2, 3], [2]), (0, [0, 2], [0])])
    assert both.restart(2, 3) == [3, 2]


def test_those_that_are_paused_or_lag_do_not_wait_for_those_that_are_restarted(
    monkeypatch, tmp_path
):
    away = [(-1, [0, 2], [2]), (-1, [0, 1], [1]), (3, [1, 3], [3])]
    for paused, ids in (([0, 2], (0, 2)), ([0], (0, 1))):
        cluster = Restarted(monkeypatch, tmp_path, away[:2] if paused[1:] else away[2:], paused)
        back, cluster.back = cluster.back, lambda _: None
        monkeypatch.setattr(
            brokers, "_start", lambda _f, _c, those, _tell, c=cluster: c.started(those)
        )

        def all_back(those, cluster=cluster, back=back, ids=ids):
            cluster.order.append(those[0].id)
            if len(cluster.order) == len(ids):
                for broker in range(4):
                    back(broker)

        cluster.started = all_back
        assert cluster.restart(*ids) == list(ids)


def test_a_wait_is_shown_with_its_reason_and_what_to_do(monkeypatch, tmp_path):
    cluster = Restarted(monkeypatch, tmp_path, [(0, [0, 3], [0])])
    with pytest.raises(OttlaError) as error:
        cluster.restart(0)
    reason = "1 partition (such as t-0) lacks replicas in sync: broker 3 (1)"
    assert cluster.wait.text == reason
    assert str(error.value) == (
        f"not in sync after 0.1 s: {reason}; `ottla broker restart 0` goes on; if broker 0 is why, "
        "`ottla broker stop 0` and `ottla broker start 0` do not wait"
    )
    assert cluster.order == []
