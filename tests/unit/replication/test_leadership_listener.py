"""Listeners are called when this broker begins and ceases to lead, whatever the reason."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)


def listen(node):
    heard = []
    node.replicas.on_leadership = lambda gained, lost: heard.append(
        (
            [(p.tp.partition, p.state.leader_epoch) for p in gained],
            [(p.tp.partition, p.state.leader_epoch) for p in lost],
        )
    )
    return heard


@pytest.mark.timeout(30)
def test_led_then_followed(wired):
    async def scenario(c):
        heard = listen(c[1])
        await c.controller.lead(1, replicas=[1, 2], new=True)
        assert heard == [([(0, 0)], [])]
        await c.controller.lead(1)
        assert heard == [([(0, 0)], [])], "it led before"
        await c.controller.lead(2)
        assert heard[1:] == [([], [(0, 2)])]

    wired(scenario, brokers=2)


@pytest.mark.timeout(30)
def test_stop_replica_reports_the_deleted_partitions(wired):
    """A reassignment moved the partition away: no LeaderAndIsr would ever say so."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        heard = listen(c[1])
        await c.controller.stop_replica(1, delete=False)
        await c.controller.stop_replica(1, delete=True, leader_epoch=-2)
        assert heard == [([], [(0, 0)])]
        await c.controller.stop_replica(1, delete=True)
        assert len(heard) == 1, "nothing was led any more"

    wired(scenario, brokers=2)


@pytest.mark.timeout(30)
def test_a_broken_disk_is_reported_after_the_append(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        heard = listen(c[1])
        within = []
        offline = c[1].replicas.take_offline

        def take_offline(partition):
            offline(partition)
            within.append(list(heard))

        c[1].replicas.take_offline = take_offline
        c[1].disk.fail("/", ["write"])
        answer = await c.produce(1, "a", acks=1)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert within == [[]], "not in the midst of the append"
        assert heard == [([], [(0, 0)])]

    wired(scenario, brokers=2)
