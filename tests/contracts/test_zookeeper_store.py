"""The store's promises, on the in-memory ZooKeeper and on a real ZooKeeper."""

import asyncio

import pytest

from ottla.model.cluster import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.errors import ControllerMovedError, IneligibleReplicaError
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from ottla.zookeeper.operations import Create
from ottla.zookeeper.store import Store

ID = bytes(range(16))


def broker(broker_id: int = 1, port: int = 9092) -> BrokerInfo:
    return BrokerInfo(broker_id, (Endpoint("h", port),))


def topic(name: str = "t", partitions: int = 3) -> TopicInfo:
    return TopicInfo(name, ID, {p: ReplicaAssignment((1, 2)) for p in range(partitions)})


def partitions(count: int, name: str = "t") -> list[TopicPartition]:
    return [TopicPartition(name, p) for p in range(count)]


async def elected(store: Store, broker_id: int = 1) -> int:
    return (await store.election.elect(broker_id))[1]


async def with_topic(store: Store, count: int) -> tuple[int, list[TopicPartition]]:
    """Return the fence and the partitions of a fresh topic with states."""
    await store.cluster.create_top_level_paths()
    fence = await elected(store)
    await store.topics.create(topic(partitions=count))
    tps = partitions(count)
    first = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), 1)
    made = await store.fenced(fence).states.create(dict.fromkeys(tps, first))
    assert set(made.values()) == {None}
    return fence, tps


def test_a_broker_starts_on_an_empty_zookeeper(play):
    async def scenario(z):
        store = Store(await z.session())
        assert await store.cluster.get_id() is None
        await store.cluster.create_top_level_paths()
        await store.cluster.create_top_level_paths()
        for path in znodes.PERSISTENT_PATHS:
            assert await store.zk.path_exists(path)
        assert await store.cluster.create_or_get_id("first") == "first"
        assert await store.cluster.create_or_get_id("second") == "first"
        assert await store.cluster.generate_broker_sequence_id() == 1
        assert await store.cluster.generate_broker_sequence_id() == 2

    play(scenario)


def test_top_level_paths_take_one_round_trip(play):
    """All are asked for before the first reply comes, on an empty tree and on part of one."""

    async def scenario(z):
        session = await z.session()
        unanswered = []
        most = []
        send = session.multi

        def multi(ops):
            unanswered.append(send(ops))
            most.append(sum(not reply.done() for reply in unanswered))
            return unanswered[-1]

        session.multi = multi
        store = Store(session)
        paths = znodes.with_parents(znodes.PERSISTENT_PATHS)
        for _ in range(2):
            await store.cluster.create_top_level_paths()
            assert max(most) == len(most) == len(unanswered) == len(paths)
            assert await store.session.children("/config") == [*sorted(kinds)]
            await store.zk.delete_recursive("/config")
            unanswered.clear()
            most.clear()

    kinds = ("changes", *znodes.CONFIG_TYPES)
    play(scenario)


def test_a_top_level_path_that_cannot_be_created_is_an_error(play):
    async def scenario(z):
        elsewhere = await z.session(connect_string=f"{z.connect_string}/not-there")
        with pytest.raises(NoNodeError):
            await Store(elsewhere).cluster.create_top_level_paths()
        session = await z.session()
        await session.create("/brokers", b"", ephemeral=True)  # it cannot have children
        with pytest.raises(NoChildrenForEphemeralsError):
            await Store(session).cluster.create_top_level_paths()

    play(scenario)


def test_top_level_paths_are_created_though_a_reply_is_lost(play):
    async def scenario(z):
        session = await z.session()
        z.network.swallows = True
        await Store(session).cluster.create_top_level_paths()
        assert not z.network.swallows
        for path in znodes.PERSISTENT_PATHS:
            assert await session.exists(path) is not None

    play(scenario)


def test_registration_gives_the_broker_epoch(play):
    async def scenario(z):
        session = await z.session()
        store = Store(session)
        await store.cluster.create_top_level_paths()
        epoch = await store.brokers.register(broker())
        stat = await session.exists("/brokers/ids/1")
        assert (stat.czxid, stat.ephemeral_owner) == (epoch, session.session_id)
        assert stat.version == 1  # as the JVM: created, then set
        assert await store.brokers.register(broker(port=9093)) == epoch
        (found,) = await store.brokers.get_all()
        assert found == BrokerInfo(1, (Endpoint("h", 9093),), epoch=epoch)
        await session.create("/brokers/ids/x", b"{}")
        await session.create("/brokers/ids/3", b"junk")
        malformed = []
        store = Store(session, on_malformed=lambda e: malformed.append(e.path))
        assert [b.id for b in await store.brokers.get_all()] == [1]
        assert malformed == ["/brokers/ids/x", "/brokers/ids/3"]
        assert await store.brokers.get(3) is None
        await store.session.delete(znodes.broker_path(1))
        assert await store.brokers.get_ids() == [3]

    play(scenario)


