"""Writes under random faults: what the store says was done is what was done, and done once."""

import asyncio
import random

import pytest

from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicInfo
from ottla.model.ids import TopicPartition
from ottla.zookeeper import jute, znodes
from ottla.zookeeper.errors import NodeExistsError, ZooKeeperError
from ottla.zookeeper.store import Store

TPS = [TopicPartition("t", p) for p in range(12)]


async def trouble(z, rng: random.Random) -> None:
    """Lose a request or a reply of the next write, or cut everybody, again and again."""
    while True:
        await asyncio.sleep(rng.random() * 0.05)
        fault = rng.randrange(3)
        if fault == 0:
            z.server.lose_request(lambda op, _path: op in (jute.MULTI, jute.CREATE2))
        elif fault == 1:
            z.server.lose_reply(lambda op, _path: op in (jute.MULTI, jute.CREATE2))
        else:
            for session_id in sorted(z.server.sessions):
                z.server.disconnect(session_id)


@pytest.mark.parametrize("seed", range(4))
def test_each_swap_reported_is_one_version(still, seed):
    async def scenario(z):
        rng = random.Random(seed)
        stores = [Store(await z.session()) for _ in range(3)]
        await stores[0].session.create("/cas", b"")
        bad = asyncio.ensure_future(trouble(z, rng))
        won = []

        async def client(number: int, store: Store) -> None:
            for turn in range(60):
                _, version = await store.zk.get_data_and_version("/cas")
                data = f"{number}-{turn}".encode()
                done, new_version = await store.zk.conditional_update("/cas", data, version)
                if done:
                    won.append((new_version, data))

        await asyncio.gather(*(client(i, s) for i, s in enumerate(stores)))
        bad.cancel()
        sets = [(w.version, w.data) for w in z.server.writes if w.path == "/cas" and w.op == "set"]
        assert set(won) <= set(sets)
        assert len(won) == len(set(won)) >= 50
        # A write whose reply was lost and that another replaced before we looked counts as not
        # done: the client cannot know, and producer ids or partition states are then decided again.
        for version, _ in sorted(set(sets) - set(won)):
            assert version + 1 in dict(sets)

    still(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_partition_states_move_once_per_decision(still, seed):
    async def scenario(z):
        rng = random.Random(seed)
        store = Store(await z.session())
        leader = Store(await z.session())
        await store.cluster.create_top_level_paths()
        epoch, fence = await store.election.elect(1)
        await store.topics.create(TopicInfo("t", bytes(16), {}))
        bad = asyncio.ensure_future(trouble(z, rng))
        first = LeaderIsrAndControllerEpoch(LeaderAndIsr(0, 0, (0, 1)), epoch)
        made = await store.fenced(fence).states.create(dict.fromkeys(TPS, first))
        assert made == dict.fromkeys(TPS)
        moved = dict.fromkeys(TPS, 0)
        for _ in range(25):
            states = await store.states.get(TPS)
            for tp in rng.sample(TPS, rng.randrange(4)):  # their leader shrinks the ISR meanwhile
                found = states[tp].leader_and_isr
                data = znodes.encode_state(found, epoch)
                await leader.zk.conditional_update(
                    znodes.state_path(tp), data + b" ", found.partition_epoch
                )
            wanted = {
                tp: s.leader_and_isr.with_leader(rng.randrange(5), (1,)) for tp, s in states.items()
            }
            result = await store.fenced(fence).states.update(wanted, epoch)
            assert sorted([*result.finished, *result.retry]) == TPS
            for tp, state in result.finished.items():
                assert not isinstance(state, ZooKeeperError)
                assert state.partition_epoch == states[tp].leader_and_isr.partition_epoch + 1
                moved[tp] += 1
        bad.cancel()
        final = await store.states.get(TPS)
        assert {tp: s.leader_and_isr.leader_epoch for tp, s in final.items()} == moved

    still(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_topics_are_created_by_one(still, seed):
    async def scenario(z):
        rng = random.Random(seed)
        stores = [Store(await z.session()) for _ in range(2)]
        await stores[0].cluster.create_top_level_paths()
        bad = asyncio.ensure_future(trouble(z, rng))
        winners = {}

        async def client(number: int, store: Store) -> None:
            for turn in range(30):
                info = TopicInfo(f"t{turn}", bytes([number + 1, turn]) * 8, {})
                try:
                    await store.topics.create(info)
                except NodeExistsError:
                    continue
                assert turn not in winners
                winners[turn] = info

        await asyncio.gather(*(client(i, s) for i, s in enumerate(stores)))
        bad.cancel()
        found = await stores[0].topics.get_many([f"t{turn}" for turn in range(30)])
        assert list(found.values()) == [winners[turn] for turn in range(30)]

    still(scenario)
