"""Brokers of ours and of Apache Kafka 3.9 in one cluster, whichever kind the controller is.

One story, told twice under load: one broker of the controller's kind and two of the other. Under
either kind a topic is created, partitions move onto and off both kinds of brokers (asked for by
Kafka's tool, by an admin client and by znode), preferred leaders are elected, brokers of both
kinds are stopped and killed and return, the controller changes and comes back, and a topic is
deleted. Nothing acknowledged is lost, doubled or reordered; the logs are equal byte for byte.
"""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from support.clients import admin_client, create_topics
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(480),
]

TOPIC, DOOMED = "both", "doomed"
EXIT_OF_A_JVM_ON_SIGTERM = 143


class Story:
    """The steps. `home` is alone of its kind, and that kind is the controller first."""

    def __init__(self, mixed, home: int, tools, folder: Path) -> None:
        self.mixed, self.znodes = mixed, mixed.znodes
        self.home = home
        self.others = [b for b in mixed.ids if b != home]
        self.tools, self.folder = tools, folder
        self.admin = admin_client(mixed.bootstrap)
        self.epoch = 0
        self.began = time.monotonic()
        x, y = self.others
        self.pairs = {3: [x, y], 4: [y, home], 5: [home, x]}
        self.moved = {3: [home, x], 4: [x, y], 5: [y, home]}
        self.grown = {0: [home, x, y], 1: [x, y, home], 2: [y, home, x]}

    def note(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def create(self, topic: str, assignment: dict[int, list[int]]) -> None:
        new = NewTopic(
            topic, len(assignment), replica_assignment=[assignment[p] for p in sorted(assignment)]
        )
        create_topics(self.admin, new)
        self.mixed.wait_full(topic)
        assert self.znodes.assignment(topic) == assignment
        self.note(f"{topic} created by {self.znodes.controller()}")

    def delete(self, topic: str) -> None:
        self.admin.list_topics(timeout=10)
        self.admin.delete_topics([topic], operation_timeout=20)[topic].result(30)
        for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            until(lambda path=path: topic not in self.znodes.names(path), 20, f"{path} is clear")
        until(lambda: not self.mixed.folders(topic), 30, "its folders are gone everywhere")
        self.mixed.wait_agreed()
        self.note(f"{topic} deleted by {self.znodes.controller()}")

    def reassign(self, target: dict[int, list[int]], how: str) -> None:
        """Move partitions; what is left behind is gone from the disks at the end."""
        before = {p: self.znodes.assignment(TOPIC)[p] for p in target}
        getattr(self, f"by_{how}")(target)
        until(
            lambda: (
                self.znodes.assignment(TOPIC).items() >= target.items()
                and not self.znodes.moving(TOPIC)
            ),
            60,
            f"reassigned by {how}",
        )
        until(lambda: not self.znodes.names("/admin").count("reassign_partitions"), 30, "done")
        self.mixed.wait_full(TOPIC)
        left = {(b, f"{TOPIC}-{p}") for p, r in before.items() for b in r if b not in target[p]}
        assert left
        until(
            lambda: not any((self.mixed.folder(b) / name).exists() for b, name in left),
            40,
            f"{left} are off the disks",
        )
        self.note(f"reassigned by {how} under {self.znodes.controller()}")

    def by_tool(self, target: dict[int, list[int]]) -> None:
        file = self.folder / "reassign.json"
        wanted = [{"topic": TOPIC, "partition": p, "replicas": r} for p, r in target.items()]
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        arguments = ("--bootstrap-server", self.mixed.bootstrap, "--execute")
        out = self.tools.run(self.tools.REASSIGN, *arguments, "--reassignment-json-file", str(file))
        assert "Successfully started partition reassignments" in out

    def by_client(self, target: dict[int, list[int]]) -> None:
        from kafka import TopicPartition as Tp
        from kafka.admin import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=self.mixed.bootstrap)
        try:
            wanted = {Tp(TOPIC, p): r for p, r in target.items()}
            answers = admin.alter_partition_reassignments(wanted)
        finally:
            admin.close()
        assert answers == dict.fromkeys(wanted), answers

    def by_znode(self, target: dict[int, list[int]]) -> None:
        self.znodes.ask_to_reassign(TOPIC, target)

    def elect_preferred(self) -> None:
        wanted = [TopicPartition(TOPIC, p) for p in self.pairs | self.grown]

        def asked() -> bool:
            self.admin.list_topics(timeout=10)  # who is the controller now
            answers = self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(90)
            bad = {str(tp): str(e.name()) for tp, e in answers.items() if e is not None}
            wrong = {tp: e for tp, e in bad.items() if "ELECTION_NOT_NEEDED" not in e}
            assert not wrong, wrong
            return True

        # On a machine that is too busy to answer in time: an application asks again.
        until(asked, 120, "the election is answered", despite=(KafkaException, TimeoutError))
        preferred = {p: r[0] for p, r in self.znodes.assignment(TOPIC).items()}
        leaders = {p: s.leader for p, s in self.znodes.states(TOPIC).items()}
        assert leaders == preferred
        assert set(leaders.values()) == set(self.mixed.ids)
        self.mixed.wait_agreed(TOPIC)
        self.note("preferred leaders elected; every broker leads")

    def office_is(self, *brokers: int, moves: int) -> None:
        """Check who is the controller and how often the controller changed since last asked."""
        until(
            lambda: self.znodes.controller() in brokers, 20, f"one of {brokers} is the controller"
        )
        self.mixed.wait_agreed()
        assert self.znodes.controller_epoch() == self.epoch + moves
        self.epoch = self.znodes.controller_epoch()
        controller = self.znodes.controller()
        told = {b: self.mixed.refusals(b) for b in self.mixed.running() if b != controller}
        for request in next(iter(told.values())):
            answers = {b: said[request] for b, said in told.items()}
            assert len(set(answers.values())) == 1, f"{request} is refused in two ways: {answers}"
        self.note(f"broker {controller} is the controller, epoch {self.epoch}")

    def stop(self, broker: int) -> None:
        """SIGTERM: the controller moves every leadership before the broker goes."""
        kind = self.mixed.kind(broker)
        log = kind.log(broker)
        status = kind.terminate(broker)
        ours = kind is self.mixed.ours
        assert status == (0 if ours else EXIT_OF_A_JVM_ON_SIGTERM)
        states = self.znodes.states(TOPIC).values()
        assert not [s for s in states if broker in s.isr or s.leader in (broker, -1)], states
        newest = max(log.parent.glob(f"{log.stem}*.out"), key=lambda p: p.stat().st_mtime)
        said = "controlled shutdown done" if ours else "Controlled shutdown request returned succ"
        assert said in newest.read_text(errors="replace")
        self.note(f"broker {broker} stopped")

    def kill(self, broker: int) -> None:
        """kill -9: leaders on others within the session timeout and a little."""
        from support.mixed import SESSION_MS

        led = [p for p, s in self.znodes.states(TOPIC).items() if s.leader == broker]
        assert led
        self.mixed.kind(broker).kill(broker)
        until(
            lambda: all(s.leader not in (broker, -1) for s in self.znodes.states(TOPIC).values()),
            SESSION_MS / 1000 + 16,
            f"{led} are led by others than {broker}",
        )
        self.note(f"broker {broker} killed")

    def bring_back(self, broker: int) -> None:
        self.mixed.start(broker)
        self.mixed.wait_full(TOPIC)
        self.note(f"broker {broker} is back in every ISR")

    def run(self) -> None:
        from proofs.kill_proof import Writer

        home, (x, y) = self.home, self.others
        self.mixed.wait_agreed()
        self.mixed.give_office_to(home)
        self.epoch = self.znodes.controller_epoch()
        self.create(TOPIC, {0: [home, x], 1: [x, y], 2: [y, home]} | self.pairs)
        self.office_is(home, moves=0)
        self.create(DOOMED, {0: [x, home], 1: [home, y], 2: [y, x]})
        with Writer(self.mixed.bootstrap, 300, Counter(), TOPIC) as writer:
            with Writer(self.mixed.bootstrap, 300, Counter(), DOOMED) as doomed:
                self.reassign(self.moved | self.grown, "tool")
            assert doomed.acks
            assert not doomed.failed
            self.elect_preferred()
            self.reassign(self.pairs, "znode")
            self.delete(DOOMED)
            self.stop(x)
            self.bring_back(x)
            self.kill(y)
            self.bring_back(y)
            self.elect_preferred()
            self.office_is(home, moves=0)

            self.stop(home)
            self.office_is(x, y, moves=1)
            self.bring_back(home)
            self.create(DOOMED, {0: [home, x], 1: [x, y], 2: [y, home]})
            self.reassign(self.moved, "client")
            self.elect_preferred()
            self.reassign(self.pairs, "znode")
            self.delete(DOOMED)
            self.office_is(x, y, moves=0)
            self.elect_preferred()

            self.mixed.give_office_to(home)
            self.office_is(home, moves=1)
            self.kill(home)
            self.office_is(x, y, moves=1)
            self.bring_back(home)
            self.mixed.give_office_to(home)
            self.office_is(home, moves=1)
            ids = [self.mixed.producer_id(b) for b in [*self.mixed.ids, *self.mixed.ids]]
            assert len(set(ids)) == len(ids), ids
        self.check(writer)

    def check(self, writer) -> None:
        from proofs.kill_proof import longest_silence, problems, read_back

        self.mixed.wait_full(TOPIC)
        found = read_back(self.mixed.bootstrap, topic=TOPIC, count=len(self.pairs | self.grown))
        assert not writer.failed
        sent_anew = {n for p in self.pairs | self.grown for n in self.mixed.sent_anew(TOPIC, p)}
        self.note(f"{len(sent_anew)} records were sent anew by a new producer epoch")
        wrong = problems(writer.acks, found, sent_anew)
        assert not wrong, wrong[:5]
        silence = longest_silence(writer.acks, writer.acks[0].at, writer.acks[-1].at)
        self.note(f"{len(writer.acks)} acknowledged, longest silence {silence:.1f} s")
        assert len(writer.acks) > 3000
        self.mixed.stop()
        differences = self.mixed.replica_differences(TOPIC)
        assert not differences, differences


def test_a_jvm_controller_and_two_of_ours(tmp_path, kafka_tools):
    from support.mixed import MixedCluster

    with MixedCluster(tmp_path, ours=2, theirs=1, jvm_first=True) as mixed:
        Story(mixed, mixed.theirs.ids[0], kafka_tools, tmp_path).run()


def test_our_controller_and_two_jvm_brokers(tmp_path, kafka_tools):
    from support.mixed import MixedCluster

    with MixedCluster(tmp_path, ours=1, theirs=2, jvm_first=False) as mixed:
        Story(mixed, mixed.ours.ids[0], kafka_tools, tmp_path).run()
