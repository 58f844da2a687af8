"""Scenarios of transactions: at their edges (ids nobody has, producers nobody knows, wrong epochs),
and whole: begun, written to, read meanwhile, committed or aborted, read afterwards, fenced.
"""

# ruff: noqa: E501 - a row of a table is a line

from collections.abc import Iterator
from typing import Any

from differential_side import contents
from differential_tables import STAMP, Flow, Scenario, batch, fetch

PRODUCER = "producer_id: each cluster hands out its own"
WHO = {
    "unknown id": {"transactional_id": "nobody", "producer_id": 5, "producer_epoch": 0},
    "empty id": {"transactional_id": "", "producer_id": 5, "producer_epoch": 0},
    "negative producer": {"transactional_id": "nobody", "producer_id": -1, "producer_epoch": -1},
    "another producer": {"transactional_id": "t", "producer_id": 987_654_321, "producer_epoch": 0},
}


def transactions() -> Iterator[Scenario]:
    def init(name: str, **more: Any) -> Scenario:
        request = {"transactional_id": "t", "transaction_timeout_ms": 60_000, **more}
        return Scenario(22, f"transactional, {name}", request, masks=(PRODUCER,))

    yield init("new")
    yield init("without a timeout", transaction_timeout_ms=0)
    yield init("with too long a timeout", transaction_timeout_ms=2**31 - 1)
    topics = [{"name": "read", "partitions": [0]}]
    for name, who in WHO.items():
        old = {f"v3_and_below_{k}": v for k, v in who.items()}
        yield Scenario(24, name, {**old, "v3_and_below_topics": topics}, 0, 3)
        yield Scenario(25, name, {**who, "group_id": "g"})
        yield Scenario(26, f"{name}, commit", {**who, "committed": True})
        yield Scenario(26, f"{name}, abort", {**who, "committed": False})
        offsets = [
            {
                "name": "read",
                "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                ],
            }
        ]
        yield Scenario(28, name, {**who, "group_id": "txn-group", "topics": offsets})
        yield Scenario(28, f"{name}, empty group", {**who, "group_id": "", "topics": offsets})
    for state in (["Empty"], ["Ongoing"], ["Nonsense"]):
        yield Scenario(66, f"in state {state}", {"state_filters": state})
    yield Scenario(65, "unknown", {"transactional_ids": ["nobody"]})
    yield Scenario(65, "empty", {"transactional_ids": [""]})
    for topic, indexes in {"three": [0], "nope": [0], "read": [9, -1]}.items():
        yield Scenario(
            61, f"{topic} {indexes}", {"topics": [{"name": topic, "partition_indexes": indexes}]}
        )


LEDGER = [{"name": "ledger", "partitions": [0]}]
ROUNDS = 14
"""As many as Fetch has versions, which has the most."""
STARTED = "transaction_states[].transaction_start_time_ms: a time"
LAST_SEEN = "topics[].partitions[].active_producers[].last_timestamp: a marker's is a time"
RESTING = ("CompleteCommit", "CompleteAbort", "Empty")


