"""Partition facts: a bucket's rows as facts of one partition after the other; leads of brokers.

Invariants: pure; facts come in the order of files, and what many brokers cached alike, or were
sent, comes first, once, at its earliest time. What brokers were asked to take is put together
likewise, in partitions where nothing but `terms.states` looks at it: whose roles have their own
epochs, of which no journal tells what it found, and that were not created meanwhile.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import JOURNAL, NEW, NONE_YET, Fact
from ottla.pipelines.timeline.packed import (
    GATHERED,
    LEADING,
    SAID,
    Table,
    first_of_each,
    is_wanted,
)
from ottla.pipelines.timeline.rows import (
    KIND,
    KINDS,
    NO_TEXT,
    NONE,
    TEXTS,
    Numbers,
    Rows,
    Texts,
    joined,
    of_kinds,
    runs,
)

Flags: TypeAlias = npt.NDArray[np.bool_]

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


def leads(rows: Table, texts: Texts) -> dict[tuple[int, int], int]:
    """Return by (controller, broker) by how much the broker acted before what was decided.

    A partition that was created twice had the same leader epochs twice: left out.
    """
    created = _created(rows, texts)
    rows = rows[of_kinds(rows, LEADING) & (rows["leader_epoch"] != NONE) | created]
    created = _created(rows, texts)
    if created.any():
        names = joined([rows["topic"], rows["partition"]])
        logged = created & (rows["level"] != texts.find(JOURNAL))
        once = np.bincount(names[logged], minlength=len(rows)) <= 1
        rows = rows[once[names] & of_kinds(rows, LEADING) & (rows["leader_epoch"] != NONE)]
    if not len(rows):
        return {}
    keys = joined([rows["topic"], rows["partition"], rows["leader_epoch"]])
    is_decided = of_kinds(rows, (e.DECIDED,))
    decided, decided_keys = rows[is_decided], keys[is_decided]
    # Of several decisions the earliest one counts, of those at one time the lowest broker's.
    first = np.full(int(keys.max()) + 1, _NEVER)
    np.minimum.at(first, decided_keys, decided["time_ms"])
    earliest = decided["time_ms"] == first[decided_keys]
    controllers = np.full(len(first), _NEVER)
    np.minimum.at(controllers, decided_keys[earliest], decided["broker"][earliest])
    has_acted = ~is_decided & (first[keys] != _NEVER)
    acted, acted_keys = rows[has_acted], keys[has_acted]
    ms = first[acted_keys] - acted["time_ms"]
    found: dict[tuple[int, int], int] = {}
    by = controllers[acted_keys].astype(np.int32)
    pairs = joined([by, acted["broker"]])
    for pair, at in enumerate(first_of_each(pairs).tolist()):
        key = int(by[at]), int(acted["broker"][at])
        found[key] = int(ms[pairs == pair].max())
    return found


def _created(rows: Rows | Table, texts: Texts) -> npt.NDArray[np.bool_]:
    begins = rows["before"] == texts.find(NONE_YET)
    found: npt.NDArray[np.bool_] = begins & (rows["after"] == texts.find(NEW))
    return found


def ordered(rows: Table, texts: Texts, agreed: Agreed) -> tuple[Table, Numbers]:
    """Return rows, which are all of a bucket, by partition and in order; and where each ends.

    Partition i has rows[ends[i]:ends[i + 1]].
    """
    if agreed.topic is not None:
        rows = rows[is_wanted(rows, texts.find(agreed.topic), agreed.partitions)]
    if not len(rows):
        return rows, np.zeros(1, np.int64)
    for broker, ms in agreed.shifts.items():
        rows["time_ms"][rows["broker"] == broker] += ms
    numbers = np.array([agreed.files.get(name, -1) for name in texts.names], np.int32)
    rows["file"] = numbers[rows["file"]]
    order, ends = _order(rows)
    return rows[order], ends


def _order(rows: Rows | Table) -> tuple[Numbers, Numbers]:
    names = joined([rows["topic"], rows["partition"]])
    order = np.lexsort((rows["line"], rows["block"], rows["file"]))  # mostly in order already
    names = names[order]
    small = names.astype(np.uint16) if int(names.max()) < 1 << 16 else names
    by_name = np.argsort(small, kind="stable")  # small numbers are not compared, but counted
    return order[by_name], runs(names[by_name])


def by_partition(
    table: Table, ends: Numbers, texts: Texts, chosen: Flags | None = None
) -> Iterator[tuple[str, int, list[Fact]]]:
    """Give each partition's facts in order, or those of some; `table` is as `ordered` has it."""
    if chosen is not None:
        table = table[np.repeat(chosen, np.diff(ends))]
    if not len(table):
        return
    rows = _put_together(table.rows(), texts)
    order, ends = _order(rows)
    rows = rows[order]
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
