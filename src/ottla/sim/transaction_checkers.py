"""Checkers of transactions: exactly once, all or nothing, nothing undecided read, no one fenced.

Plain code over values, as `checkers`: the final logs with their markers say what is committed; the
history says what clients requested and which responses they got.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord, check
from ottla.sim.history import History, Read
from ottla.wire.records import COMMIT, iter_batches, iter_records, parse_control_record

TIMEOUT_S = 10.0
"""The transactions' timeout (`transactors.TRANSACTION_TIMEOUT_MS`)."""
SOON_S = 1.0
"""A transaction began at its coordinator up to so long before or after its producer says."""

COPY = re.compile(
    rb"(?P<topic>[^ @]+)-(?P<partition>\d+)@(?P<offset>\d+) [^=]*=(?P<value>.*)", re.DOTALL
)


class LoggedTransaction(NamedTuple):
    """What became of one producer's records in one partition between two markers.

    `marker` is the offset of the marker, -1 while there is none; then `committed` is None.
    """

    producer_id: int
    first: int
    marker: int
    committed: bool | None
    values: tuple[tuple[int, bytes], ...]


LoggedTransactions = Mapping[TopicPartition, Sequence[LoggedTransaction]]


def transactions_in(data: bytes) -> list[LoggedTransaction]:
    """Read a log; return every transaction in it."""
    under_way: dict[int, list[tuple[int, bytes]]] = {}
    found: list[LoggedTransaction] = []
    for position, header in iter_batches(data, allow_partial=True):
        producer = header.producer_id
        if header.is_control:
            record = next(iter(iter_records(data, position)))
            committed = parse_control_record(record).type == COMMIT
            values = under_way.pop(producer, [])
            first = values[0][0] if values else record.offset
            found.append(
                LoggedTransaction(producer, first, record.offset, committed, tuple(values))
            )
        elif header.is_transactional:
            values = under_way.setdefault(producer, [])
            values += [(r.offset, r.value or b"") for r in iter_records(data, position)]
    for producer, values in under_way.items():
        if values:
            found.append(LoggedTransaction(producer, values[0][0], -1, None, tuple(values)))
    return found


def latest_by_key(data: bytes) -> dict[bytes, bytes]:
    """Return what a compacted log says in the end: by key the last value that is not aborted."""
    aborted = {
        offset
        for one in transactions_in(data)
        if one.committed is False
        for offset, _ in one.values
    }
    found: dict[bytes, bytes] = {}
    for position, header in iter_batches(data, allow_partial=True):
        if header.is_control:
            continue
        for record in iter_records(data, position):
            if record.offset not in aborted:
                found.pop(record.key or b"", None)
                if record.value is not None:
                    found[record.key or b""] = record.value
    return found


def committed_values(logged: Iterable[LoggedTransaction]) -> Iterator[tuple[int, bytes]]:
    """Yield the committed records of a partition."""
    for one in logged:
        if one.committed:
            yield from one.values


def check_transactions(
    history: History,
    source: Mapping[TopicPartition, Sequence[LogRecord]],
    logged: LoggedTransactions,
    *,
    complete: bool,
) -> list[str]:
    """Run every checker. `complete`: all was to be copied, and every transaction to have ended."""
    return [
        *check_exactly_once(source, logged, complete=complete),
        *check_all_or_nothing(history, logged),
        *check_outcomes(history, logged),
        *check_committed_reads(history, logged),
        *check_last_stable_offsets(history, logged),
        *check_fencing(history),
        *check_reasons(history),
        *(check_all_ended(logged) if complete else ()),
    ]


@check("fenced for no reason")
def check_reasons(history: History) -> Iterator[str]:
    """No producer is fenced during a young transaction unless another process asked for the id.

    Whose transaction is as old as its timeout may find that it was aborted.
    """
    for fenced in history.fenced:
        if fenced.began_s is None or fenced.at_s - fenced.began_s >= TIMEOUT_S - SOON_S:
            continue
        ours = [i.invoked_s for i in history.inits if i.process == fenced.process]
        since_s = min(ours, default=0.0)
        if not any(
            i.transactional_id == fenced.transactional_id
            and i.process != fenced.process
            and (i.completed_s is None or i.completed_s >= since_s)
            and i.invoked_s <= fenced.at_s
            for i in history.inits
        ):
            yield (
                f"{fenced.process} at {fenced.at_s:.3f} s, in a transaction of "
                f"{fenced.at_s - fenced.began_s:.1f} s, and no other producer used its id"
            )


@check("not exactly once")
def check_exactly_once(
    source: Mapping[TopicPartition, Sequence[LogRecord]],
    logged: LoggedTransactions,
    *,
    complete: bool,
) -> Iterator[str]:
    """Every record of the source has one committed copy, by count, by digest and by itself."""
    copies: dict[tuple[TopicPartition, int], list[bytes]] = {}
    for tp in sorted(logged):
        for offset, value in committed_values(logged[tp]):
            match = COPY.fullmatch(value)
            if match is None:
                yield (f"{tp}@{offset} holds {value!r}, which is no copy")
                continue
            origin = TopicPartition(match["topic"].decode(), int(match["partition"]))
            copies.setdefault((origin, int(match["offset"])), []).append(match["value"])
    originals = {(tp, r.offset): r.value for tp, records in source.items() for r in records}
    for (tp, offset), values in sorted(copies.items()):
        if len(values) > 1:
            yield (f"{tp}@{offset} was copied {len(values)} times")
        if originals.get((tp, offset)) != values[0]:
            yield (f"{tp}@{offset} is {originals.get((tp, offset))!r}, its copy {values[0]!r}")
    if complete:
        yield from (f"{tp}@{o} was never copied" for tp, o in sorted(originals.keys() - copies))
        count = sum(map(len, copies.values()))
        if count != len(originals):
            yield (f"{len(originals)} records, {count} copies")
        elif _digest(originals.values()) != _digest(v for some in copies.values() for v in some):
            yield ("the digests of the records and of their copies differ")


