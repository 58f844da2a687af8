"""TLS on real sockets (F39): what is let in, what is not, what it costs, and what is said.

The other side is OpenSSL through Python's ssl, on plain sockets: it knows nothing of ours.
"""

import asyncio
import datetime as dt
import logging
import socket
import ssl
import struct
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from ottla.log.files import OsFiles
from ottla.model.errors import ConnectionLostError
from ottla.net import handshakes
from ottla.net.limits import ConnectionQuotas, ServerLimits
from ottla.net.peer import PeerConnection
from ottla.net.runtime import loop_factory, real_world
from ottla.net.server import Server
from ottla.security.client import ClientSecurity, ClientTls
from ottla.security.tls import TlsEndpoint
from ottla.security.tls_settings import tls_settings
from ottla.wire.messages.cluster import ApiVersionsRequest

HELLO = struct.pack(">i", 5) + b"hello"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Pki:
    """A CA of ours and another one; files of what they issued."""

    def __init__(self, folder):
        self.folder = folder
        self.ca, self.other = trustme.CA(), trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.other.cert_pem.write_to_path(str(folder / "other-ca.pem"))
        self.server = self.write("server", self.ca.issue_cert("127.0.0.1", "localhost"))
        self.elsewhere = self.write("elsewhere", self.ca.issue_cert("elsewhere.example"))
        self.client = self.write("client", self.ca.issue_cert("alice", common_name="alice"))
        self.foreign = self.write("foreign", self.other.issue_cert("127.0.0.1"))
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        self.expired = self.write("expired", self.ca.issue_cert("127.0.0.1", not_after=past))

    def write(self, name, issued):
        path = self.folder / f"{name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def settings(self, pem, **more):
        found = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem or "",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "ssl.endpoint.identification.algorithm": "https",
        } | {k.replace("_", "."): v for k, v in more.items()}
        return tls_settings(lambda key: found.get(key, ""))

    def endpoint(self, pem, *, server=True, **more):
        return TlsEndpoint(self.settings(pem, **more), OsFiles().read_bytes, server=server)

    def context(self, pem=None, *, check_host=True, ca="ca.pem"):
        """Return a client's context, of Python's own."""
        context = ssl.create_default_context(cafile=str(self.folder / ca))
        context.check_hostname = check_host
        if pem:
            context.load_cert_chain(pem)
        return context

    def client_security(self, pem=None, **more):
        endpoint = self.endpoint(pem, server=False, **more)
        return ClientSecurity(tls=ClientTls(lambda: endpoint.context))


class Listener:
    """A server that echoes frames. `seen` has each connection."""

    def __init__(self, endpoint, limits=None, quotas=None, dispatch=None):
        self.endpoint = endpoint
        self.seen = []
        self.server = Server(
            real_world(OsFiles()), "127.0.0.1", 0, dispatch or (lambda _, frame: (frame,)), limits,
            listener="SSL", connection_quotas=quotas, tls=self if endpoint else None,
        )  # fmt: skip

    @property
    def context(self):
        return self.endpoint.context

    def authenticate(self, connection, tls):
        self.seen.append((connection, tls))

    @asynccontextmanager
    async def running(self):
        await self.server.start()
        try:
            yield self.server
        finally:
            await self.server.close()


async def soon(condition):
    """Wait for what takes a few turns of the loop, or longer on a busy machine."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    def runner(main):
        factory = loop_factory() if request.param == "uvloop" else asyncio.SelectorEventLoop
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(asyncio.wait_for(main(), 50))

    return runner


def talk(port, context, data=HELLO, host="127.0.0.1"):
    """Send and receive by a blocking socket, in a thread."""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        raw.settimeout(10)
        with context.wrap_socket(raw, server_hostname=host) as channel:
            channel.sendall(data)
            found = b""
            while len(found) < len(data):
                part = channel.recv(65536)
                if not part:
                    break
                found += part
            return found, channel.version()


def raw_bytes(port, data, wait_s=5.0):
    """Send bytes in the clear; return what comes until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as channel:
        channel.settimeout(wait_s)
        channel.sendall(data)
        found = b""
        while part := channel.recv(65536):
            found += part
        return found


