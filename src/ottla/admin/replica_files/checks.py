"""One replica by itself: damage, order, names, epochs, and whether it has all that was committed.

Pure. Each check yields findings; what the cleaner or retention may have done is none.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files import reading
from ottla.admin.replica_files.finding import Finding
from ottla.admin.replica_files.replica import Replica, SegmentFacts, Truth

MOST = 10
"""So many findings of a kind are reported of one file; the last says how many there were."""


def found_in(
    replica: Replica, *, committed: int | None, cleaned: int, truth: Truth | None
) -> Iterator[Finding]:
    """Yield what is wrong with a replica.

    `committed` is the partition's high watermark, None if no one knows one; below `cleaned`
    offsets may be missing.
    """
    yield from _damage(replica, committed)
    yield from _names(replica, cleaned)
    yield from _order(replica, cleaned)
    yield from _epochs(replica)
    if committed is not None:
        yield from _tail(replica, committed, truth)


def _found(
    replica: Replica,
    kind: str,
    offset: int,
    detail: str,
    *,
    file: str = "",
    position: int = -1,
    wrong: bool = True,
    contents: int = 0,
) -> Finding:
    tp, broker = replica.tp, replica.known_broker
    return Finding(
        tp.topic, tp.partition, kind, offset, broker, file or replica.folder, position, detail,
        wrong, contents,
    )  # fmt: skip


def _more(count: int, shown: int) -> str:
    return f"; the last of {shown} reported, there are {count}" if count > shown else ""


# -- damage -------------------------------------------------------------------------------------


def _damage(replica: Replica, committed: int | None) -> Iterator[Finding]:
    for segment in replica.segments:
        facts = segment.facts
        reported = facts.bad[:MOST]
        for number, bad in enumerate(reported, 1):
            kind, wrong = _judged(bad.kind, segment is replica.segments[-1], bad.offset, committed)
            if kind is None:
                continue
            detail = f"{bad.reason} ({bad.size:,} bytes)"
            if number == len(reported):
                detail += _more(facts.bad_count, MOST)
            yield _found(
                replica, kind, bad.offset, detail, file=segment.path, position=bad.position,
                wrong=wrong,
            )  # fmt: skip


def _judged(kind: str, last: bool, offset: int, committed: int | None) -> tuple[str | None, bool]:
    """Return which finding damage is, None for none, and whether it is wrong."""
    # What was not committed may be torn by a crash; the next start cuts it off.
    may_be_torn = last and committed is not None and offset >= committed
    if kind == reading.ZEROS and last:
        return None, False
    if kind == reading.OLD_FORMAT:
        return kinds.NOT_READ, False
    if kind == reading.GONE:
        return kinds.NOT_READ, not may_be_torn
    if may_be_torn:
        return kinds.TORN_TAIL, False
    return (kinds.CHECKSUM if kind == reading.CHECKSUM else kinds.UNREADABLE), True


# -- offsets ------------------------------------------------------------------------------------


def _foreign(segment: SegmentFacts, upper: int | None) -> bool:
    """Return whether a file's first batch does not belong under its name."""
    first = segment.facts.first_offset
    return segment.facts.batches > 0 and (
        first < segment.base_offset or (upper is not None and first >= upper)
    )


def _with_upper(replica: Replica) -> Iterator[tuple[SegmentFacts, int | None]]:
    """Yield each segment with the base offset of the next one."""
    for segment, after in pairwise(replica.segments):
        yield segment, after.base_offset
    if replica.segments:
        yield replica.segments[-1], None


def _names(replica: Replica, cleaned: int) -> Iterator[Finding]:
    """Check that each file holds what its name says, and that files follow each other."""
    end: int | None = None
    """Where the offsets before this file end; None where that says nothing."""
    for segment, upper in _with_upper(replica):
        facts = segment.facts
        if _foreign(segment, upper):
            high = "on" if upper is None else f"to {upper - 1}"
            yield _found(
                replica, kinds.FOREIGN, facts.first_offset,
                f"offsets {facts.first_offset} to {facts.end_offset - 1} in a file for those from "
                f"{segment.base_offset} {high}", file=segment.path, position=0,
                contents=facts.contents,
            )  # fmt: skip
            end = None
            continue
        begin = facts.first_offset if facts.batches else segment.base_offset
        follows = segment.base_offset if end is None else end
        unread_first = bool(facts.bad) and facts.bad[0].position == 0
        if begin > follows and not unread_first:
            yield from _lost(replica, segment, follows, begin, 0, cleaned)
        elif begin < follows:
            yield _doubled(replica, segment, begin, follows, 0)
        # Behind unreadable bytes at a file's end nothing is known to be missing.
        unread_last = any(b.kind != reading.CHECKSUM for b in facts.bad[-1:])
        end = None if unread_last else facts.end_offset if facts.batches else begin


