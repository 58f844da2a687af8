"""Columns: the rules for many partitions at once, where nothing odd is said of them.

Invariants: pure; what is reported of a partition is what `history` tells of its facts. A partition
is odd where a rule would look further than at a leader's own next line: a leader that fell silent
or restarted, a deletion, a role without an epoch, files of a broker that overlap, anything that
might be a finding. Odd partitions are left to `history`, one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import (
    EARLY_MS,
    JOURNAL,
    NEW,
    NONE_YET,
    OFFLINE,
    SAME_CREATION_MS,
)
from ottla.pipelines.timeline.packed import Table
from ottla.pipelines.timeline.rows import (
    KIND,
    NO_TEXT,
    NONE,
    Numbers,
    Texts,
    joined,
    of_kinds,
)
from ottla.pipelines.timeline.terms import LEADS, STEPPED_DOWN, Gap, State, Term

Flags: TypeAlias = npt.NDArray[np.bool_]

_ROLES = (e.LED, e.FOLLOWED, e.STOPPED)
_LATEST = 1 << 42
"""Times that are later, or before 1970, are left to plain Python."""
_PARTITION = np.int64(_LATEST << 1)


class Report(NamedTuple):
    """Histories; each column's first part says of which partition, by its place among all."""

    odd: Flags
    """Which partitions nothing is reported of."""
    states: tuple[Numbers, Iterator[State]]
    terms: tuple[Numbers, Iterator[Term]]
    gaps: tuple[Numbers, Iterator[Gap]]


class _Said(NamedTuple):
    """Rows of many partitions, all of a partition one after the other, in the order of files."""

    rows: Table
    of: Numbers
    """Of which partition a row is."""
    odd: Flags
    texts: Texts


def reported(
    rows: Table, ends: Numbers, texts: Texts, gone: Mapping[int, Sequence[int]], overlap_ms: int
) -> Report:
    """Tell the histories of partitions; partition i has rows[ends[i]:ends[i + 1]]."""
    count = len(ends) - 1
    said = _Said(rows, np.repeat(np.arange(count), np.diff(ends)), np.zeros(count, np.bool_), texts)
    times = rows["time_ms"]
    _mark(said, (times < 0) | (times >= _LATEST))
    _mark_lives(said)
    own = _own_lines(said)
    spoken = _states(said, own)
    _mark_decisions(said)
    terms = _terms(said, own, spoken, gone)
    _mark_overlaps(said, terms, overlap_ms)
    gaps = _gaps(said, terms)
    return Report(said.odd, _told_states(said, spoken), _told_terms(said, terms), gaps)


def _mark(said: _Said, which: Flags) -> None:
    """Call the partitions of some rows odd."""
    said.odd[said.of[which]] = True


def _mark_lives(said: _Said) -> None:
    """Mark what was created more than once, or has a past before that."""
    rows, texts = said.rows, said.texts
    created = (rows["before"] == texts.find(NONE_YET)) & (rows["after"] == texts.find(NEW))
    if not created.any():
        return
    count = len(said.odd)
    first, last = np.full(count, _LATEST), np.full(count, -1)
    np.minimum.at(first, said.of[created], rows["time_ms"][created])
    np.maximum.at(last, said.of[created], rows["time_ms"][created])
    earliest = np.full(count, _LATEST)
    np.minimum.at(earliest, said.of, rows["time_ms"])
    once = (last - first <= SAME_CREATION_MS) & (earliest >= last - EARLY_MS)
    said.odd[(last >= 0) & ~once] = True


def _own_lines(said: _Said) -> Numbers:
    """Return brokers' own lines about their roles, by partition and broker, in their order."""
    rows = said.rows
    own = np.flatnonzero(of_kinds(rows, (*_ROLES, e.ASKED)))
    own = own[np.lexsort((rows["broker"][own], said.of[own]))]
    same = _same(said, own)
    files, times = rows["file"][own], rows["time_ms"][own]
    change = np.flatnonzero(same & (files[1:] != files[:-1]))
    if len(change):
        # Files of a broker are one after the other where no line is earlier than one of the files
        # before: the first of a file may be late enough, and a later one of it may not.
        group = np.concatenate(([0], np.cumsum(~same)))
        latest = np.maximum.accumulate(times + group * _PARTITION) - group * _PARTITION
        last = np.searchsorted(change, np.arange(len(own))) - 1
        former = change[np.maximum(last, 0)]
        early = (last >= 0) & (group[former] == group) & (latest[former] > times)
        said.odd[said.of[own[early]]] = True
    own = own[~of_kinds(rows[own], (e.ASKED,))]
    roles = rows[own]
    unknown = (roles["leader_epoch"] == NONE) & ~of_kinds(roles, (e.STOPPED,))
    said.odd[said.of[own[unknown]]] = True
    # Within a broker's lines epochs only grow.
    known = own[roles["leader_epoch"] != NONE]
    epochs = rows["leader_epoch"][known]
    smaller = _same(said, known) & (epochs[1:] < epochs[:-1])
    said.odd[said.of[known[1:][smaller]]] = True
    return own


