"""Spans of offsets: what is missing, what a batch takes, what has landed; against plain sets."""

import itertools
import random

from ottla.pipelines.landing.spans import Span, all_missing, land, merged, missing, plan, total


def as_set(spans):
    return {o for s in spans for o in range(s.start, s.end)}


def some_spans(rng, most=6):
    return [Span(s, s + rng.randrange(8)) for s in (rng.randrange(40) for _ in range(most))]


def test_against_sets():
    rng = random.Random(3)
    for _ in range(2000):
        spans = some_spans(rng)
        landed = merged(spans)
        assert as_set(landed) == as_set(spans)
        assert all(a.end < b.start for a, b in itertools.pairwise(landed))
        start = rng.randrange(45)
        wanted = Span(start, start + rng.randrange(20))
        left = missing(wanted, landed)
        assert as_set(left) == as_set([wanted]) - as_set(landed)
        assert total({0: left}) == len(as_set(left))


def test_batches_land_everything_once_whatever_the_limit():
    rng = random.Random(4)
    for _ in range(300):
        wanted = {
            p: Span(rng.randrange(5), 5 + rng.randrange(60)) for p in range(rng.randrange(1, 5))
        }
        landed = {p: merged(some_spans(rng, 3)) for p in wanted}
        before = {p: as_set(spans) for p, spans in landed.items()}
        limit, seen = rng.randrange(1, 30), {p: set() for p in wanted}
        for _ in range(1000):
            batch = plan(all_missing(wanted, landed), limit)
            if not batch:
                break
            assert sum(s.size for s in batch.values()) < limit + len(batch)
            for p, span in batch.items():
                assert not seen[p] & as_set([span])
                seen[p] |= as_set([span])
            landed = land(landed, batch)
        assert seen == {p: as_set([wanted[p]]) - before[p] for p in wanted}


def test_partitions_share_a_batch_by_what_waits():
    batch = plan({0: [Span(0, 900)], 1: [Span(0, 100), Span(200, 300)], 2: [Span(7, 8)]}, 100)
    assert batch == {0: Span(0, 89), 1: Span(0, 9), 2: Span(7, 8)}
