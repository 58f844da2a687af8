r"""Stories: text files of commands and of what must follow, word for word.

    # a remark
    step 1.3.3 ^zk .*/state     lines of transcripts from here on that match carry this number
    steps none                  forget the numbers
    > kill 2                    a command; its transcript follows
    >> start 1 2 3              a command that only sets the scene: no transcript

A transcript line is `zk` (a znode written, with who wrote it), `event` (what the controller is
handling, with the facts it read), `states` (subjects that moved), `why` (a decision: its rule, the
state before and after, who was passed over and for what reason) or `told` (a request a broker
received). A prime marks a broker's later incarnation. The numbers are steps of the seed
documents; docs/SEEDS.md says which document.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from story_harness import Cluster, Told

from ottla.controller.batch import LEADER_AND_ISR, UPDATE_METADATA
from ottla.controller.elections import ElectionKind
from ottla.controller.events import LeaderBalanceDue
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.rules import words_of
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
)
from ottla.zookeeper import znodes
from ottla.zookeeper.memory import LoggedWrite

NUMBER_WIDTH = 7
PORT = 9092
# Facts of events that a replay needs and a reader does not.
LEFT_OUT = {"present", "known", "shutting_down", "broker_epoch", "known_epoch", "ids", "states"}
# Lines that only a replay of procedures needs: what they say stands in others, or in ZooKeeper.
REPLAY_INPUTS = {"EffectPerformed", "StatesRead", "PartitionChangeAsked", "StopReplicaResponse"}
NewCluster = Callable[[dict[str, str]], Awaitable[Cluster]]


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def replicas(words: list[str]) -> dict[int, tuple[int, ...]]:
    """Read `0:1,2,3 1:2,3,1`."""
    found = {}
    for word in words:
        number, _, ids = word.partition(":")
        found[int(number)] = tuple(map(int, ids.split(",")))
    return found


class Story:
    """One file, run against one cluster."""

    def __init__(self, path: Path, new_cluster: NewCluster | None = None) -> None:
        """`new_cluster` makes another world from the story's settings than an in-memory one."""
        self.path = path
        self.new_cluster = new_cluster or _in_memory
        self.steps: list[tuple[str, re.Pattern[str]]] = []

    async def run(self) -> str:
        """Run all commands; return the file as it should read."""
        source = self.path.read_text().splitlines()
        properties = dict(
            line.removeprefix("set ").strip().split("=", 1)
            for line in source
            if line.startswith("set ")
        )
        cluster = await self.new_cluster(properties)
        out: list[str] = []
        try:
            for line in source:
                if line.startswith(">> "):
                    out.append(line)
                    await self._command(cluster, line[3:].split())
                elif line.startswith("> "):
                    out.append(line)
                    out += await self._command(cluster, line[2:].split())
                elif not line.startswith(" "):
                    self._note_step(line)
                    out.append(line)
        finally:
            await cluster.close()
        return "\n".join(out) + "\n"

    def _note_step(self, line: str) -> None:
        if line == "steps none":
            self.steps.clear()
        elif line.startswith("step "):
            _, number, pattern = line.split(maxsplit=2)
            self.steps.append((number, re.compile(pattern)))

    async def _command(self, cluster: Cluster, words: list[str]) -> list[str]:
        verb, *rest = words
        said = await getattr(self, f"do_{verb}")(cluster, rest)
        await cluster.settle()
        lines = [said] if said else []
        return [self._numbered(line) for line in lines + transcript(cluster)]

    def _numbered(self, line: str) -> str:
        number = next((n for n, pattern in self.steps if pattern.search(line)), "")
        return f"  {number:<{NUMBER_WIDTH}} {line}"

    # --- commands ---------------------------------------------------------------------------

    async def do_start(self, cluster: Cluster, words: list[str]) -> None:
        for word in words:
            broker, _, rack = word.partition("@")
            await cluster.start(int(broker), rack or None)
            await cluster.settle()

    async def do_restart(self, cluster: Cluster, words: list[str]) -> None:
        for word in words:
            stub = cluster.brokers[int(word)]
            await cluster._join(stub)

    async def do_kill(self, cluster: Cluster, words: list[str]) -> None:
        for word in words:
            await cluster.kill(int(word))
            await cluster.settle()

    async def do_bounce(self, cluster: Cluster, words: list[str]) -> None:
        await cluster.bounce(int(words[0]))

    async def do_deaf(self, cluster: Cluster, words: list[str]) -> None:
        cluster.brokers[int(words[0])].deaf = True

    async def do_silent(self, cluster: Cluster, words: list[str]) -> None:
        """A broker hears everything and answers nothing."""
        cluster.brokers[int(words[0])].silent = True

    async def do_loud(self, cluster: Cluster, words: list[str]) -> None:
        cluster.brokers[int(words[0])].silent = False

    async def do_whole(self, cluster: Cluster, words: list[str]) -> None:
        """What brokers will say when they register: `whole 1 2`, or `whole 1 no`, of their logs."""
        for word in words:
            if word == "no":
                continue
            cluster.whole[int(word)] = "no" not in words
            if int(word) in cluster.brokers:
                cluster.brokers[int(word)].whole = "no" not in words

    async def do_void(self, cluster: Cluster, words: list[str]) -> None:
        """A leader voids the record of eligible replicas before it acknowledges without them."""
        tp = partition(words[0])
        found = await cluster.admin.states.get_one(tp)
        assert found is not None
        state = found.leader_and_isr
        isr = frozenset(state.isr), state.partition_epoch
        assert await cluster.admin.eligible.void({tp: isr}) == {tp}

    async def do_ends(self, cluster: Cluster, words: list[str]) -> None:
        """Where a broker's log of a partition ends: `ends 2 t-0 5:100`, by epoch and offset."""
        epoch, _, end = words[2].partition(":")
        tp = partition(words[1])
        cluster.brokers[int(words[0])].ends[tp.topic, tp.partition] = int(epoch), int(end)

    async def do_leaders(self, cluster: Cluster, words: list[str]) -> str:
        """Show leaders and ISRs as they are stored, in the manner of the documents' tables."""
        info = (await cluster.admin.topics.get_many([words[0]]))[words[0]]
        assert info is not None
        shown = []
        for number in sorted(info.assignment):
            state = await cluster.admin.states.get_one(TopicPartition(words[0], number))
            assert state is not None
            led = state.leader_and_isr
            shown.append(f"{number}:{led.leader}/{ids(led.isr)}")
        return "stored " + "  ".join(shown)

    async def do_create(self, cluster: Cluster, words: list[str]) -> None:
        config = dict(w.split("=", 1) for w in words[1:] if "=" in w)
        await cluster.create_topic(words[0], replicas([w for w in words[1:] if ":" in w]), config)

    async def do_grow(self, cluster: Cluster, words: list[str]) -> None:
        await cluster.grow(words[0], replicas(words[1:]))

    async def do_delete(self, cluster: Cluster, words: list[str]) -> None:
        await cluster.admin.topics.request_deletion(words[0])

    async def do_undeletable(self, cluster: Cluster, words: list[str]) -> None:
        cluster.brokers[int(words[0])].undeletable = {partition(w) for w in words[1:]}

    async def do_disk(self, cluster: Cluster, words: list[str]) -> None:
        """Break a broker's folder under some partitions."""
        stub = cluster.brokers[int(words[0])]
        stub.failed_replicas = {partition(w) for w in words[1:]}
        assert stub.store is not None
        await stub.store.log_dir_events.notify(stub.info.id)

    async def do_notify(self, cluster: Cluster, words: list[str]) -> None:
        """An old leader writes an ISR by itself and says so."""
        tp = partition(words[0])
        isr = tuple(map(int, words[1].split(",")))
        state = await cluster.admin.states.get_one(tp)
        assert state is not None

        new = replace(state.leader_and_isr, isr=isr)
        await cluster.admin.states.update({tp: new}, state.controller_epoch)
        await cluster.admin.isr_changes.notify([tp])

    async def do_prefer(self, cluster: Cluster, words: list[str]) -> None:
        await cluster.admin.admin_requests.create_preferred_election([partition(w) for w in words])

    async def do_reassign(self, cluster: Cluster, words: list[str]) -> None:
        """Ask for reassignments as the old tool did: `t-0:4,5,6`."""
        asked = {}
        for word in words:
            tp, _, ids = word.partition(":")
            asked[partition(tp)] = tuple(map(int, ids.split(",")))
        await cluster.admin.admin_requests.create_reassignment(asked)

    async def do_move(self, cluster: Cluster, words: list[str]) -> str:
        """Ask for reassignments as the API does: `t-0:4,5,6`, or `t-0:-` to cancel."""
        asked: dict[TopicPartition, tuple[int, ...] | None] = {}
        for word in words:
            tp, _, ids = word.partition(":")
            asked[partition(tp)] = None if ids == "-" else tuple(map(int, ids.split(",")))
        answers = await cluster.active.alter_reassignments(asked)
        return "answer " + ", ".join(f"{tp} {e.name}" for tp, (e, _) in answers.items())

    async def do_elect(self, cluster: Cluster, words: list[str]) -> str:
        """Ask for elections as the API does: `elect preferred t-0`, or `elect unclean all`."""
        kind = ElectionKind[words[0].upper()]
        chosen = None if words[1] == "all" else [partition(w) for w in words[1:]]
        answers = await cluster.active.elect_leaders(kind, chosen)
        return "answer " + (", ".join(f"{tp} {e.name}" for tp, (e, _) in answers.items()) or "none")

    async def do_balance(self, cluster: Cluster, _words: list[str]) -> None:
        """Let the time of the next leader balance come."""
        cluster.active._post(LeaderBalanceDue())

    async def do_config(self, cluster: Cluster, words: list[str]) -> None:
        """Change a topic's settings: `config t key=value`."""
        config = dict(w.split("=", 1) for w in words[1:])
        await cluster.admin.configs.set("topics", words[0], config)
        if config.get("unclean.leader.election.enable") == "true":
            cluster.active.unclean_election_enabled(words[0])

    async def do_shrink(self, cluster: Cluster, words: list[str]) -> None:
        """Write a topic with fewer partitions, as nobody should."""
        await cluster.shrink(words[0], int(words[1]))

    async def do_expire(self, cluster: Cluster, words: list[str]) -> None:
        """End a broker's session by force; its process lives on and begins a new one."""
        await cluster.kill(int(words[0]))
        await cluster.settle()
        await cluster._join(cluster.brokers[int(words[0])])

    async def do_unseat(self, cluster: Cluster, _words: list[str]) -> None:
        """Somebody deletes /controller by hand."""
        await cluster.admin.session.delete(znodes.CONTROLLER)

    async def do_endpoint(self, cluster: Cluster, words: list[str]) -> None:
        """A broker registers another port under the same session."""
        await cluster.move_endpoint(int(words[0]), int(words[1]))

    async def do_usurp(self, cluster: Cluster, words: list[str]) -> None:
        await cluster.usurp()

    async def do_isr(self, cluster: Cluster, words: list[str]) -> str:
        """A leader asks for an ISR: `isr t-0 1,2`, with `by=`, `epoch=`, `version=` to disturb.

        It names each member's current registration, with `life=3` the one before of broker 3;
        `life=none` names none, as JVM leaders do.
        """
        tp = partition(words[0])
        isr = [int(w) for w in words[1].split(",")]
        options = dict(w.split("=") for w in words[2:])
        context = cluster.active.context
        assert context is not None
        known = context.leadership[tp].leader_and_isr
        asking = int(options.get("by", known.leader))
        epochs = cluster.brokers[asking].epochs
        request = AlterPartitionRequest(
            broker_id=asking,
            broker_epoch=epochs[-1] - int(options.get("incarnations_ago", 0)),
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=context.topic_id(tp.topic),
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=tp.partition,
                            leader_epoch=known.leader_epoch + int(options.get("epoch", 0)),
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(
                                    broker_id=b,
                                    broker_epoch=_life(cluster, b, options.get("life")),
                                )
                                for b in isr
                            ],
                            leader_recovery_state=int(
                                options.get("recovery", known.recovery_state)
                            ),
                            partition_epoch=known.partition_epoch + int(options.get("version", 0)),
                        )
                    ],
                )
            ],
        )
        response = await cluster.active.alter_partition(request)
        if response.error_code:
            return f"answer {ErrorCode(response.error_code).name}"
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            return f"answer {tp} {ErrorCode(answer.error_code).name}"
        return (
            f"answer {tp} leader={answer.leader_id} leader_epoch={answer.leader_epoch} "
            f"isr={ids(answer.isr)} partition_epoch={answer.partition_epoch}"
        )

    async def do_shutdown(self, cluster: Cluster, words: list[str]) -> str:
        stub = cluster.brokers[int(words[0])]
        epoch = stub.epochs[0] if "stale" in words else stub.epochs[-1]
        response = await cluster.active.controlled_shutdown(
            ControlledShutdownRequest(broker_id=stub.info.id, broker_epoch=epoch)
        )
        left = [f"{r.topic_name}-{r.partition_index}" for r in response.remaining_partitions]
        return f"answer {ErrorCode(response.error_code).name} remaining={','.join(left) or 'none'}"

    async def do_ids(self, cluster: Cluster, words: list[str]) -> str:
        stub = cluster.brokers[int(words[0])]
        response = await cluster.active.allocate_producer_ids(
            AllocateProducerIdsRequest(broker_id=stub.info.id, broker_epoch=stub.epochs[-1])
        )
        start, length = response.producer_id_start, response.producer_id_len
        return f"answer {ErrorCode(response.error_code).name} ids={start}+{length}"


