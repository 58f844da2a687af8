"""TLS on a connection: a transport for the protocol above it, a protocol for the transport below.

Invariants: the protocol above is made at once and hears of the handshake later; what it has not
read stays encrypted, below `RECEIVE_BYTES`; what it wrote is encrypted as fast as the transport
below takes it; the sizes that it returns count both.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from ottla.model.ports import Buffer
from ottla.net.framing import foreign_protocol_hint

RECEIVE_BYTES = 65_536
"""The most that is read from a socket at once."""
RECORD_BYTES = 16_384
CHUNK_BYTES = 262_144
"""What is encrypted at once."""
HIGH_BYTES = 1_048_576
MOST_BELOW_BYTES = 262_144
"""What the transport below may hold before no more is encrypted."""

HANDSHAKE_RECORD = 0x16
RECORD_TYPES = frozenset(range(0x14, 0x18))

_received = memoryview(bytearray(RECEIVE_BYTES))
"""The shared receive buffer: valid only between a receive and the call that follows it."""

EXPLAINED = {
    "UNSUPPORTED_PROTOCOL": "the other side speaks no TLS version that is allowed here",
    "NO_PROTOCOLS_AVAILABLE": "the other side speaks no TLS version that is allowed here",
    "WRONG_VERSION_NUMBER": "the other side speaks no TLS, or an old version",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side allows none of our TLS versions",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate (ssl.client.auth)",
    "NO_SHARED_CIPHER": "no cipher suite in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side refused our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants our certificate (ssl.keystore)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side refused the handshake (alert 40)",
}


def reason_of(error: ssl.SSLError) -> str:
    """Return in words why a handshake or a record failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not trusted: {error.verify_message}"
    known = EXPLAINED.get(error.reason or "")
    text = (error.reason or str(error)).replace("_", " ").lower()
    return f"{known} ({text})" if known else text


