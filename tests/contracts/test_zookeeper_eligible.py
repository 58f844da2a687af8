"""Eligible replicas and brokers' statements in ZooKeeper (adr/0007), in memory and real."""

import pytest
from msgspec.structs import replace

from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
)
from ottla.model.errors import ControllerMovedError
from ottla.model.ids import TopicPartition
from ottla.zookeeper.eligible import encode_eligible
from ottla.zookeeper.operations import Delete, Set
from ottla.zookeeper.store import Store

ID = bytes(range(16))
TP = TopicPartition("t", 0)
RECORD = Eligible(ID, 7, 2, ((2, 40), (3, -1)))


def broker(broker_id=1):
    return BrokerInfo(broker_id, (Endpoint("h", 9092),))


def test_a_statement_counts_for_the_registration_it_was_made_with(play):
    async def scenario(z):
        old, session = await z.session(), await z.session()
        store = Store(old)
        await store.cluster.create_top_level_paths()
        epoch = await store.brokers.register(broker(), logs_whole=True)
        known = replace(broker(), epoch=epoch)
        assert await store.brokers.get_stated([known, broker(2)]) == ({1}, {1})
        assert await store.brokers.is_stated(known)
        await old.close()
        store = Store(session)
        assert await store.brokers.get_stated([known]) == ({1}, {1})
        again = replace(broker(), epoch=await store.brokers.register(broker()))  # as a JVM broker
        assert await store.brokers.get_stated([again]) == (set(), set())
        assert not await store.brokers.is_stated(again)
        await store.zk.write(Set("/ottla/brokers/1", b"junk"))
        stat = await session.exists("/ottla/brokers/1")
        assert await store.brokers.get_stated([replace(broker(), epoch=stat.mzxid)]) == (
            set(),
            set(),
        )
        epoch = await store.brokers.register(broker(2), logs_whole=True)
        await store.removals.withdraw_statement(2)  # it is about to end, and still one of ours
        ending = replace(broker(2), epoch=epoch)
        assert await store.brokers.get_stated([ending]) == (set(), set())
        assert await store.brokers.is_stated(ending)

    play(scenario)


def test_records_are_fenced_read_back_and_deleted(play):
    async def scenario(z):
        session = await z.session()
        malformed = []
        store = Store(session, on_malformed=lambda e: malformed.append(e.path))
        await store.cluster.create_top_level_paths()
        fence = (await store.election.elect(1))[1]
        other = TopicPartition("t", 1)
        written = await store.fenced(fence).eligible.set({TP: RECORD, other: RECORD})
        stat = await session.exists("/ottla/eligible/t/0")
        assert written[TP] == replace(RECORD, znode_version=stat.version)
        with pytest.raises(ControllerMovedError):
            await store.fenced(fence + 1).eligible.set({TP: RECORD})
        assert await store.eligible.get({"t": ID}) == written
        assert await store.eligible.get({"t": b"another topic id"}) == {}
        assert await store.eligible.get({}) == {}
        await store.zk.write(Set("/ottla/eligible/t/1", b'{"version":1}'))
        assert await store.eligible.get({"t": ID}) == {TP: written[TP]}
        assert malformed == ["/ottla/eligible/t/1"]
        await store.fenced(fence).eligible.delete([TP, TopicPartition("t", 9)])
        assert await store.eligible.get({"t": ID}) == {}
        assert await store.eligible.get_topics() == ["t"]
        await store.fenced(fence).eligible.delete_topic("t")
        assert await store.eligible.get_topics() == []

    play(scenario)


