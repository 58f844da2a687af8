"""The controller proof: kill -9 of the controller's broker amid its work, and the work is finished.

Each round moves all partitions of a topic to other brokers and kills the controller's broker
at a random point of it, then deletes a topic and does the same. The points are drawn from `--seed`
as shares of the work done, and printed with how far the work really was. In turn
the reassignment is asked for by znode, which the next controller must take up by itself, and by
request, which is repeated as an administrator's client would; in turn the dead broker returns at
once, with its old session still alive, or after its successor was elected.

Checked each time: one controller, its epoch one higher, every partition with a live leader while
the broker is dead, the work finished, every ISR full, a deleted topic off every disk; one made
anew with the same name begins empty. Records are produced all the time with acks=all: none
is lost, doubled or reordered, and at the end the replicas' logs are equal byte for byte.
    python tests/proofs/controller_kill_proof.py --rounds 10 --seed 7
Exit status 0 only if every round held.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

sys.path.insert(0, str(Path(__file__).parents[1]))
from proofs.kill_proof import Writer, longest_silence, problems, read_back
from support.clients import create_topics  # tests are no package
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.seen import REASSIGN_ZNODE, Znodes, disagreements
from support.waiting import until

MOVES, GONE = "moves", "gone"
BROKERS = 4
REPLICAS = 3
DELETE_DELAY_S = 1
Work = Callable[[], None]


@dataclass
class Proof:
    """One cluster and what was found out about it."""

    cluster: OttlaCluster
    znodes: Znodes
    partitions: int
    random: random.Random

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 2})
        self.shift = 0

    # --- the work -----------------------------------------------------------------------------

    def layout(self, shift: int) -> dict[int, list[int]]:
        """Return replicas by partition: each shift brings in one broker and leaves one out."""
        return {
            p: [(p + shift + r) % BROKERS for r in range(REPLICAS)] for p in range(self.partitions)
        }

    def create(self, topic: str) -> None:
        new = NewTopic(
            topic,
            self.partitions,
            replica_assignment=list(self.layout(self.shift).values()),
            config={"min.insync.replicas": "2"},
        )
        create_topics(self.admin, new)
        until(lambda: self.znodes.full(topic), 30, f"{topic} is created")

    def ask_by_znode(self) -> None:
        self.znodes.ask_to_reassign(MOVES, self.layout(self.shift))

    def ask_by_request(self) -> None:
        """Ask until an answer says that all of it was taken up."""
        wanted = {TopicPartition(MOVES, p): r for p, r in self.layout(self.shift).items()}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(KafkaError):
                client = KafkaAdminClient(
                    bootstrap_servers=self.cluster.bootstrap, request_timeout_ms=5000
                )
                try:
                    answers = client.alter_partition_reassignments(wanted)
                finally:
                    client.close()
                if len(answers) == len(wanted) and not any(answers.values()):
                    return
            time.sleep(0.2)

    def ask_to_delete(self) -> None:
        self.admin.list_topics(timeout=10)
        with suppress(KafkaException):  # what is marked stays marked
            self.admin.delete_topics([GONE], request_timeout=5)[GONE].result(10)

    def begun(self, work: str) -> bool:
        if work == "deletion":
            return GONE in self.znodes.names("/admin/delete_topics")
        if work == "reassignment by znode":
            return self.znodes.client.exists(REASSIGN_ZNODE) is not None
        return self.znodes.moving(MOVES)

    def finished(self, work: str) -> bool:
        if work == "deletion":
            return not any(
                GONE in self.znodes.names(path)
                for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics")
            )
        return (
            self.znodes.assignment(MOVES) == self.layout(self.shift)
            and not self.znodes.moving(MOVES)
            and self.znodes.client.exists(REASSIGN_ZNODE) is None
        )

    def progress(self, work: str) -> tuple[float, str]:
        """Return the share of the work that is done, and say it. No controller: no change."""
        if work == "deletion":
            gone = len(self.on_disk(GONE, deleted=True))
            unknown = GONE not in self.znodes.names("/brokers/topics")
            share = 0.9 * gone / (self.partitions * REPLICAS) + 0.1 * unknown
            return share, f"{gone} replicas deleted, of {self.partitions * REPLICAS}"
        found = self.znodes.read(f"/brokers/topics/{MOVES}")
        begun = len(set(found["adding_replicas"]) | set(found["removing_replicas"]))
        target = self.layout(self.shift)
        done = sum(found["partitions"][str(p)] == r for p, r in target.items())
        share = (begun + 2 * done) / (2 * self.partitions)
        return share, f"{done} partitions done, {begun} on their way, of {self.partitions}"

    def on_disk(self, topic: str, *, deleted: bool = False) -> list[str]:
        """Return the folders of a topic's replicas, or those renamed to be deleted."""
        return [
            f"{b}/{p.name}"
            for b in self.cluster.ids
            for p in self.cluster.data(b).glob(f"{topic}-*")
            if p.name.endswith("-delete") == deleted
        ]

    # --- one piece of it, with a death ----------------------------------------------------------

    def start(self, work: str) -> threading.Thread:
        asks: dict[str, Work] = {
            "deletion": self.ask_to_delete,
            "reassignment by znode": self.ask_by_znode,
            "reassignment by request": self.ask_by_request,
        }
        if work != "deletion":
            self.shift += 1
        thread = threading.Thread(target=asks[work], daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while not (self.begun(work) or self.finished(work)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{work} did not begin")
        return thread

    def with_a_death(self, work: str, *, at_once: bool) -> dict[str, object]:
        """Kill the controller's broker amid the work; AssertionError unless all is well after."""
        point = self.random.random()
        if work == "deletion":
            self.fill_and_check()
        epoch, victim = self.znodes.controller_epoch(), self.znodes.controller()
        thread = self.start(work)
        while self.progress(work)[0] < point and not self.finished(work):
            time.sleep(0.001)
        self.cluster.kill(victim)
        killed = time.monotonic()
        amid = not self.finished(work)
        facts: dict[str, object] = {
            "work": work,
            "killed": victim,
            "point": round(point, 2),
            "amid": amid,
            "progress": self.progress(work)[1],
            "returns": "at once" if at_once else "after the election",
        }
        if at_once:
            self.cluster.start_broker(victim)
        until(lambda: self.in_office(epoch), 20, "a new controller")
        facts["new_controller_s"] = round(time.monotonic() - killed, 2)
        until(self.all_led, 20, lambda: f"without a live leader: {self.leaderless()}")
        facts["all_led_s"] = round(time.monotonic() - killed, 2)
        assert self.znodes.controller_epoch() == epoch + 1
        if not at_once:
            self.cluster.start_broker(victim)
        until(lambda: self.finished(work), 60, lambda: f"{work}: {self.progress(work)[1]}")
        facts["finished_s"] = round(time.monotonic() - killed, 2)
        thread.join(90)
        self.settle()
        assert self.znodes.controller_epoch() == epoch + 1, "one election for one death"
        # As with Kafka: what a dead broker, or a dead controller, was not told stays on the disk.
        facts["strays"] = len(self.on_disk(MOVES)) - self.partitions * REPLICAS
        return facts

    def in_office(self, after_epoch: int) -> bool:
        """Return whether somebody was elected after an epoch and is alive."""
        return (
            self.znodes.controller_epoch() > after_epoch
            and self.znodes.controller() in self.znodes.brokers()
        )

    def all_led(self) -> bool:
        return not self.leaderless()

    def leaderless(self) -> dict[int, int]:
        live = self.znodes.brokers()
        states = self.znodes.states(MOVES).items()
        running = {b for b in live if self.cluster.running(b)}
        return {p: s.leader for p, s in states if s.leader not in running}

    def settle(self) -> None:
        """Wait until all is as it should be: ISRs, every broker's Metadata, the disks."""
        addresses = {b: self.cluster.address(b) for b in self.cluster.ids}
        until(lambda: self.znodes.brokers() == self.cluster.ids, 20, "all brokers are back")
        until(lambda: self.znodes.full(MOVES), 40, "every ISR is full")
        until(lambda: not disagreements(self.znodes, addresses, MOVES), 20, "brokers agree")
        target = self.layout(self.shift)
        wanted = {f"{b}/{MOVES}-{p}" for p, r in target.items() for b in r}
        gone = self.finished("deletion")
        missing = wanted - set(self.on_disk(MOVES))
        assert not missing, f"assigned, but not on disk: {sorted(missing)[:5]}"
        until(
            lambda: not gone or not self.on_disk(GONE) + self.on_disk(GONE, deleted=True),
            20 + DELETE_DELAY_S,
            lambda: f"off the disks: {self.on_disk(GONE) + self.on_disk(GONE, deleted=True)}",
        )

    def differences(self) -> list[int]:
        """Return the partitions whose replicas' logs differ (when the brokers are stopped)."""
        return [
            p
            for p, replicas in self.layout(self.shift).items()
            if len({self.cluster.log_bytes(b, f"{MOVES}-{p}") for b in replicas}) > 1
        ]

    def fill_and_check(self) -> int:
        """Make the topic that will be deleted, fill it, and see that nothing older is in it."""
        self.create(GONE)
        with Writer(self.cluster.bootstrap, 2000, Counter(), GONE, keys=200) as writer:
            until(lambda: len(writer.acks) > 500, 30, "records to delete")
        found = read_back(self.cluster.bootstrap, topic=GONE, count=self.partitions)
        assert not (wrong := problems(writer.acks, found)), wrong[:5]
        assert len(found) == len(writer.acks), "something older is in it"
        return len(found)


def run(
    folder: Path,
    rounds: int,
    seed: int,
    partitions: int,
    rate: int,
    session_ms: int = 6000,
    zookeeper_server: str = "own",
) -> int:
    """Run the proof; return how many kills came amid the work. AssertionError if it fails."""
    amid = 0
    with OttlaCluster(
        folder,
        brokers=BROKERS,
        zookeeper_server=zookeeper_server,
        session_timeout_ms=session_ms,
        auto_leader_rebalance_enable="false",
        auto_create_topics_enable="false",
        log_segment_delete_delay_ms=str(1000 * DELETE_DELAY_S),
    ) as cluster:
        with Znodes(cluster.zookeeper) as znodes:
            proof = Proof(cluster, znodes, partitions, random.Random(seed))
            until(lambda: znodes.brokers() == cluster.ids, 30, "all brokers are there")
            proof.create(MOVES)
            with Writer(cluster.bootstrap, rate, Counter(), MOVES, keys=500) as writer:
                for number in range(rounds):
                    kind = ("znode", "request")[number % 2]
                    for work in (f"reassignment by {kind}", "deletion"):
                        facts = proof.with_a_death(work, at_once=proof.random.random() < 0.5)
                        amid += bool(facts["amid"])
                        print(json.dumps({"round": number + 1, **facts}), flush=True)
            found = read_back(cluster.bootstrap, topic=MOVES, count=partitions)
            wrong = problems(writer.acks, found)
            assert not wrong, wrong[:10]
            assert not writer.failed, f"{writer.failed} records were not acknowledged within 60 s"
            silence = longest_silence(writer.acks, writer.acks[0].at, writer.acks[-1].at)
            print(f"{len(writer.acks)} acknowledged, longest silence {silence:.1f} s")
        cluster.stop()
        differences = proof.differences()
        assert not differences, differences[:5]
    return amid


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=at_least_one, default=10)
    parser.add_argument("--seed", type=int, default=None, help="where the kills come; printed")
    parser.add_argument("--partitions", type=int, default=150)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--dir", type=Path, help="keep the cluster's files here")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        amid = run(
            args.dir or Path(folder), args.rounds, seed, args.partitions, args.rate,
            zookeeper_server=args.zookeeper,
        )  # fmt: skip
    print(
        f"{args.rounds} rounds, {2 * args.rounds} kills, {amid} of them during the work; all held"
    )
    return 0 if amid else 1


if __name__ == "__main__":
    sys.exit(main())
