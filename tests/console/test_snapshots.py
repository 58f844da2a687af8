"""Snapshots for what-if: kept while the cluster looks the same, taken anew where it does not."""

import asyncio

import pytest

from ottla.admin.top import changes
from ottla.client import cluster_snapshot
from ottla.console import snapshots
from ottla.console.snapshots import Snapshots
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.placement.snapshot_file import Broker, Partition, Snapshot, Topic

TP = TopicPartition("t", 0)


def cluster(leader=1, leader_epoch=5, isr=(1, 2), brokers=(1, 2)):
    partition = Partition([1, 2], leader, leader_epoch, list(isr))
    return Snapshot("c", 1, True, [Broker(b) for b in brokers], {"t": Topic([partition])})


def look_at(snapshot, **other):
    partition = snapshot.topics["t"].partitions[0]
    seen = changes.Partition(
        partition.leader, partition.leader_epoch, tuple(partition.replicas), tuple(partition.isr), 7
    )
    brokers = {b.id: changes.Broker("x:1", None) for b in reversed(snapshot.brokers)}
    look = changes.Look(0.0, "", "c", snapshot.controller, brokers, {TP: seen}, {})
    return look._replace(**other)


@pytest.fixture
def taken(monkeypatch):
    """Let the cluster be what is put into `now`; count what is taken."""
    found = {"now": cluster(), "count": 0}

    async def take(_client):
        await asyncio.sleep(0)
        found["count"] += 1
        if isinstance(found["now"], Exception):
            raise found["now"]
        return found["now"]

    monkeypatch.setattr(cluster_snapshot, "take", take)
    return found


def test_one_is_kept_while_the_cluster_looks_the_same(taken):
    async def main():
        kept = Snapshots(None)
        look = look_at(cluster())
        both = await asyncio.gather(kept.get(look), kept.get(look))
        assert (await kept.get(look)).snapshot is both[0].snapshot is both[1].snapshot
        assert taken["count"] == 1

    asyncio.run(main())


SAME = look_at(cluster())
ONE_MORE = {**SAME.partitions, TopicPartition("t", 1): SAME.partitions[TP]}


@pytest.mark.parametrize(
    "other",
    [
        look_at(cluster(leader=2)),
        look_at(cluster(leader_epoch=6)),
        look_at(cluster(isr=(1,))),
        look_at(cluster(brokers=(1, 2, 3))),
        SAME._replace(controller=2),
        SAME._replace(problem="no response"),
        SAME._replace(partitions={}),
        SAME._replace(partitions=ONE_MORE),
    ],
)
def test_another_one_is_taken_where_the_cluster_looks_otherwise(taken, other):
    async def main():
        kept = Snapshots(None)
        await kept.get(SAME)
        taken["now"] = cluster(leader=2)
        assert (await kept.get(other)).snapshot.topics["t"].partitions[0].leader == 2
        assert taken["count"] == 2

    asyncio.run(main())


def test_none_is_kept_for_long(taken, monkeypatch):
    async def main():
        kept = Snapshots(None)
        await kept.get(SAME)
        monkeypatch.setattr(snapshots, "KEPT_S", -1.0)
        await kept.get(SAME)
        assert taken["count"] == 2

    asyncio.run(main())


def test_what_was_prepared_is_there_and_a_failure_is_told_to_whoever_asks(taken):
    async def main():
        kept = Snapshots(None)
        kept.prepare(SAME)
        await asyncio.sleep(0.01)
        await kept.get(SAME)
        assert taken["count"] == 1
        taken["now"] = OttlaError("gone")
        other = look_at(cluster(leader=2))
        kept.prepare(other)
        await asyncio.sleep(0.01)
        assert taken["count"] == 2
        with pytest.raises(OttlaError, match="gone"):
            await kept.get(other)
        await kept.stop()

    asyncio.run(main())
