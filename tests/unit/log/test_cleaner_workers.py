"""The cleaner's reads and large batches are for workers (F46): counted, not timed."""

import asyncio

import pytest

from ottla.log import cleaner_batches
from ottla.log.cleaner import LogCleaner
from ottla.log.files import OsFiles
from ottla.log.manager import LogManager
from ottla.model.ids import TopicPartition
from ottla.wire import compression
from ottla.wire.records import Record, build_batch, iter_batches, iter_records
from support.logs import folder_config, load_logs
from support.metered import MeteredFiles

TP = TopicPartition("t", 0)
MIB = 1 << 20


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_f46_the_cleaner_reads_and_decompresses_much_in_workers_only(kit, monkeypatch, codec):
    watched = MeteredFiles(OsFiles())
    kit.world = type(kit.world)(kit.clock, kit.world.random, watched, None, watched)
    plain = {name: getattr(compression, name) for name in ("compress", "decompress")}

    def decompress(*args):
        data = plain["decompress"](*args)
        watched.note(len(data))
        return data

    def compress(codec, data):
        watched.note(len(data))
        return plain["compress"](codec, data)

    monkeypatch.setattr(cleaner_batches, "decompress", decompress)
    monkeypatch.setattr(cleaner_batches, "compress", compress, raising=False)
    config = folder_config(kit.root / "data")
    manager = LogManager(kit.world, config)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}
    settings["max.message.bytes"] = str(100 * MIB)
    load_logs(manager, lambda _: config.topic_config(settings))
    log = manager.get_or_create(TP, is_new=True)
    table = {}
    for number in range(3):
        records = [
            Record(timestamp=1, key=b"%d" % (key * (number + 1)), value=b"%d" % number * 1000)
            for key in range(4000)
        ]
        records += [Record(timestamp=1, key=b"own%d" % number, value=b"v" * 6 * MIB)]
        table.update((r.key, r.value) for r in records)
        batch = build_batch(records, codec=codec)
        log.append_as_leader(memoryview(bytearray(batch)), 0, kit.clock.wall)
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    log.local.tail.clear()
    cleaner = LogCleaner(kit.world, config, manager)
    watched.by_loop = watched.largest = 0
    assert asyncio.run(cleaner.clean_dirtiest())
    assert watched.by_loop < 100_000, "bytes that the event loop read"
    assert watched.largest <= 1 << 18, "bytes worked on by the event loop in one call"
    data, at = b"", 0
    while at < log.log_end_offset:
        data += b"".join(log.read(at, 100 * MIB, log.log_end_offset).parts)
        at = list(iter_batches(data))[-1][1].next_offset
    found = {}
    for at, _ in iter_batches(data):
        for record in iter_records(data, at):
            assert record.key not in found
            found[record.key] = record.value
    assert found == table