def test_a_lost_reply_does_not_register_twice(play):
    """KAFKA-14845: the znode is ours though we never heard so."""

    async def scenario(z):
        session = await z.session()
        store = Store(session)
        await store.cluster.create_top_level_paths()
        z.network.swallows = True
        epoch = await store.brokers.register(broker())
        assert not z.network.swallows
        assert (await session.exists("/brokers/ids/1")).czxid == epoch

    play(scenario)


def test_our_former_sessions_znode_is_deleted_others_are_waited_for(play):
    """R16."""

    async def scenario(z):
        old, new = await z.session(z.session_ms * 4), await z.session()
        await Store(old).cluster.create_top_level_paths()
        first = await Store(old).brokers.register(broker())
        with pytest.raises(NodeExistsError, match="another broker"):
            await Store(new).brokers.register(broker(), wait_ms=50)
        store = Store(new, previous_session_id=old.session_id)
        second = await store.brokers.register(broker())
        assert second > first
        assert (await new.exists("/brokers/ids/1")).ephemeral_owner == new.session_id

    play(scenario)


def test_what_a_killed_process_left_is_waited_for(play):
    async def scenario(z):
        store = Store(await z.session(steady=True))
        await store.cluster.create_top_level_paths()
        killed = await z.session(z.session_ms)
        first = await Store(killed).brokers.register(broker())
        z.network.refuses = True
        z.network.cut()
        assert await store.brokers.register(broker(port=9999)) > first

    play(scenario)


def test_one_broker_wins_the_election(play):
    async def scenario(z):
        one, two = Store(await z.session()), Store(await z.session())
        assert await one.election.get_epoch() is None
        assert await one.election.elect(1) == (1, 1)
        with pytest.raises(ControllerMovedError, match="broker 2 lost"):
            await two.election.elect(2)
        assert await two.election.get_controller_id() == 1
        assert await two.election.get_epoch() == (1, 1)
        await one.session.close()
        assert await two.election.elect(2) == (2, 2)
        await two.fenced(2).election.resign()
        assert await two.election.get_controller_id() is None

    play(scenario)


def test_an_election_won_with_a_lost_reply_is_known_as_won(play):
    async def scenario(z):
        session = await z.session()
        store = Store(session)
        await session.create("/controller_epoch", b"4")
        asked = z.network.lose_reply_to(b"/controller_epoch", b'{"version":2')
        assert await store.election.elect(1) == (5, 1)
        assert asked()
        assert (await session.exists("/controller")).ephemeral_owner == session.session_id

    play(scenario)


def test_an_old_controller_writes_nothing(play):
    """R10, fault F8."""

    async def scenario(z):
        old, new = Store(await z.session()), Store(await z.session())
        fence, tps = await with_topic(old, 3)
        before = await old.states.get(tps)
        await old.fenced(fence).election.resign()
        await elected(new, 2)
        stale = LeaderAndIsr(2, 1, (2,))
        more = {TopicPartition("t", 9): LeaderIsrAndControllerEpoch(stale, 1)}
        deposed = old.fenced(fence)
        features = znodes.Features(enabled=True, levels={})
        for write in (
            lambda: deposed.states.update(dict.fromkeys(tps, stale), 1),
            lambda: deposed.states.create(more),
            lambda: deposed.topics.set(topic(partitions=9)),
            lambda: deposed.topics.delete("t"),
            lambda: deposed.topics.delete_deletions(["t"]),
            lambda: deposed.configs.delete_topics(["t"]),
            lambda: deposed.cluster.get_or_create_features(features),
            lambda: deposed.cluster.allocate_producer_ids(1),
            deposed.election.resign,
            deposed.admin_requests.delete_reassignment,
            deposed.admin_requests.delete_preferred_election,
            lambda: deposed.admin_requests.set_reassignment({}),
        ):
            with pytest.raises(ControllerMovedError):
                await write()
        assert await old.states.get(tps) == before
        assert (await old.topics.get_many(["t"]))["t"] == topic()
        assert await new.election.get_controller_id() == 2

    play(scenario)


