"""The crash proof: a process that died is noticed at once, one that lives never is (R17, F44).

First kills: kill -9 of a leader, a follower, the controller, a group's coordinator, and of two
brokers at once, `--kills` times each. Measured is how long it takes until ZooKeeper has no
registration of it, and until its partitions are led by others; sessions last 12 s, so what happens
within a second has not waited for one. Then, for `--minutes`, what looks like a death and is none:
brokers stopped for 5 s, all cores taken by other programs, full accept queues, orderly restarts.
No registration may change but those of brokers that were restarted, and none may be removed.
All the time a producer writes with acks=all; at the end every acknowledged record is there once.
    python tests/proofs/crash_proof.py --kills 10 --minutes 10
Exit status 0 only if all of it held. Processes on this machine are the truth: their ends are
known here, what brokers say of them is compared with that.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from confluent_kafka.admin import AdminClient

from proofs.kill_proof import (
    PARTITIONS,
    TOPIC,
    Writer,
    create_topic,
    problems,
    read_back,
    wait_for_full_isr,
)
from support.clients import admin_client  # tests are no package
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.seen import Znodes
from support.waiting import until

SESSION_MS = 12_000
GONE_S, LED_S = 1.0, 1.5
"""What a kill may take until the registration is gone, and until all is led again."""
STOPPED_S = 5.0
GROUP_TOPIC = "__consumer_offsets"
KINDS = ("leader", "follower", "controller", "coordinator", "two at once")
REMOVED = b"registration removed"


class Scene:
    """The cluster, what ZooKeeper says of it, and what went wrong so far."""

    def __init__(self, cluster: OttlaCluster, znodes: Znodes, admin: AdminClient) -> None:
        self.cluster = cluster
        self.znodes = znodes
        self.admin = admin
        self.wrong: list[str] = []

    def registration(self, broker: int) -> int | None:
        """Return the czxid of a broker's registration."""
        stat = self.znodes.client.exists(f"/brokers/ids/{broker}")
        return None if stat is None else stat.czxid

    def registrations(self) -> dict[int, int | None]:
        return {b: self.registration(b) for b in self.cluster.ids}

    def led_without(self, gone: set[int]) -> bool:
        states = [*self.znodes.states(TOPIC).values(), *self.znodes.states(GROUP_TOPIC).values()]
        return all(s.leader >= 0 and s.leader not in gone for s in states)

    def removals(self) -> int:
        """Return how often brokers said that they removed a registration."""
        return sum(self.cluster.log(b).read_bytes().count(REMOVED) for b in self.cluster.ids)

    def settled(self) -> None:
        wait_for_full_isr(self.admin, len(self.cluster.ids))
        until(lambda: self.znodes.full(GROUP_TOPIC), 60, "the group's topic is in sync")

    def victims(self, kind: str) -> set[int]:
        controller = self.znodes.controller()
        leads = Counter(s.leader for s in self.znodes.states(TOPIC).values())
        if kind == "controller":
            return {controller}
        if kind == "coordinator":
            return {self.znodes.states(GROUP_TOPIC)[0].leader}
        if kind == "two at once":
            return {controller, random.choice([b for b in self.cluster.ids if b != controller])}
        ordered = sorted(self.cluster.ids, key=lambda b: leads[b])
        return {ordered[-1] if kind == "leader" else ordered[0]}


def kill(scene: Scene, kind: str) -> dict[str, float]:
    """Kill, measure, start again. Times in seconds from the kill on."""
    cluster, victims = scene.cluster, scene.victims(kind)
    began_s = time.monotonic()
    for broker in victims:
        cluster.processes[broker].kill()
    times: dict[str, float] = {}

    def measured(what: str, condition: Callable[[], bool]) -> None:
        while not condition():
            if time.monotonic() - began_s > 2 * SESSION_MS / 1000:
                raise AssertionError(f"the kill of {sorted(victims)}: not {what}")
            time.sleep(0.005)
        times[what] = time.monotonic() - began_s

    measured("gone", lambda: all(scene.registration(b) is None for b in victims))
    measured("led", lambda: scene.led_without(victims))
    for broker in victims:
        cluster.processes[broker].wait(10)
    if times["gone"] > GONE_S or times["led"] > LED_S:
        scene.wrong.append(f"kill of {kind} {sorted(victims)}: {times}")
    for broker in victims:
        cluster.start_broker(broker)
    scene.settled()
    return times