async def _in_memory(properties: dict[str, str]) -> Cluster:
    return await Cluster.create(**properties)


# --- transcripts ------------------------------------------------------------------------------


def ids(values: Any) -> str:
    return ",".join(map(str, values)) or "none"


def transcript(cluster: Cluster) -> list[str]:
    """Take what happened since the last time, in order; the same told to several in one line."""
    lines: list[str] = []
    told: list[tuple[str, str]] = []

    def flush() -> None:
        grouped: dict[str, list[str]] = {}
        for who, what in told:
            grouped.setdefault(what, []).append(who)
        lines.extend(f"told {','.join(who)} {what}" for what, who in grouped.items())
        told.clear()

    happened, cluster.lines = cluster.lines, []
    for kind, what in happened:
        if kind == "journal" and what[1]["kind"] == "told":
            entry = told_entry(cluster, *what)
            if entry in told:
                flush()  # the next step says the same again
            told.append(entry)
            continue
        flush()
        if kind == "write":
            lines += write_lines(cluster, what)
        else:
            lines += journal_lines(what[1])
    flush()
    return lines


def write_lines(cluster: Cluster, write: LoggedWrite) -> list[str]:
    who = cluster.sessions.get(write.session, "?")
    head = f"zk {who} {write.op} {write.path}"
    if write.op == "delete":
        return [head]
    if write.path.endswith("/state") and write.data:
        tp = TopicPartition("", 0)
        state = znodes.decode_state(tp, write.data, write.version)
        s = state.leader_and_isr
        recovering = " recovering" if s.recovery_state else ""
        leadership = f"leader={s.leader} leader_epoch={s.leader_epoch} isr={ids(s.isr)}"
        version = f"controller_epoch={state.controller_epoch} v{write.version}"
        return [f"{head} {leadership} {version}{recovering}"]
    data = (write.data or b"").decode("utf-8", "replace")
    data = re.sub(r'"(topic_id|timestamp)":"[^"]*"', r'"\1":..', data)
    if write.path.startswith(znodes.BROKER_IDS):
        data = ""
    return [f"{head} {data}".rstrip()]


