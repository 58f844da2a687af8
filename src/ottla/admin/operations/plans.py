"""Plans: which brokers each partition is to live on, read, checked, proposed and written.

Who may call: `reassign`, its command and tests. Invariants: plain values in, plain values out, no
cluster is asked; whatever is wrong with a plan is told by its place, the reason and the way out
before anything is sent (fault F42). Kafka's JSON format, and the arithmetic of its
`ReassignPartitionsCommand` (KIP-73 for the throttled replicas); the proposal is our own: Kafka's
`--generate` deals all replicas anew, ours moves as few as an even spread allows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, topic_name_problem

Assignment = dict[TopicPartition, tuple[int, ...]]

MAX_PLAN_BYTES = 8 * 1024 * 1024
"""About 100,000 partitions; more than a controller should be asked for at once."""

PLAN_VERSION = 1
ANY_LOG_DIR = "any"

Places = Mapping[tuple[TopicPartition, int], str]
"""Log dirs that a plan names for replicas: by (partition, broker)."""

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class PlanError(OttlaError):
    """A plan that cannot be meant; the message is one line and names the place."""


class _Entry(Struct):
    topic: str
    partition: _Int32
    replicas: list[_Int32]
    log_dirs: list[str] | None = None


class _Plan(Struct):
    partitions: list[_Entry]
    version: _Int32 = PLAN_VERSION


# --- reading and writing ----------------------------------------------------------------------


def parse_plan(data: bytes, where: str) -> Assignment:
    """Return what a plan in Kafka's JSON format asks for; PlanError names `where` and the place.

    An unknown topic or a dead broker is for `problem_in_cluster` to find.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(
            f"{where}: larger than {MAX_PLAN_BYTES // 1024 // 1024} MiB; split the plan and "
            "execute its parts one after the other"
        )
    if not data.strip():
        raise PlanError(f"{where}: empty; `ottla reassign plan` writes one")
    try:
        plan = msgspec.json.decode(data, type=_Plan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{where}: {_lower(str(error))}; {_FORMAT}") from None
    except RecursionError:
        raise PlanError(f"{where}: nested too deeply; {_FORMAT}") from None
    if plan.version != PLAN_VERSION:
        raise PlanError(f"{where}: version {plan.version} is not known; write version 1")
    for entry in plan.partitions:
        _check_log_dirs(entry, where)
    return checked(
        ((TopicPartition(e.topic, e.partition), tuple(e.replicas)) for e in plan.partitions), where
    )


_FORMAT = 'the format is {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _check_log_dirs(entry: _Entry, where: str) -> None:
    named = entry.log_dirs
    if named is None:
        return
    tp = TopicPartition(entry.topic, entry.partition)
    if len(named) != len(entry.replicas):
        raise PlanError(
            f"{where}: {tp} has {len(entry.replicas)} replicas but {len(named)} log_dirs; "
            'leave log_dirs out, or write "any" for each replica'
        )
    for folder in named:
        if folder != ANY_LOG_DIR and not folder.startswith("/"):
            raise PlanError(
                f"{where}: {tp} names the log dir {folder[:80]!r}; write its whole path, or "
                f'"{ANY_LOG_DIR}"'
            )


def parse_places(data: bytes) -> Places:
    """Return the log dirs that a plan names which `parse_plan` has accepted."""
    plan = msgspec.json.decode(data, type=_Plan)
    return {
        (TopicPartition(entry.topic, entry.partition), broker): folder
        for entry in plan.partitions
        for broker, folder in zip(entry.replicas, entry.log_dirs or (), strict=False)
        if folder != ANY_LOG_DIR
    }


def checked(entries: Iterable[tuple[TopicPartition, tuple[int, ...]]], where: str) -> Assignment:
    """Return entries as a plan; PlanError for what is wrong in itself, whatever the cluster."""
    plan: Assignment = {}
    for tp, replicas in entries:
        shown = _shown(tp)
        problem = topic_name_problem(tp.topic)
        if problem:
            raise PlanError(f"{where}: topic name {tp.topic[:40]!r}: {problem[-200:]}")
        if tp.partition < 0:
            raise PlanError(f"{where}: {shown}: partition {tp.partition}; they begin at 0")
        if tp in plan:
            raise PlanError(f"{where}: {shown} is listed twice; name each partition once")
        if not replicas:
            raise PlanError(f"{where}: {shown} has no replicas; name at least one broker")
        doubled = [broker for broker, count in Counter(replicas).items() if count > 1]
        if doubled:
            raise PlanError(
                f"{where}: {shown} has broker {doubled[0]} twice; name each broker once"
            )
        if min(replicas) < 0:
            raise PlanError(f"{where}: {shown}: broker {min(replicas)}; broker ids begin at 0")
        plan[tp] = replicas
    if not plan:
        raise PlanError(f"{where}: no partition is listed; there is nothing to do")
    return plan


def _shown(tp: TopicPartition) -> str:
    return str(tp)[:300]


def parse_partition(text: str) -> TopicPartition:
    """Parse `topic-0`; ValueError says what is missing."""
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text[:300]!r} is no partition; write TOPIC-PARTITION, as flights-0")
    if not _is_int32(number):
        raise ValueError(f"{text[:300]!r}: there is no such partition number")
    return TopicPartition(topic, int(number))


