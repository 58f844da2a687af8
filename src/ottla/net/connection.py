"""One client's connection: requests in, responses out in the order of the requests.

Invariants: responses leave in request order; while a Pending that is not pipelined is open nothing
further is dispatched; at most `max_pipelined` Produce requests are open; a request that may not be
dispatched yet pauses reading, so a connection's memory is bounded by one scratch buffer of small
frames, one large frame and one response above the outbound limit. Kafka: `SocketServer.Processor`
and `KafkaChannel` (mute and unmute).
"""

import asyncio
import logging
from asyncio.events import _get_running_loop as get_running_loop
from collections import deque
from collections.abc import Sequence
from typing import cast

from ottla.model.errors import OttlaError, WireError
from ottla.model.ports import Buffer
from ottla.net.connection_host import ConnectionHost
from ottla.net.frame_memory import SMALL_FRAME_BYTES
from ottla.net.framing import JOIN_BYTES, SCRATCH_BYTES, FrameReader, scratch_of, size_prefix
from ottla.net.timed import Timed
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.sasl.authentication import Authentication

logger = logging.getLogger(__name__)

NOTHING_SENT: deque[int] = deque()
"""Shared by all connections that never had a large response."""
UNKNOWN_SOFTWARE = ("unknown", "unknown")
NOTHING_TIMED: list[Timed] = []
"""Shared by all connections that have no measured response to send."""


class CloseConnection(OttlaError):  # noqa: N818 - a decision, not a failure
    """Raised by a dispatch function to close this connection; the text is the reason."""


class Pending:
    """A response that comes later. Exactly one of `complete`, `fail` and `drop` counts.

    A subclass holds what the response waits for, and overrides `drop` if it has to know of it.
    """

    __slots__ = ("connection", "done", "parts", "pipelined", "timed")

    def __init__(self, connection: "Connection", pipelined: bool) -> None:
        self.connection = connection
        self.pipelined = pipelined
        self.done = False
        self.parts: Sequence[Buffer] | None = None
        self.timed: Timed | None = None
        """of a request that is measured"""

    def complete(self, parts: Sequence[Buffer] | None) -> None:
        """Respond with these parts (None: no response). Ignored when the client is gone."""
        if self.done:
            return
        self.done = True
        self.parts = parts
        self.connection.completed(self)

    def settle(self, outcome: "Sequence[Buffer] | Pending | None") -> None:
        """Respond with what a handler returned: parts, or this itself, which is completed later."""
        if outcome is not self:
            self.complete(cast("Sequence[Buffer] | None", outcome))

    def fail(self, reason: str) -> None:
        """Close the connection, since this request cannot be answered."""
        if not self.done:
            self.done = True
            self.connection.refuse(reason)

    def unblock_next(self) -> None:
        """Allow the connection's next requests: what must come before them is done."""
        if not self.pipelined:
            self.pipelined = True
            if not self.done:
                self.connection.unblock_next()

    def drop(self) -> None:
        """Note that the connection is gone. The connection calls it, even if this is done."""
        self.done = True


