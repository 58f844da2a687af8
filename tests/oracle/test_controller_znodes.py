"""The same script on Apache Kafka 3.9 and on us: every state znode with every version the same.

A version counts the writes, so equal versions after each step mean that the two controllers wrote
as often, and equal contents that they wrote the same. Afterwards ZooKeeper's own transaction log
tells what was written in between and in which order: for each partition every write of its state,
of its topic and below /admin must be the same in both. Brokers are named by role, because who is
elected controller first is a race: C is the controller, X and Y are the others. Our brokers are on
a real ZooKeeper here and Kafka's on our own server, which logs in ZooKeeper's format: the
environment (`support/cluster.py`) has it the other way round.
"""

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.log.files import OsFiles
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.ids import TopicPartition
from ottla.net.runtime import real_world
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import kafka_tools
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.zookeeper_log import Write, writes

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]

ASSIGNMENT = {0: "XYC", 1: "YCX", 2: "CXY", 3: "XY", 4: "Y"}
PARTITIONS = [TopicPartition("t", p) for p in ASSIGNMENT]
QUIET_S = 3.0


class Script:
    """One cluster, one run; `seen` is what the znodes held after each step."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.seen: dict[str, object] = {}

    async def run(self) -> dict[str, object]:
        world = real_world(OsFiles(), seed=1)
        session = await Session.connect(world, self.cluster.zookeeper, 30_000, 20_000)
        self.store = Store(session)
        try:
            await self._until(self._all_registered, "all registered")
            controller = await self.store.election.get_controller_id()
            x, y = (b for b in self.cluster.ids if b != controller)
            self.role = {controller: "C", x: "X", y: "Y"}
            self.broker = {role: b for b, role in self.role.items()}
            await self._play()
        finally:
            await session.close()
        return self.seen

    async def _play(self) -> None:
        store = self.store
        await self._create()
        await self._until(self._in_sync, "all in sync")
        await self._note("created")
        await self._kill("X")
        await self._note("X killed")
        await self._start("X")
        await self._until(self._in_sync, "X back in sync")
        await self._note("X back")
        await store.admin_requests.create_preferred_election(PARTITIONS)
        await self._until(self._no_election, "preferred election done")
        await self._note("preferred elected")
        await store.admin_requests.create_reassignment({PARTITIONS[3]: self._ids("YC")})
        await self._until(self._no_reassignment, "reassignment done")
        await self._note("reassigned")
        await asyncio.to_thread(self.cluster.terminate, self.broker["Y"])
        await self._note("Y shut down")
        await self._start("Y")
        await self._until(self._in_sync, "Y back in sync")
        await self._note("Y back")
        await self._kill("C")
        await self._note("C killed")
        await self._start("C")
        await self._until(self._in_sync, "C back in sync")
        await self._note("C back")
        await store.topics.request_deletion("t")
        await self._until(self._no_topic, "deleted")
        self.seen["deleted"] = (
            await store.zk.get_children("/config/topics"),
            await store.zk.get_children("/admin/delete_topics"),
            (await store.election.get_epoch())[0],
        )

    async def _kill(self, role: str) -> None:
        """kill -9, and wait until ZooKeeper has forgotten the broker, and nobody is led by it."""
        victim = self.broker[role]
        await asyncio.to_thread(self.cluster.kill, victim)
        await self._until(lambda: self._forgotten(victim), f"{role} is forgotten")

    async def _forgotten(self, broker: int) -> bool:
        if await self.store.zk.path_exists(f"/brokers/ids/{broker}"):
            return False
        states = await self.store.states.get(PARTITIONS)
        return all(s.leader_and_isr.leader != broker for s in states.values())

    async def _start(self, role: str) -> None:
        """Start a broker; our own session is to live on meanwhile, and a JVM takes its time."""
        await asyncio.to_thread(self.cluster.start_broker, self.broker[role])

    def _ids(self, roles: str) -> tuple[int, ...]:
        return tuple(self.broker[r] for r in roles)

    async def _create(self) -> None:
        await self.store.zk.create_recursive("/config/topics/t", b'{"version":1,"config":{}}')
        assignment = {p: ReplicaAssignment(self._ids(r)) for p, r in ASSIGNMENT.items()}
        await self.store.topics.create(TopicInfo("t", b"t" * 16, assignment))

    # --- conditions -------------------------------------------------------------------------

    async def _until(self, condition, what: str, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not await condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
            await asyncio.sleep(0.1)

    async def _all_registered(self) -> bool:
        there = [b.id for b in await self.store.brokers.get_all()]
        return (
            there == self.cluster.ids and await self.store.election.get_controller_id() is not None
        )

    async def _in_sync(self) -> bool:
        info = (await self.store.topics.get_many(["t"]))["t"]
        states = await self.store.states.get(PARTITIONS)
        return len(states) == len(PARTITIONS) and all(
            set(states[tp].leader_and_isr.isr) == set(info.assignment[tp.partition].replicas)
            and states[tp].leader_and_isr.leader >= 0
            for tp in PARTITIONS
        )

    async def _no_election(self) -> bool:
        return not await self.store.zk.path_exists("/admin/preferred_replica_election")

    async def _no_reassignment(self) -> bool:
        return not await self.store.admin_requests.is_reassigning()

    async def _no_topic(self) -> bool:
        return not await self.store.zk.path_exists("/admin/delete_topics/t")

    # --- what is compared -------------------------------------------------------------------

    async def _states(self) -> dict[str, str]:
        """Describe every state znode, and how often the topic's own was written."""
        found = await self.store.states.get(PARTITIONS)
        info = (await self.store.topics.get_many(["t"]))["t"]
        _, version = await self.store.zk.get_data_and_version("/brokers/topics/t")
        described = {"topic": f"version={version}"}
        for tp, known in sorted(found.items()):
            s = known.leader_and_isr
            replicas = "".join(self.role[r] for r in info.assignment[tp.partition].replicas)
            described[str(tp)] = (
                f"replicas={replicas} leader={self.role.get(s.leader, s.leader)}"
                f" isr={''.join(sorted(self.role[r] for r in s.isr))}"
                f" leader_epoch={s.leader_epoch} controller_epoch={known.controller_epoch}"
                f" version={s.partition_epoch} recovery={s.recovery_state}"
            )
        return described

    async def _note(self, step: str) -> None:
        """Remember the states once they have been still for a while."""
        before, still_s = await self._states(), time.monotonic()
        while time.monotonic() - still_s < QUIET_S:
            await asyncio.sleep(0.2)
            now = await self._states()
            if now != before:
                before, still_s = now, time.monotonic()
        self.seen[step] = before


