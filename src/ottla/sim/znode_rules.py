"""Znode rules: what must be true of every single write to ZooKeeper, in the order they were made.

Plain code over the in-memory ZooKeeper's log. One controller at a time writes what is the
controller's (F8, R10): its session is the one that took the last controller epoch. Epochs only
rise, the leader epoch for as long as the topic has its id; a leader is in its ISR, and the ISR
takes in assigned replicas only.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import few

TOPICS = "/brokers/topics/"
DELETIONS = "/admin/delete_topics/"
CONTROLLERS_DELETES = (TOPICS, "/admin/")


class Write(Protocol):
    """A change as the in-memory ZooKeeper logs it; `op` is create, set or delete."""

    @property
    def zxid(self) -> int: ...
    @property
    def session(self) -> int: ...
    @property
    def op(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def data(self) -> bytes | None: ...


class _Rules:
    """What the writes so far have established."""

    def __init__(self) -> None:
        self.epoch = -1
        self.owner = -1
        """The session that took the epoch."""
        self.assignments: dict[str, dict[str, set[int]]] = {}
        self.topic_ids: dict[str, str] = {}
        self.leader_epochs: dict[tuple[str, str, int], int] = {}
        self.isrs: dict[str, set[int]] = {}
        self.deleting: set[str] = set()
        """Topics with a mark in /admin/delete_topics."""
        self.found: list[str] = []

    def judge(self, write: Write) -> None:
        path = write.path
        if path == "/controller_epoch":
            self._take_epoch(write)
        elif path.startswith(TOPICS) and path.count("/") == 3:
            self._topic(write)
        elif path.startswith(TOPICS) and path.endswith("/state"):
            self._state(write)
        elif path.startswith(DELETIONS):
            marked = path.removeprefix(DELETIONS)
            change = self.deleting.discard if write.op == "delete" else self.deleting.add
            change(marked)
        if write.op == "delete" and path.startswith(CONTROLLERS_DELETES):
            self._of_the_controller(write)

    def _wrong(self, write: Write, what: str) -> None:
        if not write.session:
            return  # what a restored copy of the server's files holds
        self.found.append(f"zxid {write.zxid}: {write.path} {what}")

    def _of_the_controller(self, write: Write) -> None:
        if write.session != self.owner:
            self._wrong(
                write,
                f"{write.op} by session {write.session:#x}, but controller epoch {self.epoch} "
                f"is of session {self.owner:#x}",
            )

    def _take_epoch(self, write: Write) -> None:
        if write.data is None:
            return
        epoch = int(write.data)
        if epoch <= self.epoch:
            self._wrong(write, f"controller epoch {self.epoch} → {epoch}")
        self.epoch, self.owner = epoch, write.session

    def _topic(self, write: Write) -> None:
        topic = write.path.removeprefix(TOPICS)
        if write.data is None:
            self.assignments.pop(topic, None)
            self.topic_ids.pop(topic, None)
            return
        said: dict[str, Any] = json.loads(write.data)
        assignment = {p: set(replicas) for p, replicas in said["partitions"].items()}
        before = self.assignments.get(topic)
        if before is not None:
            lost = sorted(before.keys() - assignment.keys())
            # A topic being deleted does not grow: what was added is taken back.
            if lost and topic not in self.deleting:
                self._wrong(write, f"lost partitions {lost}")
            if any(before[p] != assignment.get(p) for p in before):
                self._of_the_controller(write)
            if said.get("topic_id") != self.topic_ids.get(topic):
                self._wrong(write, f"id {self.topic_ids.get(topic)} → {said.get('topic_id')}")
        self.assignments[topic] = assignment
        self.topic_ids[topic] = said.get("topic_id", "")

    def _state(self, write: Write) -> None:
        if write.data is None:
            self.isrs.pop(write.path, None)
            return
        self._of_the_controller(write)
        state = json.loads(write.data)
        topic, _, partition, _ = write.path.removeprefix(TOPICS).rsplit("/", 3)
        key = (topic, self.topic_ids.get(topic, ""), int(partition))
        isr, leader = state["isr"], state["leader"]
        if state["leader_epoch"] < self.leader_epochs.get(key, -1):
            self._wrong(write, f"leader epoch {self.leader_epochs[key]} → {state['leader_epoch']}")
        self.leader_epochs[key] = state["leader_epoch"]
        if leader >= 0 and leader not in isr:
            self._wrong(write, f"leader {leader} is not in ISR {isr}")
        if len(set(isr)) != len(isr):
            self._wrong(write, f"ISR {isr} names a replica twice")
        if state["controller_epoch"] != self.epoch:
            self._wrong(
                write, f"names controller epoch {state['controller_epoch']}, not {self.epoch}"
            )
        assigned = self.assignments.get(topic, {}).get(partition, set())
        strangers = set(isr) - self.isrs.get(write.path, set()) - assigned
        if strangers:
            tp = TopicPartition(topic, int(partition))
            self._wrong(write, f"ISR of {tp} takes in {sorted(strangers)}, not of {assigned}")
        self.isrs[write.path] = set(isr)


def check_znodes(writes: Iterable[Write]) -> list[str]:
    """Judge every write, in zxid order; return what was wrong."""
    rules = _Rules()
    for write in writes:
        rules.judge(write)
    return few("znodes", rules.found)
