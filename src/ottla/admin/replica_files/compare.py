"""Replicas against each other: the first offset from which on they do not hold the same batches.

Pure: what has to be read again comes from a function. Kafka's followers copy a leader's batches
byte for byte, so at each offset all replicas have one batch, with the same bounds, epoch and bytes;
where a log begins, and how it is cut into files, may differ. Not compared: what the cleaner rewrote
on each broker by itself, and what was not committed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files.finding import Finding
from ottla.admin.replica_files.reading import Batch
from ottla.admin.replica_files.replica import Replica, Truth
from ottla.admin.replica_files.summary import GRID

Found = tuple[Batch, str]
"""A batch and its file."""
ReadCell = Callable[[Replica, int], list[Found]]
"""Reads the batches of a replica whose base offset is in a cell, in the file's order."""

MOST_CELLS = 1000
"""So many cells of a partition are read again at most."""

Variants = Mapping[int, tuple[Found, ...]]
"""What each replica, by its place in the list, has at an offset."""


class Span(NamedTuple):
    """Which offsets of a replica are compared."""

    low: int
    high: int

    def covers(self, cell: int) -> bool:
        return self.low < (cell + 1) * GRID and self.high > cell * GRID


def spans_of(replicas: Sequence[Replica], committed: int | None, cleaned: int) -> list[Span]:
    """Return what is compared of each: from its start, or where cleaning ended, to its end."""
    return [
        Span(max(r.start, cleaned), r.end if committed is None else min(r.end, committed))
        for r in replicas
    ]


def differing_cells(replicas: Sequence[Replica], spans: Sequence[Span]) -> list[int]:
    """Return the cells whose digests differ between replicas that have their offsets, in order."""
    found = []
    for cell in sorted({cell for replica in replicas for cell in replica.cells}):
        covering = (r for r, span in zip(replicas, spans, strict=True) if span.covers(cell))
        if len({replica.cells.get(cell, 0) for replica in covering}) > 1:
            found.append(cell)
    return found


def divergences(
    replicas: Sequence[Replica],
    spans: Sequence[Span],
    read_cell: ReadCell,
    truth: Truth | None,
) -> list[Finding]:
    """Return for each replica that differs the first offset at which it does."""
    left = list(range(len(replicas)))
    found: list[Finding] = []
    start = 0
    looked_at = 0
    while len(left) > 1:
        cells = differing_cells([replicas[i] for i in left], [spans[i] for i in left])
        for cell in cells:
            if cell < start:
                continue
            looked_at += 1
            if looked_at > MOST_CELLS:
                return [*found, _too_many(replicas[0], cell)]
            difference = _first_difference(left, replicas, spans, read_cell, cell)
            if difference is None:
                continue
            offset, variants = difference
            losers, right = _split(variants, replicas, truth)
            found += [_report(replicas, loser, offset, variants, right, truth) for loser in losers]
            left = [i for i in left if i not in losers]
            start = cell
            break
        else:
            break
    return found


def _too_many(replica: Replica, cell: int) -> Finding:
    return Finding(
        replica.tp.topic, replica.tp.partition, kinds.NOT_READ, cell * GRID, -1, "", -1,
        f"more than {MOST_CELLS} ranges of {GRID} offsets differ; those from here on were not read "
        "again",
    )  # fmt: skip


def _first_difference(
    left: Sequence[int],
    replicas: Sequence[Replica],
    spans: Sequence[Span],
    read_cell: ReadCell,
    cell: int,
) -> tuple[int, Variants] | None:
    """Return the first offset of a cell at which replicas that have it hold different batches."""
    batches: dict[int, dict[int, list[Found]]] = {}
    for i in left:
        if spans[i].covers(cell):
            by_base: dict[int, list[Found]] = {}
            for batch, path in read_cell(replicas[i], cell):
                by_base.setdefault(batch.base, []).append((batch, path))
            batches[i] = by_base
    for base in sorted({base for by_base in batches.values() for base in by_base}):
        variants = {
            i: tuple(by_base.get(base, ()))
            for i, by_base in batches.items()
            if spans[i].low <= base < spans[i].high
        }
        if len({_contents(v) for v in variants.values()}) > 1:
            return base, variants
    return None