def lines(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_served(pki, run, version):
    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            context = pki.context()
            context.minimum_version = context.maximum_version = version
            found, spoken = await asyncio.to_thread(talk, server.port, context)
            assert found == HELLO
            assert spoken == {771: "TLSv1.2", 772: "TLSv1.3"}[int(version)]
            assert server.refused_count == 0

    run(main)


@pytest.mark.parametrize("size", [0, 1, 16_000, 70_000, 3_000_000])
def test_frames_of_all_sizes_come_and_go_whole(pki, run, size):
    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            body = bytes(range(256)) * (size // 256 + 1)
            frame = struct.pack(">i", size) + body[:size]
            data = HELLO + frame + HELLO
            found, _ = await asyncio.to_thread(talk, server.port, pki.context(), data)
            assert found == data

    run(main)


@pytest.mark.parametrize(
    ("server", "client", "words"),
    [
        ("server", {"ca": "other-ca.pem"}, "does not trust our certificate"),
        ("elsewhere", {}, "refused our certificate"),
        ("expired", {}, "has expired"),
        ("foreign", {}, "does not trust our certificate"),
    ],
)
def test_a_client_that_cannot_trust_us_goes_away(pki, run, caplog, server, client, words):
    async def main():
        async with Listener(pki.endpoint(getattr(pki, server))).running() as listening:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(talk, listening.port, pki.context(**client))
            await soon(lambda: listening.refused_count and not listening.connections)
            assert listening.refused_count == 1
        (line,) = lines(caplog)
        assert "TLS handshake failed" in line
        assert words in line
        assert "listener=SSL" in line

    run(main)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_refused(pki, run, caplog, version):
    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            context = pki.context()
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
            with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
                await asyncio.to_thread(talk, server.port, context)
            await soon(lambda: server.refused_count)
            assert server.refused_count == 1
            assert server.handshakes() == (0, 1)
        (line,) = lines(caplog)
        assert "no TLS version that is allowed here" in line

    run(main)


@pytest.mark.parametrize(
    ("pem", "allowed"), [("client", True), (None, False), ("foreign", False), ("expired", False)]
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_of_clients(pki, run, caplog, pem, allowed, version):
    async def main():
        listener = Listener(pki.endpoint(pki.server, ssl_client_auth="required"))
        async with listener.running() as server:
            context = pki.context(pem and getattr(pki, pem))
            context.minimum_version = context.maximum_version = version
            if allowed:
                found, _ = await asyncio.to_thread(talk, server.port, context)
                assert found == HELLO
                ((_, tls),) = listener.seen
                assert tls.getpeercert()["subject"][-1] == (("commonName", "alice"),)
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await asyncio.to_thread(talk, server.port, context)
                await soon(lambda: lines(caplog) and not server.connections)
                assert not listener.seen
                (line,) = lines(caplog)
                assert ("no certificate" if pem is None else "is not trusted") in line

    run(main)


def test_a_requested_certificate_may_be_left_out_but_not_be_wrong(pki, run):
    async def main():
        listener = Listener(pki.endpoint(pki.server, ssl_client_auth="requested"))
        async with listener.running() as server:
            found, _ = await asyncio.to_thread(talk, server.port, pki.context())
            assert found == HELLO
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(talk, server.port, pki.context(pki.foreign))
            assert len(listener.seen) == 1

    run(main)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HELLO, "plaintext on a TLS listener"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\xff\xff" + b"x" * 100, "TLS handshake failed"),
        (b"\x16", None),
    ],
)
def test_what_is_no_tls_ends_with_one_line(pki, run, caplog, data, words):
    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            if words is None:  # closed by the client
                with socket.create_connection(("127.0.0.1", server.port), 10) as channel:
                    channel.sendall(data)
                    await asyncio.sleep(0.1)
                await soon(lambda: lines(caplog))
            else:
                found = await asyncio.to_thread(raw_bytes, server.port, data)
                assert HELLO not in found
            await soon(lambda: not server.connections)
        (line,) = lines(caplog)
        assert (words or "closed in the handshake") in line

    run(main)


def test_many_of_them_are_one_line_a_second(pki, run, caplog):
    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            began = time.monotonic()
            for _ in range(20):
                await asyncio.to_thread(raw_bytes, server.port, HELLO)
            took_s = time.monotonic() - began
            assert server.refused_count == 20
        assert len(lines(caplog)) <= 2 + took_s

    run(main)


def test_tls_on_a_plaintext_listener_is_one_line(pki, run, caplog):
    async def main():
        async with Listener(None).running() as server:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(talk, server.port, pki.context())
            await soon(lambda: not server.connections)
        (line,) = lines(caplog)
        assert "TLS hello; the listener is plaintext" in line

    run(main)


def test_a_health_check_is_no_line(pki, run, caplog):
    """Who connects and closes sent nothing: load balancers do."""

    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            socket.create_connection(("127.0.0.1", server.port), 10).close()
            await soon(lambda: server.accepted_count and not server.connections)
        assert not lines(caplog)

    run(main)


def test_renegotiation_is_refused(pki, run):
    """A client of TLS 1.2 that asks for another handshake gets none: `R` of openssl s_client."""

    async def main():
        async with Listener(pki.endpoint(pki.server)).running() as server:
            client = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            try:
                await asyncio.sleep(1.0)
                client.stdin.write(b"R\n")
                out, _ = await asyncio.wait_for(client.communicate(), 40)
            finally:
                if client.returncode is None:
                    client.kill()
            assert b"RENEGOTIATING" in out
            assert b"no renegotiation" in out

    run(main)


def test_a_thousand_slow_handshakes_end_in_time_and_count(pki, run, monkeypatch, caplog):
    """Silent ones, and ones that send a byte now and then; a good client is served meanwhile."""
    monkeypatch.setattr(handshakes, "LONGEST_HANDSHAKE_S", 5.0)
    count = 1000
    whole = hello_bytes()

    async def main():
        limits = ServerLimits(max_connection_rate=1e9)
        quotas = ConnectionQuotas(count + 1, count + 1)
        async with Listener(pki.endpoint(pki.server), limits, quotas).running() as server:
            began = time.monotonic()
            slow = [socket.socket() for _ in range(count)]
            try:
                for channel in slow:
                    channel.setblocking(False)
                    channel.connect_ex(("127.0.0.1", server.port))
                while len(server.connections) < count:
                    await asyncio.sleep(0.01)
                assert quotas.total == count, "they count before their handshake"
                found, _ = await asyncio.to_thread(talk, server.port, pki.context())
                assert found == HELLO
                sent = 0
                while server.connections and time.monotonic() - began < 30:
                    for channel in slow[: count // 2]:
                        with suppress(OSError):
                            channel.send(whole[sent : sent + 1])
                    sent += 1
                    await asyncio.sleep(0.1)
                assert not server.connections
                took_s = time.monotonic() - began
                assert took_s > 4.9
                assert quotas.total == 0
                assert server.refused_count == count
                assert server.statistics()["handshakes"] == 0
            finally:
                for channel in slow:
                    channel.close()
        assert any("no TLS handshake after" in line for line in lines(caplog))
        assert len(lines(caplog)) < 8 + took_s, "one a second"

    run(main)


def test_the_bound_of_a_handshake():
    assert handshakes.LONGEST_HANDSHAKE_S + 1 <= 10


def test_one_above_the_quota_is_turned_away_before_its_handshake(pki, run):
    async def main():
        quotas = ConnectionQuotas(2, 2)
        async with Listener(pki.endpoint(pki.server), None, quotas).running() as server:
            held = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(talk, server.port, pki.context())
            for channel in held:
                channel.close()

    run(main)


# Memory.


def hello_bytes():
    """Return the first flight of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_what_a_slow_reader_does_not_take_is_counted_and_bounded(pki, run):
    """The same bounds as in the clear: dispatching stops, and sizes tell of all that waits."""
    limits = ServerLimits(outbound_high_bytes=262_144)
    answer = bytes(200_000)
    dispatched = []

    def dispatch(_, frame):
        dispatched.append(bytes(frame))
        return (answer,)

    async def main():
        listener = Listener(pki.endpoint(pki.server), limits, dispatch=dispatch)
        async with listener.running() as server:
            release = threading.Event()
            got = []

            def client():
                with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                    with pki.context().wrap_socket(raw, server_hostname="127.0.0.1") as channel:
                        for _ in range(200):
                            channel.sendall(HELLO)
                        release.wait(40)
                        wanted = 200 * (len(answer) + 4)
                        while sum(got) < wanted:
                            got.append(len(channel.recv(1 << 20)))

            work = asyncio.create_task(asyncio.to_thread(client))
            try:
                await soon(lambda: listener.seen)
                ((connection, _),) = listener.seen
                size = connection._transport.get_write_buffer_size
                await soon(lambda: size() > limits.outbound_high_bytes)
                await asyncio.sleep(0.5)
                waiting = connection._transport.get_write_buffer_size()
                assert waiting > limits.outbound_high_bytes
                assert waiting < limits.outbound_high_bytes + 3 * len(answer)
                # The system's buffers hold some megabytes more.
                assert len(dispatched) < 60
                assert server.responses.used_bytes >= waiting - 20_000
            finally:
                release.set()
            await work
            assert len(dispatched) == 200
            assert sum(got) == 200 * (len(answer) + 4)
            await soon(lambda: server.responses.used_bytes == 0)

    run(main)


def test_a_muted_connection_holds_little_and_goes_on_where_it_stopped(pki, run):
    async def main():
        listener = Listener(pki.endpoint(pki.server))
        async with listener.running() as server:
            data = HELLO * 200_000  # 1.8 MB

            work = asyncio.create_task(asyncio.to_thread(talk, server.port, pki.context(), data))
            while not listener.seen:
                await asyncio.sleep(0.001)
            ((connection, _),) = listener.seen
            connection.throttle(700)
            await asyncio.sleep(0.3)
            ahead = connection._transport.get_extra_info("unread_bytes")
            assert ahead <= 65_536 + 16_384
            assert server.unread(connection._transport) >= ahead
            found, _ = await work
            assert found == data

    run(main)


# A client of ours.


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("elsewhere", "IP address mismatch"),
        ("expired", "certificate has expired"),
        ("foreign", "unable to get local issuer certificate"),
    ],
)
def test_our_client_checks_the_server(pki, run, server, words):
    async def main():
        async with Listener(pki.endpoint(getattr(pki, server))).running() as listening:
            with pytest.raises(ConnectionLostError, match=words):
                await open_peer(listening.port, pki.client_security())

    run(main)


async def open_peer(port, security, timeout_s=30):
    return await PeerConnection.open(
        real_world(OsFiles()), "127.0.0.1", port, "t", timeout_s=timeout_s, security=security
    )


def test_the_check_of_the_host_can_be_switched_off(pki, run):
    async def main():
        security = pki.client_security(ssl_endpoint_identification_algorithm="")
        async with Listener(pki.endpoint(pki.elsewhere)).running() as server:
            peer = await open_peer(server.port, security)
            peer.close()

    run(main)


def test_our_client_at_a_plaintext_listener_and_the_other_way_round(pki, run):
    async def main():
        async with Listener(None).running() as server:
            with pytest.raises(ConnectionLostError, match="closed in the handshake"):
                await open_peer(server.port, pki.client_security())
        async with Listener(pki.endpoint(pki.server)).running() as server:
            peer = await open_peer(server.port, None)
            with pytest.raises(ConnectionLostError):
                await peer.send(ApiVersionsRequest(), 0, 5)

    run(main)


def test_a_server_that_says_nothing_is_left_in_time(pki, run):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            with pytest.raises(ConnectionLostError, match=r"no response within 0\.5 s"):
                await open_peer(silent.getsockname()[1], pki.client_security(), 0.5)
            assert time.monotonic() - began < 20

    run(main)


def test_our_client_without_its_certificate_hears_why(pki, run):
    async def main():
        endpoint = pki.endpoint(pki.server, ssl_client_auth="required")
        async with Listener(endpoint).running() as server:
            with pytest.raises(ConnectionLostError, match="wants our certificate"):
                await asked(server.port, pki.client_security())

    run(main)


async def asked(port, security):
    peer = await open_peer(port, security)
    return await peer.send(ApiVersionsRequest(), 0, 5)
