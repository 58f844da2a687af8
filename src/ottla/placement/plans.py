"""Plans: which brokers each partition is to live on, read, checked and written.

Invariants: plain values in, plain values out, no cluster is asked; whatever is wrong with a plan is
named by its place, the reason and the way out before anything is sent (fault F42). Kafka's JSON
formats, and the arithmetic of its `ReassignPartitionsCommand` (KIP-73 for the throttled replicas);
files of topics and of elections are read here, too (`parseTopicsData`,
`LeaderElectionCommand.parseReplicaElectionData`). What is proposed: `spread`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, topic_name_problem
from ottla.model.printable import plural

T = TypeVar("T")
Assignment = dict[TopicPartition, tuple[int, ...]]

MAX_PLAN_BYTES = 8 * 1024 * 1024
"""About 100,000 partitions; more than a controller should be asked for at once."""

PLAN_VERSION = 1
ANY_LOG_DIR = "any"

Places = Mapping[tuple[TopicPartition, int], str]
"""Log dirs that a plan names for replicas: by (partition, broker)."""

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class PlanError(OttlaError):
    """An invalid plan; the message is one line and names the place."""


class PlanEntry(Struct):
    """The replicas of one partition, and the log dir of each."""

    topic: str
    partition: _Int32
    replicas: list[_Int32]
    log_dirs: list[str] | None = None


class PlanFile(Struct, kw_only=True):
    """A plan in Kafka's JSON format."""

    version: _Int32 = PLAN_VERSION
    partitions: list[PlanEntry]


# --- reading and writing ----------------------------------------------------------------------


def parse_plan(data: bytes, where: str) -> Assignment:
    """Return what a plan in Kafka's JSON format asks for; PlanError names `where` and the place.

    An unknown topic or a dead broker is for `problem_in_cluster` to find.
    """
    if len(data) <= MAX_PLAN_BYTES and not data.strip():
        raise PlanError(f"{where}: empty; `ottla reassign plan` writes one")
    too_large = "split the plan and execute its parts one after the other"
    plan = decoded(data, where, PlanFile, _FORMAT, too_large=too_large)
    if plan.version != PLAN_VERSION:
        raise PlanError(f"{where}: version {plan.version} is not supported; write version 1")
    for entry in plan.partitions:
        _check_log_dirs(entry, where)
    return checked(
        ((TopicPartition(e.topic, e.partition), tuple(e.replicas)) for e in plan.partitions), where
    )


_FORMAT = 'the format is {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


def decoded(data: bytes, where: str, form: type[T], example: str, *, too_large: str) -> T:
    """Return a file in one of Kafka's JSON formats; PlanError names `where` and the way out.

    `example`: what the format is; `too_large`: what to do with a file above MAX_PLAN_BYTES.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(f"{where}: larger than {MAX_PLAN_BYTES // 1024 // 1024} MiB; {too_large}")
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{where}: {_lower(str(error))}; {example}") from None
    except RecursionError:
        raise PlanError(f"{where}: nested too deeply; {example}") from None


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _check_log_dirs(entry: PlanEntry, where: str) -> None:
    named = entry.log_dirs
    if named is None:
        return
    tp = TopicPartition(entry.topic, entry.partition)
    if len(named) != len(entry.replicas):
        raise PlanError(
            f"{where}: {tp} has {plural(len(entry.replicas), 'replica')} but {len(named)} "
            "log_dirs; "
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
    plan = msgspec.json.decode(data, type=PlanFile)
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
        raise ValueError(
            f"{text[:300]!r} is not a partition; write TOPIC-PARTITION, as in flights-0"
        )
    if not _is_int32(number):
        raise ValueError(f"{text[:300]!r}: not a valid partition number")
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
    """Parse `1,2,3`; ValueError names the part that is not a broker id."""
    found = []
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdigit() and _is_int32(word)):
            raise ValueError(f"{word[:80]!r} is not a broker id; write them as 1,2,3")
        found.append(int(word))
    return tuple(found)


def format_plan(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return a plan as Kafka's tools read it, on one line, sorted."""
    listed = [
        PlanEntry(tp.topic, tp.partition, list(replicas), [ANY_LOG_DIR] * len(replicas))
        for tp, replicas in sorted(assignment.items())
    ]
    return msgspec.json.encode(PlanFile(partitions=listed)).decode()


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


class Move(NamedTuple):
    """A reassignment in progress, as the controller lists it."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.removing)


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


_TOPICS_FORMAT = 'the format is {"version":1,"topics":[{"topic":"orders"}]}'


class _Topic(Struct):
    topic: str


class _Topics(Struct):
    topics: Annotated[list[_Topic], Meta(min_length=1)]
    version: int = PLAN_VERSION


def parse_topics(data: bytes, where: str) -> list[str]:
    """Return the names in a file's order; PlanError names `where` and the place."""
    found = decoded(data, where, _Topics, _TOPICS_FORMAT, too_large="name fewer")
    if found.version != PLAN_VERSION:
        raise PlanError(f"{where}: version {found.version} is not supported; write version 1")
    names = [entry.topic for entry in found.topics]
    seen = set()
    for name in names:
        problem = topic_name_problem(name)
        if problem:
            raise PlanError(f"{where}: topic {name[:80]!r}: {problem}")
        if name in seen:
            raise PlanError(f"{where}: topic {name} is listed twice; list it once")
        seen.add(name)
    return names


_ELECTION_FORMAT = 'the format is {"partitions":[{"topic":"orders","partition":0}]}'


class _Partition(Struct):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Partitions(Struct):
    partitions: Annotated[list[_Partition], Meta(min_length=1)]


def parse_partitions(data: bytes, where: str) -> list[TopicPartition]:
    """Return the partitions in a file's order; PlanError names `where` and the place."""
    file = decoded(data, where, _Partitions, _ELECTION_FORMAT, too_large="split the file")
    found: dict[TopicPartition, None] = {}
    for entry in file.partitions:
        problem = topic_name_problem(entry.topic)
        if problem:
            raise PlanError(f"{where}: topic {entry.topic[:80]!r}: {problem}")
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in found:
            raise PlanError(f"{where}: {tp} is listed twice; list it once")
        found[tp] = None
    return list(found)
