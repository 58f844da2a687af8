"""Replicas compared: what is planted in a copy of a log is found, and nothing else."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.replica_comparison import (
    batches_of,
    compare,
    compare_compacted,
    extent,
    same,
)
from ottla.wire.batch_header import CRC_START, crc32c
from ottla.wire.records import Record, build_batch


def batch(base, values, epoch=3):
    records = [Record(base + i, 1000, b"k%d" % i, v) for i, v in enumerate(values)]
    return build_batch(records, base_offset=base, leader_epoch=epoch)


LOG = [batch(0, [b"a", b"b"]), batch(2, [b"c"]), batch(3, [b"d", b"e", b"f"])]


def log(*batches):
    return batches_of(b"".join(batches))


def kinds(leader, other, end=6):
    return [(d.kind, d.offset) for d in compare(leader, other, end)]


def test_equal_logs_do_not_differ():
    assert kinds(log(*LOG), log(*LOG)) == []
    assert [(b.base, b.last, b.damaged) for b in log(*LOG)] == [
        (0, 1, False), (2, 2, False), (3, 5, False),
    ]  # fmt: skip


def test_another_payload_has_another_checksum():
    assert kinds(log(*LOG), log(LOG[0], batch(2, [b"x"]), LOG[2])) == [("checksum", 2)]


def test_a_payload_that_its_checksum_does_not_fit_is_damaged():
    bad = bytearray(LOG[1])
    bad[-1] ^= 1
    assert kinds(log(*LOG), log(LOG[0], bytes(bad), LOG[2])) == [("damaged", 2)]
    assert kinds(log(LOG[0], bytes(bad), LOG[2]), log(*LOG)) == [("damaged", 2)]
    assert crc32c(bytes(LOG[1][CRC_START:])) == log(LOG[1])[0].crc


def test_another_leader_epoch_is_a_difference_though_the_checksum_is_the_same():
    other = bytearray(LOG[1])
    struct.pack_into(">i", other, 12, 9)
    assert kinds(log(*LOG), log(LOG[0], bytes(other), LOG[2])) == [("epoch", 2)]


def test_other_boundaries_are_one_difference_and_what_follows_is_compared():
    merged = batch(0, [b"a", b"b", b"c"])
    assert kinds(log(*LOG), log(merged, LOG[2])) == [("offsets", 0)]
    assert kinds(log(*LOG), log(merged, batch(3, [b"d", b"e", b"x"]))) == [
        ("offsets", 0), ("checksum", 3),
    ]  # fmt: skip


def test_equal_bytes_need_not_be_looked_into():
    whole = b"".join(LOG)
    assert same(whole, [whole, whole]) == ([0, 2, 3], 6)
    assert same(whole, [whole[:-1], whole]) == ([0, 2], 3), "one was cut off"
    assert same(whole[: len(LOG[0])], [whole]) == ([0], 2), "the leader's"
    assert same(whole, []) == ([0, 2, 3], 6)
    assert same(whole[:5], [whole]) == ([], 0)


@given(st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 7))
def test_one_other_bit_is_looked_into(which, at, bit):
    whole = b"".join(LOG)
    other = bytearray(whole)
    other[at % len(whole)] ^= 1 << bit
    sent = [whole, whole, whole]
    sent[which] = bytes(other)
    assert same(sent[0], sent[1:]) is None


def test_the_same_damage_everywhere_is_found():
    bad = bytearray(LOG[1])
    bad[-1] ^= 1
    damaged = b"".join([LOG[0], bytes(bad), LOG[2]])
    assert same(damaged, [damaged]) is None
    assert [(d.kind, d.offset) for d in compare(batches_of(damaged), batches_of(damaged), 6)] == [
        ("damaged", 2)
    ]


def test_nothing_is_compared_that_one_side_was_not_sent():
    short = log(LOG[0])
    assert extent([log(*LOG), short], 6) == 2
    assert extent([log(*LOG), log(*LOG)], 4) == 4
    assert extent([log(*LOG), []], 6) == 0
    cut = batches_of(b"".join(LOG)[:-1])
    assert [b.base for b in cut] == [0, 2]
    assert kinds(log(*LOG), short) == []


def test_of_compacted_logs_only_records_that_both_have_are_compared():
    records = [Record(1, 1000, b"k1", b"b"), Record(5, 1000, b"k2", b"f")]
    cleaned = build_batch(records, base_offset=0, leader_epoch=3)
    assert compare_compacted(log(*LOG), log(cleaned), 6) == []
    other = [Record(1, 1000, b"k1", b"x"), Record(5, 1000, b"k2", b"f")]
    found = compare_compacted(log(*LOG), log(build_batch(other, base_offset=0)), 6)
    assert [(d.kind, d.offset) for d in found] == [("record", 1)]
    bad = bytearray(LOG[1])
    bad[-1] ^= 1
    found = compare_compacted(log(*LOG), log(LOG[0], bytes(bad), LOG[2]), 6)
    assert [(d.kind, d.offset) for d in found] == [("damaged", 2)]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.data(),
)
def test_one_planted_change_is_found_where_it_is(sizes, data):
    bases = [sum(sizes[:i]) for i in range(len(sizes))]
    batches = [
        batch(base, [b"%d" % (base + i) for i in range(size)])
        for base, size in zip(bases, sizes, strict=True)
    ]
    n = data.draw(st.integers(0, len(sizes) - 1))
    changed = list(batches)
    changed[n] = batch(bases[n], [b"y"] * sizes[n])
    assert kinds(log(*batches), log(*changed), sum(sizes)) == [("checksum", bases[n])]
    assert kinds(log(*batches), log(*batches), sum(sizes)) == []
