"""Partition facts: a bucket's rows as facts of one partition after the other; leads of brokers.

Who may call: `job`. Invariants: pure; facts come in the order of files, and what many brokers
cached alike, or were sent, comes first, once, at its earliest time. What brokers were asked to take
is put together likewise, in partitions where nothing but `terms.states` looks at it: whose roles
have their own epochs, of which no journal tells what it found, and that were not created meanwhile.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import JOURNAL, NEW, NONE_YET, Fact
from ottla.pipelines.timeline.packed import GATHERED, LEADING, SAID, first_of_each, is_wanted
from ottla.pipelines.timeline.rows import (
    KIND,
    KINDS,
    NO_TEXT,
    NONE,
    TEXTS,
    Rows,
    Texts,
    joined,
    of_kinds,
    runs,
)

_FIRST_FILE = -2
_NEVER = np.iinfo(np.int64).max
_fact = functools.partial(tuple.__new__, Fact)
_COLUMNS = [name for name in Fact._fields if name not in {"place", "life"}]
_STATE = ("topic", "partition", "leader", "leader_epoch", "isr")
"""By which `terms.states` tells one state from another."""
_NOT_GATHERED = ("epoch", "previous", "topic_id", "before", "after", "offset")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all tasks must know to put rows in order."""

    shifts: Mapping[int, int] = field(default_factory=dict)
    """What to add to each broker's times."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Files by name to numbers, the one that begins first being the first."""
    topic: str | None = None
    partitions: tuple[int, ...] = ()


def leads(rows: Rows, texts: Texts) -> dict[tuple[int, int], int]:
    """Return by (controller, broker) by how much the broker acted before what was decided.

    A partition that was created twice had the same leader epochs twice: left out.
    """
    rows = rows[of_kinds(rows, (e.MOVED, *LEADING)) | _created(rows, texts)]
    names = joined([rows["topic"], rows["partition"]])
    created = _created(rows, texts) & (rows["level"] != texts.find(JOURNAL))
    once = np.bincount(names[created], minlength=len(rows)) <= 1
    kept = once[names] & (rows["leader_epoch"] != NONE)
    keys = names << 32 | rows["leader_epoch"].astype(np.int64) + (1 << 31)
    is_decided = kept & of_kinds(rows, (e.DECIDED,))
    decided, decided_keys = rows[is_decided], keys[is_decided]
    order = np.lexsort((decided["broker"], decided["time_ms"], decided_keys))
    order = order[runs(decided_keys[order])[:-1]] if len(order) else order
    decided, decided_keys = decided[order], decided_keys[order]
    has_acted = kept & of_kinds(rows, (e.LED, e.FOLLOWED))
    has_acted &= np.isin(keys, decided_keys)
    acted = rows[has_acted]
    decided = decided[np.searchsorted(decided_keys, keys[has_acted])]
    ms = decided["time_ms"] - acted["time_ms"]
    found: dict[tuple[int, int], int] = {}
    pairs = joined([decided["broker"], acted["broker"]])
    for pair, first in enumerate(first_of_each(pairs).tolist()):
        key = int(decided["broker"][first]), int(acted["broker"][first])
        found[key] = int(ms[pairs == pair].max())
    return found


def _created(rows: Rows, texts: Texts) -> npt.NDArray[np.bool_]:
    begins = rows["before"] == texts.find(NONE_YET)
    found: npt.NDArray[np.bool_] = begins & (rows["after"] == texts.find(NEW))
    return found


