"""What a job is bound to and how far it got: a note with the decisions in `ottla-replay.JOB`.

Invariants: what does not fit is refused before anything changes; a round's note is committed with
its records, or not at all.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from ottla.client import configs
from ottla.model.errors import ConfigError, OttlaError, UnknownTopicError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_to_text
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import config
from ottla.pipelines.replaying.settings import SPECIAL, Place, Replay, parse_time
from ottla.pipelines.sink import progress
from ottla.pipelines.sink.committing import Committer, Decision, Plan, newest_decision
from ottla.pipelines.sink.options import SinkOptions, parse_sink_options
from ottla.pipelines.source.cluster import Cluster, Topic
from ottla.pipelines.source.options import READ_COMMITTED, SourceOptions, parse_options
from ottla.pipelines.source.planning import edges

TOPIC_PREFIX = "ottla-replay."
TIME_SETTING = "message.timestamp.type"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets are by partition: of the source `next` and `checked`, of the target `target_…`.

    `before`: where the newest round began. `records`: written by the rounds before it.
    """

    run: str
    source: str
    target: str
    copies: dict[str, str]
    starts: dict[int, int]
    before: dict[int, int]
    next: dict[int, int]
    checks: int
    checked: dict[int, int]
    target_starts: dict[int, int]
    target_checked: dict[int, int]
    records: int


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as its cluster names it."""

    topic: Topic
    cluster_id: str

    @property
    def id_text(self) -> str:
        return "" if self.topic.topic_id == ZERO_UUID else uuid_to_text(self.topic.topic_id)

    @property
    def name(self) -> str:
        """How `ottla.source` begins for its records: cluster, topic, id."""
        return f"{self.cluster_id};{self.topic.name};{self.id_text}"

    def at(self, offset: int) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic.name, p): offset for p in self.topic.partitions}


def options_of(cluster: config.Cluster, topic: str) -> SourceOptions:
    """Return how a cluster is asked; ConfigError for settings that cannot be."""
    given = cluster.source_options(every=True)
    return parse_options({**given, "subscribe": topic, "kafka.isolation.level": READ_COMMITTED})


def found_of(cluster: Cluster, name: str) -> Found:
    """Return a topic; UnknownTopicError if there is none."""
    topic = cluster.topics(cluster.options.subscription)[name]
    return Found(topic, cluster.run(cluster.client.metadata([name])).cluster_id or "")


def target_of(cluster: Cluster, replay: Replay) -> Found | None:
    """Return the target; None if it is still to be created."""
    try:
        return found_of(cluster, replay.target)
    except UnknownTopicError as error:
        if replay.create:
            return None
        raise ConfigError(f"target: {error}; create it, or set replay.create = true") from None


def refuse_other_times(cluster: Cluster, replay: Replay) -> None:
    """Raise ConfigError if the target does not keep the records' timestamps."""
    given = []
    with suppress(OttlaError):  # without the right to ask, the check will tell
        given = cluster.run(
            configs.settings(cluster.client, configs.TOPIC, replay.target, [TIME_SETTING])
        )
    if given and given[0].value == "LogAppendTime":
        raise ConfigError(
            f"topic {replay.target} sets timestamps itself, so those of the records would be lost: "
            f"set {TIME_SETTING}=CreateTime on it"
        )


def places(cluster: Cluster, found: Found, place: Place, side: str) -> dict[int, int]:
    """Return the offset that a setting means in each partition, between the log's start and end."""
    first, last = (edges(cluster, found.at(offset)) for offset in (EARLIEST, LATEST))
    if isinstance(place, dict):
        given = {TopicPartition(found.topic.name, int(p)): at for p, at in place.items()}
        for tp in sorted(set(first) ^ set(given)):
            what = "says nothing of" if tp in first else "names, and the topic does not have,"
            raise ConfigError(f"replay.{side} {what} partition {tp.partition}")
        for tp, offset in given.items():
            if not first[tp] <= offset <= last[tp]:
                raise ConfigError(
                    f"replay.{side}: {tp} holds offsets {first[tp]} to {last[tp]}, not {offset}"
                )
    elif place in SPECIAL:
        given = first if SPECIAL[place] == EARLIEST else last
    else:
        at = edges(cluster, found.at(parse_time(place)))
        given = {tp: last[tp] if offset < 0 else min(offset, last[tp]) for tp, offset in at.items()}
    return {tp.partition: offset for tp, offset in given.items()}


