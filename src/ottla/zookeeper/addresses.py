"""ZooKeeper connect strings, and which paths are legal.

Invariants: a bad connect string is a ConfigError that names the key; a path ZooKeeper would refuse
never leaves us. ZooKeeper: `ConnectStringParser` and `PathUtils`.
"""

import re
from typing import NamedTuple

from ottla.model.errors import ConfigError
from ottla.zookeeper.errors import BadArgumentsError

DEFAULT_PORT = 2181
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Control characters, and what is no single character of Java's."""


class ConnectString(NamedTuple):
    """`host:port,host:port/chroot`, taken apart."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, text: str) -> "ConnectString":
        if "://" in text:
            raise ConfigError(f"zookeeper.connect: {text!r} has a scheme; write host:port[/chroot]")
        addresses, slash, chroot = text.partition("/")
        chroot = (slash + chroot).rstrip("/")
        if chroot:
            check_path(chroot)
        hosts = []
        for part in filter(None, (p.strip() for p in addresses.split(","))):
            host, colon, port = part.rpartition(":")
            if not colon or (":" in host and not host.startswith("[")):
                host, port = part, str(DEFAULT_PORT)
            if not host or not port.isdigit() or not 0 < int(port) <= 65535:
                raise ConfigError(f"zookeeper.connect: {part!r} is no address; write host:port")
            hosts.append((host.removeprefix("[").removesuffix("]"), int(port)))
        if not hosts:
            raise ConfigError("zookeeper.connect: no address given; write host:port[/chroot]")
        return cls(tuple(hosts), chroot)


def check_path(path: str) -> None:
    """Raise BadArgumentsError for a path ZooKeeper would refuse."""
    problem = None
    if not path.startswith("/"):
        problem = "it does not start with /"
    elif path != "/" and (path.endswith("/") or "//" in path):
        problem = "it has an empty part"
    elif "/./" in path or "/../" in path or path.endswith(("/.", "/..")):
        problem = "relative parts are not allowed"
    elif not (path.isascii() and path.isprintable()) and (found := _REFUSED.search(path)):
        problem = f"the character {found[0]!r} is not allowed"
    if problem:
        raise BadArgumentsError(f"not a znode path: {path!r}, {problem}")
