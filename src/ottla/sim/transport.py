"""One simulated TCP connection: two transports and the two pipes between them.

Invariants: what the kernel does (arrive, acknowledge, reset) happens outside the nodes and goes on
while one is paused; what a protocol sees happens on its own node's loop; segments are handed over
in the order they were sent, whatever the links did to them; bytes under way never exceed the
window.
"""

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import msgspec

from ottla.sim.costs import Costs
from ottla.sim.loop import SimLoop
from ottla.sim.scheduler import Scheduler
from ottla.sim.trace import Trace, segment_label

WINDOW_BYTES = 262_144
SEGMENT_BYTES = 65_536
READ_BYTES = 262_144
SPLIT_CHANCE = 0.05
"""How often what was written at once arrives in two pieces."""
HIGH_WATER_BYTES = 65_536

DATA, FIN, RST = "data", "fin", "rst"
BYTES_LIKE = (bytes, bytearray, memoryview)


class Link:
    """One direction between two hosts."""

    __slots__ = ("base_s", "blocked", "held", "jitter_s", "source", "stall_chance", "target")

    def __init__(self, source: str, target: str, base_s: float, jitter_s: float) -> None:
        self.source = source
        self.target = target
        self.base_s = base_s
        self.jitter_s = jitter_s
        self.blocked = False
        self.stall_chance = 0.0
        """Chance that a segment is lost and comes 200 ms later, with all behind it."""
        self.held: list[Delivery] = []


class Delivery(Protocol):
    """Something under way over a link, as an event: it arrives, or is held where nothing comes."""

    dropped: bool
    link: Link

    def fire(self) -> None: ...


class Message:
    """Something of the kernels: a SYN, a window that opens."""

    __slots__ = ("_arrive", "_dark", "dropped", "link")

    def __init__(self, link: Link, dark: AbstractSet[str], arrive: Callable[[], None]) -> None:
        self.dropped = False
        self.link = link
        self._dark = dark
        self._arrive = arrive

    def fire(self) -> None:
        link = self.link
        if link.blocked or link.target in self._dark:
            link.held.append(self)
        else:
            self._arrive()


class Segment(msgspec.Struct, eq=False):
    """Bytes of a connection, or its end."""

    pipe: "Pipe"
    link: Link
    number: int
    kind: str
    data: bytes
    dropped: bool = False

    def fire(self) -> None:
        link, pipe = self.link, self.pipe
        if link.blocked or (pipe.dark and link.target in pipe.dark):
            link.held.append(self)
        else:
            pipe.arrive(self)


class Carrier(Protocol):
    """What a connection needs of the network under it."""

    scheduler: Scheduler
    costs: Costs
    trace: Trace
    random: random.Random
    give_up_s: float
    tap: "Callable[[SimTransport, bytes], object] | None"
    dark: set[str]

    def send(self, source: str, target: str, arrive: Callable[[], None]) -> None: ...

    def link(self, source: str, target: str) -> Link: ...

    def send_over(self, delivery: Delivery) -> None: ...

    def forget(self, transport: "SimTransport") -> None: ...


