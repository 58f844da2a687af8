"""Aborted transactions of a fetch: those of what was read, not of all up to the bound (F46)."""

import pytest

from ottla.log.index import OffsetIndex
from ottla.wire.records import ABORT, iter_batches


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 350, 1000, 5000])
def test_what_lies_beyond_is_beyond_the_bytes_that_were_read(size):
    """Each batch is 100 bytes long and holds 3 offsets; every fourth has an entry."""
    index = OffsetIndex(1000)
    for number in range(0, 40, 4):
        index.append(1000 + 3 * number + 2, 100 * number)
    for number in range(40):
        first = 1000 + 3 * number
        beyond = index.beyond(first, size)
        reached = 1000 + 3 * ((100 * number + size + 99) // 100)
        """the offset after the last batch that `size` bytes touch"""
        if beyond is not None:
            assert beyond >= reached
            assert beyond <= reached + 3 * 9
        else:
            assert 100 * number + size > 100 * (40 - 12)


def filled(kit):
    log = kit.open(segment_bytes=3000, index_interval_bytes=100)
    for number in range(60):
        kit.send(log, sequence=number * 2, count=2, txn=True)
        log.append_as_leader(kit.marker(kind=ABORT), 0, 0, origin="coordinator")
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 300, 1500, 100_000])
def test_every_aborted_record_that_is_read_is_named_and_few_others(kit, cold, max_bytes):
    log = filled(kit)
    if cold:
        log = kit.reopen(log, clean=True, segment_bytes=3000, index_interval_bytes=100)
        log.set_high_watermark(log.log_end_offset)
    offset = 0
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes, log.log_end_offset)
        assert found.from_file == cold
        data = b"".join(found.parts)
        headers = [header for _, header in iter_batches(data)]
        upper = log.local.upper_bound(found)
        named = {a.first_offset for a in log.aborted_transactions(offset, upper)}
        # Each transaction is one batch of two records and a marker.
        read = {h.base_offset for h in headers if not h.is_control and h.next_offset > offset}
        assert read <= named
        assert len(named - read) <= 8
        offset = headers[-1].next_offset
