"""Keys of tokens: read from files and addresses, bounded, kept when they cannot be read again."""

import asyncio
import http.server
import threading
import time

import pytest

from ottla.net import runtime
from ottla.security.sasl import jwks
from ottla.security.sasl.jwks import JwksSource, read_url
from ottla.security.sasl.jwt_tokens import Expected
from ottla.security.sasl.oauthbearer import BearerToken, RefusedToken
from support.sasl_clusters import Issuer

EXPECTED = Expected(audience=("kafka",), issuer="tests")


def now_ms():
    return int(time.time() * 1000)


@pytest.fixture
def served():
    """An HTTP server: path -> (status, headers, body)."""
    pages = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, body = pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_token_counts_with_the_keys_of_a_file(tmp_path):
    issuer = Issuer(tmp_path)
    source = JwksSource(issuer.path.as_uri(), 60_000, EXPECTED)
    assert isinstance(source.validate(issuer.token(), now_ms()), RefusedToken)  # not read yet
    source.load()
    assert isinstance(source.validate(issuer.token(), now_ms()), BearerToken)


def test_an_address_is_read_and_not_followed_elsewhere(served, tmp_path):
    at, pages = served
    issuer = Issuer(tmp_path)
    pages["/keys"] = (200, {}, issuer.path.read_bytes())
    pages["/moved"] = (302, {"Location": f"{at}/keys"}, b"")
    pages["/large"] = (200, {}, b"x" * (jwks.MAX_DOCUMENT_BYTES + 1))
    assert read_url(f"{at}/keys") == issuer.path.read_bytes()
    for path, error in (("/moved", OSError), ("/none", OSError), ("/large", ValueError)):
        with pytest.raises(error):
            read_url(at + path)
    with pytest.raises(ValueError, match="ftp"):
        read_url("ftp://127.0.0.1/keys")


def test_new_keys_are_read_and_old_ones_kept_while_they_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setattr(jwks, "LEAST_REFRESH_S", 0.2)
    monkeypatch.setattr(jwks, "CHECK_S", 0.05)

    async def main():
        world = runtime.real_world(None)
        (tmp_path / "old").mkdir()
        (tmp_path / "new").mkdir()
        old, new = Issuer(tmp_path / "old"), Issuer(tmp_path / "new")
        path = tmp_path / "keys.json"
        path.write_bytes(old.path.read_bytes())
        source = JwksSource(path.as_uri(), 3_600_000, EXPECTED)
        source.load()
        task = asyncio.create_task(source.run(world.clock, world.workers))

        async def until(issuer):
            async with asyncio.timeout(20):
                while isinstance(source.validate(issuer.token(), now_ms()), RefusedToken):
                    await asyncio.sleep(0.05)

        await until(old)
        path.write_bytes(b"no keys at all")
        assert isinstance(source.validate(new.token(), now_ms()), RefusedToken)
        await asyncio.sleep(0.6)  # read again, in vain
        await until(old)
        path.write_bytes(new.path.read_bytes())
        await until(new)  # because of tokens with an unknown key: an hour did not pass
        task.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))
