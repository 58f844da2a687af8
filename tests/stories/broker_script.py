"""Broker stories: as `script`, but the broker is real and the controller is the story.

A line of a transcript begins with the broker it is about. Commands:

    start 1 2                  boot brokers one by one; each is told UpdateMetadata
    tell 1,2 STATES            LeaderAndIsr to brokers, STATES as in the controller's transcripts:
                               `t-0 1/1,2,3@4 v7 of 1,2,3 new | t-1 ...`
    stop 1 t-0@4 delete | ...  StopReplica
    produce 1 t-0 a b acks=1   one batch
    fetch 1 t-0 at=0 as=2 wait=500 min=1 epoch=0 last=0
    pipeline 1 fetch ... | produce ... | versions
    wait 5 · sigterm 1 · kill 1 · panic 1 · expire 1 · remaining t-0 t-1 · refuse CODE

`tell`, `stop` and `metadata` take `controller=N` (epoch) and `lives_ago=1` (earlier broker epoch).
"""

import re
from pathlib import Path
from typing import Any

from story_broker_world import CONTROLLER, PORT, BrokerWorld, Watching

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.wire.messages.cluster import ApiVersionsRequest
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.messages.records import FetchRequest, ProduceRequest
from ottla.wire.records import Record, build_batch, iter_batches
from ottla.zookeeper import znodes

MARK = "on brokers"
NUMBER_WIDTH = 7
SETTLE_S = 0.05
STATE = re.compile(
    r"(?P<tp>\S+) (?P<leader>-?\d+)/(?P<isr>[\d,]+)@(?P<epoch>\d+) v(?P<version>\d+)"
    r" of (?P<replicas>[\d,]+)(?P<new> new)?"
)


def is_broker_story(path: Path) -> bool:
    return MARK in path.read_text().splitlines()


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def options(words: list[str], **defaults: int) -> dict[str, int]:
    return {**defaults, **{k: int(v) for k, v in (w.split("=") for w in words if "=" in w)}}


