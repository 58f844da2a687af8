"""Cleaning whole logs: what stays, what goes, and the bytes of it."""

import asyncio

import pytest

from ottla.log.cleaner import LogCleaner, dirt_of
from ottla.log.validate import COORDINATOR
from ottla.model.errors import InvalidRecordError
from ottla.model.ids import TopicPartition
from ottla.wire.records import ABORT, COMMIT, Record, build_batch, iter_batches, iter_records

TP = TopicPartition("t", 0)


class Bench:
    """A manager with one compacted log, and a cleaner."""

    def __init__(self, kit, properties=None, **overrides) -> None:
        self.kit = kit
        self.manager = kit.manager(**(properties or {}))
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": "1000",
            "min.cleanable.dirty.ratio": "0.0",
            "index.interval.bytes": "100",
            **{k.replace("_", "."): str(v) for k, v in overrides.items()},
        }
        self.settings = settings
        config = self.manager._config
        self.manager.startup(lambda _: config.topic_config(settings))
        self.log = self.manager.get_or_create(TP, is_new=True)
        self.cleaner = LogCleaner(kit.world, config, self.manager)

    def put(self, *pairs, codec=0, at=None, **header):
        """Append one batch of (key, value) pairs; a value of None is a tombstone."""
        at = self.kit.clock.wall if at is None else at
        records = [
            Record(
                timestamp=at + i,
                key=None if k is None else k.encode(),
                value=None if v is None else v.encode(),
            )
            for i, (k, v) in enumerate(pairs)
        ]
        batch = build_batch(records, codec=codec, **header)
        return self.log.append_as_leader(memoryview(bytearray(batch)), 0, self.kit.clock.wall)

    def end(self, kind, producer_id, **header):
        self.log.append_as_leader(
            self.kit.marker(producer_id, kind=kind, **header), 0, 0, origin=COORDINATOR
        )

    def clean(self) -> bool:
        """Roll, replicate and flush everything, then clean once."""
        self.log.roll()
        self.settle()
        return asyncio.run(self.cleaner.clean_filthiest())

    def settle(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()

    def headers(self):
        data = self.data()
        return [header for _, header in iter_batches(data)]

    def data(self) -> bytes:
        self.log._tail.clear()
        parts = []
        for segment in self.log.segments:
            parts.append(segment.file.pread(segment.size, 0))
        return b"".join(parts)

    def records(self):
        """(offset, timestamp, key, value) of all data records."""
        data = self.data()
        return [
            (r.offset, r.timestamp, r.key.decode(), r.value and r.value.decode())
            for at, header in iter_batches(data)
            if not header.is_control
            for r in iter_records(data, at)
        ]

    def pairs(self):
        return [(key, value) for _, _, key, value in self.records()]


@pytest.fixture
def bench(kit):
    return Bench(kit)


@pytest.mark.parametrize("codec", range(5))
def test_last_record_of_each_key_stays_where_it_was(bench, codec):
    """CleanSegments, DuplicateCheckAfterCleaning."""
    now = bench.kit.clock.wall
    for number in range(40):
        bench.put(*[(f"k{i}", f"{number}.{i}" * 3) for i in range(5)], codec=codec)
        bench.put((f"once{number}", "x"), codec=codec)
    end = bench.log.log_end_offset
    before = bench.records()
    assert bench.clean()
    last = {key: (offset, at, key, value) for offset, at, key, value in before}
    assert bench.records() == sorted(last.values())
    assert bench.log.log_end_offset == end
    assert bench.log.log_start_offset == 0
    assert bench.log.segments[0].base_offset == 0
    assert bench.log.cleaned_offset == end
    assert not asyncio.run(bench.cleaner.clean_filthiest()), "nothing is dirty now"
    assert all(header.max_timestamp <= now + 4 for header in bench.headers())


def test_record_without_a_key_is_refused(bench):
    """CompactedTopicConstraints, CleaningWithUnkeyedMessages."""
    with pytest.raises(InvalidRecordError, match="Compacted topic cannot accept message without"):
        bench.put((None, "x"))
    with pytest.raises(InvalidRecordError):
        bench.put(("k", "x"), (None, "x"), codec=3)
