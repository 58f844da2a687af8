"""Opening a job: what it is bound to, from where on, and that no one of an earlier run writes.

Invariants: what does not fit is refused before anything changes; the binding is written before the
first record; a run is known to each partition's progress before its tasks start, and every
transaction of earlier runs has ended by then.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ottla.model.errors import ConfigError, OttlaError, UnknownTopicError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_to_text
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import config
from ottla.pipelines.landing import asking
from ottla.pipelines.landing.settings import parse_time
from ottla.pipelines.replaying.copying import producer_of, transactional_id
from ottla.pipelines.replaying.settings import SPECIAL, Place, Replay
from ottla.pipelines.sink import progress
from ottla.pipelines.sink.progress import Binding, Checked, Progress
from ottla.pipelines.source.cluster import Cluster, Topic
from ottla.pipelines.source.options import READ_COMMITTED, SourceOptions, parse_options
from ottla.pipelines.source.planning import edges

CLIENT_ID = "ottla-replay"


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as its cluster names it; the ids are texts, empty where brokers know none."""

    topic: Topic
    cluster_id: str

    @property
    def id_text(self) -> str:
        return "" if self.topic.topic_id == ZERO_UUID else uuid_to_text(self.topic.topic_id)

    @property
    def name(self) -> str:
        """How `ottla.source` begins for its records: cluster, topic, id."""
        return f"{self.cluster_id};{self.topic.name};{self.id_text}"

    @property
    def described(self) -> asking.Topic:
        """The topic as the lake's readers name it."""
        known = self.topic.topic_id != ZERO_UUID
        text = str(uuid.UUID(bytes=bytes(self.topic.topic_id))) if known else ""
        return asking.Topic(self.topic.name, self.cluster_id, text, self.topic.partitions)

    def at(self, offset: int) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic.name, p): offset for p in self.topic.partitions}


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a partition got, and where in the progress topic that is said."""

    progress: Progress
    at: int


def options_of(cluster: config.Cluster, topic: str) -> SourceOptions:
    """Return how a cluster is asked and read; ConfigError for settings that cannot be."""
    given = cluster.source_options(every=True)
    given.setdefault("kafka.client.id", CLIENT_ID)
    given |= {"subscribe": topic, "kafka.isolation.level": READ_COMMITTED, "onDataLoss": "fail"}
    return parse_options(given)


def found_of(cluster: Cluster, name: str) -> Found:
    """Return a topic; UnknownTopicError if there is none."""
    topic = cluster.topics(cluster.options.subscription)[name]
    return Found(topic, cluster.run(cluster.client.metadata([name])).cluster_id or "")


def target_of(cluster: Cluster, name: str, *, create: bool) -> Found | None:
    """Return the target; None if it is still to be created."""
    try:
        return found_of(cluster, name)
    except UnknownTopicError as error:
        if create:
            return None
        raise ConfigError(f"target: {error}; create it, or set replay.create = true") from None


def created(cluster: Cluster, replay: Replay, source: Found) -> Found:
    """Create the target with as many partitions as the source; refused if the job had one."""
    known = known_binding(cluster, replay.name)
    if known is not None:
        refuse_other_source(known, source)
        raise ConfigError(
            f"target {known.target_topic} of job {known.job} was deleted: what was copied is gone; "
            "give another replay.job to copy from the start"
        )
    progress.ensure_topic(cluster, replay.target, len(source.topic.partitions))
    return found_of(cluster, replay.target)


def known_binding(cluster: Cluster, job: str) -> Binding | None:
    """Return what a job is bound to; None if it has not begun."""
    name = progress.topic_of(job)
    if not _exists(cluster, name):
        return None
    found = progress.newest(cluster, TopicPartition(name, 0))
    return progress.decoded(found, progress.JOB, Binding)


def refuse_other_source(known: Binding, source: Found) -> None:
    """Raise ConfigError if a job copies another topic than this."""
    anew = "give another replay.job (and a new target, or it holds records of both)"
    if (known.source_cluster, known.source_topic) != (source.cluster_id, source.topic.name):
        raise ConfigError(
            f"job {known.job} copies {known.source_topic} of cluster {known.source_cluster}, "
            f"not {source.topic.name} of {source.cluster_id}: {anew}"
        )
    if known.source_id != source.id_text:
        raise ConfigError(
            f"topic {known.source_topic} was deleted and made anew since job {known.job} "
            f"began: its offsets are others now; {anew}"
        )


def _exists(cluster: Cluster, name: str) -> bool:
    metadata = cluster.run(cluster.client.metadata(None))
    return any(topic.name == name for topic in metadata.topics)


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


def copies_of(replay: Replay) -> dict[str, str]:
    """Return the settings that decide what is copied; a job keeps them."""
    return {
        "start": json.dumps(replay.start, sort_keys=True),
        "filter": replay.filter or "",
        "transform": json.dumps(replay.transform, sort_keys=True),
        "partitions": json.dumps(replay.partitions, sort_keys=True),
        "deduplicate": json.dumps(replay.deduplicate),
    }


class Opening:
    """Opens a job on its two clusters."""

    def __init__(
        self, replay: Replay, source_cluster: Cluster, target_cluster: Cluster, *, source: Found,
        target: Found,
    ) -> None:  # fmt: skip
        self._replay = replay
        self._from, self._to = source_cluster, target_cluster
        self.source, self.target = source, target
        self.topic = progress.topic_of(replay.name)
        self.run = uuid.uuid4().hex
        self.writer = producer_of(target_cluster, self.topic)
        self.checked = Checked(checks=0, source={}, target={})
        self.binding: Binding | None = None

    def bind(self) -> Binding:
        """Return what the job is bound to, now or since an earlier run; OttlaError if not to this.

        Who calls this has looked at all else that can be wrong.
        """
        known = known_binding(self._to, self._replay.name)
        if known is None:
            self._refuse_new()
            known = self._bound()
        self._refuse_other(known)
        self.binding = known
        # From here on earlier runs are shut out.
        self._to.run(self.writer.open())
        progress.ensure_topic(self._to, self.topic, self._wanted(), progress.CONFIGS)
        driver = TopicPartition(self.topic, 0)
        found = progress.newest(self._to, driver)
        if progress.decoded(found, progress.JOB, Binding) is None:
            self._note(progress.JOB, known)
        start = Checked(checks=0, source=dict(known.starts), target=dict(known.target_starts))
        self.checked = progress.decoded(found, progress.CHECKED, Checked) or start
        return known

    def take(self, partitions: Iterable[int], *, again: bool = False) -> dict[int, Standing]:
        """Shut out earlier attempts of these partitions' tasks; return how far they got.

        `again`: this run had them before; OttlaError if another run has begun since.
        """
        assert self.binding is not None
        progress.ensure_topic(self._to, self.topic, self._wanted(), progress.CONFIGS)
        found = {}
        for partition in partitions:
            found[partition] = self._taken(partition, again=again)
        return found

    def standing(self, partition: int, at: int) -> Standing:
        """Return how far a partition got; `at` is an offset of its progress that was read before.

        OttlaError if another run has begun.
        """
        tp = TopicPartition(self.topic, partition + 1)
        found = progress.newest(self._to, tp, at)
        last = progress.decoded(found, progress.PROGRESS, Progress)
        if last is None or last.run != self.run:
            raise self._newer()
        return Standing(last, found[progress.PROGRESS][1])

    def _newer(self) -> OttlaError:
        return OttlaError(f"another run of job {self._replay.name} has begun; this one ends")

    def note_checked(self, checked: Checked) -> None:
        """Keep up to where both topics were compared."""
        self._note(progress.CHECKED, checked)
        self.checked = checked

    def _note(self, key: bytes, value: Binding | Checked) -> None:
        tp = TopicPartition(self.topic, 0)
        self._to.run(self.writer.send(tp, progress.encoded(key, value)))
        self._to.run(self.writer.commit())

    def _taken(self, partition: int, *, again: bool) -> Standing:
        assert self.binding is not None
        writer = producer_of(self._to, transactional_id(self._replay.name, partition))
        self._to.run(writer.open())
        tp = TopicPartition(self.topic, partition + 1)
        found = progress.newest(self._to, tp)
        last = progress.decoded(found, progress.PROGRESS, Progress)
        if again and (last is None or last.run != self.run):
            raise self._newer()
        if last is None:
            start = self.binding.starts.get(partition)
            if start is None:  # the partition is younger than the job
                source = TopicPartition(self.source.topic.name, partition)
                start = edges(self._from, {source: EARLIEST})[source]
            last = Progress(run=self.run, next=start, start=start, records=0)
        taken = msgspec.structs.replace(last, run=self.run)
        at = self._to.run(writer.send(tp, progress.encoded(progress.PROGRESS, taken)))
        self._to.run(writer.commit())
        return Standing(taken, max(at, 0))

    def _wanted(self) -> int:
        """Return how many partitions the progress topic has to have."""
        return len(self.source.topic.partitions) + 1

    def _bound(self) -> Binding:
        replay = self._replay
        starts = places(self._from, self.source, replay.start, "start")
        ends = edges(self._to, self.target.at(LATEST))
        return Binding(
            job=replay.name,
            source_cluster=self.source.cluster_id,
            source_topic=self.source.topic.name,
            source_id=self.source.id_text,
            target_cluster=self.target.cluster_id,
            target_topic=self.target.topic.name,
            target_id=self.target.id_text,
            copies=copies_of(replay),
            starts=starts,
            target_starts={tp.partition: offset for tp, offset in ends.items()},
        )

    def _refuse_new(self) -> None:
        replay = self._replay
        if self.source.name == self.target.name and replay.filter is None:
            raise ConfigError(
                f"source and target are the same topic {replay.topic}: give replay.to, or a filter "
                "that says which records are to stand there twice"
            )
        others = progress.jobs_into(self._to, self.target.id_text, replay.name)
        if others and not replay.shared:
            raise ConfigError(
                f"target {replay.target} belongs to job {others[0]}: give another target, go on as "
                f'replay.job = "{others[0]}", or set replay.shared = true to write into it, too'
            )

    def _refuse_other(self, known: Binding) -> None:
        refuse_other_source(known, self.source)
        if known.target_topic != self.target.topic.name:
            raise ConfigError(
                f"job {known.job} writes to {known.target_topic}, not {self.target.topic.name}: "
                "give another replay.job"
            )
        if (known.target_cluster, known.target_id) != (
            self.target.cluster_id, self.target.id_text,
        ):  # fmt: skip
            raise ConfigError(
                f"target {known.target_topic} was deleted and made anew since job {known.job} "
                "began: what was copied is gone; give another replay.job to copy from the start"
            )
        wanted = copies_of(self._replay)
        for name, value in known.copies.items():
            if wanted.get(name, value) != value:
                raise ConfigError(
                    f"job {known.job} began with replay.{name} = {value or 'nothing'}, not "
                    f"{wanted[name] or 'nothing'}: set it so, or give another replay.job"
                )


def lag_of(nexts: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """Return how many offsets wait."""
    return sum(max(0, end - nexts.get(p, 0)) for p, end in ends.items())