def test_one_bad_version_spoils_only_itself(play):
    async def scenario(z):
        store = Store(await z.session())
        fence, tps = await with_topic(store, 40)
        for p in (3, 7, 21):  # their leaders were quicker
            await store.session.set(znodes.state_path(tps[p]), b"{}")
        await store.session.delete(znodes.state_path(tps[30]))
        wanted = {tp: LeaderAndIsr(2, 1, (2,)) for tp in tps}
        result = await store.fenced(fence).states.update(wanted, 1)
        assert result.retry == [tps[p] for p in (3, 7, 21)]
        assert isinstance(result.finished.pop(tps[30]), NoNodeError)
        assert len(result.finished) == 36
        assert set(result.finished.values()) == {LeaderAndIsr(2, 1, (2,), 1)}
        states = await store.states.get(tps)
        assert len(states) == 36  # three are malformed now, one is gone
        again = await store.fenced(fence).states.update(result.finished, 1)
        assert {s.partition_epoch for s in again.finished.values()} == {2}

    play(scenario)


@pytest.mark.parametrize("of_ours", [True, False])
@pytest.mark.parametrize("meanwhile", ["nothing", "gone", "anew", "anew at the write"])
def test_r18_who_registers_anew_is_not_let_in_by_what_was_asked_before(play, of_ours, meanwhile):
    """Found by the simulator (seed 31000377): the controller hears of a registration later."""

    async def scenario(z):
        store = Store(await z.session())
        fence, tps = await with_topic(store, 3)
        fenced, owner = store.fenced(fence), Store(await z.session())
        zk = fenced.zk
        epoch = await owner.brokers.register(broker(), logs_whole=True if of_ours else None)

        async def again():
            await owner.session.delete(znodes.broker_path(1))
            if meanwhile != "gone":
                await owner.brokers.register(broker(), logs_whole=True if of_ours else None)

        if meanwhile in ("gone", "anew"):
            await again()
        elif meanwhile == "anew at the write":
            read = zk.get_many

            async def read_then_moved(paths):
                found = await read(paths)
                if paths == ["/ottla/brokers/1"]:
                    await again()
                return found

            zk.get_many = read_then_moved
        wanted = {tp: LeaderAndIsr(2, 1, (2, 1)) for tp in tps}
        newcomers = {tp: {1: epoch} for tp in tps[:2]}
        result = await fenced.states.update(wanted, 1, newcomers)
        assert result.retry == []
        assert isinstance(result.finished[tps[2]], LeaderAndIsr), "nobody is let in there"
        # Of a JVM broker nothing says at the moment of the write that it registered anew.
        refused = meanwhile != "nothing" and (of_ours or meanwhile != "anew at the write")
        for tp in tps[:2]:
            assert isinstance(result.finished[tp], IneligibleReplicaError) == refused
            assert (await store.session.exists(znodes.state_path(tp))).version == (not refused)

    play(scenario)


@pytest.mark.parametrize("spoilt", [(), (2,), (0, 1, 4)])
def test_a_lost_reply_to_a_chunk_is_recognised(play, spoilt):
    async def scenario(z):
        store = Store(await z.session())
        fence, tps = await with_topic(store, 6)
        for p in spoilt:
            await store.session.set(znodes.state_path(tps[p]), b"{}")
        asked = z.network.lose_reply_to(b'"leader":2')
        wanted = {tp: LeaderAndIsr(2, 1, (2,)) for tp in tps}
        result = await store.fenced(fence).states.update(wanted, 1)
        assert asked()
        assert result.retry == [tps[p] for p in spoilt]
        assert set(result.finished.values()) == {LeaderAndIsr(2, 1, (2,), 1)}
        for tp in result.finished:  # done once, not twice
            assert (await store.session.exists(znodes.state_path(tp))).version == 1

    play(scenario)


def test_states_are_created_with_the_parents_they_lack(play):
    async def scenario(z):
        store = Store(await z.session())
        fence, _tps = await with_topic(store, 2)
        first = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1,)), 1)
        more = partitions(4) + partitions(1, "unknown")
        made = await store.fenced(fence).states.create(dict.fromkeys(more, first))
        assert [type(made[tp]) for tp in more] == [
            NodeExistsError, NodeExistsError, type(None), type(None), NoNodeError,
        ]  # fmt: skip
        assert len(await store.states.get(more)) == 4

    play(scenario)