def sequences(folder: Path, role: dict[int, str]) -> dict[str, list[str]]:
    """Return what was written of each partition, its topic and below /admin, in its order.

    Once the topic is to go, its brokers are taken out of each ISR in the order of a hash by Kafka:
    who is left is not compared then, only how many.
    """
    found: dict[str, list[str]] = {str(tp): [] for tp in PARTITIONS}
    going = False
    for write in writes(folder):
        going = going or write.path == "/admin/delete_topics/t"
        for tp, told in found.items():
            text = described(write, tp.rpartition("-")[2], role)
            if text is not None and going and text.startswith("state leader"):
                known = json.loads(write.data or b"")
                text = f"state members={len(known['isr'])} leader_epoch={known['leader_epoch']}"
            if text is not None:
                told.append(f"{write.what} {text}")
    return found


def described(write: Write, partition: str, role: dict[int, str]) -> str | None:
    """Describe a write that concerns a partition of the topic, brokers by role; else None."""
    known = json.loads(write.data) if write.data else {}

    def roles(ids: list[int]) -> str:
        return "".join(role[b] for b in ids)

    if write.path == f"/brokers/topics/t/partitions/{partition}/state":
        if not known:
            return "state"
        leader = role.get(known["leader"], known["leader"])
        recovery = known.get("leader_recovery_state", 0)
        return (
            f"state leader={leader} isr={''.join(sorted(roles(known['isr'])))} "
            f"leader_epoch={known['leader_epoch']} controller_epoch={known['controller_epoch']} "
            f"recovery={recovery}"
        )
    if write.path == "/brokers/topics/t":
        parts = [
            f"{name}={roles(known.get(name, {}).get(partition, []))}"
            for name in ("partitions", "adding_replicas", "removing_replicas")
        ]
        return " ".join(["topic", *parts])
    if write.path in ("/admin", "/admin/delete_topics") or not write.path.startswith("/admin/"):
        return None
    asked = sorted(f"{p['topic']}-{p['partition']}" for p in known.get("partitions", ()))
    return " ".join([write.path, *asked])


def test_both_controllers_write_the_same_states_as_often(tmp_path):
    settings = {"auto_leader_rebalance_enable": "false"}

    def told(cluster):
        with cluster:
            script = Script(cluster)
            seen = asyncio.run(script.run())
        return seen, sequences(cluster.folder / "zookeeper", script.role)

    both = (
        OttlaCluster(tmp_path / "ours", brokers=3, zookeeper_server="java", **settings),
        Kafka39Cluster(
            tmp_path / "theirs", brokers=3, heap_mb=320, zookeeper_server="own", **settings
        ),
    )
    with ThreadPoolExecutor(2) as at_once:  # most of it is waiting
        (we, our_writes), (they, their_writes) = at_once.map(told, both)
    for step, expected in they.items():
        assert we[step] == expected, f"after: {step}"
    assert all(len(told) > 10 for told in their_writes.values())
    assert our_writes == their_writes