class BrokerStory:
    """One file, run against one world."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: list[tuple[str, re.Pattern[str]]] = []

    def run(self) -> str:
        """Run all commands; return the file as it should read."""
        source = self.path.read_text().splitlines()
        settings = [line.removeprefix("set ") for line in source if line.startswith("set ")]
        world = BrokerWorld(dict(s.split("=", 1) for s in settings))
        out: list[str] = []
        try:
            with Watching(world, requests="show requests" in source):
                for line in source:
                    if line.startswith(("> ", ">> ")):
                        out.append(line)
                        mark, command = line.split(" ", 1)
                        happened = self._command(world, command.split())
                        out += happened if mark == ">" else []
                    elif not line.startswith(" "):
                        self._note_step(line)
                        out.append(line)
        finally:
            world.close()
        return "\n".join(out) + "\n"

    def _note_step(self, line: str) -> None:
        if line == "steps none":
            self.steps.clear()
        elif line.startswith("step "):
            _, number, pattern = line.split(maxsplit=2)
            self.steps.append((number, re.compile(pattern)))

    def _command(self, world: BrokerWorld, words: list[str]) -> list[str]:
        world.lines.clear()
        getattr(self, f"do_{words[0]}")(world, words[1:])
        world.simulation.run_for(SETTLE_S)
        return [self._numbered(line) for line in world.lines]

    def _numbered(self, line: str) -> str:
        number = next((n for n, pattern in self.steps if pattern.search(line)), "")
        return f"  {number:<{NUMBER_WIDTH}} {line}"

    # --- what happens around brokers ----------------------------------------------------------

    def do_start(self, world: BrokerWorld, words: list[str]) -> None:
        for word in words:
            world.start(int(word))
        self.do_metadata(world, [])

    def do_wait(self, world: BrokerWorld, words: list[str]) -> None:
        world.simulation.run_for(float(words[0]))

    def do_sigterm(self, world: BrokerWorld, words: list[str]) -> None:
        number = int(words[0])
        node = world.simulation.node(f"b{number}")
        node.loop.call_soon(world.stops[number].set)
        world.wait(lambda: not node.up)

    def do_kill(self, world: BrokerWorld, words: list[str]) -> None:
        world.simulation.node(f"b{words[0]}").crash()

    def do_panic(self, world: BrokerWorld, words: list[str]) -> None:
        """End a broker with its machine; here all that it wrote happens to be on the disk."""
        node = world.simulation.node(f"b{words[0]}")
        for inode in node.disk.inodes.values():
            inode.sync()
        node.disk.commit()
        node.crash(power_loss=True)

    def do_expire(self, world: BrokerWorld, words: list[str]) -> None:
        """End a broker's ZooKeeper session by force; it registers again under a new epoch."""
        number = int(words[0])
        assert world.zookeeper is not None
        zookeeper, path = world.zookeeper, znodes.broker_path(number)
        before = zookeeper.tree.nodes[path]
        world.simulation.node("zk").loop.call_soon(zookeeper.expire, before.owner)
        world.wait(
            lambda: path in zookeeper.tree.nodes and zookeeper.tree.nodes[path].czxid > before.czxid
        )
        world.epochs[number].append(zookeeper.tree.nodes[path].czxid)

    def do_refuse(self, world: BrokerWorld, words: list[str]) -> None:
        world.refusal = int(ErrorCode[words[0]])

    def do_remaining(self, world: BrokerWorld, words: list[str]) -> None:
        world.remaining = [tuple(partition(w)) for w in words]

    # --- what the controller says -------------------------------------------------------------

    def do_metadata(self, world: BrokerWorld, words: list[str]) -> None:
        """Say who lives: those started, or `alive=1,2,3`."""
        named = [numbers(w.removeprefix("alive=")) for w in words if w.startswith("alive=")]
        alive = named[0] if named else world.live
        words = [w for w in words if not w.startswith("alive=")]
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=number,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=PORT, host=host, listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for number, host in [*((n, f"b{n}") for n in alive), (CONTROLLER, "c")]
        ]
        given = options(words, controller=world.controller_epoch, lives_ago=0)
        for number in numbers(words[0]) if words and words[0][0].isdigit() else world.live:
            request = UpdateMetadataRequest(
                controller_id=CONTROLLER,
                controller_epoch=given["controller"],
                broker_epoch=world.epochs[number][-1 - given["lives_ago"]],
                live_brokers=brokers,
            )
            world.ask(
                number, request, 8, lambda a: f"UpdateMetadata {ErrorCode(a.error_code).name}"
            )

    def do_tell(self, world: BrokerWorld, words: list[str]) -> None:
        given = options(words, controller=world.controller_epoch, lives_ago=0)
        topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        text = " ".join(w for w in words[1:] if "=" not in w)
        for part in text.split(" | "):
            found = STATE.fullmatch(part)
            assert found is not None, part
            tp = partition(found["tp"])
            topic = topics.setdefault(
                tp.topic,
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=tp.topic, topic_id=topic_id(tp.topic)
                ),
            )
            topic.partition_states.append(
                LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                    partition_index=tp.partition,
                    controller_epoch=given["controller"],
                    leader=int(found["leader"]),
                    leader_epoch=int(found["epoch"]),
                    isr=numbers(found["isr"]),
                    partition_epoch=int(found["version"]),
                    replicas=numbers(found["replicas"]),
                    is_new=found["new"] is not None,
                )
            )
        for number in numbers(words[0]):
            request = LeaderAndIsrRequest(
                controller_id=CONTROLLER,
                controller_epoch=given["controller"],
                broker_epoch=world.epochs[number][-1 - given["lives_ago"]],
                topic_states=list(topics.values()),
            )
            world.ask(number, request, 7, _leader_and_isr_answer)

    def do_stop(self, world: BrokerWorld, words: list[str]) -> None:
        given = options(words, controller=world.controller_epoch, lives_ago=0)
        topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
        text = " ".join(w for w in words[1:] if "=" not in w)
        for part in text.split(" | "):
            where, _, delete = part.partition(" ")
            name, _, epoch = where.partition("@")
            tp = partition(name)
            topic = topics.setdefault(
                tp.topic, StopReplicaRequest.StopReplicaTopicState(topic_name=tp.topic)
            )
            topic.partition_states.append(
                StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=tp.partition,
                    leader_epoch=int(epoch),
                    delete_partition=delete == "delete",
                )
            )
        for number in numbers(words[0]):
            request = StopReplicaRequest(
                controller_id=CONTROLLER,
                controller_epoch=given["controller"],
                broker_epoch=world.epochs[number][-1 - given["lives_ago"]],
                topic_states=list(topics.values()),
            )
            world.ask(number, request, 4, _stop_replica_answer)

    # --- what clients and followers ask -------------------------------------------------------

    def do_produce(self, world: BrokerWorld, words: list[str]) -> None:
        world.ask(int(words[0]), *_produce(words[1:]))

    def do_fetch(self, world: BrokerWorld, words: list[str]) -> None:
        world.ask(int(words[0]), *_fetch(words[1:]))

    def do_pipeline(self, world: BrokerWorld, words: list[str]) -> None:
        """Send several requests on one connection without waiting for answers."""
        requests = []
        for part in " ".join(words[1:]).split(" | "):
            verb, *rest = part.split()
            requests.append(ASKED[verb](rest))
        desk = world.desk

        async def go() -> None:
            peer = await PeerConnection.open(desk.world, f"b{words[0]}", PORT, "c", timeout_s=5)
            answers = [(peer.send(m, version, 60.0), show) for m, version, show in requests]
            for future, show in answers:
                world.note(f"{words[0]} answers {show(await future)}")
            peer.close()

        desk.loop.create_task(go())