def _same(said: _Said, lines: Numbers) -> Flags:
    """Tell of each line but the first whether it is of the broker and partition of that before."""
    of, brokers = said.of[lines], said.rows["broker"][lines]
    found: Flags = (of[1:] == of[:-1]) & (brokers[1:] == brokers[:-1])
    return found


def _states(said: _Said, own: Numbers) -> Numbers:
    """Return the rows of the states that `terms.states` finds, in its order."""
    rows = said.rows
    at = np.concatenate((np.flatnonzero(~of_kinds(rows, _ROLES)), own))
    some = rows[at]
    leader: npt.NDArray[np.int32] = _leaders(some)
    decided = of_kinds(some, (e.DECIDED,))
    kept = (leader != NONE) & (leader >= -1) & (some["leader_epoch"] != NONE)
    journaled = decided & (some["level"] == said.texts.find(JOURNAL))
    if journaled.any():
        keys = _pairs(said.of[at], some["leader_epoch"])
        kept &= ~decided | journaled | ~np.isin(keys, keys[journaled])
    if not kept.any():
        return np.zeros(0, np.int64)
    at, some, leader, decided = at[kept], some[kept], leader[kept], decided[kept]
    of, epoch = said.of[at], some["leader_epoch"]
    when = np.where(decided, some["time_ms"], -1)
    keys = joined(
        [of, epoch, leader, some["isr"], (when >> 31).astype(np.int32), when & 0x7FFFFFFF]
    )
    earliest = np.full(int(keys.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest, keys, some["time_ms"])
    kept_at = np.flatnonzero(some["time_ms"] == earliest[keys])
    some = some[kept_at]
    order = np.lexsort((_versions(some), some["time_ms"], some["leader_epoch"], of[kept_at]))
    kept_at = kept_at[order]
    # Of those at one time the first one of the lowest version is in front.
    front = np.empty(len(earliest), np.int64)
    front[keys[kept_at][::-1]] = np.arange(len(kept_at))[::-1]
    kept_at = kept_at[np.sort(front)]
    found: Numbers = at[kept_at]
    told_of, told_rows = said.of[found], rows[found]
    alike = (told_of[1:] == told_of[:-1]) & (
        told_rows["leader_epoch"][1:] == told_rows["leader_epoch"][:-1]
    )
    alike &= told_rows["time_ms"][1:] == told_rows["time_ms"][:-1]
    if alike.any():
        # Then leaders and the texts of ISRs decide, and the order of facts at last.
        names = ["" if name is None else name for name in [*said.texts.names, None]]
        ranks = np.unique(np.array(names), return_inverse=True)[1]
        again = np.lexsort(
            (keys[kept_at], ranks[told_rows["isr"]], _leaders(told_rows), _versions(told_rows),
             told_rows["time_ms"], told_rows["leader_epoch"], told_of)
        )  # fmt: skip
        found = found[again]
    return found


def _pairs(of: Numbers, numbers: npt.NDArray[np.int32]) -> Numbers:
    """Return a number for each partition and epoch, or broker, in their order."""
    found: Numbers = (of << 32) + numbers + (1 << 31)
    return found


def _leaders(rows: Table) -> npt.NDArray[np.int32]:
    """Return whom each row calls the leader."""
    found: npt.NDArray[np.int32]
    found = np.where(rows["kind"] == KIND[e.LED], rows["broker"], rows["leader"])
    return found


def _versions(rows: Table) -> npt.NDArray[np.int32]:
    return np.where(rows["version"] == NONE, -1, rows["version"])


def _mark_decisions(said: _Said) -> None:
    """Mark where an epoch was given to two leaders, or an older controller wrote a newer epoch."""
    rows = said.rows
    decided = np.flatnonzero(of_kinds(rows, (e.DECIDED,)) & (rows["leader_epoch"] != NONE))
    given = decided[(rows["leader"][decided] != NONE) & (rows["leader"][decided] >= 0)]
    given = given[np.lexsort((rows["leader_epoch"][given], said.of[given]))]
    of, epochs, leaders = said.of[given], rows["leader_epoch"][given], rows["leader"][given]
    double = (of[1:] == of[:-1]) & (epochs[1:] == epochs[:-1]) & (leaders[1:] != leaders[:-1])
    said.odd[of[1:][double]] = True
    ruled = decided[rows["epoch"][decided] != NONE]
    ruled = ruled[np.lexsort((rows["epoch"][ruled], rows["leader_epoch"][ruled], said.of[ruled]))]
    of, controllers = said.of[ruled], rows["epoch"][ruled]
    said.odd[of[1:][(of[1:] == of[:-1]) & (controllers[1:] < controllers[:-1])]] = True


class _Terms(NamedTuple):
    """Terms in the order of `terms.terms`: the row where each begins, and that of its last epoch.

    `end` is -1 where it led when the logs ended.
    """

    of: Numbers
    first: Numbers
    last: Numbers
    end: Numbers
    word: Flags


def _terms(said: _Said, own: Numbers, spoken: Numbers, gone: Mapping[int, Sequence[int]]) -> _Terms:
    rows = said.rows
    roles = rows[own]
    is_led = roles["kind"] == KIND[e.LED]
    same = np.append(_same(said, own), False)
    led = np.flatnonzero(is_led)
    followed = same[led]
    after = np.minimum(led + 1, len(own) - 1)
    previous = roles["previous"][after]
    brokers, began = roles["broker"][led], roles["time_ms"][led]
    epochs = roles["leader_epoch"][led]
    died = np.isin(brokers, list(gone)) if gone else np.zeros(len(led), np.bool_)
    odd = followed & np.where(previous == NONE, died, previous < 0)
    # Who fell silent may not have died, and no other may have received anything later.
    silent = ~followed
    for broker, times in gone.items():
        odd |= silent & (brokers == broker) & (began <= max(times, default=-1))
    count = len(said.odd)
    newest, offline = np.full(count, -1), np.full(count, -1)
    np.maximum.at(newest, said.of[spoken], rows["leader_epoch"][spoken])
    texts = said.texts
    called = (rows["before"] == texts.find(OFFLINE)) | (rows["after"] == texts.find(OFFLINE))
    called = np.flatnonzero(called & of_kinds(rows, (e.MOVED, e.DECIDED)))
    np.maximum.at(offline, said.of[called], rows["time_ms"][called])
    of = said.of[own[led]]
    odd |= silent & ((newest[of] > epochs) | (offline[of] >= began))
    said.odd[of[odd]] = True
    _mark_double_leaders(said, of, epochs, brokers)
    _mark_silent_leaders(said, own, spoken, of, epochs)

    # A term goes on where the next line is another leadership of the same broker.
    goes_on = followed & is_led[after]
    heads = np.ones(len(led), np.bool_)
    heads[1:] = ~goes_on[:-1]
    tails = ~goes_on
    first, last = own[led[heads]], own[led[tails]]
    named = rows["topic_id"][first]
    nameless = (named == NO_TEXT) | (named == texts.find(""))
    said.odd[said.of[first[nameless & (first != last)]]] = True
    end = np.where(followed, roles["time_ms"][after], -1)[tails]
    word = (followed & (previous == epochs))[tails]
    of = said.of[first]
    order = np.lexsort(
        (rows["broker"][first], rows["time_ms"][first], rows["leader_epoch"][first], of)
    )
    return _Terms(of[order], first[order], last[order], end[order], word[order])


def _mark_double_leaders(
    said: _Said, of: Numbers, epochs: npt.NDArray[np.int32], brokers: npt.NDArray[np.int32]
) -> None:
    order = np.lexsort((epochs, of))
    of, epochs, brokers = of[order], epochs[order], brokers[order]
    double = (of[1:] == of[:-1]) & (epochs[1:] == epochs[:-1]) & (brokers[1:] != brokers[:-1])
    said.odd[of[1:][double]] = True


def _mark_silent_leaders(
    said: _Said, own: Numbers, spoken: Numbers, of: Numbers, epochs: npt.NDArray[np.int32]
) -> None:
    """Mark where someone was to lead, and has no line about it at all, nor one from before."""
    rows = said.rows
    states = rows[spoken]
    to_lead = _leaders(states)
    keys = _pairs(said.of[spoken], states["leader_epoch"])
    at = np.flatnonzero((to_lead >= 0) & ~np.isin(keys, _pairs(of, epochs)))
    if not len(at):
        return
    pairs = _pairs(said.of[own], rows["broker"][own])  # in order, as `own` is
    wanted = _pairs(said.of[spoken[at]], to_lead[at])
    begins = np.flatnonzero(np.diff(pairs, prepend=-1)) if len(pairs) else np.zeros(0, np.int64)
    if not len(begins):
        said.odd[said.of[spoken[at]]] = True
        return
    since = np.minimum.reduceat(rows["time_ms"][own], begins)
    place = np.minimum(np.searchsorted(pairs[begins], wanted), len(begins) - 1)
    lived = (pairs[begins][place] == wanted) & (since[place] <= states["time_ms"][at])
    said.odd[said.of[spoken[at[~lived]]]] = True


def _mark_overlaps(said: _Said, terms: _Terms, overlap_ms: int) -> None:
    """Mark where a leader's own word is that it led after the next had begun."""
    if not len(terms.of):
        return
    base = terms.of * _PARTITION
    ended = np.where(terms.word, terms.end, 0) + base
    latest = np.maximum.accumulate(ended)[:-1] - base[1:]
    began = said.rows["time_ms"][terms.first]
    said.odd[terms.of[1:][latest > began[1:] + overlap_ms]] = True


def _gaps(said: _Said, terms: _Terms) -> tuple[Numbers, Iterator[Gap]]:
    """Return the times without a leader; a partition that has none in the end is odd."""
    of, rows = terms.of, said.rows
    same = np.append(of[1:] == of[:-1], False)
    said.odd[of[~same & (terms.end >= 0)]] = True
    after = np.minimum(np.arange(len(of)) + 1, len(of) - 1)
    began = rows["time_ms"][terms.first][after]
    ms = began - terms.end
    at = np.flatnonzero(same & (terms.end >= 0) & (ms > 0) & ~said.odd[of])
    brokers = rows["broker"][terms.first]
    found = map(
        _gap, brokers[at].tolist(), brokers[after[at]].tolist(), terms.end[at].tolist(),
        began[at].tolist(), ms[at].tolist(),
    )  # fmt: skip
    return of[at], found


def _gap(after: int, following: int, ended: int, began: int, ms: int) -> Gap:
    return Gap(0, after, following, ended, ended, began, ms, ms, STEPPED_DOWN)


def _told_terms(said: _Said, terms: _Terms) -> tuple[Numbers, Iterator[Term]]:
    at = np.flatnonzero(~said.odd[terms.of])
    first, last = said.rows[terms.first[at]], said.rows[terms.last[at]]
    end = terms.end[at]
    ended = _or_none(end, end < 0)
    how = np.where(end < 0, LEADS, STEPPED_DOWN).tolist()
    found = map(
        Term, [0] * len(at), first["broker"].tolist(), first["leader_epoch"].tolist(),
        last["leader_epoch"].tolist(), first["time_ms"].tolist(), ended, ended, how,
        terms.word[at].tolist(), _names(said.texts, first["topic_id"]),
        _or_none(first["offset"], first["offset"] == NONE),
    )  # fmt: skip
    return terms.of[at], found


def _told_states(said: _Said, spoken: Numbers) -> tuple[Numbers, Iterator[State]]:
    """Return states that have an ISR, each as long as it differs from the one before."""
    rows = said.rows[spoken]
    kept = (rows["isr"] != NO_TEXT) & ~said.odd[said.of[spoken]]
    at, rows = spoken[kept], rows[kept]
    of, leader = said.of[at], _leaders(rows)
    used = np.unique(rows["isr"])
    members: dict[frozenset[str], int] = {}
    alike = np.zeros(len(said.texts.names) + 1, np.int64)
    for number in used.tolist():
        of_isr = frozenset(said.texts.names[number].split(","))
        alike[number] = members.setdefault(of_isr, len(members))
    isr = alike[rows["isr"]]
    changed = np.ones(len(at), np.bool_)
    changed[1:] = (of[1:] != of[:-1]) | (leader[1:] != leader[:-1]) | (isr[1:] != isr[:-1])
    changed[1:] |= rows["leader_epoch"][1:] != rows["leader_epoch"][:-1]
    of, rows, leader = of[changed], rows[changed], leader[changed]
    epoch = _or_none(rows["epoch"], (rows["epoch"] == NONE) | ~of_kinds(rows, (e.DECIDED,)))
    found = map(
        State, [0] * len(of), rows["leader_epoch"].tolist(), leader.tolist(),
        _names(said.texts, rows["isr"]), _or_none(rows["version"], rows["version"] == NONE),
        rows["time_ms"].tolist(), epoch,
    )  # fmt: skip
    return of, found


def _or_none(values: npt.NDArray[Any], missing: Flags) -> list[int | None]:
    if not missing.any():
        return values.tolist()  # type: ignore[no-any-return]
    said = values.astype(object)
    said[missing] = None
    return said.tolist()  # type: ignore[no-any-return]


def _names(texts: Texts, numbers: npt.NDArray[np.int32]) -> list[str | None]:
    return np.array([*texts.names, None], object)[numbers].tolist()  # type: ignore[no-any-return]