# --- what looks like a death and is none ---------------------------------------------------------


def stopped(scene: Scene) -> set[int]:
    """SIGSTOP of one broker for less than a session."""
    broker = random.choice(scene.cluster.ids)
    scene.cluster.pause(broker)
    time.sleep(STOPPED_S)
    scene.cluster.resume(broker)
    return set()


def saturated(scene: Scene) -> set[int]:
    """All cores taken by other programs."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        time.sleep(STOPPED_S)
    finally:
        for process in busy:
            process.kill()
            process.wait(10)
    return set()


def full_queue(scene: Scene) -> set[int]:
    """A broker that accepts nothing, its queue of connections full."""
    broker = random.choice(scene.cluster.ids)
    address = (scene.cluster.host(broker), scene.cluster.ports[broker])
    scene.cluster.pause(broker)
    try:
        with contextlib.ExitStack() as open_ones:
            for _ in range(2000):
                one = open_ones.enter_context(socket.socket())
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(address)
            time.sleep(STOPPED_S)
    finally:
        scene.cluster.resume(broker)
    return set()


def restarted(scene: Scene) -> set[int]:
    """SIGTERM, and started again."""
    broker = random.choice(scene.cluster.ids)
    scene.cluster.terminate(broker)
    scene.cluster.start_broker(broker)
    return {broker}


def false_alarms(scene: Scene, minutes: float) -> Counter[str]:
    """Do what looks like a death, until the time is over; return how often each was done."""
    done: Counter[str] = Counter()
    give_up_s = time.monotonic() + 60 * minutes
    while time.monotonic() < give_up_s:
        for act in (stopped, saturated, full_queue, restarted):
            scene.settled()
            before, removals = scene.registrations(), scene.removals()
            changed = act(scene)
            done[act.__name__] += 1
            scene.settled()
            after = scene.registrations()
            moved = {b for b in scene.cluster.ids if before[b] != after[b]} - changed
            if moved:
                scene.wrong.append(f"{act.__name__}: registrations of {sorted(moved)} changed")
            if scene.removals() != removals:
                scene.wrong.append(f"{act.__name__}: a registration was removed")
    return done


def make_group_topic(bootstrap: str) -> None:
    """Have a group, so that there is a coordinator."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.subscribe([TOPIC])
    try:
        until(lambda: consumer.poll(0.5) is not None or consumer.assignment(), 60, "a group")
    finally:
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=at_least_one, default=10, help="of each kind")
    parser.add_argument("--minutes", type=float, default=10.0, help="of what is no death")
    parser.add_argument("--rate", type=int, default=200)
    add_zookeeper_option(parser)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    settings = {
        "replica_lag_time_max_ms": "8000",
        "offsets_topic_num_partitions": "1",
        "auto_leader_rebalance_enable": "false",
    }
    with (
        tempfile.TemporaryDirectory(prefix="ottla-crash-") as folder,
        OttlaCluster(
            Path(folder),
            zookeeper_server=args.zookeeper,
            session_timeout_ms=SESSION_MS,
            **settings,
        ) as cluster,
        Znodes(cluster.zookeeper) as znodes,
    ):
        admin = admin_client(cluster.bootstrap)
        create_topic(admin)
        scene = Scene(cluster, znodes, admin)
        writer = Writer(cluster.bootstrap, args.rate, Counter())
        with writer:
            until(lambda: bool(writer.acks), 30, "the first acknowledgement")
            make_group_topic(cluster.bootstrap)
            scene.settled()
            for kind in KINDS:
                times = [kill(scene, kind) for _ in range(args.kills)]
                for what in ("gone", "led"):
                    sorted_s = sorted(t[what] for t in times) or [0.0]
                    half, worst = sorted_s[len(sorted_s) // 2], sorted_s[-1]
                    print(f"{kind}: {what} p50 {half:.3f} s, worst {worst:.3f} s", flush=True)
            done = false_alarms(scene, args.minutes)
            print(f"no deaths: {dict(done)}", flush=True)
        found = read_back(cluster.bootstrap, 300, count=PARTITIONS)
        scene.wrong += problems(writer.acks, found)
        if writer.failed:
            scene.wrong.append(f"{writer.failed} records were not acknowledged in their time")
    for line in scene.wrong[:30]:
        print(f"WRONG: {line}")
    print(json.dumps({"acknowledged": len(writer.acks), "wrong": len(scene.wrong)}))
    return 1 if scene.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
