"""A page of 2,000 partitions is made in turns of the event loop: none is longer than it may be.

The work is done by a clock that moves with it, as much as it takes on a slow machine, so that the
turns can be counted: without a `checkpoint` in a loop, all of that loop's work would be one turn.
"""

from types import SimpleNamespace

import pytest

from ottla.broker.metrics import series
from ottla.broker.metrics.exposition import Families
from ottla.broker.metrics.listener import Detail, Pages, why_not_ready
from ottla.broker.metrics.mbeans import Metrics
from ottla.model.ids import TopicPartition
from ottla.model.time_slices import SLICE_S
from ottla.replication.topic_counts import TopicCounts

PARTITIONS = 2000
LONGEST_S = 0.020
"""A turn that producers do not notice yet."""
OF_A_PARTITION_S, OF_A_TOPIC_S, OF_A_FAMILY_S = 20e-6, 5e-6, 1e-3


class Clock:
    """A clock that only work moves."""

    slice_s = SLICE_S

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def costing(self, seconds, work):
        """Return the same work, which takes so long."""

        def slow(*given, **named):
            self.now += seconds
            return work(*given, **named)

        return slow


def turns(clock, coroutine):
    """Run a coroutine to its end; return how long each of its turns took, and its result."""
    took = []
    while True:
        began = clock.now
        try:
            coroutine.send(None)
        except StopIteration as end:
            return [*took, clock.now - began], end.value
        took.append(clock.now - began)


@pytest.fixture
def many(scene, monkeypatch):
    """A broker that leads 2,000 partitions, and the clock by which it looks at them."""
    broker = scene.up(1)
    clock = Clock()
    state = SimpleNamespace(
        is_leader=True, replicas=(1,), adding=(), removing=(), min_isr=lambda least: least,
        isr=SimpleNamespace(committed=(1,)),
    )  # fmt: skip
    log = SimpleNamespace(
        size=1, segments=[1], log_start_offset=0, log_end_offset=5, high_watermark=5,
        last_stable_offset=5, config=SimpleNamespace(min_insync_replicas=1),
    )  # fmt: skip
    broker.services.replicas.partitions = {
        tp: SimpleNamespace(tp=tp, state=state, log=log, min_isr=1, under_min_isr=False)
        for tp in (TopicPartition("t", n) for n in range(PARTITIONS))
    }
    counts = broker.services.replicas.topic_counts
    counts._topics = {f"topic-{n}": TopicCounts() for n in range(PARTITIONS)}
    services = SimpleNamespace(
        world=SimpleNamespace(clock=clock), replicas=broker.services.replicas, broker_id=1,
        is_registered=True,
        metadata=SimpleNamespace(
            ready=True,
            partition=clock.costing(OF_A_PARTITION_S, lambda *_: SimpleNamespace(isr=(1,))),
        ),
    )  # fmt: skip
    monkeypatch.setattr(series, "_values", clock.costing(OF_A_PARTITION_S, series._values))
    for name, read in series.TOPIC_METRICS.items():
        monkeypatch.setitem(series.TOPIC_METRICS, name, clock.costing(OF_A_TOPIC_S, read))
    texts = Families.texts

    def slow_texts(families, **named):
        for text in texts(families, **named):
            clock.now += OF_A_FAMILY_S
            yield text

    monkeypatch.setattr(Families, "texts", slow_texts)
    pages = Pages(services, Metrics(broker), Detail(series.PARTITION, 100_000))
    return SimpleNamespace(clock=clock, services=services, pages=pages)


def test_a_page_of_many_partitions_lets_others_run_again_and_again(many):
    took, body = turns(many.clock, many.pages._make(open_metrics=False))
    text = b"".join(body).decode()
    assert text.count("\nkafka_log_log_size{") == PARTITIONS
    assert text.count('_messagesin_total{topic="topic-') == PARTITIONS
    assert max(took) < LONGEST_S
    assert sum(took) > 10 * LONGEST_S, "else one turn would do"
    assert len(took) > sum(took) / (2 * SLICE_S)


def test_so_does_a_probe(many):
    took, reasons = turns(many.clock, why_not_ready(many.services))
    assert reasons == []
    assert sum(took) == pytest.approx(PARTITIONS * OF_A_PARTITION_S)
    assert len(took) >= 4
    assert max(took) < LONGEST_S
