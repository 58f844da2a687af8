"""Frames and records of ZooKeeper's wire, cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.zookeeper import jute
from ottla.zookeeper.errors import ZooKeeperError, by_code
from ottla.zookeeper.operations import Check, Create, Delete, Set, encode_multi, read_multi


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_whole_however_they_arrive(bodies, cuts):
    stream = b"".join(jute.INT.pack(len(b)) + b for b in bodies)
    frames, found, pos = jute.Frames(1000), [], 0
    for i in range(len(stream) + 1):
        step = cuts[i % len(cuts)]
        buf, spans = frames.feed(stream[pos : pos + step])
        found += [buf[start:end] for start, end in spans]
        pos += step
        if pos >= len(stream):
            break
    assert found == bodies


def test_a_large_frame_in_many_pieces_costs_one_join():
    frames = jute.Frames(4_000_000)
    body = bytes(3_000_000)
    stream = jute.INT.pack(len(body)) + body
    spans = []
    for pos in range(0, len(stream), 1000):
        buf, spans = frames.feed(stream[pos : pos + 1000])
    assert [end - start for start, end in spans] == [len(body)]
    assert len(buf) == len(stream)


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_a_frames_size_has_bounds(size):
    with pytest.raises(WireError, match=str(size)):
        jute.Frames(1000).feed(jute.INT.pack(size))


@given(st.binary(max_size=60))
def test_reading_nonsense_never_crashes(raw):
    for read in (jute.read_buffer, jute.read_string, jute.read_strings):
        try:
            _, pos = read(raw, 0)
        except WireError:
            continue
        assert pos <= len(raw)
    for kind in (jute.ConnectRequest, jute.ConnectResponse):
        try:
            kind.decode(raw)
        except WireError:
            continue


def test_a_promised_count_is_checked_before_reading():
    with pytest.raises(WireError, match="promises 1000000"):
        jute.read_strings(jute.INT.pack(1_000_000) + b"abc", 0)


def test_greetings_round_trip():
    hello = jute.ConnectRequest(7, 6000, 99, b"p" * 16, read_only=True)
    assert jute.ConnectRequest.decode(hello.encode()[4:]) == hello
    answer = jute.ConnectResponse(6000, 99, b"p" * 16)
    assert jute.ConnectResponse.decode(answer.encode()[4:]) == answer


def test_a_stat_is_68_bytes():
    stat = jute.Stat(*range(11))
    assert len(jute.write_stat(stat)) == 68
    assert jute.read_stat(jute.write_stat(stat), 0) == stat


def test_multi_results_must_match_their_operations():
    ops = [Create("/a"), Set("/a", b""), Delete("/a"), Check("/a", 0)]
    assert encode_multi(ops, lambda path, **_: path).endswith(jute.MULTI_END)
    one = jute.MULTI_HEADER.pack(jute.CHECK, False, 0)
    assert read_multi([Check("/a", 0)], one + jute.MULTI_END, 0) == [None]
    with pytest.raises(WireError):
        read_multi([Check("/a", 0)], jute.MULTI_END, 0)
    with pytest.raises(WireError):
        read_multi([], one + jute.MULTI_END, 0)


def test_each_code_has_its_error():
    for code in (-1, -2, -4, -5, -6, -7, -8, -101, -102, -103, -108, -110, -111, -112, -115, -118):
        error = by_code(code, "/p")
        assert error.zk_code == code
        assert type(error) is not ZooKeeperError
        assert "/p" in str(error)
    assert "-999" in str(by_code(-999, "/p"))
