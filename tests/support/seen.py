"""What ZooKeeper and each broker say of a cluster, for tests that compare the two.

Who leads, who follows and who is the controller is read from ZooKeeper with kazoo; that every
broker tells its clients the same is asked of each broker by itself.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.security.client import ClientSecurity
from ottla.wire.messages.cluster import MetadataRequest

REASSIGN_ZNODE = "/admin/reassign_partitions"


@dataclass(frozen=True)
class State:
    """A partition as its state znode has it."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int


class Znodes:
    """What ZooKeeper says, read and now and then written with kazoo."""

    def __init__(self, hosts: str) -> None:
        # Kazoo would wait longer and longer, up to an hour, for a ZooKeeper that was away.
        retry = {"max_tries": -1, "delay": 0.1, "max_delay": 0.5}
        self.client = KazooClient(hosts=hosts, timeout=20, connection_retry=retry)

    def __enter__(self) -> Self:
        self.client.start(timeout=30)
        return self

    def __exit__(self, *error: object) -> None:
        self.client.stop()
        self.client.close()

    def read(self, path: str) -> Any:
        """Return a znode's JSON, or None without it."""
        try:
            data, _ = self.client.get(path)
        except NoNodeError:
            return None
        return json.loads(data)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def brokers(self) -> list[int]:
        return sorted(map(int, self.names("/brokers/ids")))

    def controller(self) -> int:
        """Return the controller's id, -1 for none."""
        found = self.read("/controller")
        return -1 if found is None else found["brokerid"]

    def controller_epoch(self) -> int:
        return self.read("/controller_epoch") or 0

    def assignment(self, topic: str) -> dict[int, list[int]]:
        found = self.read(f"/brokers/topics/{topic}")
        return {int(p): r for p, r in found["partitions"].items()} if found else {}

    def moving(self, topic: str) -> bool:
        """Return whether a partition of a topic is on its way to other brokers."""
        found = self.read(f"/brokers/topics/{topic}") or {}
        return bool(found.get("adding_replicas") or found.get("removing_replicas"))

    def states(self, topic: str) -> dict[int, State]:
        asked = {
            p: self.client.get_async(f"/brokers/topics/{topic}/partitions/{p}/state")
            for p in self.assignment(topic)
        }
        states = {}
        for partition, answer in asked.items():
            with suppress(NoNodeError):
                found = json.loads(answer.get(timeout=20)[0])
                states[partition] = State(
                    found["leader"],
                    tuple(found["isr"]),
                    found["leader_epoch"],
                    found["controller_epoch"],
                )
        return states

    def full(self, topic: str) -> bool:
        """Return whether every replica is in sync and every partition has a leader."""
        assignment, states = self.assignment(topic), self.states(topic)
        return bool(assignment) and all(
            p in states and states[p].leader in r and sorted(states[p].isr) == sorted(r)
            for p, r in assignment.items()
        )

    def delete_controller(self) -> None:
        with suppress(NoNodeError):
            self.client.delete("/controller")

    def ask_to_reassign(self, topic: str, target: dict[int, list[int]]) -> None:
        """Write the znode by which tools before KIP-455 ask for a reassignment."""
        wanted = [
            {"topic": topic, "partition": p, "replicas": replicas} for p, replicas in target.items()
        ]
        value = {"version": 1, "partitions": wanted}
        self.client.create(REASSIGN_ZNODE, json.dumps(value).encode())


def ask(address: str, request: Any, version: int, security: ClientSecurity | None = None) -> Any:
    """Send one request to one broker at host:port; return its answer. A loop may run already."""
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: asyncio.run(_ask(address, request, version, security)))
        return asked.result()


async def _ask(address: str, request: Any, version: int, security: ClientSecurity | None) -> Any:
    host, _, port = address.rpartition(":")
    world = real_world(OsFiles())
    peer = await PeerConnection.open(
        world, host, int(port), "mixed", timeout_s=20, security=security
    )
    try:
        return await peer.send(request, version, 30)
    finally:
        peer.close()


def all_know(addresses: Iterable[str], topic: str, partitions: int) -> bool:
    """Return whether each broker tells of so many partitions of a topic, all with leaders.

    They hear of new ones one after the other; clients ask any of them.
    """
    item = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[item], allow_auto_topic_creation=False)
    for address in addresses:
        (found,) = ask(address, request, 9).topics
        if [p.leader_id >= 0 for p in found.partitions] != [True] * partitions:
            return False
    return True


def disagreements(znodes: Znodes, addresses: Mapping[int, str], *topics: str) -> str:
    """Return where the Metadata of one of these brokers differs from the znodes, "" if nowhere."""
    item = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[item(name=t) for t in topics])
    truth: dict[str, Any] = {"controller": znodes.controller(), "brokers": znodes.brokers()}
    for topic in topics:
        for partition, state in znodes.states(topic).items():
            truth[f"{topic}-{partition}"] = (state.leader, sorted(state.isr))
    for broker, address in addresses.items():
        found = ask(address, request, 9)
        said: dict[str, Any] = {
            "controller": found.controller_id,
            "brokers": sorted(b.node_id for b in found.brokers),
        }
        for topic in found.topics:
            for p in topic.partitions:
                said[f"{topic.name}-{p.partition_index}"] = (p.leader_id, sorted(p.isr_nodes))
        wrong = {
            k: (said.get(k), truth.get(k)) for k in said | truth if said.get(k) != truth.get(k)
        }
        if wrong:
            return f"broker {broker} and the znodes say: {wrong}"
    return ""
