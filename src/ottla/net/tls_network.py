"""A network on which every connection that is opened speaks TLS.

The handshake is within the time for connecting; a failure of it is an OSError like others.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from ottla.model.ports import Listener, Network
from ottla.net.tls import TlsTransport
from ottla.security.client import ClientTls

BUFFER_BYTES = 65_536

_decrypted = memoryview(bytearray(BUFFER_BYTES))
"""Valid only between two calls of the transport, as a receive buffer."""


class TlsError(OSError):
    """There is no TLS with the other side; the text says why."""


async def connect_tls(
    network: Network,
    tls: ClientTls,
    host: str,
    port: int,
    protocol: asyncio.BufferedProtocol,
    timeout_s: float,
) -> asyncio.Transport:
    """Connect a protocol and shake hands, in `timeout_s` together; OSError."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def established(connection: ssl.SSLObject) -> None:
        cipher = connection.cipher()
        if cipher is not None and not tls.allows(cipher[0]):
            failed(f"cipher suite {cipher[0]} is not among ssl.cipher.suites")
        elif not done.done():
            done.set_result(None)

    def failed(reason: str) -> None:
        if not done.done():
            done.set_exception(TlsError(f"no TLS: {reason}"))

    transport = TlsTransport(
        protocol, tls.context(), server_hostname=host, established=established, failed=failed
    )
    try:
        async with asyncio.timeout(timeout_s):
            await network.connect(host, port, lambda: transport, timeout_s=timeout_s)
            await done
    except BaseException:
        transport.abort()
        raise
    return cast("asyncio.Transport", transport)


class _Buffered(asyncio.BufferedProtocol):
    """Gives a protocol without buffers what was decrypted."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self.connection_made = inner.connection_made  # type: ignore[method-assign]
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _decrypted

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(_decrypted[:nbytes]))


class TlsNetwork:
    """Another network, with TLS."""

    def __init__(self, network: Network, tls: ClientTls) -> None:
        self._network = network
        self._tls = tls

    async def connect(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        timeout_s: float,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        protocol = factory()
        inner = (
            _Buffered(protocol)
            if isinstance(protocol, asyncio.Protocol)
            else cast("asyncio.BufferedProtocol", protocol)
        )
        transport = await connect_tls(self._network, self._tls, host, port, inner, timeout_s)
        return transport, protocol

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        return await self._network.refuses(host, port, timeout_s=timeout_s)

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        return await self._network.listen(host, port, factory)
