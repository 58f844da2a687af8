"""Findings: what must not happen to leaders, by brokers' logs and controllers' journals.

Invariants: a finding says only what the lines prove: the same leader epoch led by two brokers or
given to two, a broker's own order of epochs, controller epochs against leader epochs. Nothing rests
on clocks. A partition that was deleted and created again starts over, with leader epochs from 0.
Lines of state-change.log are those of Kafka 2.8 to 3.9, and ours, at INFO; of TRACE only what a
broker heard of a controller is looked at.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from ottla.admin.log_files.state_changes import merged, of_cluster
from ottla.explain.lines import Entry
from ottla.explain.timestamps import time_text
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import DecisionLine, TopicDeleted, TopicsChanged, partition_of

DOUBLE_LEADER = "double leader"
STALE_LEADER_EPOCH = "stale leader epoch"
STALE_CONTROLLER = "stale controller epoch"

_ROLE = re.compile(
    rb"\[(?P<time>[\d :,-]+)\] \w+ \[Broker id=(?P<broker>\d+)\] (?P<role>Leader|Follower) "
    rb"(?P<topic>\S+)-(?P<partition>\d+) (?:with topic id (?:Some\((?P<id>[^)]*)\)|None) )?"
    rb"starts at leader epoch (?P<epoch>\d+) .*previous leader epoch was (?P<previous>-?\d+)",
    re.IGNORECASE,
)
_STOPPED = re.compile(rb"andling stop replica \(.*?\) for partition (\S+)-(\d+)")
_HEARD = re.compile(
    rb"\[(?P<time>[\d :,-]+)\] \w+ \[Broker id=(?P<broker>\d+)\] "
    rb"(?:Cached leader info|Add \d+ partitions).* controller -?\d+ epoch (?P<epoch>\d+)"
)


class Finding(Struct, frozen=True):
    """One thing that is wrong: `when` as its log has it, in UTC if a journal says so.

    `topic` and `partition` are missing where it is about all that a broker has.
    """

    kind: str
    when: str
    broker: int
    text: str
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET

    @property
    def tp(self) -> TopicPartition | None:
        if isinstance(self.topic, UnsetType) or isinstance(self.partition, UnsetType):
            return None
        return TopicPartition(self.topic, self.partition)


def _wanted(line: bytes) -> bool:
    return (
        b"] Leader " in line
        or b"] Follower " in line
        or b"stop replica" in line
        or (b" controller " in line and b"gnoring" not in line)
    )


def logs_in(paths: Iterable[Path]) -> list[list[Path]]:
    """Return the state change logs of each broker below the folders, none if there are none."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        if path.is_dir():
            try:
                logs = of_cluster(path)
            except OttlaError:
                continue
            for log in logs:
                found.setdefault(log.parent, []).append(log)
    return list(found.values())


def of_logs(brokers: Iterable[list[Path]]) -> list[Finding]:
    """Return what the logs of brokers prove; OttlaError for one that is damaged.

    The files of one broker are read as one, each in its own order.
    """
    led: dict[tuple[TopicPartition, bytes, int], tuple[int, str]] = {}
    recreated: set[TopicPartition] = set()
    found: list[Finding] = []
    for logs in brokers:
        own = _Broker(led, recreated)
        for lines in merged(logs, None, None, _wanted):
            for line in lines:
                found += own.take(line)
    # Without a topic's id nothing tells its leaders from those of a former topic of its name.
    return [one for one in found if one.kind != DOUBLE_LEADER or one.tp not in recreated]


