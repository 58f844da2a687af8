"""ZooKeeper's four-letter words: what a server says of itself to whoever connects and writes one.

Who may call: `memory`. Invariants: only words of the list are answered; none changes anything.
ZooKeeper: `org.apache.zookeeper.server.command`.
"""

from collections.abc import Callable, Collection, Mapping, Sized
from typing import NamedTuple, Protocol

from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.server_connection import Connection, Limits

VERSION = "3.9.0-ottla"
"""What protocol and files are compatible with; clients read the number."""


class Latency(NamedTuple):
    """Of requests that waited for the disk, in milliseconds."""

    requests: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0


class Described(Protocol):
    """What is said of a server."""

    tree: Tree
    latency: Latency
    limits: Limits | None
    port: int
    tick_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int

    @property
    def sessions(self) -> Sized: ...

    @property
    def watches(self) -> Sized: ...

    @property
    def connections(self) -> Collection[Connection]: ...

    def statistics(self) -> Mapping[str, int]: ...


def reply(word: bytes, server: Described) -> str | None:
    """Return the text for a word, None if it is no word of the list."""
    answer = _WORDS.get(word)
    return None if answer is None else answer(server)


def _figures(server: Described) -> list[tuple[str, object]]:
    count, total, least, most = server.latency
    nodes = server.tree.nodes
    return [
        ("version", VERSION),
        ("server_state", "standalone"),
        ("min_latency", int(least)),
        ("avg_latency", f"{total / count if count else 0.0:.4f}"),
        ("max_latency", int(most)),
        ("packets_received", sum(c.received for c in server.connections)),
        ("packets_sent", sum(c.sent for c in server.connections)),
        ("num_alive_connections", len(server.connections)),
        ("outstanding_requests", server.statistics()["outstanding"]),
        ("znode_count", len(nodes)),
        ("watch_count", len(server.watches)),
        ("ephemerals_count", sum(map(len, server.tree.ephemerals.values()))),
        ("global_sessions", len(server.sessions)),
        ("approximate_data_size", sum(len(p) + len(n.data or b"") for p, n in nodes.items())),
    ]


def _srvr(server: Described) -> str:
    f = dict(_figures(server))
    return (
        f"Zookeeper version: {VERSION}, built on none\n"
        f"Latency min/avg/max: {f['min_latency']}/{f['avg_latency']}/{f['max_latency']}\n"
        f"Received: {f['packets_received']}\nSent: {f['packets_sent']}\n"
        f"Connections: {f['num_alive_connections']}\nOutstanding: {f['outstanding_requests']}\n"
        f"Zxid: {server.tree.zxid:#x}\nMode: standalone\nNode count: {f['znode_count']}\n"
    )


def _cons(server: Described) -> str:
    lines = []
    for c in server.connections:
        session = "" if c.session is None else f",sid={c.session.id:#x},to={c.session.timeout_ms}"
        lines.append(f" /{c.peer}[1](queued=0,recved={c.received},sent={c.sent}{session})\n")
    return "".join(lines) + "\n"


def _stat(server: Described) -> str:
    first, _, rest = _srvr(server).partition("\n")
    return f"{first}\nClients:\n{_cons(server)}{rest}"


def _conf(server: Described) -> str:
    limits = server.limits
    settings = {
        "clientPort": server.port,
        "tickTime": server.tick_ms,
        "maxClientCnxns": 0 if limits is None else limits.connections,
        "minSessionTimeout": server.min_session_timeout_ms,
        "maxSessionTimeout": server.max_session_timeout_ms,
        "serverId": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


_WORDS: dict[bytes, Callable[[Described], str]] = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"envi": lambda _: f"Environment:\nzookeeper.version={VERSION}\n",
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"conf": _conf,
    b"mntr": lambda server: "".join(f"zk_{k}\t{v}\n" for k, v in _figures(server)),
}
