"""Eligible replicas and brokers' statements in ZooKeeper (adr/0007), in memory and real."""

import pytest
from msgspec.structs import replace

from ottla.model.cluster import BrokerInfo, Eligible, Endpoint
from ottla.model.errors import ControllerMovedError
from ottla.model.ids import TopicPartition
from ottla.zookeeper.eligible import MinIsr
from ottla.zookeeper.operations import Set
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
        await store.create_top_level_paths()
        epoch = await store.register_broker(broker(), logs_whole=True)
        known = replace(broker(), epoch=epoch)
        assert await store.get_clean_brokers([known, broker(2)]) == {1}
        assert await store.stated(known)
        await old.close()
        store = Store(session)
        assert await store.get_clean_brokers([known]) == {1}
        again = replace(broker(), epoch=await store.register_broker(broker()))  # as a JVM broker
        assert await store.get_clean_brokers([again]) == set()
        assert not await store.stated(again)
        await store.write(Set("/ottla/brokers/1", b"junk"))
        stat = await session.exists("/ottla/brokers/1")
        assert await store.get_clean_brokers([replace(broker(), epoch=stat.mzxid)]) == set()
        epoch = await store.register_broker(broker(2), logs_whole=True)
        await store.withdraw_statement(2)  # it is about to end, and still one of ours
        ending = replace(broker(2), epoch=epoch)
        assert await store.get_clean_brokers([ending]) == set()
        assert await store.stated(ending)

    play(scenario)


def test_records_are_fenced_read_back_and_deleted(play):
    async def scenario(z):
        session = await z.session()
        malformed = []
        store = Store(session, on_malformed=lambda e: malformed.append(e.path))
        await store.create_top_level_paths()
        fence = (await store.register_controller_and_increment_controller_epoch(1))[1]
        other = TopicPartition("t", 1)
        written = await store.set_eligible({TP: RECORD, other: RECORD}, fence)
        stat = await session.exists("/ottla/eligible/t/0")
        assert written[TP] == replace(RECORD, zxid=stat.mzxid, written_ms=stat.mtime)
        with pytest.raises(ControllerMovedError):
            await store.set_eligible({TP: RECORD}, fence + 1)
        assert await store.get_eligible({"t": ID}) == written
        assert await store.get_eligible({"t": b"another topic id"}) == {}
        assert await store.get_eligible({}) == {}
        await store.write(Set("/ottla/eligible/t/1", b'{"version":1}'))
        assert await store.get_eligible({"t": ID}) == {TP: written[TP]}
        assert malformed == ["/ottla/eligible/t/1"]
        await store.delete_eligible([TP, TopicPartition("t", 9)], fence)
        assert await store.get_eligible({"t": ID}) == {}
        assert await store.get_eligible_topics() == ["t"]
        await store.delete_eligible_of_topic("t", fence)
        assert await store.get_eligible_topics() == []

    play(scenario)


def test_a_topics_own_min_isr_and_when_it_was_set(play):
    async def scenario(z):
        session = await z.session()
        store = Store(session)
        await store.create_top_level_paths()
        await store.create_recursive("/config/topics/t", b'{"version":1,"config":{}}')
        stat = await session.set(
            "/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}'
        )
        found = await store.get_min_isr(["t", "u"])
        assert found == {"t": MinIsr(2, stat.mzxid, stat.mtime, 1), "u": MinIsr()}

    play(scenario)