class Store:
    """Keeps a job's state on the target's cluster."""

    def __init__(self, cluster: Cluster, connection: Mapping[str, str], replay: Replay) -> None:
        self.prefix = TOPIC_PREFIX + replay.name
        self.options: dict[str, str] = {
            **connection,
            "topic": replay.target,
            "transactional.id.prefix": self.prefix,
            "kafka.compression.type": replay.compression,
        }
        """Of the sink, for each round."""
        self._cluster = cluster
        self._replay = replay
        self.batch = -1
        self.state: State | None = None
        self.rows = 0
        self.lost = False
        """Whether the newest round has to be run again, for what brokers aborted of it."""

    def look(self) -> State | None:
        """Return what an earlier run has left; changes nothing."""
        if not any(name == self.prefix for name in self._topics()):
            return None
        return self._taken(newest_decision(self._cluster, self.prefix, wait=False))

    def open(self) -> State | None:
        """Shut out earlier runs, and complete what they had decided."""
        committer = self._committer()
        self.lost = bool(committer.open().lost)
        return self._taken(committer.last)

    def read(self) -> State | None:
        """Read what the newest round has left."""
        return self._taken(newest_decision(self._cluster, self.prefix))

    def keep(self, state: State) -> None:
        """Keep a state that comes with no records."""
        committer = self._committer(msgspec.json.encode(state).decode())
        known = self.batch
        committer.open()
        self._taken(committer.last)
        if self.batch != known:
            raise OttlaError(f"another run of job {self._replay.name} has begun; this one ends")
        committer.commit("", self.batch + 1, [])
        self.batch, self.state, self.rows = self.batch + 1, state, 0

    def jobs_into(self, target: str) -> list[str]:
        """Return the names of other jobs that are bound to a target."""
        found = []
        for name in self._topics():
            if name.startswith(TOPIC_PREFIX) and name != self.prefix:
                decision = newest_decision(self._cluster, name, wait=False)
                if decision and msgspec.json.decode(decision.note, type=State).target == target:
                    found.append(name.removeprefix(TOPIC_PREFIX))
        return found

    def _topics(self) -> list[str]:
        metadata = self._cluster.run(self._cluster.client.metadata(None))
        return [topic.name or "" for topic in metadata.topics if not topic.error_code]

    def _committer(self, note: str = "") -> Committer:
        options: SinkOptions = parse_sink_options(self.options, streaming=False)
        return Committer(self._cluster, replace(options, note=note), Plan(self.prefix))

    def _taken(self, decision: Decision | None) -> State | None:
        if decision is None:
            return None
        self.batch = decision.batch
        self.rows = sum(one.rows for one in decision.tasks)
        self.state = msgspec.json.decode(decision.note, type=State)
        return self.state


def refuse_other(known: State, replay: Replay, source: Found, target: Found | None) -> None:
    """Raise ConfigError if a job is bound to something else than these."""
    new = "give another replay.job"
    before, now = known.source.split(";"), source.name.split(";")
    if before[:2] != now[:2]:
        raise ConfigError(
            f"job {replay.name} copies {before[1]} of cluster {before[0]}, not {now[1]} of "
            f"{now[0]}: {new} (and a new target, or it holds records of both)"
        )
    if before != now:
        raise ConfigError(
            f"topic {before[1]} was deleted and created again since job {replay.name} began: its "
            f"offsets are others now; {new} (and a new target)"
        )
    before = known.target.split(";")
    if before[1] != replay.target:
        raise ConfigError(f"job {replay.name} writes to {before[1]}, not {replay.target}: {new}")
    if target is None or known.target != target.name:
        gone = "was deleted" if target is None else "was deleted and created again"
        raise ConfigError(
            f"target {before[1]} of job {replay.name} {gone}: what was copied is gone; {new} to "
            "copy from the start"
        )
    for name, value in known.copies.items():
        if (wanted := replay.copies.get(name, value)) != value:
            raise ConfigError(
                f"job {replay.name} began with replay.{name} = {value or 'nothing'}, not "
                f"{wanted or 'nothing'}: set it so, or {new}"
            )


def refuse_new(replay: Replay, source: Found, target: Found, store: Store) -> None:
    """Raise ConfigError if a job must not begin here."""
    if source.name == target.name and replay.filter is None:
        raise ConfigError(
            f"source and target are the same topic {replay.topic}: give replay.to, or a filter "
            "that says which records are to stand there twice"
        )
    if not replay.shared and (others := store.jobs_into(target.name)):
        raise ConfigError(
            f"target {replay.target} belongs to job {others[0]}: give another target, go on as "
            f'replay.job = "{others[0]}", or set replay.shared = true to write into it, too'
        )


def refuse_missing(replay: Replay, source: Found, target: Found) -> dict[int, int] | None:
    """Return the target's partition for each of the source; None: by key. ConfigError if unfit."""
    sources, targets = source.topic.partitions, target.topic.partitions
    if replay.partitions == "key":
        return None
    if isinstance(replay.partitions, str):
        fixed = {p: p for p in sources}
        way_out = 'add partitions to it, or set partitions = "key" or a table'
    else:
        fixed = {int(p): to for p, to in replay.partitions.items()}
        way_out = "name each partition of the source, and partitions that the target has"
    if missing := sorted(set(sources) - set(fixed)):
        raise ConfigError(f"partitions says nothing of the source's {missing[0]}: {way_out}")
    if foreign := sorted({fixed[p] for p in sources} - set(targets)):
        raise ConfigError(
            f"the target has partitions {targets[0]} to {targets[-1]}, records would go to "
            f"partition {foreign[0]}: {way_out}"
        )
    return {p: fixed[p] for p in sources}


def created(cluster: Cluster, replay: Replay, source: Found) -> Found:
    """Create the target with as many partitions as the source."""
    progress.ensure_topic(cluster, replay.target, len(source.topic.partitions))
    return found_of(cluster, replay.target)