def test_a_record_is_derived_only_from_one_that_still_stands(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.cluster.create_top_level_paths()
        fence = (await store.election.elect(1))[1]
        first = (await store.fenced(fence).eligible.set({TP: RECORD}))[TP]
        assert await store.eligible.get_standing({TP: first}) == {TP}
        second = (await store.fenced(fence).eligible.set({TP: replace(first, partition_epoch=8)}))[
            TP
        ]
        assert await store.eligible.get_standing({TP: first}) == set()
        assert await store.fenced(fence).eligible.set({TP: first}) == {}
        await store.zk.write(Delete("/ottla/eligible/t/0"))
        assert await store.eligible.get_standing({TP: second}) == set()
        assert await store.fenced(fence).eligible.set({TP: second}) == {}
        assert await store.eligible.get({"t": ID}) == {}, "nor is it created again"
        assert TP in await store.fenced(fence).eligible.set({TP: RECORD}), "one of its own"
        await store.zk.write(
            Set("/ottla/eligible/t/0", encode_eligible(RECORD).replace(b":2,", b":1,", 1))
        )
        assert await store.eligible.get({"t": ID}) == {}, "an earlier format"

    play(scenario)


def test_an_election_by_a_record_fails_once_the_record_has_changed(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.cluster.create_top_level_paths()
        fence = (await store.election.elect(1))[1]
        await store.zk.create_recursive("/brokers/topics/t/partitions", b"")
        partitions = [TopicPartition("t", number) for number in range(4)]
        leaderless = LeaderAndIsr(-1, 3, (1,), 0)
        state = LeaderIsrAndControllerEpoch(leaderless, 1)
        await store.fenced(fence).states.create(dict.fromkeys(partitions, state))
        records = await store.fenced(fence).eligible.set(dict.fromkeys(partitions, RECORD))
        await store.zk.write(Delete("/ottla/eligible/t/1"))
        await store.fenced(fence).eligible.set({partitions[2]: records[partitions[2]]})
        elected = LeaderAndIsr(2, 4, (2,), 0)
        versions = {tp: record.znode_version for tp, record in records.items()}
        del versions[partitions[3]]  # its leader is in the ISR
        found = await store.fenced(fence).states.update(
            dict.fromkeys(partitions, elected), 1, None, versions
        )
        assert found.retry == partitions[1:3]
        assert found.finished == {
            tp: replace(elected, partition_epoch=1) for tp in (partitions[0], partitions[3])
        }

    play(scenario)


def test_a_leader_voids_records_that_name_a_replica_outside_its_isr(play):
    async def scenario(z):
        store, leaders = Store(await z.session()), Store(await z.session())
        await store.cluster.create_top_level_paths()
        fence = (await store.election.elect(1))[1]
        await store.zk.create_recursive("/brokers/topics/t/partitions", b"")
        one, two, three, four = (TopicPartition("t", number) for number in range(4))
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 3, (1,), 0), 1)
        await store.fenced(fence).states.create(dict.fromkeys((one, two, three), state))
        never = TopicPartition("never", 0)
        assert await leaders.eligible.void({never: (frozenset({1}), 5), one: (frozenset({1}), 0)})
        records = await store.fenced(fence).eligible.set(dict.fromkeys((one, two, four), RECORD))
        await store.zk.write(Set("/ottla/eligible/t/1", b"junk"))
        proven = await leaders.eligible.void(
            {
                never: (frozenset({1}), 5),
                one: (frozenset({1, 2}), 0),  # 3 is outside
                two: (frozenset({1}), 0),  # cannot be read, and stays for an operator (F41)
                three: (frozenset({1}), 1),  # a later state: its leader is to hear of another
                four: (frozenset({1, 2, 3}), 0),  # none is outside, but there is no such state
            }
        )
        assert proven == {never, one, two}
        assert await store.eligible.get_standing(records) == {four}
        assert await leaders.zk.path_exists("/ottla/eligible/t/1")

    play(scenario)


def test_min_isr_of_topics(play):
    async def scenario(z):
        session = await z.session()
        store = Store(session)
        await store.cluster.create_top_level_paths()
        for name, data in (
            ("t", b'{"version":1,"config":{"min.insync.replicas":"2"}}'),
            ("none", b'{"version":1,"config":{}}'),
            ("text", b'{"version":1,"config":{"min.insync.replicas":"x"}}'),
            ("junk", b"junk"),
        ):
            await store.zk.create_recursive(f"/config/topics/{name}", data)
        found = await store.configs.get_min_isr(["t", "none", "text", "junk", "absent"], 3)
        assert found == {"t": 2, "none": 3, "text": 3, "junk": 3, "absent": 3}

    play(scenario)
