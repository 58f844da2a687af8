"""A console on a cluster of a test, and a browser that was let in."""

import re
import time
from contextlib import contextmanager

from starlette.testclient import TestClient

from ottla.admin.session import world
from ottla.console.application import application
from ottla.console.state import console_for
from ottla.net.client import Client

ADDRESS = "http://127.0.0.1:8090"


@contextmanager
def console_on(bootstrap, folder=None, **more):
    """Yield a browser of a console on a cluster; `browser.console` is the console."""

    def another():
        return Client(world(), bootstrap, timeout_s=10, connect_timeout_s=2)

    console = console_for(another(), another, folder, **more)
    with TestClient(application(console), base_url=ADDRESS) as http:
        http.console = console
        http.get("/login", params={"token": console.sessions.token})
        yield http


def form_token(http):
    return re.search(r'name="form_token" value="([^"]+)"', http.get("/doctor").text)[1]


def until_text(get, wanted, path, timeout_s=15.0, **fields):
    """Load a page until it has a text; return it."""
    deadline = time.monotonic() + timeout_s
    while wanted not in (text := get(path, **fields)):
        assert time.monotonic() < deadline, f"{path} has no {wanted!r}:\n{text}"
        time.sleep(0.1)
    return text
