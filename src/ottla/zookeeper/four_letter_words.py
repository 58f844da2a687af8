"""ZooKeeper's four-letter words: what a server says of itself to whoever connects and writes one.

Who may call: `memory`. Invariants: only words of the list are answered; none changes anything.
What ZooKeeper's words would change (crst, srst, stmk), and what is of its files or its JVM alone
(dirs, gtmk, hash, lsnp), is not on the list. ZooKeeper: `org.apache.zookeeper.server.command`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from ottla.model.ports import World
from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.server_connection import Connection, Limits, ServerSession
from ottla.zookeeper.server_watches import ServerWatches

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

    world: World
    tree: Tree
    watches: ServerWatches[Connection]
    latency: Latency
    limits: Limits | None
    port: int
    tick_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int

    @property
    def sessions(self) -> Mapping[int, ServerSession]: ...

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
        ("znode_count", len(nodes) + 1),  # ZooKeeper counts the root twice
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


def _dump(server: Described) -> str:
    ends: dict[float, list[int]] = {}
    for session in server.sessions.values():
        ends.setdefault(session.expires_s, []).append(session.id)
    owned = {number: sorted(paths) for number, paths in server.tree.ephemerals.items() if paths}
    ahead_s = server.world.clock.wall_ms() / 1000 - server.world.clock.monotonic()
    lines = ["SessionTracker dump:", f"Session Sets ({len(ends)})/({len(server.sessions)}):"]
    for end_s, numbers in sorted(ends.items()):
        at = datetime.fromtimestamp(end_s + ahead_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
        lines += [f"{len(numbers)} expire at {at}:", *_indented(f"{n:#x}" for n in numbers)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owned)}):"]
    for number, paths in owned.items():
        lines += [f"{number:#x}:", *_indented(paths)]
    return "\n".join(lines) + "\n"


def _indented(names: Iterable[str]) -> list[str]:
    return [f"\t{name}" for name in names]


def _data_watches(server: Described) -> list[tuple[str, str]]:
    """Return path and session of each watch on data, which are those that ZooKeeper tells."""
    return [
        (path, f"{c.session.id:#x}")
        for path, watchers in server.watches.data.items()
        for c in watchers
        if c.session is not None
    ]


def _wchs(server: Described) -> str:
    found = _data_watches(server)
    sessions, paths = {s for _, s in found}, {p for p, _ in found}
    return f"{len(sessions)} connections watching {len(paths)} paths\nTotal watches:{len(found)}\n"


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for group, name in pairs:
        groups.setdefault(group, []).append(name)
    lines = [line for group, names in groups.items() for line in (group, *_indented(names))]
    return "\n".join([*lines, "\n"])


def _wchc(server: Described) -> str:
    return _grouped((session, path) for path, session in _data_watches(server))


_WORDS: dict[bytes, Callable[[Described], str]] = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"envi": lambda _: f"Environment:\nzookeeper.version={VERSION}\n",
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"conf": _conf,
    b"dump": _dump,
    b"wchs": _wchs,
    b"wchp": lambda server: _grouped(_data_watches(server)),
    b"wchc": _wchc,
    b"mntr": lambda server: "".join(f"zk_{k}\t{v}\n" for k, v in _figures(server)),
}