class Transaction:
    """The rows of one flow, by one transactional id per round."""

    def __init__(self, name: str) -> None:
        self.name = name

    def id(self, side: Any) -> str:
        return f"{self.name}-{side.round}"

    def who(self, side: Any, epoch: int = 0) -> dict[str, Any]:
        producer, current = side.producer
        return {
            "transactional_id": self.id(side),
            "producer_id": producer,
            "producer_epoch": current + epoch,
        }

    def learn(self, side: Any, answer: Any) -> None:
        if not answer["error_code"]:
            side.producer = answer["producer_id"], answer["producer_epoch"]
            side.producers[answer["producer_id"]] = f"producer of {self.id(side)}"

    def resting(self, side: Any) -> None:
        """Wait until the markers are written and the coordinator knows it."""

        def complete() -> bool:
            answer = side.ask(65, 0, {"transactional_ids": [self.id(side)]})
            return answer["transaction_states"][0]["transaction_state"] in RESTING

        side.until(complete, f"the transaction of {self.id(side)} does not end")

    def init(
        self, name: str = "init", *, low: int = 0, before: Any = None, **more: Any
    ) -> Scenario:
        def request(side: Any) -> dict[str, Any]:
            fields = {k: v(side) if callable(v) else v for k, v in more.items()}
            return {"transactional_id": self.id(side), "transaction_timeout_ms": 60_000, **fields}

        return Scenario(22, name, request, low, learn=self.learn, before=before)

    def add(self, name: str = "add a partition", epoch: int = 0, topics: Any = LEDGER) -> Scenario:
        def request(side: Any) -> dict[str, Any]:
            who = {f"v3_and_below_{k}": v for k, v in self.who(side, epoch).items()}
            return {**who, "v3_and_below_topics": topics}

        return Scenario(24, name, request, 0, 3)

    def write(
        self, name: str = "write", epoch: int = 0, sequence: int = 0, topic: str = "ledger"
    ) -> Scenario:
        def request(side: Any) -> dict[str, Any]:
            producer, current = side.producer
            records = batch(
                b"a", b"b", stamp=STAMP, is_transactional=True, producer_id=producer,
                producer_epoch=current + epoch, base_sequence=sequence,
            )  # fmt: skip
            parts = [{"index": 0, "records": records}]
            topics = [{"name": topic, "partition_data": parts}]
            wanted = {"acks": -1, "timeout_ms": 9000, "topic_data": topics}
            return {"transactional_id": self.id(side), **wanted}

        return Scenario(0, name, request, 3)

    def offsets(self, name: str = "add offsets", epoch: int = 0) -> Scenario:
        return Scenario(25, name, lambda s: {**self.who(s, epoch), "group_id": self.id(s)})

    def commit_offsets(self, name: str = "commit offsets", epoch: int = 0) -> Scenario:
        part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
        topics = [{"name": "read", "partitions": [part]}]
        return Scenario(
            28, name, lambda s: {**self.who(s, epoch), "group_id": self.id(s), "topics": topics}
        )

    def end(self, name: str, *, commit: bool, epoch: int = 0, before: Any = None) -> Scenario:
        request = lambda s: {**self.who(s, epoch), "committed": commit}  # noqa: E731
        return Scenario(26, name, request, before=before)

    def looks(self, when: str) -> Iterator[Scenario]:
        """Yield everything that shows a transaction to others."""
        for level in (0, 1):
            yield Scenario(
                1,
                f"{when}, read at level {level}",
                lambda s, level=level: fetch(s, "ledger", isolation_level=level),
                4,
                masks=("session_id: drawn by chance",),
                seen=contents,
            )
            latest = [{"partition_index": 0, "timestamp": -1}]
            yield Scenario(2, f"{when}, its end at level {level}", {
                "replica_id": -1, "isolation_level": level,
                "topics": [{"name": "ledger", "partitions": latest}]}, 2)  # fmt: skip
        yield Scenario(65, f"{when}, described", lambda s: {
            "transactional_ids": [self.id(s)]}, masks=(STARTED,))  # fmt: skip
        yield Scenario(66, f"{when}, listed", lambda s: {
            "producer_id_filters": [s.producer[0]]})  # fmt: skip
        yield Scenario(61, f"{when}, its producers", {
            "topics": [{"name": "ledger", "partition_indexes": [0]}]}, masks=(LAST_SEEN,))  # fmt: skip
        one = [{"name": "read", "partition_indexes": [0]}]
        for stable in (False, True):
            yield Scenario(9, f"{when}, its offsets, stable: {stable}", lambda s, stable=stable: {
                "groups": [{"group_id": self.id(s), "topics": one}], "require_stable": stable}, 8)  # fmt: skip
        yield Scenario(9, f"{when}, its offsets", lambda s: {
            "group_id": self.id(s), "topics": one}, 1, 7)  # fmt: skip


def transaction_flows() -> Iterator[Flow]:
    for commit in (True, False):
        name = "committed" if commit else "aborted"
        t = Transaction(name)
        yield Flow(name, (
            t.init(),
            t.write("write before the partition is added"),
            t.add(),
            t.add("add it again"),
            t.add("add unknown ones", topics=[{"name": "ledger", "partitions": [0, 9]}]),
            t.write(),
            t.write("write it twice"),
            t.write("write out of order", sequence=9),
            t.write("write on", sequence=2),
            t.write("write to another topic", topic="other"),
            t.commit_offsets("commit offsets before they are added"),
            t.offsets(),
            t.commit_offsets(),
            *t.looks("open"),
            t.end("end it", commit=commit),
            t.end("end it again", commit=commit, before=t.resting),
            t.end("end it otherwise", commit=not commit),
            *t.looks("ended"),
            t.write("write without a transaction", sequence=4),
            t.commit_offsets("commit offsets without a transaction"),
        ), ROUNDS)  # fmt: skip
    t = Transaction("fenced")
    yield Flow("fenced", (
        t.init(),
        t.add(),
        t.write(),
        t.init("init amid a transaction"),
        t.init("init once more", before=t.resting),
        *(make(f"{make.__name__} of {title}", epoch=epoch)
          for title, epoch in {"the last epoch": -1, "an epoch to come": 5}.items()
          for make in (t.add, t.write, t.offsets, t.commit_offsets)),
        t.end("end of the last epoch", commit=True, epoch=-1),
        t.end("end of an epoch to come", commit=True, epoch=5),
        t.init("init by the last epoch", low=3, producer_id=lambda s: s.producer[0],
               producer_epoch=lambda s: s.producer[1] - 1),
        t.init("init by the epoch", low=3, producer_id=lambda s: s.producer[0],
               producer_epoch=lambda s: s.producer[1]),
        t.init("init by another producer", low=3, producer_id=lambda s: s.producer[0] + 1000,
               producer_epoch=lambda s: s.producer[1]),
        t.end("end of nothing", commit=True),
        *t.looks("fenced"),
    ), 6)  # fmt: skip