def _versions(_words: list[str]) -> tuple[Any, int, Any]:
    request = ApiVersionsRequest(client_software_name="story", client_software_version="1")
    return request, 3, lambda a: f"ApiVersions {ErrorCode(a.error_code).name}"


def _produce(words: list[str]) -> tuple[Any, int, Any]:
    given = options(words[1:], acks=-1)
    values = [w for w in words[1:] if "=" not in w]
    records = build_batch(
        [
            Record(offset=i, timestamp=1000 + i, key=None, value=v.encode(), headers=())
            for i, v in enumerate(values)
        ]
    )
    tp = partition(words[0])
    item = ProduceRequest.PartitionProduceData(index=tp.partition, records=records)
    data = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[item])
    request = ProduceRequest(acks=given["acks"], timeout_ms=30_000, topic_data=[data])

    def show(answer: Any) -> str:
        got = answer.responses[0].partition_responses[0]
        return f"Produce {tp} {ErrorCode(got.error_code).name} at {got.base_offset}"

    return request, 11, show


def _fetch(words: list[str]) -> tuple[Any, int, Any]:
    """Build a Fetch of one partition, or of none (`-`)."""
    given = options(words[1:], at=0, wait=0, min=1, epoch=-1, last=-1, **{"as": -1})
    topics = []
    if words[0] != "-":
        tp = partition(words[0])
        item = FetchRequest.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=given["epoch"],
            fetch_offset=given["at"],
            last_fetched_epoch=given["last"],
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        topics = [FetchRequest.FetchTopic(topic_id=topic_id(tp.topic), partitions=[item])]
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=given["as"]),
        max_wait_ms=given["wait"],
        min_bytes=given["min"],
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=topics,
    )
    return request, 15, _fetch_answer


ASKED = {"fetch": _fetch, "produce": _produce, "versions": _versions}


# --- answers ----------------------------------------------------------------------------------


def _fetch_answer(answer: Any) -> str:
    shown = []
    for topic in answer.responses:
        for p in topic.partitions:
            name = bytes(topic.topic_id).rstrip(b"\1").decode()
            records = memoryview(p.records or b"")
            offsets = [(h.base_offset, h.last_offset) for _, h in iter_batches(records)]
            got = f"{offsets[0][0]}..{offsets[-1][1]}" if offsets else "nothing"
            there = p.diverging_epoch
            cut = f" diverging epoch={there.epoch} end={there.end_offset}" * (there.epoch >= 0)
            error = ErrorCode(p.error_code).name
            shown.append(f"{name}-{p.partition_index} {error} {got} hw={p.high_watermark}{cut}")
    return "Fetch " + (" | ".join(shown) or "of nothing")


def _leader_and_isr_answer(answer: Any) -> str:
    parts = [
        f"{bytes(t.topic_id).rstrip(bytes([1])).decode()}-{p.partition_index} "
        f"{ErrorCode(p.error_code).name}"
        for t in answer.topics
        for p in t.partition_errors
    ]
    return f"LeaderAndIsr {ErrorCode(answer.error_code).name} {', '.join(parts)}".rstrip()


def _stop_replica_answer(answer: Any) -> str:
    parts = [
        f"{p.topic_name}-{p.partition_index} {ErrorCode(p.error_code).name}"
        for p in answer.partition_errors
    ]
    return f"StopReplica {ErrorCode(answer.error_code).name} {', '.join(parts)}".rstrip()
