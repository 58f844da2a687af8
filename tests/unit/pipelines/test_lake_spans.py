"""What a batch takes of the offsets that wait."""

import random

from ottla.pipelines.lake.spans import Span, plan


def test_batches_take_everything_once_whatever_the_limit():
    rng = random.Random(4)
    for _ in range(300):
        at = {p: rng.randrange(5) for p in range(rng.randrange(1, 5))}
        ends = {p: 5 + rng.randrange(60) for p in at}
        limit = rng.randrange(1, 30)
        for _ in range(1000):
            todo = {p: [Span(at[p], ends[p])] for p in at if at[p] < ends[p]}
            if not todo:
                break
            batch = plan(todo, limit)
            assert sum(s.size for s in batch.values()) < limit + len(batch)
            for p, span in batch.items():
                assert (span.start, span.size > 0) == (at[p], True)
                at[p] = span.end
        assert at == ends


def test_partitions_share_a_batch_by_what_waits():
    batch = plan({0: [Span(0, 900)], 1: [Span(0, 100), Span(200, 300)], 2: [Span(7, 8)]}, 100)
    assert batch == {0: Span(0, 89), 1: Span(0, 9), 2: Span(7, 8)}