def _is_int32(digits: str) -> bool:
    return len(digits) <= 10 and int(digits) < 2**31


def parse_move(text: str) -> tuple[TopicPartition, tuple[int, ...]]:
    """Parse `topic-0=1,2,3`; ValueError says what is missing."""
    partition, equals, brokers = text.partition("=")
    if not equals:
        raise ValueError(f"{text[:300]!r}: write TOPIC-PARTITION=BROKERS, as flights-0=1,2,3")
    return parse_partition(partition), parse_brokers(brokers)


def parse_brokers(text: str) -> tuple[int, ...]:
    """Parse `1,2,3`; ValueError names what is no broker id."""
    found = []
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdigit() and _is_int32(word)):
            raise ValueError(f"{word[:80]!r} is no broker id; write them as 1,2,3")
        found.append(int(word))
    return tuple(found)


def format_plan(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return a plan as Kafka's tools read it, on one line, sorted."""
    return msgspec.json.encode(as_dict(assignment)).decode()


def as_dict(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return a plan as Kafka's tools read it, sorted."""
    listed = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_LOG_DIR] * len(replicas),
        }
        for tp, replicas in sorted(assignment.items())
    ]
    return {"version": PLAN_VERSION, "partitions": listed}


def problem_in_cluster(
    plan: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    live: Collection[int],
) -> str | None:
    """Return why a plan does not fit the cluster, or None; `current` has all its topics."""
    topics = {tp.topic for tp in current}
    for tp, replicas in plan.items():
        if tp.topic not in topics:
            return f"topic {tp.topic} does not exist; `ottla topics list` shows those that do"
        if tp not in current:
            count = sum(other.topic == tp.topic for other in current)
            return f"{tp} does not exist: topic {tp.topic} has partitions 0 to {count - 1}"
        dead = [b for b in replicas if b not in live and b not in current[tp]]
        if dead:
            return (
                f"{tp}: broker {dead[0]} is not alive; alive are {','.join(map(str, sorted(live)))}"
            )
    return None


# --- throttles --------------------------------------------------------------------------------


class Throttled(NamedTuple):
    """What a throttle is set on: `partition:broker` lists by topic, and brokers."""

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: list[int]


def throttled(
    plan: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    moving: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]],
) -> Throttled:
    """Return the replicas a throttle of this plan concerns, and those of moves under way.

    `moving` has (original, adding) replicas of each reassignment in progress. Leaders are
    throttled wherever the partition is now, followers only where it is to be: a replica that
    keeps up is never slowed down.
    """
    moves = {tp: (set(sources), set(adding)) for tp, (sources, adding) in moving.items()}
    for tp, replicas in plan.items():
        sources = moves[tp][0] if tp in moves else set(current[tp])
        moves[tp] = (sources, set(replicas) - sources)
    topics = sorted({tp.topic for tp in moves})

    def listed(topic: str, which: int) -> str:
        return ",".join(
            f"{tp.partition}:{broker}"
            for tp in sorted(moves)
            if tp.topic == topic
            for broker in sorted(moves[tp][which])
        )

    return Throttled(
        {topic: listed(topic, 0) for topic in topics},
        {topic: listed(topic, 1) for topic in topics},
        sorted({b for sources, adding in moves.values() for b in sources | adding}),
    )


# --- proposals --------------------------------------------------------------------------------


