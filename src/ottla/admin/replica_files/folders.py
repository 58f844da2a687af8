"""Where segment files lie: log dirs of brokers, backups, single partitions' folders.

Invariants: only lists and reads small files; folders that are going (`-delete`, `-stray`) or coming
(`-future`) are left out, as Kafka's own `LogManager` sets them apart from logs in use.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

_SEGMENT = re.compile(r"(\d{20})\.log")
_LABELLED = re.compile(r"(\d+)=(.+)", re.DOTALL)
_OF_A_LOG = {checkpoints.PARTITION_METADATA, checkpoints.LEADER_EPOCHS}
_LEAVING = ("-delete", "-future", "-stray")


class Place(NamedTuple):
    """A folder to look into, and the id of the broker it is of, None if no one said."""

    broker: int | None
    path: str


class Segment(NamedTuple):
    """One segment file as it was when it was listed; `size` in bytes."""

    broker: int | None
    log_dir: str
    topic: str
    partition: int
    base_offset: int
    path: str
    size: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class DirFacts:
    """What the files of a log dir itself say; what is missing has no entries."""

    high_watermarks: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    cleaned: Mapping[TopicPartition, int]
    problems: tuple[str, ...] = ()


def parse_places(text: str) -> list[Place]:
    """Parse `[BROKER=]FOLDER[,…]`; OttlaError names an entry that is none, or is not there."""
    places = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        labelled = _LABELLED.fullmatch(part)
        broker, path = (int(labelled[1]), labelled[2]) if labelled else (None, part)
        path = os.path.abspath(path.removeprefix("file://"))  # noqa: PTH100 - stays a text
        if not os.path.exists(path):  # noqa: PTH110
            raise OttlaError(f"{path} does not exist; write [BROKER=]FOLDER[,…] of log dirs")
        places.append(Place(_broker_of(path) if broker is None else broker, path))
    if not places:
        raise OttlaError("no folder is given; write [BROKER=]FOLDER[,…] of log dirs")
    return places


def _broker_of(path: str) -> int | None:
    """Return whose log dir this is by its meta.properties, None where that is not reported."""
    try:
        data = Path(path, checkpoints.META_PROPERTIES).read_bytes()
        return checkpoints.decode_meta_properties(data).broker_id
    except (OSError, CheckpointError):
        return None


def partition_of(folder: str) -> TopicPartition | None:
    """Return the partition whose log lies in a folder of this name; None for other folders."""
    topic, dash, number = folder.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdecimal():
        return None
    if number != str(int(number)):
        return None
    return TopicPartition(topic, int(number))


class Wanted(NamedTuple):
    """Which partitions: of these topics (none named: of all), of these numbers (likewise)."""

    topics: Collection[str] = ()
    partitions: Collection[int] = ()

    def has(self, tp: TopicPartition) -> bool:
        return (not self.topics or tp.topic in self.topics) and (
            not self.partitions or tp.partition in self.partitions
        )


EVERYTHING = Wanted()


class Log(NamedTuple):
    """The folder of a partition's log, and its segments by base offset; there may be none."""

    broker: int | None
    log_dir: str
    tp: TopicPartition
    segments: list[Segment]

    @property
    def path(self) -> str:
        return f"{self.log_dir}/{self.tp}"


def logs_in(place: Place, wanted: Wanted = EVERYTHING) -> Iterator[Log]:
    """Yield the logs under a folder, a partition's folder, or of the one file given.

    Folders below folders are looked into, but no links: a backup may hold several log dirs. What
    goes away meanwhile is left out.
    """
    found: Iterable[tuple[str, Iterable[str]]]
    if os.path.isdir(place.path):  # noqa: PTH112
        found = _walk(place.path)
    else:
        folder, name = os.path.split(place.path)
        found = [(folder, [name])]
    for folder, names in found:
        log_dir, name = os.path.split(folder)
        tp = partition_of(name)
        if tp is None or not wanted.has(tp):
            continue
        segments = list(_segments(place.broker, log_dir, tp, names))
        # Any folder may have a name that ends in a number; a log is known by its files.
        if segments or not _OF_A_LOG.isdisjoint(names):
            yield Log(place.broker, log_dir, tp, segments)


def _walk(path: str) -> Iterator[tuple[str, Iterable[str]]]:
    for folder, below, names in os.walk(path):
        below.sort()
        below[:] = [name for name in below if not name.endswith(_LEAVING)]
        yield folder, sorted(names)


def _segments(
    broker: int | None, log_dir: str, tp: TopicPartition, names: Iterable[str]
) -> Iterator[Segment]:
    for name in names:
        found = _SEGMENT.fullmatch(name)
        if found is None:
            continue
        path = f"{log_dir}/{tp}/{name}"
        try:
            size = os.stat(path).st_size  # noqa: PTH116
        except FileNotFoundError:
            continue
        yield Segment(broker, log_dir, tp.topic, tp.partition, int(found[1]), path, size)


def dir_facts(log_dir: str) -> DirFacts:
    """Read the checkpoints of a log dir; one that cannot be read is a problem without entries."""
    problems = []
    found: list[dict[TopicPartition, int]] = []
    for name in (checkpoints.HIGH_WATERMARKS, checkpoints.LOG_STARTS, checkpoints.CLEANER_OFFSETS):
        entries: dict[TopicPartition, int] = {}
        try:
            entries = checkpoints.decode_offsets(Path(log_dir, name).read_bytes())
        except FileNotFoundError:
            pass
        except CheckpointError as error:
            problems.append(f"{log_dir}/{name}: {error}")
        found.append(entries)
    return DirFacts(found[0], found[1], found[2], tuple(problems))
