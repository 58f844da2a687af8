"""The kill proof in a secured mixed cluster: two brokers of ours and one of Apache Kafka 3.9.

SASL_SSL with SCRAM for clients and among brokers, and ACLs: one user may write, one may read. Each
round makes a broker of one kind the controller and kills a broker, in turn: ours and Kafka's while
each is the controller, ours and Kafka's while the other kind is. What a round does besides, and
how it is judged, is `kill_proof.py`'s. Crash detection has no part in brokers of Kafka, whose
deaths are noticed when their sessions end, after 6 s.

No broker may have denied anything to those who have a right. At the end of each round every broker
denies the topic to a user without ACLs, and every leader a write to one who may only describe.
    python tests/proofs/secured_kill_proof.py --rounds 8
Exit status 0 only if every round held.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, NewTopic
from kafka.errors import KafkaError as KafkaPythonError

sys.path.insert(0, str(Path(__file__).parents[1]))
from proofs.kill_proof import (  # tests are no package
    PARTITIONS,
    TOPIC,
    Ack,
    Writer,
    longest_silence,
    problems,
    read_back,
)
from support.clients import create_topics
from support.cluster import at_least_one
from support.secured_mixed import DENIED, SecuredMixed
from support.waiting import until

OURS, JVM = (0, 1), 10
WRITER, READER, DESCRIBER, STRANGER = "writer", "reader", "describer", "stranger"
RIGHTS = {
    WRITER: AclOperation.WRITE,
    READER: AclOperation.READ,
    DESCRIBER: AclOperation.DESCRIBE,
    STRANGER: None,
}


class Proof:
    """A cluster, and what was acknowledged in it so far."""

    def __init__(self, cluster: SecuredMixed, args: argparse.Namespace) -> None:
        self.cluster = cluster
        self.args = args
        self.numbers: Counter[str] = Counter()
        self.acks: list[Ack] = []
        self.sent_anew: set[tuple[str, int]] = set()  # by librdkafka itself, see MixedCluster

    def wait_full(self) -> float:
        """Return how long it took, in seconds."""
        started = time.monotonic()
        znodes = self.cluster.znodes
        until(lambda: znodes.full(TOPIC), 60, lambda: f"every ISR is full: {znodes.states(TOPIC)}")
        return time.monotonic() - started

    def prepare(self) -> None:
        create_topics(
            self.cluster.admin, NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        )
        self.cluster.add_users(TOPIC, RIGHTS)
        self.wait_full()
        self.spread_leaders()

    def spread_leaders(self) -> None:
        """Have the first replica of each partition lead it: who returned leads nothing."""
        znodes = self.cluster.znodes

        def spread() -> bool:
            first = {p: replicas[0] for p, replicas in znodes.assignment(TOPIC).items()}
            moved = [p for p, state in znodes.states(TOPIC).items() if state.leader != first[p]]
            if moved:
                # librdkafka asks the controller that it heard of last, until it looks again.
                self.cluster.admin.list_topics(timeout=10)
                wanted = [TopicPartition(TOPIC, p) for p in moved]
                self.cluster.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
            return not moved

        until(spread, 60, "first replicas lead", despite=(KafkaException,))

    def led(self) -> bool:
        """Return whether each partition's leader is registered."""
        alive = self.cluster.znodes.brokers()
        return all(state.leader in alive for state in self.cluster.znodes.states(TOPIC).values())

    def choose(self, number: int) -> tuple[int, int]:
        """Return whom to kill in a round, and who is to be the controller then."""
        ours = OURS[number // 4 % 2]
        return [(JVM, JVM), (ours, ours), (ours, JVM), (JVM, ours)][number % 4]

    def read(self, when: str, *brokers: int, acks: list[Ack]) -> list[str]:
        """Read all as who may read; return what is wrong with it."""
        try:
            found = read_back(
                self.cluster.secure_bootstrap(*brokers), **self.cluster.kafka_python(READER)
            )
        except (KafkaPythonError, TimeoutError) as error:
            return [f"{when}: {type(error).__name__}: {error}"]
        anew = {n for p in range(PARTITIONS) for n in self.cluster.sent_anew(TOPIC, p)}
        self.sent_anew |= anew
        return [f"{when}: {p}" for p in problems(acks, found, anew)]

    def one_round(self, number: int) -> tuple[dict[str, Any], list[str]]:
        victim, controller = self.choose(number)
        cluster = self.cluster
        cluster.give_office_to(controller)
        states = cluster.znodes.states(TOPIC)
        led = sum(state.leader == victim for state in states.values())
        with Writer(
            cluster.secure_bootstrap(),
            self.args.rate,
            self.numbers,
            security=cluster.security(WRITER),
        ) as writer:
            time.sleep(self.args.before)
            acting = cluster.znodes.controller()
            killed = time.monotonic()
            cluster.kind(victim).kill(victim)
            time.sleep(self.args.down)
            stopped = time.monotonic()
        outage = [a for a in writer.acks if killed < a.at <= stopped]
        everything = self.acks + writer.acks
        alive = [b for b in cluster.ids if b != victim]
        until(self.led, 30, lambda: f"others lead: {cluster.znodes.states(TOPIC)}")
        wrong = self.read(f"while {victim} is dead", *alive, acks=everything)
        assert not cluster.kind(victim).running(victim)
        still = [p for p, s in cluster.znodes.states(TOPIC).items() if victim in s.isr]
        if still:
            wrong.append(f"{victim} is dead and stands in the ISR of {len(still)} partitions")
        if acting != controller:
            wrong.append(f"the controller was {acting} at the kill, not {controller}")
        successor = cluster.znodes.controller()
        cluster.start(victim)
        healed = self.wait_full()
        wrong += self.read(f"after {victim} is back", *alive, acks=everything)
        wrong += self.unfair(writer)
        if writer.failed:
            wrong.append(f"{writer.failed} records were not acknowledged: {dict(writer.errors)}")
        if len(outage) * 10 < max(1, len(writer.acks)):
            wrong.append(f"only {len(outage)} of {len(writer.acks)} fell into the outage")
        self.acks = everything
        return {
            "round": number + 1,
            "killed": victim,
            "led": led,
            "controller": acting,
            "then": successor,
            "acked": len(writer.acks),
            "acked_while_dead": len(outage),
            "longest_silence_s": round(longest_silence(writer.acks, killed - 0.5, stopped), 2),
            "isr_full_after_s": round(healed, 2),
            "sent_anew_so_far": len(self.sent_anew),
            "denied_so_far": dict(Counter(user for user, _ in cluster.denials())),
            "wrong": len(wrong),
        }, wrong

    def unfair(self, writer: Writer) -> list[str]:
        """Return who was denied what they may do, and who was not denied what they may not."""
        cluster = self.cluster
        wrong = [
            f"{count} records of who may write were refused: {name}"
            for name, count in writer.errors.items()
            if "AUTH" in name
        ]
        for broker in cluster.ids:
            said = cluster.told_of(TOPIC, STRANGER, broker)
            if said != DENIED:
                wrong.append(f"broker {broker} tells a user without ACLs {said}")
        self.spread_leaders()  # both kinds are asked
        for partition in range(PARTITIONS):
            error = cluster.refused_write(TOPIC, DESCRIBER, partition)
            if error != DENIED:
                wrong.append(f"the leader of {partition} tells who may only describe {error}")
        denied = [line for user, line in cluster.denials() if user not in (STRANGER, DESCRIBER)]
        return wrong + [f"denied to who has a right: {line}" for line in denied]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=at_least_one, default=8)
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--before", type=float, default=2.0, help="seconds before the kill")
    parser.add_argument("--down", type=float, default=10.0, help="seconds of producing after it")
    parser.add_argument("--dir", type=Path, help="keep the cluster's files here")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        with SecuredMixed(args.dir or Path(folder), ours=len(OURS), theirs=1) as cluster:
            proof = Proof(cluster, args)
            proof.prepare()
            for number in range(args.rounds):
                facts, wrong = proof.one_round(number)
                print(json.dumps(facts), flush=True)
                for line in wrong[:10]:
                    print("  " + line, flush=True)
                bad += bool(wrong)
            cluster.stop()
            for line in (differences := cluster.replica_differences(TOPIC)):
                print("  " + line)
            bad += bool(differences)
    print(f"{args.rounds} rounds, {len(proof.acks)} acknowledged, {bad} with something wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