def propose(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """Return an even spread over `brokers` (id to rack) that moves as few replicas as it can.

    Replicas stay where they are allowed to; those that cannot go to the brokers with the fewest,
    to another rack if there is one; after that no broker has two more than another, unless a
    partition would lose a rack; leadership is evened out by order alone, which copies nothing.
    ValueError: fewer brokers than replicas.
    """
    spread = _Spread(brokers)
    wanted: dict[TopicPartition, int] = {}
    for tp, replicas in sorted(current.items()):
        wanted[tp] = len(replicas) if replication_factor is None else replication_factor
        if wanted[tp] > len(brokers):
            raise ValueError(f"{tp} has {wanted[tp]} replicas, for {len(brokers)} brokers")
        spread.place(tp, [b for b in replicas if b in brokers][: wanted[tp]])
    for tp, count in wanted.items():
        while len(spread.replicas[tp]) < count:
            spread.add(tp)
    spread.level()
    spread.level_leaders()
    return {tp: tuple(replicas) for tp, replicas in spread.replicas.items()}


def drained(
    leaving: Mapping[TopicPartition, Sequence[int]],
    every: Mapping[TopicPartition, Sequence[int]],
    broker: int,
    others: Mapping[int, str | None],
) -> Assignment:
    """Return where the replicas of `broker` go: each to one of `others` (id to rack).

    `leaving` are the partitions with a replica on it, `every` all partitions of the cluster. The
    new replica takes the place of the old one in the list; a rack that the partition does not have
    yet is preferred, then the broker with the fewest replicas. No other replica moves.
    ValueError: all others have a replica already.
    """
    load = dict.fromkeys(sorted(others), 0)
    load.update(Counter(b for replicas in every.values() for b in replicas if b in load))
    plan: Assignment = {}
    for tp, replicas in sorted(leaving.items()):
        free = [b for b in load if b not in replicas]
        if not free:
            raise ValueError(
                f"{tp} has {len(replicas)} replicas and only {len(others)} other brokers are alive"
            )
        taken = {others.get(b) for b in replicas if b != broker} - {None}
        chosen = min(free, key=lambda b: (others[b] in taken, load[b], b))
        load[chosen] += 1
        plan[tp] = tuple(chosen if b == broker else b for b in replicas)
    return plan


class _Spread:
    """Replicas in the making, and how many each broker has."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = racks
        self.load = dict.fromkeys(sorted(racks), 0)
        self.replicas: dict[TopicPartition, list[int]] = {}

    def place(self, tp: TopicPartition, brokers: Sequence[int]) -> None:
        self.replicas[tp] = list(brokers)
        for broker in brokers:
            self.load[broker] += 1

    def add(self, tp: TopicPartition) -> None:
        there = self.replicas[tp]
        taken = {self.racks[b] for b in there} - {None}
        free = [b for b in self.load if b not in there]
        broker = min(free, key=lambda b: (self.racks[b] in taken, self.load[b], b))
        there.append(broker)
        self.load[broker] += 1

    def level(self) -> None:
        """Move single replicas from full to empty brokers until no two differ by more than one.

        A partition never loses a rack by that: where racks differ in size they win over evenness.
        """
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_load = sorted(self.load, key=lambda b: (self.load[b], b))
        for full in reversed(by_load):
            for empty in by_load:
                if self.load[full] - self.load[empty] < 2:
                    break
                for there in self.replicas.values():
                    if full in there and empty not in there and self._may(there, full, empty):
                        there[there.index(full)] = empty
                        self.load[full] -= 1
                        self.load[empty] += 1
                        return True
        return False

    def _may(self, there: Sequence[int], leaving: int, coming: int) -> bool:
        """Tell whether a partition keeps as many racks when one broker takes another's place."""
        others = {self.racks[b] for b in there if b != leaving}
        return self.racks[coming] not in others or self.racks[leaving] in others

    def level_leaders(self) -> None:
        leads = dict.fromkeys(self.load, 0)
        for there in self.replicas.values():
            leads[there[0]] += 1
        swapped = True
        while swapped:
            swapped = False
            for there in self.replicas.values():
                least = min(there, key=lambda b: (leads[b], b))
                if leads[there[0]] - leads[least] >= 2:
                    leads[there[0]] -= 1
                    leads[least] += 1
                    place = there.index(least)
                    there[0], there[place] = there[place], there[0]
                    swapped = True


def moved_replicas(
    before: Mapping[TopicPartition, Sequence[int]], after: Mapping[TopicPartition, Sequence[int]]
) -> int:
    """Count the replicas that have to be copied to brokers that do not have them."""
    return sum(len(set(replicas) - set(before[tp])) for tp, replicas in after.items())
