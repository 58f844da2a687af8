"""`ottla up` and `ottla console` as a person starts them: processes, a link, and their end."""

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.parse import urlencode

from ottla.local.cluster_dir import ClusterDir
from ottla.local.processes import alive
from support.cluster import free_row
from support.command_line import ottla
from support.console import of_preview

LINK = re.compile(r"(https?)://([\w.]+:\d+)(/login\?token=\S+)")


@contextmanager
def up(path, brokers=3, *more):
    """Start a cluster in a folder, and end it."""
    for _ in range(5):
        base = free_row(brokers + 1)  # and ZooKeeper's
        done = ottla("up", "-n", brokers, "--dir", path, "--port-base", base, *more)
        if done.returncode == 0 or "in use" not in done.stderr:
            break
    try:
        assert done.returncode == 0, done.stderr
        yield ClusterDir(path)
    finally:
        processes = ClusterDir(path).existing().processes() if path.exists() else []
        ottla("down", "--dir", path)
        assert not [p for p in processes if alive(p)], "down left processes behind"


class Served:
    """A console in a process of its own; `link` lets in once. `trusting`: for https."""

    def __init__(self, *words, trusting=None):
        self.trusting = trusting
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "console", "--port", "0", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        found = LINK.search(self.process.stdout.readline())
        if found is None:
            self.process.kill()
            raise AssertionError(self.process.stderr.read())
        self.scheme, self.address, self.path = found[1], found[2], found[3]
        self.cookie = self.form_token = ""

    @property
    def link(self):
        return f"{self.scheme}://{self.address}{self.path}"

    def request(self, method, path, fields=None, timeout_s=20, headers=()):
        """Send a request as a browser that was let in; return (status, text, headers)."""
        if self.scheme == "https":
            connection = http.client.HTTPSConnection(
                self.address, timeout=timeout_s, context=self.trusting
            )
        else:
            connection = http.client.HTTPConnection(self.address, timeout=timeout_s)
        headers = dict(headers)
        if self.cookie:
            headers["Cookie"] = self.cookie
        body = None
        if fields is not None:
            body = urlencode({"form_token": self.form_token, **fields})
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()

    def enter(self):
        status, _, headers = self.request("GET", self.path)
        assert status == 200
        self.set_cookie = headers["Set-Cookie"]
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        text = self.get("/doctor")
        self.form_token = re.search(r'name="form_token" value="([^"]+)"', text)[1]

    def get(self, path, status=200):
        code, text, _ = self.request("GET", path)
        assert code == status, text
        return text

    def post(self, path, status=303, **fields):
        code, text, _ = self.request("POST", path, fields)
        assert code == status, text
        return text

    def change(self, path, **fields):
        """Ask for a change, and send the form of its preview; return the preview."""
        preview = self.post(path, 200, **fields)
        action, agreed = of_preview(preview)
        self.post(action, 303, **{k: v for k, v in agreed.items() if k != "form_token"})
        return preview

    def until(self, path, wanted, timeout_s):
        """Load a page until it has a text; return how long that took."""
        began = time.monotonic()
        while wanted not in (text := self.get(path)):
            assert time.monotonic() - began < timeout_s, (wanted, text)
            time.sleep(0.05)
        return time.monotonic() - began

    def until_gone(self, path, unwanted, timeout_s):
        """Load a page until it does not have a text."""
        deadline = time.monotonic() + timeout_s
        while unwanted in (text := self.get(path)):
            assert time.monotonic() < deadline, (unwanted, text)
            time.sleep(0.05)

    def end(self, number=signal.SIGINT):
        """End it by a signal; return its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def served(*words, trusting=None):
    console = Served(*words, trusting=trusting)
    try:
        yield console
    finally:
        if console.process.poll() is None:
            console.process.kill()
            console.process.communicate(timeout=20)