def by_partition(rows: Rows, texts: Texts, agreed: Agreed) -> Iterator[tuple[str, int, list[Fact]]]:
    """Give each partition's facts in order; rows are all of a bucket."""
    if agreed.topic is not None:
        rows = rows[is_wanted(rows, texts.find(agreed.topic), agreed.partitions)]
    if not len(rows):
        return
    for broker, ms in agreed.shifts.items():
        rows["time_ms"][rows["broker"] == broker] += ms
    numbers = np.array([agreed.files.get(name, -1) for name in texts.names], np.int32)
    rows["file"] = numbers[rows["file"]]
    rows = _put_together(rows, texts)
    names = joined([rows["topic"], rows["partition"]])
    order = np.lexsort((rows["line"], rows["block"], rows["file"], names))
    rows = rows[order]
    ends = runs(names[order])
    columns = [_column(rows, texts, name) for name in _COLUMNS]
    for begin, end in itertools.pairwise(ends.tolist()):
        some = [column[begin:end] for column in columns]
        facts = list(map(_fact, zip(*some, range(end - begin), itertools.repeat(0))))
        yield texts.names[rows["topic"][begin]], int(rows["partition"][begin]), facts


def _put_together(rows: Rows, texts: Texts) -> Rows:
    """Put together what was said alike of metadata; see above."""
    gathered = of_kinds(rows, GATHERED)
    cached = _earliest(rows[gathered], SAID)
    cached["kind"], cached["level"] = KIND[e.CACHED], texts.number("TRACE")
    cached["file"], cached["block"], cached["line"] = _FIRST_FILE, NONE, 0
    for name in _NOT_GATHERED:
        cached[name] = NO_TEXT if name in TEXTS else NONE
    rest = rows[~gathered]
    alike = of_kinds(rest, (e.ASKED,)) & (rest["leader_epoch"] != NONE)
    if not alike.any():
        return np.concatenate((cached, rest))
    roles = of_kinds(rest, (e.LED, e.FOLLOWED)) & (rest["leader_epoch"] == NONE)
    needed = roles | _created(rest, texts) | of_kinds(rest, (e.KNOWN,))
    if needed.any():
        names = joined([rest["topic"], rest["partition"]])
        alike &= ~np.isin(names, names[needed])
    return np.concatenate((cached, _asked_earlier(rest[alike], cached), rest[~alike]))


def _asked_earlier(asked: Rows, cached: Rows) -> Rows:
    """Return of what was asked alike the earliest word, at the place of the first.

    Not where as early a word was cached, which the rules look at before.
    """
    asked = asked[np.lexsort((asked["line"], asked["block"], asked["file"]))]
    both = np.concatenate((cached, asked))
    keys = joined([both[name] for name in _STATE])
    earliest = np.full(len(both), _NEVER)
    np.minimum.at(earliest, keys[: len(cached)], cached["time_ms"])
    keys = keys[len(cached) :]
    order = np.lexsort((asked["time_ms"], keys))  # stable: the first of those at the same time
    order = order[runs(keys[order])[:-1]]
    _, first = np.unique(keys, return_index=True)
    kept = asked["time_ms"][order] < earliest[keys[order]]
    found = asked[order[kept]]
    for name in ("file", "block", "line"):
        found[name] = asked[name][first[kept]]
    return found


def _earliest(rows: Rows, said: tuple[str, ...]) -> Rows:
    """Return one row of those that say the same, with the earliest time and the lowest broker."""
    keys = joined([rows[name] for name in said])
    first = first_of_each(keys)
    found = rows[first]
    np.minimum.at(found["time_ms"], keys, rows["time_ms"])
    np.minimum.at(found["broker"], keys, rows["broker"])
    return found


def _column(rows: Rows, texts: Texts, name: str) -> list[Any]:
    values = rows[name]
    if name == "kind":
        return np.array(KINDS, object)[values].tolist()  # type: ignore[no-any-return]
    if name in TEXTS:
        return np.array([*texts.names, None], object)[values].tolist()  # type: ignore[no-any-return]
    if name == "file":
        return [None if value == _FIRST_FILE else value for value in values.tolist()]
    missing = values == NONE
    if missing.all():
        return [None] * len(values)
    if not missing.any():
        return values.tolist()  # type: ignore[no-any-return]
    said = values.astype(object)
    said[missing] = None
    return said.tolist()  # type: ignore[no-any-return]
