"""A small HTTP server on a real socket: what it answers, and what hostile clients cannot do."""

import asyncio
import contextlib

import pytest

from ottla.log.files import OsFiles
from ottla.net import http_server, runtime
from ottla.net.http_server import MAX_CONNECTIONS, HttpResponse, HttpServer, plain

pytestmark = pytest.mark.timeout(60)

PAGE = b"x" * 3_000_000


async def respond(request):
    if request.path == "/broken":
        raise ValueError("a bug")
    if request.path == "/long":
        return HttpResponse(200, "text/plain", (PAGE, PAGE))
    return plain(200, f"{request.method} {request.path} {request.fields.get('accept', '')}")


async def ask(port, sent, *, end=True):
    """Send bytes, read until the server closes; return status line and the rest."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        if end:
            await writer.drain()
        got = await reader.read()
    except ConnectionError:
        return "", b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    head, _, body = got.partition(b"\r\n\r\n")
    return head.decode(), body


async def soon(condition):
    """Wait for what takes a few turns of the loop, or longer on a busy machine."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def served(work, host="127.0.0.1"):
    """Run `work` with an open server, and return what it returns."""

    async def main():
        server = HttpServer(runtime.real_world(OsFiles()), host, 0, respond)
        await server.open()
        try:
            return await work(server)
        finally:
            server.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert not server.connections

    return asyncio.run(main())


def answer(sent):
    return served(lambda server: ask(server.port, sent))


def test_get_and_head():
    head, body = answer(b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:9\r\nAccept: z\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Length: 9" in head
    assert "Connection: close" in head
    assert body == b"GET /a z\n"
    head, body = answer(b"HEAD /a HTTP/1.0\r\n\r\n")
    assert "Content-Length: 9" in head, "as of a GET"
    assert body == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: evil.example:9192\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 200),
    ],
)
def test_a_request_is_served_or_refused_with_its_status(sent, status):
    head, _ = answer(sent)
    assert head.startswith(f"HTTP/1.1 {status} "), head


def test_a_bug_is_an_error_of_one_request(caplog):
    head, _ = answer(b"GET /broken HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 500")
    assert "http request failed" in caplog.text


def test_a_name_is_served_where_others_may_connect():
    """Only a loopback address is what a rebound name of a web page leads to."""
    head, _ = served(
        lambda server: ask(server.port, b"GET / HTTP/1.1\r\nHost: broker.example\r\n\r\n"),
        host="0.0.0.0",
    )
    assert head.startswith("HTTP/1.1 200")


def test_what_follows_a_request_is_not_served():
    head, body = answer(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 200")
    assert body == b"GET /a \n"


def test_those_who_send_nothing_or_take_nothing_are_closed_in_time(monkeypatch):
    """And meanwhile they keep nobody else from being served."""
    monkeypatch.setattr(http_server, "REQUEST_WITHIN_S", 1.0)
    monkeypatch.setattr(http_server, "RESPONSE_WITHIN_S", 1.0)

    async def work(server):
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        takes_nothing, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=100)
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        trickle = asyncio.create_task(drip(server.port))
        assert (await ask(server.port, b"GET / HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 200")
        assert not any(reader.at_eof() for reader, _ in idle), "it was not served after them"
        for reader, _ in idle:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert await trickle < 15
        await soon(lambda: not server.connections)
        got = b""
        with contextlib.suppress(ConnectionError):
            got = await takes_nothing.read()
        assert len(got) < 2 * len(PAGE)
        for _, each in [*idle, (None, writer)]:
            each.close()

    async def drip(port):
        """Send a byte now and then; return after how many seconds the server had enough."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and loop.time() - began < 20:
                writer.write(b"G")
                await asyncio.sleep(0.02)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await reader.read(1)
        writer.close()
        return loop.time() - began

    served(work)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /long HTTP/1.1\r\n\r\n"])
def test_who_asks_nothing_or_reads_nothing_gives_way(sent):
    """A probe is answered however many connections others hold open."""

    async def work(server):
        held = [
            await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            for _ in range(MAX_CONNECTIONS)
        ]
        for _, writer in held:
            writer.write(sent)
        await soon(lambda: len(server.connections) == MAX_CONNECTIONS)
        if sent.endswith(b"\r\n\r\n"):
            await soon(lambda: all(c.was_answered for c in server.connections))
        for _ in range(3):
            head, _ = await ask(server.port, b"GET / HTTP/1.1\r\n\r\n")
            assert head.startswith("HTTP/1.1 200")
        assert len(server.connections) <= MAX_CONNECTIONS
        for _, writer in held:
            writer.transport.abort()
        await soon(lambda: not server.connections)

    served(work)


def test_more_requests_at_once_than_allowed_are_closed_at_once():
    async def work(server):
        waits = asyncio.Event()

        async def slow(request):
            await waits.wait()
            return plain(200, request.path)

        server.respond = slow
        held = [
            await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_CONNECTIONS)
        ]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await soon(lambda: sum(not c.asked_nothing for c in server.connections) == MAX_CONNECTIONS)
        head, _ = await ask(server.port, b"GET / HTTP/1.1\r\n\r\n", end=False)
        assert head == ""
        waits.set()
        for reader, writer in held:
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()

    served(work)


def test_a_client_that_leaves_ends_its_response():
    async def work(server):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        await soon(lambda: server.connections)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await soon(lambda: not server.connections)

    served(work)