def journal_lines(entry: dict[str, Any]) -> list[str]:
    if entry["kind"] == "event":
        if entry["event"] in REPLAY_INPUTS:
            return []
        inputs = entry.get("inputs", {})
        facts = " ".join(f"{k}={fact(v)}" for k, v in inputs.items() if k not in LEFT_OUT)
        return [f"event {entry['event']} {facts}".rstrip()]
    if entry["kind"] == "states":
        subjects = ", ".join(entry["subjects"])
        return [f"states {entry['before']} -> {entry['after']}: {subjects}"]
    if entry["kind"] == "decision":
        rejected = "; ".join(f"not {r} ({why})" for r, why in entry["rejected"])
        outcome = "" if entry["outcome"] == "written" else f" [{entry['outcome']}]"
        return [
            f"why {entry['partition']} {entry['election']}: {words_of(entry['rule'])}"
            f" {state(entry['before'])} -> {state(entry['after'])}"
            + (f"; {rejected}" if rejected else "")
            + outcome
        ]
    return []


def state(value: dict[str, Any] | None) -> str:
    if value is None:
        return "nothing"
    return f"{value['leader']}/{ids(value['isr'])}@{value['leader_epoch']}"


def fact(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(fact, value)) or "none"
    if isinstance(value, dict):
        return "{" + " ".join(f"{k}:{fact(v)}" for k, v in value.items()) + "}"
    return str(value)


