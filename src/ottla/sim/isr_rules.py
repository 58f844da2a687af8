"""In-sync rules: whoever is let into an ISR has all that was acknowledged, on its disk, then.

Who may call: `cluster`, with every write of a state znode as it happens. Rule R18 and KIP-903: a
broker that came back without its tail must not be let in by what was asked for before. Looked at
from outside: clients' history and files; a member whose process ended after it fetched, and whose
end was reported to no client, is not judged.
"""

import json
from collections.abc import Callable, Sequence

from ottla.model.ids import TopicPartition
from ottla.sim.history import History
from ottla.sim.replica_files import ReplicaFiles
from ottla.sim.znode_rules import TOPICS, Write


class InSyncRules:
    """Judges new ISR members. `registered_anew`: a broker's current registration is known."""

    def __init__(
        self,
        history: History,
        replicas: ReplicaFiles,
        firm: Sequence[TopicPartition],
        registered_anew: Callable[[int], bool],
    ) -> None:
        self.found: list[str] = []
        self._history = history
        self._replicas = replicas
        self._firm = frozenset(firm)
        self._registered_anew = registered_anew
        self._isrs: dict[TopicPartition, frozenset[int]] = {}
        self._open = 0
        """The history's writes before this one have their responses."""
        self._acked: dict[TopicPartition, int] = {}

    def wrote(self, write: Write) -> None:
        """Hear of a write to ZooKeeper, at its moment."""
        if write.data is None or not write.path.endswith("/state"):
            return
        topic, _, partition, _ = write.path.removeprefix(TOPICS).rsplit("/", 3)
        tp = TopicPartition(topic, int(partition))
        if tp not in self._firm:
            return
        isr = frozenset(json.loads(write.data)["isr"])
        newcomers = isr - self._isrs.get(tp, isr)
        self._isrs[tp] = isr
        if not newcomers:
            return
        acked, ends = self._acked_end(tp), self._replicas.ends(tp)
        self.found += [
            f"{tp}: broker {b} was let in at zxid {write.zxid} with log end {ends.get(b, 0)}; "
            f"acknowledged is what lies below {acked}"
            for b in sorted(newcomers)
            if ends.get(b, 0) < acked and self._registered_anew(b)
        ]

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
