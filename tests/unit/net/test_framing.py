"""Framing: sizes are checked first; a frame is complete, in writable memory of its own."""

import gc
import random
import struct

import pytest

from ottla.net import framing
from ottla.net.framing import FrameReader


def framed(*bodies):
    return b"".join(struct.pack(">i", len(b)) + b for b in bodies)


def feed(reader, data, chunk):
    out, at = [], 0
    data = memoryview(data)
    while at < len(data):
        view = reader.buffer()
        count = min(len(view), len(data) - at, chunk)
        view[:count] = data[at : at + count]
        at += count
        out += reader.advance(count)
    return out


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 100, 65536, 1 << 30])
def test_frames_come_whole_however_the_bytes_arrive(chunk):
    rng = random.Random(chunk)
    sizes = [0, 1, 3, 4, 5, 100, 1000] if chunk < 8 else None
    sizes = sizes or [0, 3, 65532, 65533, 200_000, 0, 9, 1_500_000, 17]
    bodies = [rng.randbytes(size) for size in sizes]
    reader = FrameReader()
    got = feed(reader, framed(*bodies), chunk)
    assert [bytes(frame) for frame in got] == bodies
    assert not reader.partial


def test_frames_are_writable_and_never_share_memory():
    reader = FrameReader()
    first, second = feed(reader, framed(b"a" * 50, b"b" * 50), 1 << 30)
    (third,) = feed(reader, framed(b"c" * 100_000), 1 << 30)
    first[0:3] = b"xyz"
    third[0:3] = b"xyz"
    assert bytes(second) == b"b" * 50
    owners = {id(frame.obj) for frame in (first, second, third)}
    assert len(owners) == 3
    assert id(framing.scratch.obj) not in owners
    assert all(isinstance(f.obj, bytearray) and len(f.obj) == len(f) for f in (first, second))


def test_a_finished_frame_keeps_no_more_than_its_size():
    (frame,) = feed(FrameReader(), framed(bytes(5_000_000)), 65536)
    assert len(frame.obj) == 5_000_000


def test_idle_readers_share_the_scratch_buffer():
    assert FrameReader().buffer().obj is FrameReader().buffer().obj


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"SSH-2.0-x", "SSH"),
        (struct.pack(">i", -1), "frame size -1"),
        (struct.pack(">i", 2**31 - 1), "frame size 2147483647"),
        (struct.pack(">i", 1001), "frame size 1001 is not between 0 and 1000"),
    ],
)
def test_what_is_no_frame_is_named_before_anything_is_allocated(start, hint):
    """Fault F31."""
    reader = FrameReader(max_frame_bytes=1000)
    good = framed(b"fine")
    frames = feed(reader, good + start, 1 << 30)
    assert [bytes(f) for f in frames] == [b"fine"]
    assert hint in reader.problem
    assert not reader.partial


def test_memory_follows_what_came_not_what_was_declared():
    """Faults F29, F47: a hundred declared mebibytes cost nothing until they arrive."""
    reader = FrameReader()
    feed(reader, struct.pack(">i", 104_857_600) + b"x" * 10, 1 << 30)
    assert len(reader._body) == 10
    reader.buffer()
    assert len(reader._body) == reader.room == framing.FIRST_STEP_BYTES
    came = 10
    while came < 90_000_000:
        view = reader.buffer()
        assert len(view) == reader.room - came
        assert reader.room <= max(4 * came, came + framing.MOST_COPIED_BYTES)
        came += len(view)
        assert reader.advance(len(view)) == []
        assert reader.next_room > reader.room


@pytest.mark.parametrize("size", [70_000, 1_048_577, 4_194_304, 4_194_305, 30_000_000])
def test_a_large_frame_comes_whole_and_may_be_changed(size):
    body = bytes(range(251)) * (size // 251 + 1)
    (frame,) = feed(FrameReader(), framed(body[:size]), 100_003)
    assert frame == body[:size]
    frame[:3] = b"abc"
    assert bytes(frame[:4]) == b"abc\x03"


def test_partial_shows_how_far_a_frame_is():
    reader = FrameReader()
    assert not reader.partial
    feed(reader, b"\x00\x00", 9)
    assert reader.partial
    assert reader.wanted == 0
    feed(reader, b"\x00\x08abc", 9)
    assert (reader.filled, reader.wanted) == (3, 8)


class Loop:
    """Stands for an event loop."""


def test_each_loop_receives_into_a_buffer_of_its_own():
    """Brokers in threads of one process (`ottla.testing`) receive at the same time."""
    one, other = Loop(), Loop()
    assert framing.scratch_of(one) is framing.scratch_of(one)
    assert framing.scratch_of(one) is not framing.scratch_of(other)
    assert framing.scratch_of(None) is framing.scratch
    first = FrameReader(shared=framing.scratch_of(one))
    second = FrameReader(shared=framing.scratch_of(other))
    message, foreign = framed(b"of the first"), framed(b"SECOND SECOND")
    first.buffer()[: len(message)] = message
    second.buffer()[: len(foreign)] = foreign  # between a receive and its `advance`
    assert [bytes(f) for f in first.advance(len(message))] == [b"of the first"]
    assert [bytes(f) for f in second.advance(len(foreign))] == [b"SECOND SECOND"]


def test_the_buffer_of_a_loop_goes_with_it():
    loop = Loop()
    framing.scratch_of(loop)
    count = len(framing._scratches)
    del loop
    gc.collect()
    assert len(framing._scratches) == count - 1