def test_created_states_with_a_lost_reply_are_ours(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.cluster.create_top_level_paths()
        fence = await elected(store)
        await store.topics.create(topic())
        first = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1,)), 1)
        asked = z.network.lose_reply_to(b'"leader":1')
        made = await store.fenced(fence).states.create(dict.fromkeys(partitions(3), first))
        assert asked()
        assert made == dict.fromkeys(partitions(3))

    play(scenario)


def test_many_partitions_go_in_chunks(play):
    async def scenario(z):
        store = Store(await z.session())
        fence, tps = await with_topic(store, 2500)
        await store.session.set(znodes.state_path(tps[1200]), b"{}")
        wanted = {tp: LeaderAndIsr(2, 1, (2,)) for tp in tps}
        result = await store.fenced(fence).states.update(wanted, 1)
        assert (len(result.finished), result.retry) == (2499, [tps[1200]])
        await store.fenced(fence).topics.delete("t")
        assert not await store.topics.exists("t")

    play(scenario)


def test_topics_come_and_go(play):
    async def scenario(z):
        store = Store(await z.session())
        fence, _ = await with_topic(store, 3)
        with pytest.raises(NodeExistsError):
            await store.topics.create(topic(partitions=9))
        await store.session.create("/brokers/topics/bad", b"[")
        assert await store.topics.get_names() == ["bad", "t"]
        found = await store.topics.get_many(["t", "bad", "none"])
        assert found == {"t": topic(), "bad": None, "none": None}
        await store.fenced(fence).topics.set(topic(partitions=5))
        assert await store.topics.get("t") == topic(partitions=5)
        await store.topics.request_deletion("t")
        with pytest.raises(NodeExistsError):
            await store.topics.request_deletion("t")
        assert await store.topics.get_deletions() == ["t"]
        assert await store.topics.is_deletion_requested("t")
        await store.configs.set("topics", "t", {"a": "b"})
        await store.fenced(fence).topics.delete("t")
        await store.fenced(fence).configs.delete_topics(["t", "none"])
        await store.fenced(fence).topics.delete_deletions(["t", "none"])
        assert await store.topics.get_names() == ["bad"]
        assert await store.topics.get_deletions() == []
        with pytest.raises(NoNodeError):
            await store.fenced(fence).topics.set(topic())

    play(scenario)