class Pipe:
    """One direction: what the writer queued, what is under way, and its order."""

    def __init__(self, sender: "SimTransport", receiver: "SimTransport") -> None:
        self.sender = sender
        self.receiver = receiver
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.closing = False
        self.dark = sender.carrier.dark
        self._carrier = sender.carrier
        self._scheduler = sender.carrier.scheduler
        self._chance = sender.carrier.random.random
        self._link = sender.carrier.link(sender.host, receiver.host)
        self._window_used = 0
        self._sent = 0
        self._arrived = 0
        self._early: dict[int, Segment] = {}
        self._progress_s = 0.0
        self._timer_armed = False
        self._late: list[Segment] | None = None
        """What is held until it is late, see `hold`."""

    def hold(self, seconds: float) -> None:
        """Let what is sent from now on arrive later, whatever became of its sender (F54)."""
        self._late = []
        self._scheduler.after(seconds, self._deliver_late)

    def _deliver_late(self) -> None:
        late, self._late = self._late or [], None
        for segment in late:
            self._carrier.send_over(segment)
        if self.sender.lost:
            self._segment(RST, b"")

    def push(self, data: bytes) -> None:
        """Send what was written, or queue what the window does not allow."""
        size = len(data)
        if self.queue or self._window_used + size > WINDOW_BYTES or size > SEGMENT_BYTES:
            self.queue.append(data)
            self.queued_bytes += size
            self.pump()
            return
        # As `pump` does it, for what nearly all writes are.
        if size > 1 and (drawn := self._chance()) < SPLIT_CHANCE:
            limit = 1 + int((size - 1) * (drawn / SPLIT_CHANCE))
            if limit < size:
                self.queue.append(data[limit:])
                self.queued_bytes += size - limit
                data = data[:limit]
                size = limit
        self._window_used += size
        self._segment(DATA, data)
        if self.queue or self.closing or self.sender.writer_paused:
            self.pump()

    def pump(self) -> None:
        """Send what the window allows; FIN when the writer closed and all is sent."""
        queue, chance = self.queue, self._chance
        while queue and self._window_used < WINDOW_BYTES:
            head = queue.popleft()
            size = len(head)
            limit = min(WINDOW_BYTES - self._window_used, SEGMENT_BYTES)
            if size > 1 and (drawn := chance()) < SPLIT_CHANCE:
                limit = min(limit, 1 + int((size - 1) * (drawn / SPLIT_CHANCE)))
            if size > limit:
                queue.appendleft(head[limit:])
                head = head[:limit]
                size = limit
            self.queued_bytes -= size
            self._window_used += size
            self._segment(DATA, head)
        if self.closing and not queue:
            self.closing = False
            self._segment(FIN, b"")
            self.sender.drained()
        if self.sender.writer_paused:
            self.sender.after_pump()

    def reset(self) -> None:
        """Drop what is queued and tell the other side."""
        self.queue.clear()
        self.queued_bytes = 0
        self._segment(RST, b"")

    def consumed(self, count: int) -> None:
        """Open the window: the receiver's program took bytes."""
        self._window_used -= count
        if self.queue:
            self._carrier.send(self.receiver.host, self.sender.host, self.pump)

    def _segment(self, kind: str, data: bytes) -> None:
        number = self._sent
        self._sent = number + 1
        if self._arrived == number:
            self._progress_s = self._scheduler.now
        if not self._timer_armed:
            self._timer_armed = True
            self._scheduler.after(self._carrier.give_up_s, self._check_progress)
        segment = Segment(self, self._link, number, kind, data)
        if self._late is None:
            self._carrier.send_over(segment)
        else:
            self._late.append(segment)

    def _check_progress(self) -> None:
        self._timer_armed = False
        carrier = self._carrier
        if self._arrived == self._sent or self.sender.lost:
            return
        left = self._progress_s + carrier.give_up_s - carrier.scheduler.now
        if left <= 0:
            self.sender.kernel_reset(TimeoutError(errno.ETIMEDOUT, "connection timed out"))
        else:
            self._timer_armed = True
            carrier.scheduler.after(left, self._check_progress)

    def arrive(self, segment: Segment) -> None:
        """Hand over what came, in its order."""
        number, early = segment.number, self._early
        if number != self._arrived:
            early[number] = segment
            return
        self._arrived = number = number + 1
        self._progress_s = self._scheduler.now
        self.receiver.kernel_receive(segment.kind, segment.data)
        while early and number in early:
            segment = early.pop(number)
            self._arrived = number = number + 1
            self._progress_s = self._scheduler.now
            self.receiver.kernel_receive(segment.kind, segment.data)


