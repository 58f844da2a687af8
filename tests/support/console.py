"""A console on a cluster of a test, and a browser that was let in."""

import asyncio
import json
import re
import time
from contextlib import contextmanager
from html import unescape

from starlette.testclient import TestClient

from ottla.admin.session import world
from ottla.client.client import Client
from ottla.console.application import application
from ottla.console.state import console_for

ADDRESS = "http://127.0.0.1:8090"


@contextmanager
def console_on(bootstrap, folder=None, **more):
    """Yield a browser of a console on a cluster; `browser.console` is the console."""

    def another():
        return Client(world(), bootstrap, timeout_s=30, connect_timeout_s=10)

    console = console_for(another(), another, folder, **more)
    with TestClient(application(console), base_url=ADDRESS) as http:
        http.console = console
        http.get("/login", params={"token": console.sessions.token})
        let_in_as_a_program(http)
        yield http


def let_in_as_a_program(http):
    """Have the session's cookie sent for any path, as programs do that have its value."""
    for cookie in http.cookies.jar:
        http.cookies.set(cookie.name, cookie.value, path="/")


def form_token(http):
    return re.search(r'name="form_token" value="([^"]+)"', http.get("/doctor").text)[1]


FORM = re.compile(r'<form method="post" action="([^"]+)" class="row">\n(.*?)</form>', re.DOTALL)


def of_preview(text):
    """Return where a preview's form goes, and its fields with that of its button."""
    assert "This is a preview. Nothing has changed yet" in text, text
    action, form = FORM.findall(text)[0]
    fields = {n: unescape(v) for n, v in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    assert fields["do"] == "1", form
    return action, fields


def until_text(get, wanted, path, timeout_s=40.0, **fields):
    """Load a page until it has a text; return it."""
    deadline = time.monotonic() + timeout_s
    while wanted not in (text := get(path, **fields)):
        assert time.monotonic() < deadline, f"{path} has no {wanted!r}:\n{text}"
        time.sleep(0.1)
    return text


def live_parts(http, query, until, timeout_s=60, path="/live"):
    """Read a live stream as a server drives it, until `until(parts)` is true; return the parts.

    `parts` are pairs of an element's id and its HTML, in the order in which they were sent.
    """
    parts = []
    cookie = "; ".join(f"{c.name}={c.value}" for c in http.cookies.jar)
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "root_path": "", "scheme": "http",
        "http_version": "1.1", "server": ("127.0.0.1", 8090), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1:8090"), (b"cookie", cookie.encode())],
    }  # fmt: skip

    async def run():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            for line in message.get("body", b"").decode().splitlines():
                if line.startswith("data: "):
                    part = json.loads(line.removeprefix("data: "))
                    parts.append((part["id"], part["html"]))
            if until(parts):
                gone.set()

        async with asyncio.timeout(timeout_s):
            await http.app(scope, receive, send)

    http.portal.call(run)
    return parts