@dataclass(slots=True)
class _Broker:
    """The lines of one broker. `led`: who leads a leader epoch, and since when, of all brokers."""

    led: dict[tuple[TopicPartition, bytes, int], tuple[int, str]]
    recreated: set[TopicPartition]
    _newest: dict[TopicPartition, tuple[int, bytes]] = field(default_factory=dict)
    """Of each partition the newest leader epoch that it acted on, and the topic's id if known."""
    _controller: int = -1

    def take(self, line: bytes) -> Iterator[Finding]:
        role = _ROLE.match(line)
        if role is not None:
            yield from self._role(role)
        elif (stopped := _STOPPED.search(line)) is not None:
            self._newest.pop(TopicPartition(stopped[1].decode(), int(stopped[2])), None)
        elif (heard := _HEARD.match(line)) is not None:
            epoch = int(heard["epoch"])
            if epoch < self._controller:
                text = (
                    f"broker {int(heard['broker'])} acted on a request of controller epoch {epoch} "
                    f"after it had acted on one of controller epoch {self._controller}"
                )
                yield Finding(STALE_CONTROLLER, heard["time"].decode(), int(heard["broker"]), text)
            self._controller = max(self._controller, epoch)

    def _role(self, line: re.Match[bytes]) -> Iterator[Finding]:
        tp = TopicPartition(line["topic"].decode(), int(line["partition"]))
        broker, epoch, time = int(line["broker"]), int(line["epoch"]), line["time"].decode()
        leads, topic_id = line["role"] == b"Leader", line["id"] or b""
        before, known_id = self._newest.get(tp, (-1, b""))
        same_topic = topic_id == known_id != b""
        if epoch < before and (same_topic or line["previous"] != b"-1"):
            role = "leads" if leads else "follows"
            text = (
                f"broker {broker} {role} at leader epoch {epoch} after it had acted on leader "
                f"epoch {before}"
            )
            yield Finding(STALE_LEADER_EPOCH, time, broker, text, *tp)
        else:
            if epoch < before and not topic_id:
                self.recreated.add(tp)
            recreated = epoch < before or (topic_id and known_id and topic_id != known_id)
            self._newest[tp] = epoch, topic_id if recreated else topic_id or known_id
        if leads:
            first, _ = self.led.setdefault((tp, topic_id, epoch), (broker, time))
            if first != broker:
                text = f"brokers {first} and {broker} both lead at leader epoch {epoch}"
                yield Finding(DOUBLE_LEADER, time, broker, text, *tp)


@dataclass(frozen=True, slots=True)
class _Decided:
    leader: int
    controller: int
    epoch: int
    ts: int


@dataclass(slots=True)
class Decisions:
    """Takes a journal's lines; keeps to whom controllers gave which leader epoch."""

    _given: dict[tuple[TopicPartition, int], dict[int, list[_Decided]]] = field(
        default_factory=dict
    )
    """By partition and how often its topic was deleted before, then by leader epoch."""
    _deleted: dict[str, int] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line, facts = entry.line, entry.facts
        if isinstance(line, DecisionLine):
            if line.written and line.after is not None and line.after.leader >= 0:
                tp = partition_of(line.partition)
                decided = _Decided(line.after.leader, line.controller, line.epoch, line.ts)
                of_topic = self._given.setdefault((tp, self._deleted.get(tp.topic, 0)), {})
                some = of_topic.setdefault(line.after.leader_epoch, [])
                if not some or (some[-1].leader, some[-1].epoch) != (decided.leader, decided.epoch):
                    some.append(decided)
        elif isinstance(facts, TopicDeleted):
            self._deleted[facts.topic] = self._deleted.get(facts.topic, 0) + 1
        elif isinstance(facts, TopicsChanged):
            for topic in facts.gone:
                self._deleted[topic] = self._deleted.get(topic, 0) + 1

    def findings(self) -> Iterator[Finding]:
        """Yield the leader epochs that two got, and what a former controller wrote too late."""
        for (tp, _), by_epoch in sorted(self._given.items()):
            newest, newest_epoch = None, -1
            for epoch, some in sorted(by_epoch.items()):
                first = some[0]
                for one in some:
                    if one.leader != first.leader:
                        text = (
                            f"leader epoch {epoch} was given to broker {first.leader} by "
                            f"controller {first.controller} (epoch {first.epoch}) and to broker "
                            f"{one.leader} by controller {one.controller} (epoch {one.epoch})"
                        )
                        yield Finding(DOUBLE_LEADER, time_text(one.ts), one.controller, text, *tp)
                    if newest is None or one.epoch >= newest.epoch:
                        newest, newest_epoch = one, epoch
                    else:
                        text = (
                            f"controller {one.controller} of epoch {one.epoch} wrote leader epoch "
                            f"{epoch} after controller {newest.controller} of epoch {newest.epoch} "
                            f"had written leader epoch {newest_epoch}"
                        )
                        yield Finding(
                            STALE_CONTROLLER, time_text(one.ts), one.controller, text, *tp
                        )
