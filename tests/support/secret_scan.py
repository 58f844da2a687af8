"""Looks for secrets where none may stand: files, process lists, znodes, what was printed.

A test plants values that stand nowhere else, and names the few files where they belong. Looked for
are the values themselves, and the forms in which a program may have written them: base64, also of
something longer, hex, JSON's and URL's escapes; of private keys and SCRAM's credentials any long
piece.
"""

import base64
import contextlib
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

MOST_BYTES = 64 << 20
"""Of one file: more than any log of a test."""
SHORTEST = 8
"""A shorter value may stand somewhere by chance."""
USERS = "/config/users"
"""Where SCRAM's credentials belong."""


class Secrets:
    """Values that may not be found, by the name that a leak is reported by."""

    def __init__(self, values: Mapping[str, str | bytes]) -> None:
        self._forms: dict[bytes, str] = {}
        for name, value in values.items():
            self.add(name, value)

    def add(self, name: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        assert len(data) >= SHORTEST, f"{name} is too short to be looked for"
        for form in forms(data):
            self._forms[form] = name

    def add_private_key(self, pem: Path) -> None:
        """Add the lines of a key in PEM, but for the first: keys of one kind begin alike."""
        text = pem.read_text()
        found = re.search(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n(.*?)-----END", text, re.DOTALL)
        assert found, f"{pem} has no private key"
        for line in found[1].split()[1:]:
            if len(line) >= 32:
                self._forms[line.encode()] = f"private key of {pem.name}"

    def add_scram(self, zookeeper: str) -> None:
        """Add the salts, stored keys and server keys of all SCRAM users of a cluster."""
        for path, data in znodes(zookeeper):
            if path.startswith(f"{USERS}/") and data:
                for mechanism, text in json.loads(data).get("config", {}).items():
                    if not mechanism.startswith("SCRAM"):
                        continue
                    for key, value in (part.split("=", 1) for part in text.split(",")):
                        if key != "iterations":
                            self.add(f"{mechanism} {key} of {path}", value)

    def found_in(self, data: bytes) -> set[str]:
        """Return the names of the secrets that stand in some bytes."""
        return {name for form, name in self._forms.items() if form in data}


def forms(value: bytes) -> Iterator[bytes]:
    """Yield a value as programs write it; base64 wherever it stands in what was encoded."""
    yield value
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + value).rstrip(b"=")
            # The first and the last characters hold bits of what stands before and after it, too.
            yield text[(8 * before + 5) // 6 : len(text) - bool((before + len(value)) % 3)]
    yield value.hex().encode()
    yield urllib.parse.quote_from_bytes(value, safe="").encode()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    yield json.dumps(text)[1:-1].encode()


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, also while brokers make and remove some."""
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.is_file())


def content(file: Path) -> bytes:
    """Return what is in a file; nothing is in one that is gone by now."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES)
    except FileNotFoundError:
        return b""


def leaks(secrets: Secrets, folder: Path, allowed: Iterable[Path] = ()) -> list[str]:
    """Return where secrets stand in the files below a folder, but for those that are allowed."""
    belongs = {path.resolve() for path in allowed}
    found = []
    for path in files_below(folder):
        if path.resolve() not in belongs:
            names = sorted(secrets.found_in(content(path)))
            found += [f"{path}: {name}" for name in names]
    return found


def our_processes() -> Iterator[tuple[str, bytes]]:
    """Yield pid and arguments of the processes that this one started.

    Whatever became of who started them: each has the folder in its environment that `conftest`
    makes for one run of tests.
    """
    ours = f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}\0".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if ours in (path / "environ").read_bytes() + b"\0":
                yield path.name, (path / "cmdline").read_bytes()


def process_leaks(secrets: Secrets) -> list[str]:
    """Return which of our processes have secrets in their arguments, as `ps` shows to everyone."""
    return [
        f"process {pid}: {name}"
        for pid, arguments in our_processes()
        for name in sorted(secrets.found_in(arguments))
    ]


def znode_leaks(secrets: Secrets, zookeeper: str) -> list[str]:
    """Return which znodes have secrets, but for those of users."""
    return [
        f"znode {path}: {name}"
        for path, data in znodes(zookeeper)
        if not path.startswith(f"{USERS}/")
        for name in sorted(secrets.found_in(path.encode() + b"\n" + data))
    ]


def all_leaks(
    secrets: Secrets, zookeeper: str, folder: Path, allowed: Iterable[Path] = ()
) -> list[str]:
    """Return where secrets stand that may not: files, znodes, arguments of processes.

    SCRAM's credentials of the cluster, which are added here, may stand in ZooKeeper's own files.
    """
    belongs = [*allowed]
    found = leaks(secrets, folder, belongs)
    secrets.add_scram(zookeeper)
    of_zookeeper = (path for path in files_below(folder) if "zookeeper" in path.parts)
    return [
        *found,
        *leaks(secrets, folder, [*belongs, *of_zookeeper]),
        *znode_leaks(secrets, zookeeper),
        *process_leaks(secrets),
    ]


def znodes(zookeeper: str) -> list[tuple[str, bytes]]:
    """Return path and data of every znode, read with kazoo."""
    client = KazooClient(zookeeper, read_only=True)
    client.start(timeout=20)
    found = []
    try:
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            try:
                data, _ = client.get(path)
                children = client.get_children(path)
            except NoNodeError:
                continue
            found.append((path, data or b""))
            waiting += [f"{path.rstrip('/')}/{child}" for child in children]
    finally:
        client.stop()
        client.close()
    return found
