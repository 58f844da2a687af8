"""Frames: a byte stream cut at Kafka's int32 sizes. A decider: plain code over bytes.

Invariants: a size is checked before anything is allocated for it (fault F31); memory for a frame
grows with the bytes received, never with the declared size; a complete frame is a writable
memoryview over memory of its own that is never reused, so the log may patch batches in place and
caches may keep it. Kafka: `NetworkReceive`.

All readers of a loop share one scratch buffer: a chunk is received into it and consumed before
the loop receives again, so an idle connection owns no buffer at all.
"""

import struct
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from weakref import WeakKeyDictionary

DEFAULT_MAX_FRAME_BYTES = 104_857_600
"""Kafka's socket.request.max.bytes."""

JOIN_BYTES = 16_384
"""Messages up to this size are joined into one write; larger ones go out as a list of parts."""

SCRATCH_BYTES = 65_536
FIRST_STEP_BYTES = 16_384
"""A frame's memory grows to four times what came, and to this at least; above a mebibyte to twice
what came, and in steps of `MOST_COPIED_BYTES` at most."""
MOST_COPIED_BYTES = 4_194_304
"""Frames larger than this get, once so much of them came, a mapping of their whole size, whose
pages cost nothing until bytes come: growing any other memory would copy what is there already."""

_SIZE = struct.Struct(">i")
_HTTP_STARTS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN")

LOOKS_LIKE = "this looks like"
"""In `foreign_protocol_hint`'s texts."""

scratch = memoryview(bytearray(SCRATCH_BYTES))
"""The shared receive buffer. Valid only between a receive and the `advance` that follows it."""
_scratches: "WeakKeyDictionary[object, memoryview]" = WeakKeyDictionary()


def scratch_of(loop: object | None) -> memoryview:
    """Return the receive buffer of a loop's readers: two loops may receive at once, in threads."""
    if loop is None:
        return scratch
    found = _scratches.get(loop)
    if found is None:
        found = _scratches[loop] = memoryview(bytearray(SCRATCH_BYTES))
    return found


def size_prefix(size: int) -> bytes:
    """Return the four bytes that stand before a frame of `size` bytes."""
    return _SIZE.pack(size)


def foreign_protocol_hint(start: bytes) -> str | None:
    """Name the protocol that a stream starting with these four bytes speaks, if it is not ours."""
    if start in _HTTP_STARTS:
        return "this looks like HTTP; the port speaks the Kafka protocol"
    if start[:2] == b"\x16\x03":
        return "this looks like a TLS hello; the listener is plaintext"
    if start[:2] == b"\x15\x03":
        return "this looks like a TLS alert; the listener expects TLS"
    if start == b"HTTP":
        return "this looks like an HTTP response; the port does not speak the Kafka protocol"
    if start == b"SSH-":
        return "this looks like SSH; the port speaks the Kafka protocol"
    return None


class FrameReader:
    """One connection's incoming side. Use: `buffer()`, receive into it, `advance(count)`.

    `partial` tells that a frame has begun and not ended; `filled` and `wanted` are its body's bytes
    so far and in all (`wanted` is 0 while the size itself is incomplete). `problem` says why the
    stream can be read no further: whoever sees it responds to what came before, then closes. `room`
    is how far the open frame's memory goes. When it is full, `next_room` is what the next
    `buffer()` takes; whoever has no memory to give receives nothing until there is some.
    """

    __slots__ = (
        "_body",
        "_head",
        "_scratch",
        "filled",
        "max_frame_bytes",
        "problem",
        "room",
        "wanted",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        shared: memoryview = scratch,
    ) -> None:
        """`shared`: the receive buffer of all readers of the loop, see `scratch_of`."""
        self._scratch = shared
        self.max_frame_bytes = max_frame_bytes
        self.wanted = 0
        self.filled = 0
        self.room = 0
        self._body: bytearray | mmap | None = None
        self._head = b""
        self.problem: str | None = None

    @property
    def partial(self) -> bool:
        return self._body is not None or bool(self._head)

    def buffer(self) -> memoryview:
        """Return where the next bytes go: the open frame's own memory, or the shared scratch."""
        body = self._body
        if body is None:
            return self._scratch
        if self.filled == self.room:
            self.room = self.next_room
            if self.room > len(body):
                body = self._body = self._grown(body)
        return memoryview(body)[self.filled : self.room]

    @property
    def next_room(self) -> int:
        """Return how far the open frame's memory will go once it has grown."""
        if self.filled < self.room:
            return self.room
        room = self.room
        if room < 1 << 20:
            step = max(FIRST_STEP_BYTES, 4 * room)
        else:
            step = room + min(room, MOST_COPIED_BYTES)
        return min(self.wanted, step)

    def starts_with(self, keys: frozenset[bytes]) -> bool:
        """Return whether the open frame's first two bytes came and are one of these API keys."""
        body = self._body
        return body is not None and self.filled >= 2 and bytes(body[:2]) in keys

    def advance(self, count: int) -> list[memoryview]:
        """Take `count` bytes received into `buffer()`; return the frames that are now complete."""
        body = self._body
        if body is None:
            return self._cut(count)
        self.filled += count
        if self.filled < self.wanted:
            return []
        self._body = None
        self.wanted = self.filled = self.room = 0
        return [memoryview(body)]

    def _cut(self, count: int) -> list[memoryview]:
        frames: list[memoryview] = []
        source = self._scratch
        if self._head:
            source = memoryview(self._head + source[:count])
            count += len(self._head)
            self._head = b""
        position = 0
        while count - position >= 4:
            (size,) = _SIZE.unpack_from(source, position)
            if not 0 <= size <= self.max_frame_bytes:
                self.problem = self._size_problem(size, bytes(source[position : position + 4]))
                return frames
            start = position + 4
            end = start + size
            if end > count:
                self.wanted = size
                self.filled = self.room = count - start
                self._body = bytearray(source[start:count])
                return frames
            frames.append(memoryview(bytearray(source[start:end])))
            position = end
        if position < count:
            self._head = bytes(source[position:count])
        return frames

    def _grown(self, body: bytearray | mmap) -> bytearray | mmap:
        """Return larger memory with the same content (a copy: the receiver may have views)."""
        grown: bytearray | mmap
        if self.room > MOST_COPIED_BYTES:
            grown = mmap(-1, self.wanted, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        else:
            grown = bytearray(self.room)
        grown[: self.filled] = body
        return grown

    def _size_problem(self, size: int, start: bytes) -> str:
        hint = foreign_protocol_hint(start)
        text = f"frame size {size} is not between 0 and {self.max_frame_bytes}"
        return f"{text}: {hint}" if hint else text