def _order(replica: Replica, cleaned: int) -> Iterator[Finding]:
    """Check that the batches of each file follow each other."""
    for segment in replica.segments:
        facts = segment.facts
        reported = 0
        for gap in facts.gaps:
            for one in _lost(replica, segment, gap.other, gap.offset, gap.position, cleaned):
                reported += 1
                if reported <= MOST:
                    more = _more(facts.gap_count, MOST) if reported == MOST else ""
                    yield one._replace(detail=one.detail + more)
        for number, double in enumerate(facts.doubled[:MOST], 1):
            found = _doubled(replica, segment, double.offset, double.other, double.position)
            more = _more(facts.doubled_count, MOST) if number == MOST else ""
            yield found._replace(detail=found.detail + more)


def _lost(
    replica: Replica, segment: SegmentFacts, first: int, end: int, position: int, cleaned: int
) -> Iterator[Finding]:
    first = max(first, replica.start, cleaned)
    if first < end:
        yield _found(
            replica, kinds.LOST, first, f"offsets {first} to {end - 1} are in no batch",
            file=segment.path, position=position,
        )  # fmt: skip


def _doubled(
    replica: Replica, segment: SegmentFacts, offset: int, expected: int, position: int
) -> Finding:
    return _found(
        replica, kinds.DUPLICATE, offset,
        f"a batch begins at {offset}, where {expected} is to follow",
        file=segment.path, position=position,
    )  # fmt: skip


# -- epochs -------------------------------------------------------------------------------------


def _epochs(replica: Replica) -> Iterator[Finding]:
    """Check that epochs only rise, and that leader-epoch-checkpoint has them."""
    if replica.checkpoint_problem:
        yield _found(replica, kinds.CHECKPOINT, -1, replica.checkpoint_problem)
    for segment in replica.segments:
        for back in segment.facts.epochs_back[:MOST]:
            yield _found(
                replica, kinds.EPOCH, back.offset, f"epoch below {back.other} before it",
                file=segment.path, position=back.position,
            )  # fmt: skip
    runs = _runs(replica)
    for before, run in pairwise(runs):
        if run.epoch < before.epoch and run.file != before.file:
            yield _found(
                replica, kinds.EPOCH, run.first, f"epoch {run.epoch} after epoch {before.epoch}",
                file=run.file,
            )  # fmt: skip
    if replica.checkpoint:
        yield from _against_checkpoint(replica, replica.checkpoint, runs)


class _Run(NamedTuple):
    """Batches of one epoch, from the first offset to before `end`."""

    epoch: int
    first: int
    end: int
    file: str


def _runs(replica: Replica) -> list[_Run]:
    found: list[_Run] = []
    for segment, upper in _with_upper(replica):
        if _foreign(segment, upper):
            continue
        for epoch, first, end in segment.facts.epochs:
            if found and found[-1].epoch == epoch:
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(_Run(epoch, first, end, segment.path))
    return found


def _against_checkpoint(
    replica: Replica, checkpoint: Sequence[tuple[int, int]], runs: Sequence[_Run]
) -> Iterator[Finding]:
    starts = [start for _, start in checkpoint]
    reported = 0
    for run in runs:
        first = max(run.first, replica.start)
        if run.epoch < 0 or first >= run.end:
            continue
        at = bisect_right(starts, first) - 1
        said, offset = (checkpoint[at][0] if at >= 0 else -1), first
        if said == run.epoch:
            # Within a run no other epoch may begin.
            inside = [entry for entry in checkpoint[at + 1 : at + 2] if entry[1] < run.end]
            said, offset = inside[0] if inside else (said, offset)
        if said != run.epoch and reported < MOST:
            reported += 1
            # A running broker writes it just after the batches; after a crash it is built again.
            late = at == len(checkpoint) - 1 and 0 <= said < run.epoch
            yield _found(
                replica, kinds.EPOCH, offset,
                f"batches have epoch {run.epoch}, leader-epoch-checkpoint says "
                f"{'nothing' if said < 0 else said}", file=run.file, wrong=not late,
            )  # fmt: skip


# -- the end ------------------------------------------------------------------------------------


def _tail(replica: Replica, committed: int, truth: Truth | None) -> Iterator[Finding]:
    """Check that a replica has all that was committed, unless it is known to be out of sync."""
    if replica.end >= committed:
        return
    own = replica.high_watermark or 0
    missing = f"ends at {replica.end}, {committed - replica.end} offsets below {committed}"
    if own > replica.end:
        missing += f"; by its own checkpoint {own} was committed"
    elif truth is not None and replica.broker is not None and replica.broker not in truth.isr:
        detail = f"{missing}; it is not in the ISR"
        yield _found(replica, kinds.OUT_OF_SYNC, replica.end, detail, wrong=False)
        return
    elif truth is not None:
        missing += ", the leader's high watermark"
    else:
        missing += (
            f", which other replicas have; its own checkpoint says {own}, so it may have been out "
            "of sync: --bootstrap-server asks the cluster"
        )
    last = replica.segments[-1].path if replica.segments else ""
    yield _found(replica, kinds.MISSING_TAIL, replica.end, missing, file=last)