def _digest(values: Iterable[bytes]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for value in sorted(values):
        whole.update(len(value).to_bytes(4) + value)
    return whole.hexdigest()


def _committed_by_value(logged: LoggedTransactions) -> dict[bytes, bool | None]:
    return {value: f.committed for some in logged.values() for f in some for _, value in f.values}


@check("committed in part")
def check_all_or_nothing(history: History, logged: LoggedTransactions) -> Iterator[str]:
    """Check that a transaction's records are all committed, in all partitions, or none is."""
    known = _committed_by_value(logged)
    for t in history.transactions:
        states = {known.get(value, False) for value in t.values}
        if True in states and len(states) > 1:
            missing = sum(not known.get(value) for value in t.values)
            yield (f"{t.process}.{t.number}: {missing} of {len(t.values)} records are not")


@check("wrong outcome")
def check_outcomes(history: History, logged: LoggedTransactions) -> Iterator[str]:
    """Check that the end that a producer was given of its transaction is real, and requested."""
    known = _committed_by_value(logged)
    for t in history.transactions:
        committed = any(known.get(value) for value in t.values)
        if t.outcome is not None and t.values and committed is not t.outcome:
            word = "committed" if t.outcome else "aborted"
            yield (f"{t.process}.{t.number} received {word} at {t.ended_s} s; it is not so")
        elif committed and not t.commit:
            yield (f"{t.process}.{t.number} is committed without a request")


@check("read_committed")
def check_committed_reads(history: History, logged: LoggedTransactions) -> Iterator[str]:
    """Check that a read_committed reader gets committed records only, and all up to where it is.

    None comes before its producer has asked for the commit.
    """
    asked = {value: t.end_invoked_s for t in history.transactions if t.commit for value in t.values}
    committed = {tp: dict(committed_values(some)) for tp, some in logged.items()}
    readers: dict[tuple[str, TopicPartition], list[int]] = {}
    for read in history.reads:
        if read.process not in history.committed_readers:
            continue
        readers.setdefault((read.process, read.tp), []).append(read.offset)
        if read.offset not in committed.get(read.tp, {}):
            yield (f"{_described(read)}, which is not committed")
            continue
        asked_s = asked.get(read.value)
        if asked_s is None or asked_s > read.at_s:
            yield (f"{_described(read)}, before anybody asked for the commit ({asked_s})")
    for (process, tp), offsets in sorted(readers.items()):
        due = sorted(o for o in committed[tp] if o <= offsets[-1])
        left_out = sorted(set(due) - set(offsets))
        if left_out:
            yield (f"{process} was not given {tp}@{left_out[:5]}, which are committed")


def _described(read: Read) -> str:
    return f"{read.process} got {read.tp}@{read.offset} {read.value!r} at {read.at_s:.3f} s"


@check("last stable offset")
def check_last_stable_offsets(history: History, logged: LoggedTransactions) -> Iterator[str]:
    """Below a last stable offset every transaction has its marker, and that was replicated."""
    for tp in sorted(history.stables):
        by_first_offset = sorted(logged.get(tp, ()), key=lambda one: one.first)
        for stable in history.stables[tp]:
            if stable.last_stable_offset > stable.high_watermark:
                yield (f"{tp} {stable} is above the high watermark")
            for one in by_first_offset:
                if one.first >= stable.last_stable_offset:
                    break
                if one.marker < 0 or one.marker >= stable.high_watermark:
                    yield (
                        f"{tp} {stable} passes producer {one.producer_id}'s transaction from "
                        f"{one.first} on, which ends at {one.marker}"
                    )


@check("fencing")
def check_fencing(history: History) -> Iterator[str]:
    """Whoever has taken a transactional id over: no one from before commits any more.

    And no two of its producers are the same to the brokers.
    """
    by_id: dict[str, list[tuple[float, str, int, int]]] = {}
    for init in history.inits:
        if init.completed_s is not None:
            row = (init.completed_s, init.process, init.producer_id, init.epoch)
            by_id.setdefault(init.transactional_id, []).append(row)
    for name, rows in sorted(by_id.items()):
        rows.sort()
        pairs = [row[2:] for row in rows]
        if len(set(pairs)) != len(pairs):
            yield (f"{name}: the same producer id and epoch were given twice: {rows}")
    for t in history.transactions:
        if not t.outcome or t.end_invoked_s is None:
            continue
        own = max(
            (
                at
                for at, process, *_ in by_id.get(t.transactional_id, ())
                if process == t.process and at <= t.began_s
            ),
            default=0.0,
        )
        for init in history.inits:
            if init.transactional_id != t.transactional_id or init.process == t.process:
                continue
            completed_s, process = init.completed_s, init.process
            if completed_s is not None and own < init.invoked_s and completed_s < t.end_invoked_s:
                yield (
                    f"{t.process}.{t.number} committed at {t.ended_s} s, but {process} has had "
                    f"{t.transactional_id} since {completed_s:.3f} s"
                )


@check("transaction without an end")
def check_all_ended(logged: LoggedTransactions) -> Iterator[str]:
    """No transaction hangs: each has a marker in each of its partitions."""
    for tp in sorted(logged):
        for one in logged[tp]:
            if one.committed is None:
                yield f"{tp}@{one.first} of producer {one.producer_id}"
