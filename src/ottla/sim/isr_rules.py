"""In-sync rules: members of an ISR have what is acknowledged, on their disks, at that moment.

Three rules:
- a replica that joins an ISR has all that was acknowledged (R18, KIP-903): a broker that came back
  without its tail must not be let in by what was asked for before;
- when the high watermark moves, acks=all is answered: each member of the ISR in ZooKeeper has the
  records below it (R4);
- of two processes with one broker id only one acknowledges (F53).
Looked at from outside: clients' history and files. A member whose process ended after it fetched,
and whose end was reported to no client, is not judged, nor one whose disk may have lost something.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.sim.history import History
from ottla.sim.loop import SimLoop
from ottla.sim.replica_files import ReplicaFiles
from ottla.sim.znode_rules import TOPICS, Write


class _State(NamedTuple):
    """What ZooKeeper has of a partition."""

    isr: frozenset[int]
    leader: int
    leader_epoch: int


class InSyncRules:
    """Judges one run. `registered_anew`: a broker's current registration is known.

    `whole`: a broker runs, and its disk has lost nothing that it has not got back.
    """

    def __init__(
        self,
        history: History,
        replicas: ReplicaFiles,
        firm: Sequence[TopicPartition],
        registered_anew: Callable[[int], bool],
        whole: Callable[[int], bool],
    ) -> None:
        self.found: list[str] = []
        self.twice: list[str] = []
        """Broker ids of which two processes acknowledged."""
        self.looks = 0
        """How often a high watermark moved that was looked at."""
        self._whole = whole
        self._history = history
        self._replicas = replicas
        self._firm = frozenset(firm)
        self._registered_anew = registered_anew
        self._states: dict[TopicPartition, _State] = {}
        self._acknowledges: dict[TopicPartition, dict[int, SimLoop]] = {}
        """The process of each broker id that moved the high watermark last."""
        self._replaced: dict[tuple[TopicPartition, SimLoop], int] = {}
        """Processes after which another one of their broker id acknowledged, and in which leader
        epoch that one did."""
        self._open = 0
        """The history's writes before this one have their responses."""
        self._acked: dict[TopicPartition, int] = {}
        self.partition_kind = _watched(self)
        """What a broker makes partitions of, so that this looks at their high watermarks."""

    def wrote(self, write: Write) -> None:
        """Hear of a write to ZooKeeper, at its moment."""
        if write.data is None or not write.path.endswith("/state"):
            return
        topic, _, partition, _ = write.path.removeprefix(TOPICS).rsplit("/", 3)
        tp = TopicPartition(topic, int(partition))
        if tp not in self._firm:
            return
        state = json.loads(write.data)
        isr = frozenset(state["isr"])
        before = self._states.get(tp)
        self._states[tp] = _State(isr, state["leader"], state["leader_epoch"])
        newcomers = frozenset() if before is None else isr - before.isr
        if not newcomers:
            return
        acked, ends = self._acked_end(tp), self._replicas.ends(tp)
        self.found += [
            f"{tp}: broker {b} was let in at zxid {write.zxid} with log end {ends.get(b, 0)}; "
            f"acknowledged is what lies below {acked}"
            for b in sorted(newcomers)
            if ends.get(b, 0) < acked and self._registered_anew(b)
        ]

    def restored(self) -> None:
        """ZooKeeper forgot what it had: what it says from now on is compared with nothing."""
        self._states.clear()

    def moves(self, partition: Partition, offset: int) -> None:
        """Hear that a leader is about to move its high watermark."""
        if partition.tp not in self._states:
            return
        tp, broker, epoch = partition.tp, partition.host.broker_id, partition.state.leader_epoch
        process = asyncio.get_running_loop()
        assert isinstance(process, SimLoop)
        self._note_process(tp, broker, epoch, process)
        state = self._states[tp]
        if (state.leader, state.leader_epoch) != (broker, epoch):
            return  # it is not the leader any more, and followers of another prove nothing
        self.looks += 1
        with process.scheduler.elsewhere():  # to look takes no time
            ends = self._replicas.ends(tp)
        self.found += [
            f"{tp}: the high watermark moves to {offset} at broker {broker}, the log of broker {b} "
            f"in the ISR ends at {ends[b]}"
            # Not those that a reassignment is about to drop: no leader waits for them, as in Kafka.
            for b in sorted(state.isr.intersection(partition.state.replicas))
            if ends.get(b, offset) < offset and self._whole(b)
        ]

    def _note_process(self, tp: TopicPartition, broker: int, epoch: int, process: SimLoop) -> None:
        """Note which process acknowledges, and whether another of its id did so in its place."""
        last = self._acknowledges.setdefault(tp, {})
        before = last.setdefault(broker, process)
        if before is process:
            return
        if epoch <= self._replaced.get((tp, process), -1):
            self.twice.append(
                f"{tp}: {process.name} acknowledges in leader epoch {epoch}, and so does "
                f"{before.name} of broker {broker}"
            )
            return
        self._replaced[tp, before] = epoch
        last[broker] = process

    def _acked_end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record that was acknowledged with acks=all."""
        writes = self._history.writes
        for write in writes[self._open :]:
            if write.acked and write.acks == -1 and write.offset >= 0:
                end = write.offset + len(write.values)
                self._acked[write.tp] = max(self._acked.get(write.tp, 0), end)
        while self._open < len(writes) and (
            writes[self._open].completed_s is not None or writes[self._open].abandoned
        ):
            self._open += 1
        return self._acked.get(tp, 0)


def _watched(rules: InSyncRules) -> type[Partition]:
    class Watched(Partition):
        """Has each move of a leader's high watermark looked at."""

        def advance_high_watermark(self, offset: int) -> None:
            if self.state.is_leader:
                rules.moves(self, offset)
            super().advance_high_watermark(offset)

    return Watched
