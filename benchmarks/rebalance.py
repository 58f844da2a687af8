"""How long a group of many members takes to become stable, at Kafka 3.9 and at us, in turn.

    python benchmarks/rebalance.py [--members 100] [--partitions 1000] [--rounds 100] [--turns 3]

One fresh broker each, in turn (Kafka, Ottla, Kafka, ...), the members as connections of one client
process; a round begins when the leader joins again and ends when every member has its assignment.
The members' own work is the same for both and part of every figure. About a minute and a half.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.client.assignors import assign_range
from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.cluster import OttlaCluster  # the same launcher as the tests
from support.kafka39 import Kafka39Cluster

GROUP, TOPIC = "rebalance", "t"
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "2000",
}
SYSTEMS = {"Kafka 3.9": Kafka39Cluster, "Ottla": OttlaCluster}


class Member:
    def __init__(self, peer: PeerConnection) -> None:
        self.peer = peer
        self.id = ""
        self.joined: Any = None

    async def join(self) -> None:
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 1)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
        request = JoinGroupRequest(
            group_id=GROUP, member_id=self.id, session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        self.joined = await self.peer.send(request, 5, 60)
        self.id = self.joined.member_id
        if self.joined.error_code == MEMBER_ID_REQUIRED:
            await self.join()
        assert self.joined.error_code == 0, self.joined.error_code

    async def sync(self, partitions: int) -> None:
        shares = []
        if self.joined.leader == self.id:
            everybody = {m.member_id: [TOPIC] for m in self.joined.members}
            for member, topics in assign_range({TOPIC: partitions}, everybody).items():
                r = ConsumerProtocolAssignment
                mine = [r.TopicPartition(topic=t, partitions=ps) for t, ps in topics.items()]
                assignment = encode_versioned(r(assigned_partitions=mine), 1)
                one = SyncGroupRequest.SyncGroupRequestAssignment
                shares.append(one(member_id=member, assignment=assignment))
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.joined.generation_id, member_id=self.id,
            assignments=shares,
        )  # fmt: skip
        answer = await self.peer.send(request, 3, 60)
        assert answer.error_code == 0, answer.error_code

    async def enter(self, partitions: int) -> None:
        await self.join()
        await self.sync(partitions)

    async def beat(self) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.joined.generation_id, member_id=self.id
        )
        return int((await self.peer.send(request, 3, 60)).error_code)


async def measure(port: int, args: argparse.Namespace) -> tuple[list[float], float]:
    """Return the seconds of each round, and heartbeats answered per second."""
    world = real_world(OsFiles())
    peers = [
        await PeerConnection.open(world, "127.0.0.1", port, f"m{n}", timeout_s=20)
        for n in range(args.members)
    ]
    find = FindCoordinatorRequest(key=GROUP)
    while (await peers[0].send(find, 2, 20)).error_code:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    members = [Member(peer) for peer in peers]
    await asyncio.gather(*(m.join() for m in members))
    # Those that came after the first generation began make another one.
    while len({m.joined.generation_id for m in members}) > 1:
        await asyncio.gather(*(m.join() for m in members))
    await asyncio.gather(*(m.sync(args.partitions) for m in members))
    rounds = []
    for _ in range(args.rounds):
        members.sort(key=lambda m: m.id != m.joined.leader)
        began = time.perf_counter()
        leader = asyncio.ensure_future(members[0].enter(args.partitions))
        while await members[1].beat() != REBALANCE_IN_PROGRESS:
            pass  # else an unchanged follower would be told of the generation there is
        await asyncio.gather(leader, *(m.enter(args.partitions) for m in members[1:]))
        rounds.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(20):
        assert set(await asyncio.gather(*(m.beat() for m in members))) == {0}
    beats = 20 * len(members) / (time.perf_counter() - began)
    for peer in peers:
        peer.close()
    return rounds, beats


def tell(who: str, figures: Sequence[float]) -> None:
    stable, first, beats = figures
    print(
        f"{who}: join to stable {stable * 1000:.1f} ms (first {first * 1000:.1f}), "
        f"heartbeats {beats:,.0f}/s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.members} members, {args.partitions} partitions; medians of {args.rounds} rounds")
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SYSTEMS}
    for turn in range(args.turns):
        for name, kind in SYSTEMS.items():
            load = os.getloadavg()[0]
            with (
                tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
                kind(Path(folder), brokers=1, **SETTINGS) as cluster,
            ):
                port = int(cluster.bootstrap.rpartition(":")[2])
                rounds, beats = asyncio.run(measure(port, args))
            turns[name].append((statistics.median(rounds), rounds[0], beats))
            tell(f"turn {turn + 1}, load average {load:.1f}: {name}", turns[name][-1])
    medians = {n: tuple(map(statistics.median, zip(*turns[n], strict=True))) for n in SYSTEMS}
    for name, figures in medians.items():
        tell(name, figures)
    stable, _, beats = (ours / kafka for kafka, ours in zip(*medians.values(), strict=True))
    print(f"ours / Kafka: join to stable {stable:.2f}, heartbeats {beats:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
