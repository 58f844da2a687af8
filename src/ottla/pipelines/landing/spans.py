"""Spans of offsets: what is missing, what a batch takes, what has landed; as plain values.

Invariants: pure. A span is half open: [start, end). The spans of a partition are sorted, disjoint
and not adjacent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


Spans = Mapping[int, Sequence[Span]]
"""Spans by partition."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the same offsets in as few spans as there can be."""
    found: list[Span] = []
    for span in sorted(s for s in spans if s.end > s.start):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def missing(wanted: Span, landed: Sequence[Span]) -> list[Span]:
    """Return the parts of `wanted` that have not landed."""
    found: list[Span] = []
    at = wanted.start
    for span in landed:
        if span.end <= at:
            continue
        if span.start >= wanted.end:
            break
        if span.start > at:
            found.append(Span(at, span.start))
        at = max(at, span.end)
    if at < wanted.end:
        found.append(Span(at, wanted.end))
    return found


def all_missing(wanted: Mapping[int, Span], landed: Spans) -> dict[int, list[Span]]:
    """Return what has not landed, by partition; partitions with nothing missing are left out."""
    found = {p: missing(span, landed.get(p, ())) for p, span in wanted.items()}
    return {p: spans for p, spans in found.items() if spans}


def plan(todo: Spans, limit: int) -> dict[int, Span]:
    """Return the next batch: of each partition its first span, cut so that all fit into `limit`.

    Partitions share the limit in proportion to what waits in them; each gets at least one offset,
    so that none is left behind for ever.
    """
    firsts = {p: spans[0] for p, spans in todo.items() if spans}
    total = sum(span.size for span in firsts.values())
    if total <= limit:
        return firsts
    return {
        p: Span(span.start, span.start + max(1, span.size * limit // total))
        for p, span in firsts.items()
    }


def land(landed: Spans, batch: Mapping[int, Span]) -> dict[int, list[Span]]:
    """Return what has landed after a batch."""
    found = {p: list(spans) for p, spans in landed.items()}
    for p, span in batch.items():
        found[p] = merged([*found.get(p, ()), span])
    return found


def total(spans: Spans) -> int:
    """Return how many offsets there are in all spans."""
    return sum(span.size for of_one in spans.values() for span in of_one)
