"""Promises: what a run has broken, by the clients' history and the logs at its end.

Plain code over values. Of each promise the first record that shows it broken is kept, and how many
there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord
from ottla.sim.history import History
from ottla.sim.scenarios.scenario import GAP, KEPT, ONCE, ORDER, READS

Logs = Mapping[TopicPartition, Sequence[LogRecord]]


class Broken(msgspec.Struct, frozen=True):
    """A promise that a run has broken, and the first record that shows it.

    `sent_s` and `acknowledged_s` are of that record (-1: none); `offset` is where it was said to
    be, `found` the value that is there at the end, None for no record. Of a gap, `sent_s` is its
    begin and `acknowledged_s` its end.
    """

    promise: str
    count: int
    partition: str
    value: str = ""
    offset: int = -1
    found: str | None = None
    sent_s: float = -1.0
    acknowledged_s: float = -1.0
    client: str = ""
    other_offset: int = -1
    """Of a record that is there twice: the second place; of one out of order: the later one's."""
    other_value: str = ""


def judge(
    history: History,
    final: Logs,
    promises: Sequence[str],
    longest_gap_s: float | None = None,
    during_s: tuple[float, float] = (0.0, 0.0),
) -> list[Broken]:
    """Return what is broken of the promises, in the order of `promises`.

    `final`: the records of the longest replica of each partition. Gaps are judged in `during_s`.
    """
    found = {
        KEPT: lambda: _lost(history, final),
        ONCE: lambda: _twice(final),
        ORDER: lambda: _out_of_order(history, final),
        READS: lambda: _other_than_read(history, final),
        GAP: lambda: _gap(history, longest_gap_s or 0.0, during_s),
    }
    return [one for promise in promises for one in _counted(found[promise]())]


def longest_gap(history: History, during_s: tuple[float, float]) -> tuple[float, str, float]:
    """Return the longest time without an acknowledged write: (seconds, partition, its begin)."""
    times: dict[TopicPartition, list[float]] = {}
    for write in history.writes:
        of_partition = times.setdefault(write.tp, [])
        if write.acked and write.completed_s is not None:
            of_partition.append(write.completed_s)
    longest = (0.0, "", during_s[0])
    for tp in sorted(times):
        inside = sorted(t for t in times[tp] if during_s[0] < t < during_s[1])
        for before, after in pairwise((during_s[0], *inside, during_s[1])):
            longest = max(longest, (after - before, str(tp), before))
    return longest


def _counted(broken: Iterator[Broken]) -> Iterator[Broken]:
    """Yield the first record that shows it, with how many there are; nothing where none does."""
    for first in broken:
        yield msgspec.structs.replace(first, count=1 + sum(1 for _ in broken))


def _broken(promise: str, tp: TopicPartition, value: bytes, offset: int, **more: Any) -> Broken:
    return Broken(promise, 1, str(tp), value.decode(), offset, **more)


def _gap(history: History, limit_s: float, during_s: tuple[float, float]) -> Iterator[Broken]:
    seconds, partition, began_s = longest_gap(history, during_s)
    if seconds > limit_s:
        yield Broken(GAP, 1, partition, sent_s=began_s, acknowledged_s=began_s + seconds)


def _lost(history: History, final: Logs) -> Iterator[Broken]:
    """Every record that was reported to be sent is in the log; where it was said to be, if it was.

    With acks=0 no offset is known.
    """
    by_offset = {tp: {r.offset: r.value for r in records} for tp, records in final.items()}
    anywhere = {tp: set(have.values()) for tp, have in by_offset.items()}
    for write in history.writes:
        if not write.acked:
            continue
        have = by_offset.get(write.tp, {})
        for i, value in enumerate(write.values):
            offset = write.offset + i if write.offset >= 0 else -1
            there = have.get(offset)
            if there == value or (offset < 0 and value in anywhere.get(write.tp, ())):
                continue
            yield _broken(
                KEPT,
                write.tp,
                value,
                offset,
                found=_decoded(there),
                sent_s=write.invoked_s,
                acknowledged_s=write.completed_s or -1.0,
                client=write.process,
            )


def _twice(final: Logs) -> Iterator[Broken]:
    for tp in sorted(final):
        places: dict[bytes, int] = {}
        for record in final[tp]:
            first = places.setdefault(record.value, record.offset)
            if first != record.offset:
                yield _broken(ONCE, tp, record.value, first, other_offset=record.offset)


def _out_of_order(history: History, final: Logs) -> Iterator[Broken]:
    """Compare the order of each producer's records, each by its first place, with how it sent."""
    sent = {
        value: (w.process, w.number, i)
        for w in history.writes
        if w.acked
        for i, value in enumerate(w.values)
    }
    for tp in sorted(final):
        last: dict[str, tuple[tuple[int, int], LogRecord]] = {}
        seen: set[bytes] = set()
        for record in final[tp]:
            if record.value not in sent or record.value in seen:
                continue
            seen.add(record.value)
            process, *place = sent[record.value]
            here = (place[0], place[1])
            before = last.get(process)
            if before is not None and here < before[0]:
                yield _broken(
                    ORDER,
                    tp,
                    record.value,
                    record.offset,
                    client=process,
                    other_offset=before[1].offset,
                    other_value=before[1].value.decode(),
                )
                continue
            last[process] = here, record


def _other_than_read(history: History, final: Logs) -> Iterator[Broken]:
    by_offset = {tp: {r.offset: r.value for r in records} for tp, records in final.items()}
    for read in history.reads:
        there = by_offset.get(read.tp, {}).get(read.offset)
        if there != read.value:
            yield _broken(
                READS,
                read.tp,
                read.value,
                read.offset,
                found=_decoded(there),
                acknowledged_s=read.at_s,
                client=read.process,
            )


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