class SimTransport(asyncio.Transport):
    """One end. Methods named `kernel_…` are the operating system's side."""

    def __init__(
        self, loop: SimLoop, carrier: Carrier, host: str, address: tuple[str, int]
    ) -> None:
        super().__init__()
        self.carrier = carrier
        self.op_s = carrier.costs.net_s
        self.byte_s = carrier.costs.net_byte_s
        self.host = host
        self.address = address
        self.peer: SimTransport | None = None
        self.peer_host = ""
        self.pipe: Pipe | None = None
        self.lost = False
        self._loop = loop
        self._scheduler = carrier.scheduler
        self._trace = carrier.trace
        self._labels: dict[str, bytes] = {}
        self._protocol: Any = None
        self._buffered = False
        self._inbox: deque[bytes] = deque()
        self._eof = False
        self._reset: OSError | None = None
        self._reading = True
        self._read_due = False
        self._closing = False
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self.writer_paused = False
        self._resume_due = False

    @property
    def process(self) -> SimLoop:
        """Whose end it is: the loop of one incarnation of a node."""
        return self._loop

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to a protocol; reading begins."""
        self.set_protocol(protocol)
        self._protocol.connection_made(self)
        self._schedule_read()

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """As the server's kernel: its program gets the connection at its next turn."""
        self._loop.call_soon(lambda: self.attach(factory()))

    # The kernel's side.

    def kernel_receive(self, kind: str, data: bytes) -> None:
        """Take one segment in its order."""
        label = self._labels.get(kind)
        if label is None:
            label = self._labels[kind] = segment_label(self.host, kind, self.peer_host)
        self._trace.segment(self._scheduler.now, label, data)
        if kind == DATA and not self.lost and not self._closing:
            self._inbox.append(data)
            if not self._read_due and self._reading and self._protocol is not None:
                self._read_due = True
                self._loop.call_soon(self._read_ready)
        elif kind == RST:
            self.kernel_reset(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        elif self.lost or self._closing:
            if kind == DATA and self.peer is not None and not self.peer.lost:
                # No one reads here any more: the sender is notified over the network.
                self.carrier.send(self.host, self.peer_host, self._refuse_peer)
        elif kind == FIN:
            self._eof = True
            self._schedule_read()

    def _refuse_peer(self) -> None:
        if self.peer is not None:
            self.peer.kernel_reset(BrokenPipeError(errno.EPIPE, "broken pipe"))

    def kernel_reset(self, error: OSError) -> None:
        """End the connection; the program learns it after what arrived before."""
        if self.lost or self._reset is not None:
            return
        self._reset = error
        if self.pipe is not None:
            self.pipe.queue.clear()
            self.pipe.queued_bytes = 0
        if self._closing:
            self._lose(error)
        else:
            self._schedule_read()

    def kernel_abandon(self) -> None:
        """Drop a connection that its program does not want any more."""
        if not self.lost:
            self.lost = True
            if self.pipe is not None:
                self.pipe.reset()

    def process_died(self, *, silently: bool) -> None:
        """Take the owner away. Its kernel resets the connection, unless the machine is gone too."""
        was_lost, self.lost = self.lost, True
        self._inbox.clear()
        if self.pipe is None:
            return
        self.pipe.queue.clear()
        self.pipe.queued_bytes = 0
        if not silently and not was_lost:
            self.pipe.reset()

    # Reading.

    def _schedule_read(self) -> None:
        if self._read_due or not self._reading or self._closing or self.lost:
            return
        if self._protocol is not None and (self._inbox or self._eof or self._reset):
            self._read_due = True
            self._loop.call_soon(self._read_ready)

    def _read_ready(self) -> None:
        self._read_due = False
        if not self._reading or self._closing or self.lost:
            return
        try:
            if self._inbox:
                count = self._fill_buffer() if self._buffered else self._hand_over()
                peer = self.peer
                if peer is not None and peer.pipe is not None:
                    peer.pipe.consumed(count)
                    if self.op_s:
                        self._scheduler.spend(self.op_s + self.byte_s * count)
            elif self._reset is not None:
                self._lose(self._reset)
            elif self._eof:
                self._eof = False
                if not self._protocol.eof_received():
                    self.close()
        except Exception as error:  # noqa: BLE001 - as asyncio: a protocol's failure ends it
            self._loop.call_exception_handler(
                {"message": "Fatal error: protocol failed", "exception": error, "transport": self}
            )
            self.abort()
        if self._inbox or self._eof or self._reset:
            self._schedule_read()

    def _fill_buffer(self) -> int:
        inbox, filled = self._inbox, 0
        buffer = self._protocol.get_buffer(-1)
        if len(inbox) == 1 and len(inbox[0]) <= len(buffer):  # nearly always
            chunk = inbox.popleft()
            filled = len(chunk)
            buffer[:filled] = chunk
            self._protocol.buffer_updated(filled)
            return filled
        with memoryview(buffer) as view:
            size = len(view)
            while inbox and filled < size:
                chunk = inbox.popleft()
                end = filled + len(chunk)
                if end > size:
                    room = size - filled
                    inbox.appendleft(chunk[room:])
                    chunk, end = chunk[:room], size
                view[filled:end] = chunk
                filled = end
        self._protocol.buffer_updated(filled)
        return filled

    def _hand_over(self) -> int:
        inbox = self._inbox
        data = inbox.popleft()
        if inbox and len(data) < READ_BYTES:
            taken, size = [data], len(data)
            while inbox and size < READ_BYTES:
                taken.append(inbox.popleft())
                size += len(taken[-1])
            data = b"".join(taken)
        self._protocol.data_received(data)
        return len(data)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_read()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if type(data) is not bytes and not isinstance(data, BYTES_LIKE):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._closing or self.lost or not data:
            return
        if self._reset is not None:
            self._reading = True
            self._schedule_read()
            return
        assert self.pipe is not None
        data = bytes(data)
        pipe, tap = self.pipe, self.carrier.tap
        if self.op_s:
            self._scheduler.spend(self.op_s + self.byte_s * len(data))
        if tap is not None:
            tap(self, data)
            pipe = self.pipe
        pipe.push(data)
        if pipe.queued_bytes > self._high and not self.writer_paused:
            self.writer_paused = True
            self._protocol.pause_writing()

    def after_pump(self) -> None:
        """Tell the program that it may write again, at its next turn."""
        assert self.pipe is not None
        if self.writer_paused and not self._resume_due and self.pipe.queued_bytes <= self._low:
            self._resume_due = True
            self._loop.call_soon(self._resume_writer)

    def _resume_writer(self) -> None:
        self._resume_due = False
        assert self.pipe is not None
        if self.lost or not self.writer_paused or self.pipe.queued_bytes > self._low:
            return
        self.writer_paused = False
        if self._protocol is not None:
            self._protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self.pipe is not None and not self._closing and not self.lost:
            self.pipe.closing = True
            self.pipe.pump()

    def get_write_buffer_size(self) -> int:
        return self.pipe.queued_bytes if self.pipe is not None else 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low

    # Ending.

    def close(self) -> None:
        if self._closing or self.lost:
            return
        if self._reset is not None:
            self._closing = True
            self._lose(self._reset)
            return
        self._closing = True
        self._inbox.clear()
        assert self.pipe is not None
        self.pipe.closing = True
        self.pipe.pump()

    def drained(self) -> None:
        """All was sent after `close`: the program hears of the end."""
        if self._closing:
            self._lose(None)

    def abort(self) -> None:
        if self.lost:
            return
        self._closing = True
        self._inbox.clear()
        assert self.pipe is not None
        if self._reset is None:
            self.pipe.reset()
        self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        if self.lost:
            return
        self.lost = True
        self._closing = True
        self.carrier.forget(self)
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: OSError | None) -> None:
        protocol, self._protocol = self._protocol, None
        self._inbox.clear()
        if protocol is not None:
            protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername" and self.peer is not None:
            return self.peer.address
        if name == "sockname":
            return self.address
        return default
