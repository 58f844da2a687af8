"""What differs between what should stand in the target and what stands there.

Pure. A block is (partition, offset // BLOCK) of the source.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.pipelines.landing.spans import Span

Blocks = Mapping[tuple[int, int], tuple[int, int]]
"""By block: how many records, and a hash over them."""
Detail = tuple[int, int, int, tuple[int, int] | None]
Run = tuple[int, int, int, int, int]

MISSING, DOUBLED, DIFFERS, FOREIGN = "missing", "doubled", "differs", "not of this copy"
MOST_FINDINGS = 100
PLACES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A record of the source that does not stand in the target exactly once, as it should."""

    kind: str
    partition: int
    offset: int
    places: tuple[tuple[int, int], ...]
    """Partitions and offsets of the target."""

    def __str__(self) -> str:
        at = ", ".join(f"{p}:{o}" for p, o in self.places)
        return f"record {self.partition}:{self.offset} of the source: {self.kind}" + (
            f" (target {at})" if at else ""
        )


def merged(parts: Iterable[Blocks]) -> dict[tuple[int, int], tuple[int, int]]:
    """Put the sums of several ranges together."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for blocks in parts:
        for key, (count, hash_) in blocks.items():
            before = found.get(key, (0, 0))
            found[key] = (before[0] + count, before[1] ^ hash_)
    return found


def different(should: Blocks, there: Blocks) -> list[tuple[int, int]]:
    """Return the blocks that differ."""
    keys = should.keys() | there.keys()
    return sorted(key for key in keys if should.get(key) != there.get(key))


def findings(
    should: Iterable[Detail], there: Iterable[Detail], spans: Mapping[int, Span]
) -> list[Finding]:
    """Return what is wrong, in order, MOST_FINDINGS at most.

    A record below its span was copied and checked before: it is doubled now.
    """
    wanted = {(p, o): hash_ for p, o, hash_, _ in should}
    places: dict[tuple[int, int], list[tuple[int, int]]] = {}
    hashes: dict[tuple[int, int], set[int]] = {}
    for p, o, hash_, place in there:
        if place is not None:
            places.setdefault((p, o), []).append(place)
        hashes.setdefault((p, o), set()).add(hash_)
    times = Counter({key: len(found) for key, found in places.items()})
    wrong = []
    for key in sorted(wanted.keys() | hashes.keys()):
        kind = None
        if not times[key]:
            kind = MISSING
        elif key not in wanted:
            span = spans.get(key[0])
            kind = DOUBLED if span is None or key[1] < span.start else FOREIGN
        elif times[key] > 1:
            kind = DOUBLED
        elif hashes[key] != {wanted[key]}:
            kind = DIFFERS
        if kind is not None:
            wrong.append(Finding(kind, *key, tuple(sorted(places.get(key, ()))[:PLACES])))
    return wrong[:MOST_FINDINGS]


def joined(runs: Iterable[Run]) -> list[Run]:
    """Put runs of neighbouring ranges together that go on in each other; in the source's order."""
    found: list[Run] = []
    for run in sorted(runs, key=lambda r: (r[1], r[0], r[2])):
        a, b, x, y, count = run
        if found:
            last = found[-1]
            if last[:2] == (a, b) and (last[2] + last[4], last[3] + last[4]) == (x, y):
                found[-1] = (a, b, last[2], last[3], last[4] + count)
                continue
        found.append(run)
    return found
