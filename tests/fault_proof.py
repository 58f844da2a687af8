"""The fault proof: a cluster of processes, each in a network of its own, and one fault at a time.

Four brokers and ZooKeeper run in network namespaces on one bridge. Broker 0 is the controller and
has no replicas; 1, 2 and 3 have three each, min.insync.replicas is 2. A link is cut by giving
the other side's address a hardware address that nobody has, so packets vanish in one direction
and no error tells anybody. Faults of docs/RELIABILITY.md:

F13  a leader's packets to its followers vanish; ZooKeeper and controller hear it
F14  a leader and ZooKeeper do not hear each other; its followers hear it
F15  the controller's packets to one broker vanish while that broker is elected
F7   a leader is stopped beyond its session and goes on, with produce requests waiting for it
F8   the controller is stopped beyond its session and goes on
F6   ZooKeeper is killed and comes back after 10 s and after 60 s

Each time, what each fault must lead to is checked, and after it: every broker registered, every
ISR full, every broker's Metadata as the znodes, no acknowledged record lost, doubled or out of
order; at the end the replicas' logs are equal byte for byte.
    sudo python tests/fault_proof.py [--only F13 F7]
Exit status 0 only if all held; 2 where namespaces cannot be made.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, build_batch
from ottla.zookeeper import embedded

sys.path.insert(0, str(Path(__file__).parent))
from cluster import OttlaCluster  # tests are no package
from kill_proof import Writer, longest_silence, problems, read_back
from seen import Znodes, disagreements
from waiting import until

TOPIC = "faults"
LAYOUT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
BROKERS = 4
CONTROLLER, LEADER, FOLLOWERS = 0, 1, (2, 3)
SESSION_S = 6
LAG_S = 5
CLIENT_TIMEOUT_MS = 5000
"""Which a deposed leader that nobody can tell lets its producers wait for, as Kafka's does."""
NETWORK = "198.18.0"
ZOOKEEPER = 100
HUB = 254
NOWHERE = "02:00:00:00:00:ff"


