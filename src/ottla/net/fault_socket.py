"""Fault socket: a Unix socket by which the user who runs a broker has its connections fail.

Who may call: a broker's process opens one where its command line names it, as `ottla up` does;
`admin.local` asks. A question is one line of JSON, a Wish, its answer another one, an InForce.
Invariants: the socket is its owner's alone, as the status socket is; faults end by themselves,
MOST_S after they were asked for at most; questions are bounded in number, bytes and time.
"""

import asyncio
import logging
from typing import cast

import msgspec

from ottla.net import status_socket
from ottla.net.faults import FaultyNetwork, Link

logger = logging.getLogger(__name__)

MOST_S = 3600.0
MOST_LINKS = 256
MAX_QUESTION_BYTES = 65_536
MAX_ASKING = 8
ASK_WITHIN_S = 5.0


class Wish(msgspec.Struct):
    """The faults that are to be in force, and no other. `links`: by `host:port`; None: as now."""

    links: dict[str, Link] | None = None
    lasts_s: float = MOST_S


class InForce(msgspec.Struct):
    """The faults that are in force, and for how long. `problem`: why a wish was refused."""

    links: dict[str, Link] = {}
    left_s: float = 0.0
    problem: str = ""


class _Asking(asyncio.Protocol):
    """One question and its answer."""

    def __init__(self, owner: "FaultSocket") -> None:
        self._owner = owner
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._owner.asking += 1
        if self._owner.asking > MAX_ASKING:
            self._transport.abort()
            return
        abort = self._transport.abort
        self._timer = asyncio.get_running_loop().call_later(ASK_WITHIN_S, abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        line, end, _ = self._received.partition(b"\n")
        if len(line) > MAX_QUESTION_BYTES:
            self._transport.abort()
        elif end:
            self._transport.pause_reading()
            self._transport.write(msgspec.json.encode(self._owner.answer(line)) + b"\n")
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._owner.asking -= 1
        if self._timer is not None:
            self._timer.cancel()


class FaultSocket:
    """The faults of a network, at a path."""

    def __init__(self, path: str, network: FaultyNetwork) -> None:
        self.asking = 0
        self._path = path
        self._network = network
        self._links: dict[str, Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Start listening; removes a stale socket. OSError if the path cannot be bound."""
        self._server = await status_socket.listen(self._path, lambda: _Asking(self))

    def close(self) -> None:
        """Stop listening, remove the socket, and end all faults."""
        self._put_into_force({}, 0.0)
        if self._server is not None:
            self._server.close()
            self._server = None
            status_socket.remove_socket(self._path)

    def answer(self, line: bytes) -> InForce:
        """Return what is in force after a question."""
        try:
            wish = msgspec.json.decode(line, type=Wish)
        except msgspec.DecodeError as error:
            return self._in_force(f"no question: {error}")
        if wish.links is None:
            return self._in_force()
        if not 0 < wish.lasts_s <= MOST_S:
            return self._in_force(f"lasts_s={wish.lasts_s:g}: more than 0, at most {MOST_S:g}")
        if len(wish.links) > MOST_LINKS:
            return self._in_force(f"{len(wish.links)} links: at most {MOST_LINKS}")
        self._put_into_force(wish.links, wish.lasts_s)
        return self._in_force()

    def _in_force(self, problem: str = "") -> InForce:
        left_s = 0.0
        if self._timer is not None:
            left_s = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
        return InForce(self._links, left_s, problem)

    def _put_into_force(self, links: dict[str, Link], lasts_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if links != self._links:
            what = ", ".join(f"{address} ({link.mode})" for address, link in sorted(links.items()))
            logger.warning("connections made to fail endpoints=%s", what or "none")
        self._links = links
        self._network.apply(links)
        if links:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(lasts_s, self._put_into_force, {}, 0.0)


def ask(path: str, wish: Wish, timeout_s: float) -> InForce:
    """Put faults into force, or ask for those in force. OSError if no broker listens or answers."""
    question = msgspec.json.encode(wish) + b"\n"
    answer = status_socket.read(path, timeout_s, question)
    try:
        return msgspec.json.decode(answer, type=InForce)
    except msgspec.DecodeError as error:
        raise OSError(f"{path}: no answer: {error}") from error