def _contents(batches: Sequence[Found]) -> tuple[tuple[int, ...], ...]:
    return tuple((b.epoch, *b.content) for b, _ in batches)


def _split(
    variants: Variants, replicas: Sequence[Replica], truth: Truth | None
) -> tuple[list[int], list[int]]:
    """Return the replicas that are wrong, and those that are right.

    Right is what the leader has, unless its checksum fails; else what most have; of as many the
    one with sound checksums, then with the highest epoch: it is the later leader's.
    """
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for i, batches in variants.items():
        groups.setdefault(_contents(batches), []).append(i)

    def rank(members: list[int]) -> tuple[bool, bool, int, int]:
        batches = variants[members[0]]
        sound = bool(batches) and all(b.crc == b.computed for b, _ in batches)
        leads = truth is not None and any(replicas[i].broker == truth.leader for i in members)
        return sound, sound and leads, len(members), max((b.epoch for b, _ in batches), default=-1)

    right = max(groups.values(), key=rank)
    return [i for i in variants if i not in right], right


def _report(
    replicas: Sequence[Replica],
    loser: int,
    offset: int,
    variants: Variants,
    right: Sequence[int],
    truth: Truth | None,
) -> Finding:
    replica, mine, theirs = replicas[loser], variants[loser], variants[right[0]]
    others = ", ".join(str(replicas[i]) for i in right)
    detail = f"{replica} has {_said(mine)}; {others}: {_said(theirs)}"
    same_bytes = bool(mine) and [b.content for b, _ in mine] == [b.content for b, _ in theirs]
    kind, wrong = (kinds.EPOCH if same_bytes else kinds.DIVERGENT), True
    if _may_be_cut(replica, offset, mine, theirs, truth):
        kind, wrong = kinds.UNCOMMITTED, False
        detail += "; an earlier leader's, never committed: its next start cuts it off"
    place = mine[0] if mine else None
    contents = _contents_of_file(replica, place, offset)
    return Finding(
        replica.tp.topic, replica.tp.partition, kind, offset, replica.known_broker,
        place[1] if place else _file_at(replica, offset), place[0].position if place else -1,
        detail, wrong, contents,
    )  # fmt: skip


def _said(batches: Sequence[Found]) -> str:
    if not batches:
        return "no batch that begins there"
    one, _ = batches[0]
    crc = f"checksum {one.crc:08x}"
    if one.computed != one.crc:
        crc += f" (its bytes: {one.computed:08x})"
    more = "" if len(batches) == 1 else f" and {len(batches) - 1} more"
    return f"offsets {one.base}-{one.last}, epoch {one.epoch}, {one.size:,} bytes, {crc}{more}"


def _may_be_cut(
    replica: Replica,
    offset: int,
    mine: Sequence[Found],
    theirs: Sequence[Found],
    truth: Truth | None,
) -> bool:
    """Return whether this is the tail that a former leader has not cut off yet (KIP-101)."""
    if (replica.high_watermark or 0) > offset or not mine or not theirs:
        return False
    if truth is not None and replica.broker in truth.isr:
        return False
    return mine[0][0].epoch < theirs[0][0].epoch and all(b.crc == b.computed for b, _ in mine)


def _file_at(replica: Replica, offset: int) -> str:
    before = [s.path for s in replica.segments if s.base_offset <= offset]
    return before[-1] if before else replica.folder


def _contents_of_file(replica: Replica, place: Found | None, offset: int) -> int:
    path = place[1] if place else _file_at(replica, offset)
    return next((s.facts.contents for s in replica.segments if s.path == path), 0)