class TlsTransport(asyncio.BufferedProtocol):
    """TLS between a transport and a protocol; to the protocol it is a transport."""

    def __init__(
        self,
        inner: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        established: Callable[[ssl.SSLObject], None],
        failed: Callable[[str], None],
    ) -> None:
        """Prepare one side: a client if it names a host. `failed` gets why there is no TLS."""
        self._inner = inner
        self._established = established
        self._failed = failed
        self._raw: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server_side = server_hostname is None
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_side,
            server_hostname=server_hostname,
        )
        self._seen = False
        self._ready = False
        self._closing = False
        self._reading = True
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._below_full = False
        self._writing_paused = False
        self._high = self._low = 0
        self._error: Exception | None = None

    # What the protocol above uses: asyncio's Transport.

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return what the transport below knows, and how much was received and not yet read."""
        if name == "unread_bytes":
            return self._incoming.pending + self._ssl.pending()
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._raw is None or self._closing:
            return
        self._reading = True
        self._raw.resume_reading()
        if self._incoming.pending or self._ssl.pending():
            asyncio.get_running_loop().call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = HIGH_BYTES if high is None else high
        self._high = high
        self._low = max(high // 4, 1) if low is None else low
        if self._raw is not None:
            # Below the low mark, so that it is the end of each wait for the transport below.
            self._raw.set_write_buffer_limits(high=min(MOST_BELOW_BYTES, self._low))

    def get_write_buffer_size(self) -> int:
        below = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return below + self._backlog_bytes + self._outgoing.pending

    def write(self, data: Buffer) -> None:
        if data and not self._closing:
            self._backlog.append(memoryview(data).cast("B"))
            self._backlog_bytes += len(data)
            self._send()

    def writelines(self, parts: Iterable[Buffer]) -> None:
        if self._closing:
            return
        for part in parts:
            if part:
                self._backlog.append(memoryview(part).cast("B"))
                self._backlog_bytes += len(part)
        self._send()

    def close(self) -> None:
        """Close once what was written has been sent."""
        if not self._closing:
            self._closing = True
            if self._raw is not None and self._reading:
                self._raw.pause_reading()
            if not (self._backlog and self._ready):
                self._close_below()

    def abort(self) -> None:
        self._closing = True
        self._backlog.clear()
        if self._raw is not None:
            self._raw.abort()

    # What the transport below calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, so there is nothing to check.
        self._raw = cast("asyncio.Transport", transport)
        self.set_write_buffer_limits()
        self._inner.connection_made(cast("asyncio.Transport", self))
        if not self._server_side and not self._closing:
            self._shake_hands()

    def connection_lost(self, exc: Exception | None) -> None:
        if not (self._ready or self._closing) and (self._seen or not self._server_side):
            self._fail(f"closed in the handshake: {exc}" if exc else "closed in the handshake")
        self._raw = None
        self._closing = True
        self._backlog.clear()
        self._inner.connection_lost(exc or self._error)

    def eof_received(self) -> bool:
        if self._ready and self._reading:
            self._read()
        if self._ready and not self._closing:
            self._inner.eof_received()
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        if not self._seen:
            self._seen = True
            problem = self._foreign(bytes(_received[: min(nbytes, 4)]))
            if problem is not None:
                self._fail(problem)
                return
        self._incoming.write(_received[:nbytes])
        if not self._ready:
            self._shake_hands()
        if self._ready:
            self._read()

    def pause_writing(self) -> None:
        self._below_full = True

    def resume_writing(self) -> None:
        self._below_full = False
        self._send()
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._inner.resume_writing()

    # TLS.

    def _foreign(self, start: bytes) -> str | None:
        """Return what the first bytes are if they are no TLS."""
        if self._server_side:
            if start[0] == HANDSHAKE_RECORD:
                return None
            hint = foreign_protocol_hint(start) or "the first bytes are no TLS hello"
            return f"plaintext on a TLS listener: {hint}"
        if start[0] in RECORD_TYPES:
            return None
        return "the other side does not speak TLS; is it a PLAINTEXT listener?"

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._fail(reason_of(error), error)
            return
        self._flush()
        self._ready = True
        self._established(self._ssl)
        self._send()

    def _read(self) -> None:
        """Hand what can be decrypted to the protocol above, as long as it reads."""
        inner, read = self._inner, self._ssl.read
        more = True
        while more and self._reading and not self._closing:
            buffer = memoryview(inner.get_buffer(-1))
            size, filled = len(buffer), 0
            try:
                while filled < size:
                    count = read(size - filled, buffer[filled:])
                    if not count:  # close_notify
                        self._error = self._error or ConnectionAbortedError("closed by TLS")
                        more = False
                        break
                    filled += cast("int", count)
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLError as error:
                self._error = ConnectionAbortedError(f"TLS: {reason_of(error)}")
                more = False
            if filled:
                inner.buffer_updated(filled)
        self._flush()
        if self._error is not None and not self._closing:
            self._end()

    def _end(self) -> None:
        """End because the other side did, or sent what is no record."""
        if str(self._error) == "closed by TLS":
            self._error = None
            self._inner.eof_received()
        self.close()

    def _send(self) -> None:
        """Encrypt as much as the transport below takes."""
        raw = self._raw
        if not self._ready or raw is None:
            self._mark_full()
            return
        backlog = self._backlog
        while backlog and not self._below_full:
            chunk = self._next_chunk()
            try:
                self._ssl.write(chunk)
            except ssl.SSLError as error:
                self._error = ConnectionAbortedError(f"TLS: {reason_of(error)}")
                self.abort()
                return
            self._backlog_bytes -= len(chunk)
            self._flush()
        if self._closing and not backlog:
            self._close_below()
        self._mark_full()

    def _next_chunk(self) -> Buffer:
        """Take what is encrypted at once: small parts joined, large ones cut."""
        backlog = self._backlog
        first = backlog.popleft()
        if len(first) > CHUNK_BYTES:
            backlog.appendleft(first[CHUNK_BYTES:])
            return first[:CHUNK_BYTES]
        if len(first) >= RECORD_BYTES or not backlog:
            return first
        parts, size = [first], len(first)
        while backlog and size < RECORD_BYTES:
            part = backlog.popleft()
            if size + len(part) > CHUNK_BYTES:
                backlog.appendleft(part)
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def _mark_full(self) -> None:
        if (
            not self._writing_paused
            and self._backlog_bytes
            and self.get_write_buffer_size() > self._high
        ):
            self._writing_paused = True
            self._inner.pause_writing()

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _fail(self, reason: str, error: Exception | None = None) -> None:
        if self._error is None:
            self._error = error or ConnectionAbortedError(reason)
            self._failed(reason)
            self.close()

    def _close_below(self) -> None:
        if self._raw is None:
            return
        if self._ready and self._error is None:
            with contextlib.suppress(ssl.SSLError):  # we do not wait for their close_notify
                self._ssl.unwrap()
            self._flush()
        self._raw.close()