def told_entry(cluster: Cluster, controller: int, entry: dict[str, Any]) -> tuple[str, str]:
    """Return whom and what, from what that broker really received."""
    queue = cluster.told[controller]
    match: Told | None = None
    for told in queue:
        if told.broker == entry["broker"] and told.api_key == entry["api"]:
            match = told
            break
    if match is None:
        return str(entry["broker"]), f"(not delivered) {entry['what']}"
    queue.remove(match)
    message = match.message
    who = cluster.incarnation(match.broker, message.broker_epoch)
    if match.api_key == LEADER_AND_ISR:
        return who, "LeaderAndIsr " + leader_and_isr(message)
    if match.api_key == UPDATE_METADATA:
        return who, "UpdateMetadata " + update_metadata(message)
    return who, "StopReplica " + stop_replica(message)


def _life(cluster: Cluster, broker: int, option: str | None) -> int:
    stub = cluster.brokers.get(broker)
    if option == "none" or stub is None:
        return -1
    return stub.epochs[-2 if option == str(broker) else -1]


def leader_and_isr(message: Any) -> str:
    parts = []
    for topic in message.topic_states:
        for p in topic.partition_states:
            extra = f" adding={ids(p.adding_replicas)}" if p.adding_replicas else ""
            extra += f" removing={ids(p.removing_replicas)}" if p.removing_replicas else ""
            extra += " recovering" if p.leader_recovery_state else ""
            extra += " new" if p.is_new else ""
            parts.append(
                f"{topic.topic_name}-{p.partition_index} {p.leader}/{ids(p.isr)}"
                f"@{p.leader_epoch} v{p.partition_epoch} of {ids(p.replicas)}{extra}"
            )
    leaders = ids(leader.broker_id for leader in message.live_leaders)
    return f"{' | '.join(parts)} leaders={leaders}"


def _live(broker: Any) -> str:
    """Return a live broker's id, with its port where that is not the one it started with."""
    (endpoint,) = broker.endpoints
    return f"{broker.id}" if endpoint.port == PORT else f"{broker.id}:{endpoint.port}"


def update_metadata(message: Any) -> str:
    parts = [f"live={ids(map(_live, message.live_brokers))}"]
    for topic in message.topic_states:
        for p in topic.partition_states:
            offline = f" offline={ids(p.offline_replicas)}" if p.offline_replicas else ""
            parts.append(
                f"{topic.topic_name}-{p.partition_index} {p.leader}/{ids(p.isr)}"
                f"@{p.leader_epoch} v{p.zk_version}{offline}"
            )
    return " | ".join(parts)


def stop_replica(message: Any) -> str:
    return " | ".join(
        f"{topic.topic_name}-{p.partition_index}@{p.leader_epoch}"
        + (" delete" if p.delete_partition else "")
        for topic in message.topic_states
        for p in topic.partition_states
    )
