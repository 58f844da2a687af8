"""The audit's sums on Spark, of rows made at random, beside the same rules over plain dicts."""

import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.pipelines.auditing import judging, sums
from ottla.pipelines.auditing.reading import LAKE, LOG, Held
from ottla.pipelines.auditing.stamps import BUCKET_MS
from ottla.pipelines.landing.spans import Span

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(120)]
ROWS = (
    "tier string, topic string, partition int, offset long, bucket_ms long, producer string, "
    "number long, malformed boolean, bytes long, delay_ms long"
)
REPORTS = (
    "topic string, producer string, bucket_ms long, reported long, reported_bytes long, "
    "unacknowledged array<long>"
)
ENDS = {0: 220, 1: 80}
LANDED = {0: [Span(0, 130), Span(140, 200)], 1: [Span(0, 80)]}


@pytest.fixture(scope="module")
def spark(spark):
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


def drawn(random):
    """Return rows of log and lake with loss and duplicates, reports, and the findings they have."""
    rows, found = [], Counter()
    ids = defaultdict(list)
    counts = Counter()
    for partition, end in ENDS.items():
        for offset in range(end):
            producer, bucket = random.choice(["a", "b", None]), random.randrange(3) * BUCKET_MS
            number = None
            if producer is not None:
                number = counts[producer, bucket]
                counts[producer, bucket] += 1
                if number and random.random() < 0.05:  # sent again, another stays away
                    number = random.randrange(number)
            for tier in (LOG, LAKE):
                landed = any(s.start <= offset < s.end for s in LANDED[partition])
                times = random.choices((0, 1, 2), (4, 90, 4))[0] if tier == LAKE else 1
                times = times if tier == LOG or landed else 0
                times = 0 if tier == LOG and random.random() < 0.05 else times
                size = 10 if tier == LOG else None
                row = (tier, "t", partition, offset, bucket, producer, number, False, size, 5)
                rows += [row] * times
    in_log = Counter(r[2:5] for r in rows if r[0] == LOG)
    in_lake = Counter(r[2:5] for r in rows if r[0] == LAKE)
    waiting = Counter()
    for place in in_log.keys() | in_lake.keys():
        partition, offset, bucket = place
        landed = any(s.start <= offset < s.end for s in LANDED[partition])
        if in_lake[place] > 1:
            found[judging.DOUBLED_IN_LAKE, bucket] += 1
        elif in_log[place] and not in_lake[place]:
            (found if landed else waiting)[judging.NOT_IN_LAKE, bucket] += 1
        elif in_lake[place] and not in_log[place]:
            found[judging.GONE, bucket] += 1
    for row in rows:
        if row[5] is not None:
            ids[row[5], row[4]].append((row[6], row[0]))
    reports = []
    for (producer, bucket), count in counts.items():
        there = {number for number, _ in ids[producer, bucket]}
        more = random.randrange(3)
        unsure = random.sample(range(count + more), 2) if count > 2 else []
        reports.append(("t", producer, bucket, count + more, 10 * (count + more), unsure))
        lost = set(range(count + more)) - there - set(unsure)
        found[judging.LOST, bucket] += len(lost)
        times = Counter(n for n, tier in ids[producer, bucket] if tier == LOG)
        found[judging.DOUBLED, bucket] += sum(n - 1 for n in times.values())
    return rows, reports, +found, waiting


def test_all_that_is_wrong_is_found_and_nothing_else(spark):
    rows, reports, expected, waiting = drawn(random.Random(3))
    table = spark.createDataFrame(rows, ROWS).persist()
    held = [Held("t", {p: Span(0, end) for p, end in ENDS.items()}, frozenset())]
    found = sums.of_producers(table, spark.createDataFrame(reports, REPORTS))
    more, left = sums.of_lake(spark, table, held, {"t": LANDED}, compacted=False)
    counted = Counter()
    for one in found + more:
        counted[one.kind, one.bucket_ms] += one.amount
    assert counted == expected
    assert left == {("t", bucket): n for (_, bucket), n in waiting.items()}
    assert len({kind for kind, _ in expected}) == 5
    without, _ = sums.of_lake(spark, table, held, {"t": LANDED}, compacted=True)
    assert judging.GONE not in {one.kind for one in without}
    by_tier = Counter(row[0] for row in rows)
    totals = Counter()
    for bucket in sums.buckets(table):
        totals[bucket.tier] += bucket.records
    assert totals == by_tier


def test_what_retention_took_is_not_judged(spark):
    def row(partition, offset, bucket):
        return (LOG, "t", partition, offset, bucket * BUCKET_MS, None, None, False, 1, None)

    table = spark.createDataFrame([row(0, 5, 4), row(0, 6, 9), row(1, 0, 1), row(2, 7, 2)], ROWS)
    spans = {p: Span(0, 10) for p in (0, 1, 2)}
    assert sums.judged_from(table, [Held("t", spans, frozenset())]) == {}
    assert sums.judged_from(table, [Held("t", spans, frozenset({0, 2}))]) == {"t": 4 * BUCKET_MS}
    nothing_left = Held("t", {**spans, 3: Span(9, 9)}, frozenset({0, 3}))
    assert sums.judged_from(table, [nothing_left]) == {"t": None}