# --- the network --------------------------------------------------------------------------------


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """Namespaces on a bridge: one for the test itself, one for ZooKeeper and for each broker."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.hosts = [*range(1, BROKERS + 1), ZOOKEEPER]

    def name(self, host: int) -> str:
        return f"{self.prefix}-{host}"

    def build(self) -> None:
        hub = self.name(HUB)
        for host in (HUB, *self.hosts):
            ip("netns", "add", self.name(host))
            ip("-n", self.name(host), "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "addr", "add", f"{NETWORK}.{HUB}/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for host in self.hosts:
            there = self.name(host)
            ip(
                "-n",
                hub,
                "link",
                "add",
                f"to{host}",
                "type",
                "veth",
                "peer",
                "eth0",
                "netns",
                there,
            )
            ip("-n", hub, "link", "set", f"to{host}", "master", "bridge", "up")
            ip("-n", there, "addr", "add", f"{NETWORK}.{host}/24", "dev", "eth0")
            ip("-n", there, "link", "set", "eth0", "up")

    def destroy(self) -> None:
        for host in (HUB, *self.hosts):
            subprocess.run(
                ["ip", "netns", "del", self.name(host)], capture_output=True, check=False
            )

    def cut(self, source: int, target: int) -> None:
        """Let what one host sends to another vanish."""
        entry = (f"{NETWORK}.{target}", "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
        ip("-n", self.name(source), "neigh", "replace", *entry)

    def heal(self, source: int, target: int) -> None:
        ip("-n", self.name(source), "neigh", "del", f"{NETWORK}.{target}", "dev", "eth0")


def host(broker: int) -> int:
    return broker + 1


class ScatteredCluster(OttlaCluster):
    """Brokers of ours, each in its own namespace."""

    def __init__(self, folder: Path, network: Network, zookeeper: str, **settings: str) -> None:
        super().__init__(
            folder,
            BROKERS,
            zookeeper=zookeeper,
            session_timeout_ms=1000 * SESSION_S,
            **settings,
        )
        self._network = network

    def host(self, broker: int) -> str:
        return f"{NETWORK}.{host(broker)}"

    def command(self, broker: int, config: Path) -> list[str]:
        inside = ["ip", "netns", "exec", self._network.name(host(broker))]
        return [*inside, *super().command(broker, config)]


class ScatteredZooKeeper:
    """A real ZooKeeper in its own namespace."""

    def __init__(self, folder: Path, network: Network) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "zookeeper.out"
        self.connect = f"{NETWORK}.{ZOOKEEPER}:2181"
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder}/data\nclientPort=2181\ntickTime=1000\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n"
        )
        self._command = [
            *("ip", "netns", "exec", network.name(ZOOKEEPER)),
            *(str(embedded.find_java()), "-Xmx256m", "-XX:+UseSerialGC"),
            *("-Dzookeeper.jmx.log4j.disable=true", "-cp"),
            *(os.pathsep.join(map(str, embedded.find_jars())), embedded.MAIN_CLASS, str(config)),
        ]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


# --- the faults ---------------------------------------------------------------------------------


@dataclass
class Proof:
    """The cluster, and one method for each fault; each returns what it measured."""

    network: Network
    zookeeper: ScatteredZooKeeper
    cluster: ScatteredCluster
    znodes: Znodes
    admin: AdminClient
    writer: Writer

    def leader(self) -> int:
        """Return who leads partition 0, of which broker 1 is the preferred leader."""
        return self.znodes.states(TOPIC)[0].leader

    def isr(self) -> set[int]:
        return set(self.znodes.states(TOPIC)[0].isr)

    def elect_preferred(self) -> None:
        self.admin.list_topics(timeout=10)
        wanted = [TopicPartition(TOPIC, p) for p in range(len(LAYOUT))]
        self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)

    def settle(self, timeout_s: float = 60) -> None:
        addresses = {b: self.cluster.address(b) for b in self.cluster.ids}
        until(
            lambda: self.znodes.brokers() == self.cluster.ids,
            timeout_s,
            lambda: f"all are registered: {self.znodes.brokers()}",
        )
        until(
            lambda: self.znodes.full(TOPIC),
            timeout_s,
            lambda: f"every ISR is full: {self.znodes.states(TOPIC)}",
        )
        until(
            lambda: not disagreements(self.znodes, addresses, TOPIC),
            30,
            lambda: disagreements(self.znodes, addresses, TOPIC),
        )

    def give_office_back(self) -> None:
        """Make broker 0 the controller again."""
        while self.znodes.controller() != CONTROLLER:
            self.znodes.delete_controller()
            until(lambda: self.znodes.controller() >= 0, 20, "somebody is in office")
            time.sleep(0.5)

    def acked_between(self, since: float, until_: float) -> int:
        return sum(since < a.at <= until_ for a in self.writer.acks if a.partition == 0)

    def first_ack(self, since: float) -> float:
        """Return when the first record of partition 0 was acknowledged after a time; 0 if never."""
        times = [a.at for a in self.writer.acks if a.partition == 0 and a.at > since]
        return min(times, default=0.0)

    def f13(self) -> dict[str, Any]:
        before = time.monotonic()
        for follower in FOLLOWERS:
            self.network.cut(host(LEADER), host(follower))
        try:
            until(
                lambda: self.isr() == {LEADER}, 3 * LAG_S, lambda: f"the ISR shrinks: {self.isr()}"
            )
            shrunk = time.monotonic()
            assert shrunk - before < 2 * LAG_S + 1
            codes = Counter(self.produce_at(LEADER, timeout_s=10) for _ in range(5))
            assert set(codes) <= {19, 20}, f"NOT_ENOUGH_REPLICAS below min.insync.replicas: {codes}"
        finally:
            for follower in FOLLOWERS:
                self.network.heal(host(LEADER), host(follower))
        healed = time.monotonic()
        self.settle()
        return {
            "isr_shrunk_s": round(shrunk - before, 1),
            "refused": {str(k): v for k, v in codes.items()},
            "settled_s": round(time.monotonic() - healed, 1),
        }

    def f14(self) -> dict[str, Any]:
        before = time.monotonic()
        self.network.cut(host(LEADER), ZOOKEEPER)
        self.network.cut(ZOOKEEPER, host(LEADER))
        try:
            until(lambda: self.leader() in FOLLOWERS, SESSION_S + 6, "a new leader")
            moved = time.monotonic()
            codes = Counter(self.produce_at(LEADER, timeout_s=10) for _ in range(5))
            assert 0 not in codes, "the old leader acknowledged"
            until(lambda: self.first_ack(moved), 20, "the new leader serves")
        finally:
            self.network.heal(host(LEADER), ZOOKEEPER)
            self.network.heal(ZOOKEEPER, host(LEADER))
        healed = time.monotonic()
        self.settle()
        return {
            "new_leader_s": round(moved - before, 1),
            "acked_again_s": round(self.first_ack(moved) - before, 1),
            "old_leader_answers": {str(k): v for k, v in codes.items()},
            "settled_s": round(time.monotonic() - healed, 1),
        }

    def f15(self) -> dict[str, Any]:
        # Another leads partition 0 first, so that electing broker 1 must be told to it.
        assert self.cluster.terminate(LEADER) == 0
        self.cluster.start_broker(LEADER)
        until(lambda: self.znodes.full(TOPIC), 30, "every ISR is full")
        assert self.leader() != LEADER
        self.network.cut(host(CONTROLLER), host(LEADER))
        try:
            self.znodes.client.create(
                "/admin/preferred_replica_election",
                json.dumps(
                    {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0}]}
                ).encode(),
            )
            until(lambda: self.leader() == LEADER, 20, "the election is written")
            time.sleep(10)
            assert self.znodes.controller() == CONTROLLER
            assert self.produce_at(LEADER, timeout_s=10) != 0, "it cannot know yet"
        finally:
            self.network.heal(host(CONTROLLER), host(LEADER))
        healed = time.monotonic()
        self.settle()
        settled = time.monotonic()
        assert settled - healed < 30, "a partition was stuck after the link was healed"
        return {"settled_s": round(settled - healed, 1)}

    def f7(self) -> dict[str, Any]:
        before = time.monotonic()
        self.cluster.pause(LEADER)
        try:
            until(lambda: self.leader() in FOLLOWERS, SESSION_S + 6, "a new leader")
            moved = time.monotonic()
            time.sleep(max(0.0, 2 * SESSION_S - (moved - before)))
        finally:
            codes = self.produce_while_paused(LEADER)
        assert 0 not in codes, f"the zombie acknowledged: {codes}"
        resumed = time.monotonic()
        self.settle()
        return {
            "new_leader_s": round(moved - before, 1),
            "zombie_answers": {str(k): v for k, v in codes.items()},
            "settled_s": round(time.monotonic() - resumed, 1),
        }

    def f8(self) -> dict[str, Any]:
        epoch = self.znodes.controller_epoch()
        before = time.monotonic()
        self.cluster.pause(CONTROLLER)
        try:
            until(lambda: self.znodes.controller() > CONTROLLER, SESSION_S + 6, "a new controller")
            moved = time.monotonic()
            time.sleep(max(0.0, 2 * SESSION_S - (moved - before)))
            counted = len(self.znodes.names("/brokers/topics"))
        finally:
            self.cluster.resume(CONTROLLER)
        resumed = time.monotonic()
        self.settle()
        assert self.znodes.controller_epoch() == epoch + 1
        assert len(self.znodes.names("/brokers/topics")) == counted
        assert self.acked_between(before, resumed) > 100, "producing never stopped"
        states = self.znodes.states(TOPIC).values()
        return {
            "new_controller_s": round(moved - before, 1),
            "longest_silence_s": round(longest_silence(self.writer.acks, before, resumed), 2),
            "controller_epochs": sorted({s.controller_epoch for s in states}),
            "settled_s": round(time.monotonic() - resumed, 1),
        }

    def f6(self, seconds: float) -> dict[str, Any]:
        epoch = self.znodes.controller_epoch()
        self.zookeeper.kill()
        before = time.monotonic()
        time.sleep(seconds)
        acked = self.acked_between(before, time.monotonic())
        self.zookeeper.start()
        back = time.monotonic()
        until(lambda: self.znodes.client.connected, 60, "ZooKeeper is back")
        self.settle(120)
        settled = time.monotonic()
        until(lambda: self.acked_between(back, time.monotonic()) > 10, 30, "producing goes on")
        return {
            "away_s": seconds,
            "acked_while_away": acked,
            "longest_silence_s": round(longest_silence(self.writer.acks, before, settled), 1),
            "elections": self.znodes.controller_epoch() - epoch,
            "settled_s": round(settled - back, 1),
        }

    # --- produce requests to one broker, whoever leads ------------------------------------------

    def produce_at(self, broker: int, timeout_s: float) -> int:
        """Send one record of acks=all to this broker; return the error code, -1 without answer."""
        return asyncio.run(self._produce_all(broker, timeout_s, 1, None))[0]

    def produce_while_paused(self, broker: int) -> dict[int, int]:
        """Let produce requests wait for a stopped broker, then let it go on; count its answers."""

        def resume() -> None:
            self.cluster.resume(broker)

        return Counter(asyncio.run(self._produce_all(broker, 20, 5, resume)))

    async def _produce_all(
        self, broker: int, timeout_s: float, count: int, then: Callable[[], None] | None
    ) -> list[int]:
        r = ProduceRequest
        records = build_batch([Record(key=b"elsewhere", value=b"0")])
        request = r(
            acks=-1,
            timeout_ms=int(timeout_s * 500),
            topic_data=[
                r.TopicProduceData(
                    name=TOPIC, partition_data=[r.PartitionProduceData(index=0, records=records)]
                )
            ],
        )
        address = (self.cluster.host(broker), self.cluster.ports[broker])
        world = real_world(OsFiles())
        peer = await PeerConnection.open(world, *address, "pinned", timeout_s=5)
        try:
            answers = [peer.send(request, 9, timeout_s) for _ in range(count)]
            await asyncio.sleep(0.2)
            if then is not None:
                then()
            codes = []
            for done in await asyncio.gather(*answers, return_exceptions=True):
                lost = isinstance(done, BaseException)
                codes.append(-1 if lost else done.responses[0].partition_responses[0].error_code)
            return codes
        finally:
            peer.close()


def inside(prefix: str, folder: Path, only: list[str]) -> int:
    """Run in the hub's namespace: build the cluster and try every fault."""
    network = Network(prefix)
    zookeeper = ScatteredZooKeeper(folder / "zookeeper", network)
    settings = {
        "min_insync_replicas": "2",
        "replica_lag_time_max_ms": str(1000 * LAG_S),
        "auto_leader_rebalance_enable": "false",
        "auto_create_topics_enable": "false",
    }
    wrong = 0
    try:
        with Znodes(zookeeper.connect) as znodes:
            with ScatteredCluster(folder, network, zookeeper.connect, **settings) as cluster:
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
                until(lambda: znodes.brokers() == cluster.ids, 30, "all brokers are there")
                new = NewTopic(TOPIC, len(LAYOUT), replica_assignment=LAYOUT)
                admin.create_topics([new], operation_timeout=20)[TOPIC].result(30)
                with Writer(
                    cluster.bootstrap, 300, Counter(), TOPIC, request_timeout_ms=CLIENT_TIMEOUT_MS
                ) as writer:
                    proof = Proof(network, zookeeper, cluster, znodes, admin, writer)
                    proof.settle()
                    faults: list[tuple[str, Callable[[], dict[str, Any]]]] = [
                        ("F13", proof.f13),
                        ("F14", proof.f14),
                        ("F15", proof.f15),
                        ("F7", proof.f7),
                        ("F8", proof.f8),
                        ("F6", lambda: proof.f6(10)),
                        ("F6", lambda: proof.f6(60)),
                    ]
                    for name, fault in faults:
                        if only and name not in only:
                            continue
                        proof.give_office_back()
                        proof.elect_preferred()
                        proof.settle()
                        time.sleep(1)
                        try:
                            facts = fault()
                            verdict = "held"
                        except AssertionError as error:
                            wrong += 1
                            facts, verdict = {"why": str(error)}, "FAILED"
                        print(json.dumps({"fault": name, "verdict": verdict, **facts}), flush=True)
                found = read_back(cluster.bootstrap, topic=TOPIC, count=len(LAYOUT))
                ours = {
                    place: record for place, record in found.items() if record[0] != "elsewhere"
                }
                for line in (lost := problems(writer.acks, ours))[:10]:
                    print("  " + line)
                print(f"{len(writer.acks)} acknowledged, {writer.failed} not within 60 s")
                proof.settle()
                cluster.stop()
                different = [
                    p
                    for p, replicas in enumerate(LAYOUT)
                    if len({cluster.log_bytes(b, f"{TOPIC}-{p}") for b in replicas}) > 1
                ]
                print(f"replicas differ in {different or 'no'} partitions")
                return 1 if wrong or lost or different else 0
    finally:
        zookeeper.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="F13")
    parser.add_argument("--dir", type=Path, help="keep the cluster's files here")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return inside(args.inside, args.dir, args.only)
    network = Network(f"ottla{os.getpid()}")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            if shutil.which("ip") is None:
                raise OSError("no `ip` command: install iproute2")
            network.build()
        except OSError as error:
            print(f"skipped: network namespaces cannot be made here (are you root?): {error}")
            network.destroy()
            return 2
        try:
            again = [sys.executable, *sys.argv, "--inside", network.prefix]
            if not args.dir:
                again += ["--dir", scratch]
            command = ["ip", "netns", "exec", network.name(HUB), *again]
            return subprocess.run(command, check=False).returncode
        finally:
            network.destroy()


if __name__ == "__main__":
    sys.exit(main())