def test_settings_need_a_controller(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.cluster.create_top_level_paths()
        with pytest.raises(ControllerMovedError, match="no controller"):
            await store.configs.set("topics", "t", {})
        await elected(store)
        assert await store.configs.get("topics", "t") == {}
        await store.configs.set("topics", "t", {})
        await store.configs.set("topics", "t", {"retention.ms": "5"})
        assert await store.configs.get("topics", "t") == {"retention.ms": "5"}
        await store.configs.set("users", "u/clients/c", {"x": "1"})
        assert (await store.session.get("/config/users/u"))[0] == b""
        assert await store.configs.get_names("users") == ["u"]
        await store.session.set("/config/topics/t", b"{nope")
        assert await store.configs.get_many("topics", ["t"]) == {"t": {}}
        name = (await store.configs.changes.notify("topics/t")).rpartition("/")[2]
        await store.session.create("/config/changes/config_change_9", b"?")
        names = await store.configs.changes.names()
        assert [(n, path) for n, path, _ in await store.configs.changes.read(names) if path] == [
            (name, "topics/t")
        ]
        await store.configs.changes.delete(names)
        assert await store.configs.changes.names() == []

    play(scenario)


def test_notifications_to_the_controller(play):
    async def scenario(z):
        store = Store(await z.session())
        fence = await elected(store)
        tps = partitions(2)
        await store.isr_changes.notify(tps)
        await store.isr_changes.notify(tps[:1])
        await store.session.create("/isr_change_notification/isr_change_x", b"?")
        names = await store.isr_changes.names()
        assert len(names) == 3
        found = [one.what for one in await store.isr_changes.read(names)]
        assert found == [tps, tps[:1], None]
        await store.fenced(fence).isr_changes.delete(names[:1])
        await store.fenced(fence).isr_changes.delete(names)
        assert await store.isr_changes.names() == []
        await store.log_dir_events.notify(3)
        names = await store.log_dir_events.names()
        assert [one.what for one in await store.log_dir_events.read(names)] == [3]
        await store.fenced(fence).log_dir_events.delete(names)
        assert await store.log_dir_events.names() == []

    play(scenario)


def test_legacy_requests(play):
    async def scenario(z):
        store = Store(await z.session())
        fence = await elected(store)
        tp = TopicPartition("t", 0)
        assert await store.admin_requests.get_reassignment() == {}
        await store.admin_requests.create_reassignment({tp: (1, 2)})
        assert await store.admin_requests.is_reassigning()
        await store.fenced(fence).admin_requests.set_reassignment({tp: (2,)})
        assert await store.admin_requests.get_reassignment() == {tp: (2,)}
        await store.session.set(znodes.REASSIGN_PARTITIONS, b"{]")
        assert await store.admin_requests.get_reassignment() == {}
        await store.fenced(fence).admin_requests.delete_reassignment()
        await store.fenced(fence).admin_requests.delete_reassignment()
        assert await store.admin_requests.get_preferred_election() == []
        await store.admin_requests.create_preferred_election([tp])
        assert await store.admin_requests.get_preferred_election() == [tp]
        await store.fenced(fence).admin_requests.delete_preferred_election()
        assert not await store.zk.path_exists(znodes.PREFERRED_REPLICA_ELECTION)

    play(scenario)


def test_producer_ids_are_given_once(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.cluster.create_top_level_paths()
        assert await store.cluster.allocate_producer_ids(1) == (1, 0, 999)
        asked = z.network.lose_reply_to(b'"block_start":"1000"')
        assert await store.cluster.allocate_producer_ids(2) == (2, 1000, 1999)
        assert asked()
        many = [store.cluster.allocate_producer_ids(i, 10) for i in range(8)]
        blocks = await asyncio.gather(*many)
        assert sorted(b.first for b in blocks) == list(range(2000, 2080, 10))

    play(scenario)


def test_features(play):
    async def scenario(z):
        store = Store(await z.session())
        seen = []
        assert await store.cluster.get_features(seen.append) is None
        ours = znodes.Features(enabled=True, levels={})
        assert await store.cluster.get_or_create_features(ours) == (ours, 0)
        assert len(seen) == 1
        other = znodes.Features(enabled=False, levels={})
        assert await store.cluster.get_or_create_features(other) == (ours, 0)
        assert await store.cluster.update_features(other, 0) == 1
        with pytest.raises(BadVersionError):
            await store.cluster.update_features(ours, 0)

    play(scenario)


def test_a_conditional_update_knows_its_own_write(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.session.create("/cas", b"0")
        asked = z.network.lose_reply_to(b"mine")
        assert await store.zk.conditional_update("/cas", b"mine", 0) == (True, 1)
        assert asked()
        assert await store.zk.conditional_update("/cas", b"mine", 0) == (False, -2)
        assert await store.zk.conditional_update("/none", b"mine", 0) == (False, -2)
        assert await store.zk.get_data_and_version("/cas") == (b"mine", 1)
        assert await store.zk.get_data_and_version("/none") == (None, -2)

    play(scenario)


def test_anothers_equal_write_after_a_lost_reply_is_not_ours(play):
    async def scenario(z):
        store, other = Store(await z.session()), await z.session(steady=True)
        await other.create("/cas", b"0")
        z.network.refuses = True
        asked = z.network.lose_reply_to(b"mine")
        update = asyncio.ensure_future(store.zk.conditional_update("/cas", b"mine", 0))
        await z.until(asked)
        await other.set("/cas", b"mine", 1)
        z.network.refuses = False
        assert await update == (False, -2)
        assert (await other.exists("/cas")).version == 2

    play(scenario)


def test_reads_wait_out_a_lost_connection(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.session.multi([Create("/r", b"x")] + [Create(f"/r/{i}") for i in range(50)])
        z.network.refuses = True
        z.network.cut()
        reads = [
            asyncio.ensure_future(store.zk.get_children("/r")),
            asyncio.ensure_future(store.zk.get_many([f"/r/{i}" for i in range(60)])),
        ]
        await asyncio.sleep(0.05)
        assert not any(r.done() for r in reads)
        z.network.refuses = False
        names, many = await asyncio.gather(*reads)
        assert len(names) == 50
        assert [m is None for m in many] == [False] * 50 + [True] * 10

    play(scenario)


def test_a_dead_session_ends_every_wait(play):
    async def scenario(z):
        store = Store(await z.session(z.session_ms))
        z.network.refuses = True
        z.network.cut()
        for call in (
            lambda: store.zk.get_children("/"),
            lambda: store.brokers.register(broker()),
            lambda: store.fenced(1).states.update({}, 1),
            lambda: store.zk.create_recursive("/a/b"),
        ):
            try:
                await call()
            except SessionExpiredError:
                continue
        assert not store.session.alive
        with pytest.raises(SessionExpiredError):
            await store.cluster.get_id()

    play(scenario)