class Connection(asyncio.BufferedProtocol):
    """The server's end of a connection."""

    __slots__ = (
        "_barrier",
        "_budget_wait",
        "_control_bytes",
        "_done_bytes",
        "_frame_bytes",
        "_high_bytes",
        "_last_read",
        "_max_pipelined",
        "_mutes",
        "_open",
        "_out",
        "_out_bytes",
        "_partial_since",
        "_paused",
        "_reader",
        "_rules",
        "_sent",
        "_sent_bytes",
        "_server",
        "_stalled_bytes",
        "_stalled_since",
        "_transport",
        "_turn",
        "_unsent",
        "_waiting",
        "_write_paused",
        "authentication",
        "began",
        "closed",
        "dirty",
        "established",
        "id",
        "kept_place",
        "listener",
        "local",
        "on_trial",
        "peer",
        "principal",
        "response_memory",
        "software",
        "timed",
    )

    def __init__(self, server: ConnectionHost["Connection"], connection_id: int) -> None:
        limits = server.limits
        self._server = server
        self.id = connection_id
        self.listener = server.listener
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.principal = ANONYMOUS
        """whom the client was authenticated as"""
        self.software = UNKNOWN_SOFTWARE
        """name and version of the client's library, as it says (KIP-511)"""
        self.closed = False
        self.dirty = False
        self.began = False  # whether anything of it was read
        self.established = False
        """whether it has sent a request, and was authenticated where that is asked for"""
        self.kept_place = False
        """whether it has one of the places that are kept for brokers"""
        self.on_trial = ""
        """why only a broker may have its place, until it showed to be one"""
        self._transport: asyncio.Transport | None = None
        self.authentication: Authentication | None = None
        largest = limits.max_frame_bytes
        if server.authentication is not None:
            self.authentication = server.authentication(server.now)
            largest = limits.max_unauthenticated_bytes
        self._reader = FrameReader(largest, scratch_of(get_running_loop()))
        self._turn = server.turn
        self.response_memory = (
            server.broker_responses if server.between_brokers else server.responses
        )
        self._rules = server.rules
        self._max_pipelined = limits.max_pipelined
        self._high_bytes = limits.outbound_high_bytes
        self._waiting: deque[tuple[memoryview, float]] = deque()
        self.timed: Timed | None = None
        """of the request that was just dispatched, if the dispatch function measures it"""
        self._unsent: list[Timed] = NOTHING_TIMED
        self._open: deque[Pending] = deque()
        self._barrier = False
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._mutes = 0
        self._budget_wait = False
        self._frame_bytes = 0  # taken of the pool for the frame under way
        self._done_bytes = 0  # for frames that came and are not done with
        self._control_bytes = 0
        self._paused = False
        self._write_paused = False
        self._last_read = server.now
        self._partial_since = 0.0
        self._stalled_since = 0.0
        self._stalled_bytes = 0
        self._sent: deque[int] = NOTHING_SENT
        self._sent_bytes = 0

    # What the dispatch function and the router use.

    def pending(self, pipelined: bool) -> Pending:
        """Return a token to give back from dispatch; the response follows through it."""
        return Pending(self, pipelined)

    def close(self) -> None:
        """Close once what was answered has been sent."""
        if not self.closed:
            self.closed = True
            self.flush()
            if self._transport is not None:
                self._transport.close()

    def authenticated(self, principal: Principal) -> None:
        """Serve the client as a principal, with frames of any allowed size."""
        self.principal = principal
        self._server.began(self)
        self._reader.max_frame_bytes = self._server.limits.max_frame_bytes

    def end_trial(self) -> None:
        """Close it: a later connection may be a broker's."""
        self._server.end_trial(self)

    @property
    def is_silent(self) -> bool:
        """Whether nothing came of the peer, nor waits to be read."""
        return not (self.began or (self._transport and self._server.unread(self._transport)))

    def throttle(self, delay_ms: int) -> None:
        """Read nothing further for a while (quotas: Kafka's mute with a throttle time)."""
        if delay_ms <= 0 or self.closed:
            return
        self._mutes += 1
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._unmute)
        self._update_reading()

    def _unmute(self) -> None:
        self._mutes -= 1
        self.pump()

    @property
    def muted(self) -> bool:
        """Whether nothing is read for now, by our own will."""
        return self._mutes > 0

    def release(self) -> None:
        """Begin to serve a connection that was made while its server was held."""
        self._mutes -= 1
        self._server.touch(self)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, so there is nothing to check.
        self._transport = stream = cast("asyncio.Transport", transport)
        peer = stream.get_extra_info("peername")
        local = stream.get_extra_info("sockname")
        self.peer = (str(peer[0]), int(peer[1])) if peer else ("", 0)
        self.local = (str(local[0]), int(local[1])) if local else ("", 0)
        if not self._server.admit(self):
            self.closed = True
            stream.abort()
            return
        stream.set_write_buffer_limits(high=self._high_bytes)
        if self._server.held:
            # Only here: one that was accepted but not made yet is not among those released.
            self._mutes += 1
            # Later: a transport begins to read only after this call.
            asyncio.get_running_loop().call_soon(self._update_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.closed = True
        self._waiting.clear()
        self._out = []
        self._transport = None
        self._give_back(all_of_it=True)
        if self._budget_wait:
            self._server.budget.leave(self)
        self.response_memory.leave(self)
        self._server.dismiss(self)
        open_ones, self._open = self._open, deque()
        for pending in open_ones:
            pending.drop()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        now = self._last_read = self._server.now
        frames = reader.advance(nbytes)
        if not self.established:
            self.began = True
            if frames:
                self._server.began(self)
        waiting = self._waiting
        for frame in frames:
            if waiting or not self._may_dispatch(frame):
                waiting.append((frame, self._server.monotonic()))
            else:
                self._dispatch(frame)
        if self._out:
            self.flush()
        if reader.problem is not None:
            self.refuse(reader.problem)
            return
        if not reader.partial:
            self._partial_since = 0.0
        elif frames or not self._partial_since:
            self._partial_since = now
        if frames:
            self._done_bytes += self._frame_bytes
            self._frame_bytes = 0
        if reader.wanted > SCRATCH_BYTES or self._done_bytes or waiting or self._paused:
            self._adjust()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._stalled_since = self._server.now
        self._stalled_bytes = 0
        self._update_reading()  # `flush`, in whose write this is, counts what is left

    def resume_writing(self) -> None:
        self._write_paused = False
        self._note_outbound()
        self._server.touch(self)

    # Dispatching.

    def _may_dispatch(self, frame: memoryview) -> bool:
        if self._barrier or self._write_paused or self._mutes:
            return False
        if self._out_bytes > self._high_bytes:
            self.flush()
            if self._write_paused:
                return False
        open_count = len(self._open)
        if open_count and (open_count >= self._max_pipelined or frame[:2] != self._rules.pipelined):
            return False
        if self.response_memory.full and bytes(frame[:2]) in self._rules.large_responses:
            self.response_memory.wait(self)
            return False
        if self._turn.over:
            if not self.dirty:
                self._server.touch(self)
            return False
        return True

    def _dispatch(self, frame: memoryview, arrived_s: float | None = None) -> None:
        """Hand a frame to the dispatch function; `arrived_s`: since when it waited, if it did."""
        if self.closed:
            return
        response: Sequence[Buffer] | Pending | None
        try:
            if self.on_trial:
                self._server.judge(self, frame)
            response = self._server.dispatch(self, frame)
        except (CloseConnection, WireError) as error:
            self.refuse(str(error))
            return
        except Exception:  # the root of every request's work: one bad request, one connection
            logger.exception("request failed peer=%s:%d listener=%s", *self.peer, self.listener)
            self.refuse("internal error")
            return
        if self.timed is not None:
            if arrived_s is not None:
                self.timed.arrived_s = arrived_s
            response = self._time(self.timed, response)
        if response is None:
            return
        if isinstance(response, Pending):
            if not response.done or self._open:
                self._open.append(response)
                self._barrier = self._barrier or not (response.pipelined or response.done)
            elif response.parts is not None:
                self._emit(response.parts)
        elif self._open:
            done = Pending(self, pipelined=True)
            done.done = True
            done.parts = response
            self._open.append(done)
        else:
            self._emit(response)

    def _time(
        self, timed: Timed, response: Sequence[Buffer] | Pending | None
    ) -> Sequence[Buffer] | Pending | None:
        """Have a request measured until its response is sent; return the response."""
        self.timed = None
        if isinstance(response, Pending) and not response.done:
            response.timed = timed
            return response
        timed.responded_s = timed.returned_s
        parts = response.parts if isinstance(response, Pending) else response
        if parts is None:
            self._server.sent(self, (timed,))
            return response
        if timed.keeps_response:
            timed.parts = parts
        if not self._open:
            self._sends(timed)
            return response
        if isinstance(response, Pending):
            done = response
        else:
            done = Pending(self, pipelined=True)
            done.done, done.parts = True, parts
        done.timed = timed
        return done

    def _sends(self, timed: Timed) -> None:
        if self._unsent is NOTHING_TIMED:
            self._unsent = []
        self._unsent.append(timed)

    def completed(self, pending: Pending) -> None:
        """Move what is answered and next in line to the output. `Pending.complete` calls it."""
        if pending.timed is not None:
            pending.timed.responded_s = self._server.monotonic()
        open_ones = self._open
        if not open_ones or open_ones[0] is not pending or self.closed:
            return
        while open_ones and open_ones[0].done:
            first = open_ones.popleft()
            if not first.pipelined:
                self._barrier = False
            if first.parts is not None:
                self._emit(first.parts)
                if first.timed is not None:
                    if first.timed.keeps_response:
                        first.timed.parts = first.parts
                    self._sends(first.timed)
                first.parts = None  # a purgatory may hold it for longer
            elif first.timed is not None:
                self._server.sent(self, (first.timed,))
        if self._out_bytes > JOIN_BYTES:  # others may be answered before this is written
            self.response_memory.settle(
                self, max(self._stalled_bytes, self._sent_bytes) + self._out_bytes
            )
        if not self.dirty:
            self._server.touch(self)

    def unblock_next(self) -> None:
        """Dispatch again, after a request that blocked the next ones is done."""
        self._barrier = False
        if not self.dirty and not self.closed:
            self._server.touch(self)

    def pump(self) -> None:
        """Dispatch requests that may go now, write responses, and resume reading if none waits."""
        if self.closed:
            return
        waiting = self._waiting
        while waiting and self._may_dispatch(waiting[0][0]):
            self._dispatch(*waiting.popleft())
        self.flush()
        self._adjust()

    def _emit(self, parts: Sequence[Buffer]) -> None:
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self._out.append(size_prefix(size))
        self._out.extend(parts)
        self._out_bytes += size + 4

    def flush(self) -> None:
        """Hand everything answered so far to the transport in one write."""
        out = self._out
        if not out:
            return
        size, self._out_bytes = self._out_bytes, 0
        self._out = []
        transport = self._transport
        if transport is None:
            return
        if self._unsent is not NOTHING_TIMED:
            now_s = self._server.monotonic()
            for timed in self._unsent:
                timed.written_s = now_s
        if size <= JOIN_BYTES:
            transport.write(b"".join(out))
            if self._unsent is not NOTHING_TIMED:
                self._were_sent()
            if self._write_paused:
                self._note_outbound()
            return
        transport.writelines(out)
        if self._unsent is not NOTHING_TIMED:
            self._were_sent()
        if self._write_paused or self._sent_bytes or transport.get_write_buffer_size():
            if self._sent is NOTHING_SENT:
                self._sent = deque()
            self._sent.append(size)
            self._sent_bytes += size
            self._note_outbound()
        else:
            self._stalled_bytes = 0
            self.response_memory.settle(self, 0)

    def _were_sent(self) -> None:
        unsent, self._unsent = self._unsent, NOTHING_TIMED
        self._server.sent(self, unsent)

    # Bounds.

    def max_response_bytes(self) -> int:
        """Return the largest size for the next response; a single batch may be larger."""
        return self.response_memory.room()

    @property
    def is_from_broker(self) -> bool:
        """Whether it serves a broker that follows partitions of ours."""
        return self.response_memory is self._server.broker_responses

    def serves_broker(self) -> None:
        """Count this connection's responses as a broker's, apart from clients'."""
        responses = self._server.broker_responses
        if self.response_memory is not responses:
            held = self.response_memory.of(self)
            self.response_memory.leave(self)
            self.response_memory = responses
            responses.settle(self, held)

    def _note_outbound(self) -> None:
        """Count what the system has not taken yet."""
        transport = self._transport
        if transport is None or self.closed:
            return
        size = transport.get_write_buffer_size()
        if size < self._stalled_bytes or not self._stalled_bytes:
            self._stalled_since = self._server.now
        self._stalled_bytes = size
        sent = self._sent
        # A response is held whole until its last byte was taken.
        while sent and self._sent_bytes - sent[0] >= size:
            self._sent_bytes -= sent.popleft()
        self.response_memory.settle(self, max(size, self._sent_bytes) + self._out_bytes)

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds the peer has read nothing. The response memory calls it."""
        return now - self._stalled_since if self._stalled_bytes else 0.0

    def close_slow_reader(self, reason: str) -> None:
        """Close at once: others need the memory of responses that are not read."""
        self._server.note_refusal(self, reason)
        self.abort()
        self.response_memory.leave(self)  # a transport tells later that it is gone

    def responses_fit(self) -> None:
        """Dispatch again. The response memory calls it."""
        if not self.closed and not self.dirty:
            self._server.touch(self)

    def _adjust(self) -> None:
        """Settle the memory of large frames and whether to read."""
        reader = self._reader
        if self._done_bytes and not (self._waiting or self._barrier):
            self._give_back()
        if reader.wanted > SCRATCH_BYTES and not self._budget_wait:
            more = reader.next_room - self._frame_bytes
            if more > 0:
                self._take(more)
        self._update_reading()

    def _take(self, size: int) -> None:
        reader, server = self._reader, self._server
        control = server.between_brokers or reader.starts_with(self._rules.control_plane)
        before = server.budget.control_bytes
        large = reader.wanted > SMALL_FRAME_BYTES
        missing = reader.wanted - reader.filled
        if server.budget.take(self, size, missing=missing, large=large, control=control):
            self._frame_bytes += size
            self._control_bytes += server.budget.control_bytes - before
        else:
            self._budget_wait = True
            server.watch_memory()

    def memory_granted(self, size: int) -> bool:
        """Resume reading with `size` more bytes. The frame memory calls it."""
        self._budget_wait = False
        if self.closed:
            return False
        self._frame_bytes += size
        self._server.touch(self)
        return True

    def frame_progress(self) -> int | None:
        """Return how many bytes of a frame came, None where it is not the peer's turn to send.

        One that waits for memory, and for which nothing lies in the system, sends nothing either.
        """
        transport = self._transport
        if self.closed or not self._frame_bytes or transport is None:
            return None
        if self._paused and not (self._budget_wait and self._server.unread(transport) == 0):
            return None
        return self._reader.filled

    def close_slow_frame(self, reason: str) -> None:
        """Close at once: others wait for the memory of a frame that does not come."""
        self._server.note_refusal(self, reason)
        self.abort()

    def _give_back(self, *, all_of_it: bool = False) -> None:
        done, self._done_bytes = self._done_bytes, 0
        if all_of_it:
            done, self._frame_bytes = done + self._frame_bytes, 0
        control = min(done, self._control_bytes)
        self._control_bytes -= control
        complete = all_of_it or not self._frame_bytes
        self._server.budget.give_back(self, done - control, control, complete=complete)

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or self.closed:
            return
        pause = bool(self._waiting or self._write_paused or self._mutes or self._budget_wait)
        if pause != self._paused:
            self._paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def refuse(self, reason: str) -> None:
        """Close because of what the peer did, with a rate-limited line."""
        if not self.closed:
            self._server.note_refusal(self, reason)
            self.close()

    def refuse_soon(self, reason: str) -> None:
        """Do so once the response to the request in hand was given."""
        asyncio.get_running_loop().call_soon(self.refuse, reason)

    def overdue(self, now: float) -> str | None:
        """Return why this connection must be closed, or None. The server's sweep calls it."""
        limits = self._server.limits
        self._note_outbound()
        authentication = self.authentication
        if authentication is not None and not self._server.held:
            why = authentication.overdue(now)
            if why is not None:
                return why
        if self._write_paused:
            if (now - self._stalled_since) * 1000 >= limits.outbound_stall_ms:
                return f"peer drained nothing for {limits.outbound_stall_ms} ms"
            return None
        if self._partial_since:
            if self._paused:
                self._partial_since = now
            allowed_s = limits.request_read_deadline_ms / 1000
            allowed_s += self._reader.filled / limits.slowest_bytes_per_s
            if now - self._partial_since >= allowed_s:
                return f"request incomplete after {now - self._partial_since:.0f} s"
        if (now - self._last_read) * 1000 >= limits.idle_ms and not self._open:
            return f"idle for {limits.idle_ms} ms"
        return None

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def queued(self) -> tuple[int, int]:
        """Return how many requests wait for their turn here, and how many responses for theirs."""
        return len(self._waiting), sum(p.done for p in self._open) + bool(self._out)

    def statistics(self) -> dict[str, object]:
        """Return what an operator wants to see of this connection."""
        return {
            "id": self.id,
            "peer": f"{self.peer[0]}:{self.peer[1]}",
            "listener": self.listener,
            "open_requests": len(self._open),
            "waiting_requests": len(self._waiting),
            "reading": not self._paused,
            "partial_bytes": self._reader.filled,
        }
