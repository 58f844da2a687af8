"""Compaction for any history: readers end with the same table, and offsets only rise."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner import LogCleaner
from ottla.log.manager import LogManager
from ottla.log.validate import COORDINATOR
from ottla.model.ids import TopicPartition
from ottla.sim.files import SimDisk, SimFiles
from ottla.wire.records import Record, crc_ok, iter_batches, iter_records
from support.logs import HandClock, file_world, folder_config, framed, load_logs, marker

TP = TopicPartition("t", 0)
CONFIG = folder_config(
    "/disk",
    log_segment_bytes=600,
    log_index_interval_bytes=100,
    log_cleanup_policy="compact",
    log_cleaner_min_cleanable_ratio=0,
    log_cleaner_delete_retention_ms=500,
)
keys = st.sampled_from([b"", b"a", b"bb", b"a key of more than sixteen bytes", b"c" * 16])
values = st.one_of(st.none(), st.binary(max_size=40))
batch = st.tuples(
    st.just("batch"),
    st.lists(st.tuples(keys, values, st.integers(-3, 3)), min_size=1, max_size=6),
    st.integers(0, 4),
    st.sampled_from([-1, 1, 2, 3]),
)
step = st.one_of(
    batch,
    batch,
    st.tuples(st.just("end"), st.integers(2, 3), st.integers(0, 1)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("replicate")),
    st.tuples(st.just("clean"), st.sampled_from([0, 400, 700])),
)


class Table:
    """A log, and beside it every record that was ever appended, with its transaction's outcome."""

    def __init__(self) -> None:
        self.clock = HandClock()
        world = file_world(self.clock, SimFiles(SimDisk()))
        manager = LogManager(world, CONFIG)
        load_logs(manager, lambda _: CONFIG.topic_config({}))
        self.log = manager.get_or_create(TP, is_new=True)
        self.cleaner = LogCleaner(world, CONFIG, manager)
        self.written: dict[int, tuple[int, bytes, bytes | None]] = {}
        self.going: dict[int, list[int]] = {2: [], 3: []}
        self.aborted: set[int] = set()
        self.sequence = {1: 0, 2: 0, 3: 0}

    def batch(self, records, codec, producer_id) -> None:
        at = self.clock.wall_ms()
        header = {}
        if producer_id > 0:
            header = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequence[producer_id],
                "is_transactional": producer_id > 1,
            }
            self.sequence[producer_id] += len(records)
        made = [Record(timestamp=at + delta, key=k, value=v) for k, v, delta in records]
        info = self.log.append_as_leader(framed(made, codec=codec, **header), 0, at)
        for n, (key, value, delta) in enumerate(records):
            self.written[info.first_offset + n] = (at + delta, key, value)
            if producer_id > 1:
                self.going[producer_id].append(info.first_offset + n)

    def end(self, producer_id, kind) -> None:
        batch = marker(kind, producer_id, self.clock.wall_ms())
        self.log.append_as_leader(batch, 0, 0, origin=COORDINATOR)
        if kind == 0:
            self.aborted |= set(self.going[producer_id])
        self.going[producer_id] = []

    def roll(self) -> None:
        self.log.roll()

    def replicate(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()

    def clean(self, wait_ms) -> None:
        self.clock.now_ms += wait_ms
        asyncio.run(self.cleaner.clean_dirtiest())
        self.check()

    def check(self) -> None:
        """Every record that is there is as it was written; none is missing that counts."""
        log = self.log
        log.local.tail.clear()
        stable, last = log.last_stable_offset, -1
        found: dict[int, tuple[int, bytes, bytes | None]] = {}
        index = log.aborted_transactions(0, log.log_end_offset)
        for segment in log.segments:
            data = segment.file.pread(segment.size, 0)
            for at, header in iter_batches(data):
                assert crc_ok(data, at, header)
                assert header.base_offset > last
                last = header.last_offset
                for record in () if header.is_control else iter_records(data, at):
                    found[record.offset] = (record.timestamp, record.key, record.value)
                    assert header.base_offset <= record.offset <= last
                    if record.offset in self.aborted and record.offset < stable:
                        assert any(
                            a.producer_id == header.producer_id
                            and a.first_offset <= record.offset <= a.last_offset
                            for a in index
                        ), "what is left of an aborted transaction can be told"
        assert all(self.written[offset] == what for offset, what in found.items())
        assert {o for o in self.written if o >= log.cleaned_offset} <= set(found)
        tables = []
        for records in (self.written, found):
            table: dict[bytes, tuple[int, bytes]] = {}
            for offset in sorted(records):
                if offset in self.aborted or offset >= stable:
                    continue
                _, key, value = records[offset]
                table.pop(key, None)
                if value is not None:
                    table[key] = offset, value
            tables.append(table)
        assert tables[0] == tables[1]


@given(st.lists(step, max_size=40))
def test_readers_end_with_the_same_table(steps):
    table = Table()
    for name, *arguments in steps:
        getattr(table, name)(*arguments)
    for kind, producer_id in enumerate((2, 3)):
        table.end(producer_id, kind)
    table.roll()
    table.replicate()
    for wait_ms in (0, 501, 501):
        table.clean(wait_ms)
        table.batch([(b"more", None, 0)], 0, -1)
        table.roll()
        table.replicate()
