"""Registrations removed since the process is gone (R17, adr/0018), in memory and real."""

import pytest
from msgspec.structs import replace

from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.errors import ControllerMovedError
from ottla.zookeeper.operations import Set
from ottla.zookeeper.removals import OTHER_ENDPOINTS
from ottla.zookeeper.store import Store
from ottla.zookeeper.znodes import broker_path

WHY = "connection refused at PLAINTEXT://h:9092"


def broker(broker_id=2):
    return BrokerInfo(broker_id, (Endpoint("h", 9092),))


async def registered(store, broker_id=2, **stated):
    """Register a broker; return its registration."""
    info = broker(broker_id)
    return replace(info, epoch=await store.brokers.register(info, **stated))


async def setting(z):
    """Return the controller's store, its fence, and the store of another broker."""
    store, other = Store(await z.session()), Store(await z.session())
    await store.cluster.create_top_level_paths()
    fence = (await store.election.elect(1))[1]
    return store, fence, other


def test_a_registration_is_removed_and_the_reason_is_kept_until_the_next(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is None
        assert await store.brokers.get(2) is None
        (removal,) = (await store.removals.get_all()).values()
        assert (removal.broker_epoch, removal.by, removal.evidence) == (known.epoch, 1, WHY)
        assert await other.removals.get(2) == removal
        assert await other.removals.get(3) is None
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is None, (
            "a lost reply"
        )
        assert await store.fenced(fence).removals.remove_registration(known, "other", 1) is not None
        again = await registered(other, logs_whole=True)
        assert again.epoch > known.epoch
        assert await store.removals.get_all() == {}
        assert await store.brokers.get_stated([again]) == ({2}, {2})

    play(scenario)


def test_only_the_registration_that_was_asked_about_is_removed(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        await other.session.delete(broker_path(2))
        again = await registered(other, logs_whole=True, removable=True)
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is not None
        assert await store.brokers.get(2) == again

    play(scenario)


def test_one_that_registers_while_it_is_removed_stays(play, monkeypatch):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        removals = store.fenced(fence).removals
        read = removals._read

        async def registers_meanwhile(broker_id):
            found = await read(broker_id)
            await other.session.delete(broker_path(2))
            await registered(other, logs_whole=True, removable=True)
            return found

        monkeypatch.setattr(removals, "_read", registers_meanwhile)
        assert await removals.remove_registration(known, WHY, 1) is not None
        present = await store.brokers.get(2)
        assert present is not None
        assert present.epoch > known.epoch

    play(scenario)


def test_without_its_consent_a_broker_is_not_removed(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        for stated in ({"logs_whole": True}, {"logs_whole": True, "removable": True}):
            known = await registered(other, **stated)
            if "removable" in stated:
                await other.removals.withdraw_statement(2)  # it shuts down
            assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is not None
            assert await store.fenced(fence).removals.remove_registration(
                known, WHY, 1, any_broker=True
            )
            assert await store.brokers.get(2) == known
            await other.session.delete(broker_path(2))

    play(scenario)


def test_a_statement_is_withdrawn_only_by_the_session_that_registered(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        # another process that was given this id by mistake
        await store.removals.withdraw_statement(2)
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is None

    play(scenario)


def test_a_jvm_broker_is_removed_only_where_any_broker_is(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other)
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is not None
        assert await store.brokers.get(2) == known
        assert (
            await store.fenced(fence).removals.remove_registration(known, WHY, 1, any_broker=True)
            is None
        )
        assert await store.brokers.get(2) is None

    play(scenario)


def test_listeners_that_were_changed_meanwhile_are_not_those_that_refused(play):
    """A JVM broker can change them while it runs: its znode has new data, the old czxid."""

    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other)
        moved = replace(known, endpoints=(Endpoint("h", 9093),))
        await other.brokers.update(moved)
        problem = await store.fenced(fence).removals.remove_registration(
            known, WHY, 1, any_broker=True
        )
        assert problem == OTHER_ENDPOINTS
        await store.zk.write(Set(broker_path(2), b"no registration"))
        problem = await store.fenced(fence).removals.remove_registration(
            moved, WHY, 1, any_broker=True
        )
        assert problem == OTHER_ENDPOINTS, "what cannot be read cannot be compared"
        await other.brokers.update(moved)
        assert (
            await store.fenced(fence).removals.remove_registration(moved, WHY, 1, any_broker=True)
            is None
        )

    play(scenario)


def test_r10_a_former_controller_removes_nobody(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        await store.election.resign()
        await other.election.elect(3)
        with pytest.raises(ControllerMovedError):
            await store.fenced(fence).removals.remove_registration(known, WHY, 1)
        assert await store.brokers.get(2) == known
        assert await store.removals.get_all() == {}

    play(scenario)


def test_a_controller_is_removed_with_its_registration(play):
    async def scenario(z):
        store, _, other = await setting(z)
        known = await registered(store, 1, logs_whole=True, removable=True)
        assert await other.removals.remove_controller(known, WHY, 3) is None
        assert await other.brokers.get(1) is None
        assert await other.election.get_controller_id() is None
        assert (await other.removals.get_all())[1].by == 3
        epoch, _ = await other.election.elect(3)
        assert epoch == 2

    play(scenario)


def test_a_controller_that_is_another_by_now_stays(play):
    async def scenario(z):
        store, _, other = await setting(z)
        known = await registered(other, 2, logs_whole=True, removable=True)
        assert await other.removals.remove_controller(known, WHY, 3) is not None, (
            "1 holds /controller"
        )
        assert await other.election.get_controller_id() == 1
        assert await other.brokers.get(2) == known
        old = await registered(store, 1, logs_whole=True, removable=True)
        await store.election.resign()
        assert await other.removals.remove_controller(old, WHY, 3) is not None
        assert await other.brokers.get(1) == old

    play(scenario)


def test_a_lost_reply_is_told_from_a_lost_request(play):
    async def scenario(z):
        store, fence, other = await setting(z)
        known = await registered(other, logs_whole=True, removable=True)
        lost = z.network.lose_reply_to(b"/brokers/ids/2", b"removal")
        assert await store.fenced(fence).removals.remove_registration(known, WHY, 1) is None
        assert lost()
        assert await store.brokers.get(2) is None

    play(scenario)
