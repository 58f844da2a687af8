"""Spans of offsets, and what a batch takes of them; as plain values.

A span is half open: [start, end).
"""

from collections.abc import Mapping, Sequence
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
