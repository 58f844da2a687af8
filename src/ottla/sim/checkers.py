"""Checkers: what must be true of a history and of the logs at its end.

Plain code over values: each checker returns the anomalies it found, one line each, nothing when all
is well. The promises are those of RELIABILITY: no acknowledged record lost, none reordered, no
phantom, no offset given twice, replicas equal after healing. What must be true of ZooKeeper's
writes is in `znode_rules`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import NamedTuple, ParamSpec

from ottla.model.ids import TopicPartition
from ottla.sim.history import History, Write

P = ParamSpec("P")
SHOWN = 5
"""Anomalies of one kind that are written out; the others are counted."""


class LogRecord(NamedTuple):
    """A record as a replica's files have it."""

    offset: int
    leader_epoch: int
    value: bytes


Logs = Mapping[TopicPartition, Mapping[int, Sequence[LogRecord]]]
"""Per partition and replica: the records on its disk, by offset."""


def check_all(history: History, logs: Logs) -> list[str]:
    """Run every checker over clients' history and final logs."""
    final = {tp: _longest(replicas) for tp, replicas in logs.items()}
    return [
        *check_replicas_equal(logs),
        *check_acked_present(history, final),
        *check_no_phantoms(history, final),
        *check_no_duplicates(final),
        *check_order(history, final),
        *check_reads(history, final),
    ]


def _longest(replicas: Mapping[int, Sequence[LogRecord]]) -> Sequence[LogRecord]:
    return max(replicas.values(), key=len, default=())


def check(kind: str) -> Callable[[Callable[P, Iterator[str]]], Callable[P, list[str]]]:
    """Declare a check: a function that yields a line of each thing that is wrong.

    What is called is the function of which the first lines are returned, with their kind.
    """

    def declared(lines: Callable[P, Iterator[str]]) -> Callable[P, list[str]]:
        @wraps(lines)
        def found(*args: P.args, **named: P.kwargs) -> list[str]:
            return few(kind, list(lines(*args, **named)))

        return found

    return declared


def few(kind: str, lines: list[str]) -> list[str]:
    """Return the first lines with their kind, and how many there are."""
    if len(lines) > SHOWN:
        return [f"{kind}: {line}" for line in lines[:SHOWN]] + [f"{kind}: … {len(lines)} in all"]
    return [f"{kind}: {line}" for line in lines]


@check("replicas differ")
def check_replicas_equal(logs: Logs) -> Iterator[str]:
    """Every replica of a partition has the same records at the same offsets and epochs."""
    for tp in sorted(logs):
        replicas = logs[tp]
        first = min(replicas, default=-1)
        for broker in sorted(replicas):
            ours, theirs = replicas[first], replicas[broker]
            if list(ours) == list(theirs):
                continue
            for a, b in zip(ours, theirs, strict=False):
                if a != b:
                    yield (f"{tp} broker {first} has {a}, broker {broker} has {b}")
                    break
            else:
                yield (
                    f"{tp} broker {first} has {len(ours)} records, broker {broker} {len(theirs)}"
                )


@check("acked record lost")
def check_acked_present(
    history: History, final: Mapping[TopicPartition, Sequence[LogRecord]]
) -> Iterator[str]:
    """Every record acknowledged with acks=all is there, at the offset that was promised."""
    by_offset = {tp: {r.offset: r.value for r in records} for tp, records in final.items()}
    for write in history.writes:
        if not write.acked or write.acks != -1 or write.tp.topic in history.unclean_topics:
            continue
        have = by_offset.get(write.tp, {})
        for i, value in enumerate(write.values):
            there = have.get(write.offset + i)
            if there != value:
                yield (
                    f"{write.tp}@{write.offset + i} {value!r} acked to {write.process} at "
                    f"{write.completed_s:.3f} s, the log has {there!r}"
                )


@check("phantom record")
def check_no_phantoms(
    history: History, final: Mapping[TopicPartition, Sequence[LogRecord]]
) -> Iterator[str]:
    """Every record in a log was written by someone to that partition, and not refused."""
    known: dict[bytes, Write] = {v: w for w in history.writes for v in w.values}
    for tp in sorted(final):
        for record in final[tp]:
            write = known.get(record.value)
            if write is None or write.tp != tp:
                yield (f"{tp}@{record.offset} {record.value!r} was never written there")
            elif write.failed is not None:
                yield (f"{tp}@{record.offset} {record.value!r} was refused: {write.failed}")


@check("duplicate record")
def check_no_duplicates(final: Mapping[TopicPartition, Sequence[LogRecord]]) -> Iterator[str]:
    """No record of an idempotent producer is in the log more than once."""
    for tp in sorted(final):
        first_at: dict[bytes, int] = {}
        for record in final[tp]:
            if record.value in first_at:
                yield (f"{tp} {record.value!r} at {first_at[record.value]} and {record.offset}")
            first_at.setdefault(record.value, record.offset)


@check("reordered")
def check_order(
    history: History, final: Mapping[TopicPartition, Sequence[LogRecord]]
) -> Iterator[str]:
    """Acked records are in the order their producer sent them; offsets only rise."""
    number = {
        value: (write.process, write.number, i)
        for write in history.writes
        if write.acked
        for i, value in enumerate(write.values)
    }
    for tp in sorted(final):
        last: dict[str, tuple[int, int]] = {}
        for before, after in pairwise(final[tp]):
            if after.offset <= before.offset or after.leader_epoch < before.leader_epoch:
                yield (f"{tp} {before} stands before {after}")
        for record in final[tp]:
            if record.value not in number:
                continue
            process, *place = number[record.value]
            here = (place[0], place[1])
            if here < last.get(process, (-1, -1)):
                yield (f"{tp}@{record.offset} {record.value!r} came after a later one")
            last[process] = here


@check("read not repeatable")
def check_reads(
    history: History, final: Mapping[TopicPartition, Sequence[LogRecord]]
) -> Iterator[str]:
    """Check that every reader always gets the same record at an offset."""
    by_offset = {tp: {r.offset: r.value for r in records} for tp, records in final.items()}
    seen: dict[tuple[TopicPartition, int], bytes] = {}
    last: dict[tuple[str, TopicPartition], int] = {}
    for read in history.reads:
        key = (read.tp, read.offset)
        if seen.setdefault(key, read.value) != read.value:
            yield (f"{read.tp}@{read.offset} was {seen[key]!r}, then {read.value!r}")
        elif by_offset.get(read.tp, {}).get(read.offset) != read.value:
            there = by_offset.get(read.tp, {}).get(read.offset)
            yield (
                f"{read.tp}@{read.offset} {read.value!r} given to {read.process} at "
                f"{read.at_s:.3f} s, the log has {there!r}"
            )
        place = (read.process, read.tp)
        if read.offset <= last.get(place, -1):
            yield (f"{read.process} got {read.tp}@{read.offset} twice or backwards")
        last[place] = read.offset
