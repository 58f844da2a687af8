"""ZooKeeper's four-letter words: what a server reports to a client that connects and writes one.

Invariants: only words of the list are answered; none changes anything. What ZooKeeper's words would
change (crst, srst, stmk), what is of its JVM or an ensemble alone (gtmk, hash, lsnp), and what
lists every session, znode or watch (dump, wchp, wchc, dirs) is not on the list. Keys come in
ZooKeeper's order; `tests/contracts/test_zookeeper_words.py` has those that are missing, with the
reasons. ZooKeeper: `org.apache.zookeeper.server.command`.
"""

import os
import pwd
import resource
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.model.ports import World
from ottla.zookeeper import jute
from ottla.zookeeper.database import Database
from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.server_authentication import SaslUsers
from ottla.zookeeper.server_connection import Connection, Limits, ServerSession, Totals
from ottla.zookeeper.server_watches import ServerWatches

VERSION = "3.9.0-ottla"
"""What protocol and files are compatible with; clients read the number."""
_FULL_VERSION = f"{VERSION}, built on none"
_CXID = (1 << 32) - 1
_OPERATIONS = {
    jute.CREATE_SESSION: "SESS", jute.CLOSE: "CLOS", jute.PING: "PING", jute.MULTI: "MULT",
    jute.MULTI_READ: "MLTR", jute.CREATE: "CREA", jute.CREATE2: "CREA",
    jute.CREATE_CONTAINER: "CREA", jute.CREATE_TTL: "CREA", jute.DELETE: "DELE",
    jute.DELETE_CONTAINER: "DELE", jute.SET_DATA: "SETD", jute.SET_ACL: "SETA",
    jute.SYNC: "SYNC", jute.CHECK: "CHEC", jute.EXISTS: "EXIS", jute.GET_DATA: "GETD",
    jute.SET_WATCHES: "SETW", jute.SET_WATCHES2: "STW2", jute.ADD_WATCH: "ADDW",
    jute.GET_ACL: "GETA", jute.GET_CHILDREN: "GETC", jute.GET_CHILDREN2: "GETC",
    jute.GET_ALL_CHILDREN_NUMBER: "GACN", jute.CHECK_WATCHES: "CHKW",
    jute.REMOVE_WATCHES: "REMW", jute.GET_EPHEMERALS: "GETE", jute.WHO_AM_I: "HOMI",
}  # fmt: skip
"""What `cons` calls the last operation of a connection."""


OF_ANYBODY = (b"ruok", b"srvr", b"mntr")
"""Words where there are users: the others tell of sessions and name znodes."""
LONG = (b"stat", b"cons", b"wchs")
"""Words that tell of each client or watch."""
MOST_TOLD = 5000
MOST_TOLD_BYTES = 4 << 20


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
    totals: Totals
    started_s: float
    database: Database | None
    limits: Limits | None
    sasl: SaslUsers
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
    answer = WORDS.get(word)
    if answer is None:
        return None
    name = word.decode()
    if server.sasl.passwords and word not in OF_ANYBODY:
        return f"{name} is not executed because it is not in the whitelist.\n"
    if word in LONG and _is_much(server):
        return f"{name} is not executed because there is too much to tell.\n"
    return answer(server)


def _is_much(server: Described) -> bool:
    count = len(server.connections) + len(server.sessions) + server.watches.count
    owned = sum(map(len, server.tree.ephemerals.values()))
    return count + owned > MOST_TOLD or server.watches.bytes > MOST_TOLD_BYTES


def _figures(server: Described) -> list[tuple[str, object]]:
    """Return what `mntr` tells, in ZooKeeper's order."""
    count, total, least, most = server.latency
    nodes, totals, connections = server.tree.nodes, server.totals, server.connections
    open_files, most_files = _descriptors()
    return [
        ("version", _FULL_VERSION),
        ("server_state", "standalone"),
        ("ephemerals_count", sum(map(len, server.tree.ephemerals.values()))),
        ("num_alive_connections", len(connections)),
        ("avg_latency", round(total / count if count else 0.0, 4)),
        ("outstanding_requests", server.statistics()["outstanding"]),
        ("znode_count", len(nodes) + 1),  # ZooKeeper counts the root twice
        ("global_sessions", len(server.sessions)),
        ("last_client_response_size", totals.last_reply),
        ("packets_sent", totals.sent + sum(c.sent for c in connections)),
        ("packets_received", totals.received + sum(c.received for c in connections)),
        ("max_client_response_size", totals.most_reply),
        ("watch_count", server.watches.count),
        ("auth_failed_count", totals.auth_failed),
        ("min_latency", int(least)),
        ("max_file_descriptor_count", most_files),
        ("approximate_data_size", server.tree.data_bytes),
        ("open_file_descriptor_count", open_files),
        ("uptime", int((server.world.clock.monotonic() - server.started_s) * 1000)),
        ("max_latency", int(most)),
        ("min_client_response_size", totals.least_reply),
    ]


def _descriptors() -> tuple[int, int]:
    """Return how many file descriptors this process has, and may have."""
    folder = Path("/dev/fd")
    return sum(1 for _ in folder.iterdir()), resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _srvr(server: Described) -> str:
    f = dict(_figures(server))
    return (
        f"Zookeeper version: {f['version']}\n"
        f"Latency min/avg/max: {f['min_latency']}/{f['avg_latency']}/{f['max_latency']}\n"
        f"Received: {f['packets_received']}\nSent: {f['packets_sent']}\n"
        f"Connections: {f['num_alive_connections']}\nOutstanding: {f['outstanding_requests']}\n"
        f"Zxid: {server.tree.zxid:#x}\nMode: standalone\nNode count: {f['znode_count']}\n"
    )


def _cons(server: Described, *, brief: bool = False) -> str:
    lines = []
    ahead_s = _ahead_s(server)
    for c in server.connections:
        more = ""
        if c.session is not None and not brief:
            op, xid, zxid = c.last
            more = (
                f",sid={c.session.id:#x},lop={_OPERATIONS.get(op, 'NA')}"
                f",est={(c.opened_s + ahead_s) * 1000:.0f},to={c.session.timeout_ms}"
                f",lcxid={xid & _CXID:#x},lzxid={zxid:#x}"
            )
        # ZooKeeper does not read on from who asks, and has no session with it.
        reads = int(c.session is not None)
        lines.append(f" /{c.peer}[{reads}](queued=0,recved={c.received},sent={c.sent}{more})\n")
    return "".join(lines) + "\n"


def _stat(server: Described) -> str:
    first, _, rest = _srvr(server).partition("\n")
    return f"{first}\nClients:\n{_cons(server, brief=True)}{rest}"


def _sizes(server: Described) -> tuple[str, int]:
    """Return the folder of a server's files and their bytes; of one in memory none."""
    if server.database is None:
        return "", 0
    files, folder = server.world.files, server.database.folder
    return folder, sum(files.size(f"{folder}/{name}") for name in files.listdir(folder))


def _conf(server: Described) -> str:
    limits = server.limits
    folder, size = _sizes(server)
    settings = {
        "clientPort": server.port,
        "secureClientPort": -1,
        "dataDir": folder,
        "dataDirSize": size,
        "dataLogDir": folder,
        "dataLogSize": size,
        "tickTime": server.tick_ms,
        "maxClientCnxns": 0 if limits is None else limits.connections,
        "minSessionTimeout": server.min_session_timeout_ms,
        "maxSessionTimeout": server.max_session_timeout_ms,
        "clientPortListenBacklog": -1,
        "serverId": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _user() -> str:
    """Return this process's user; in a container it may have a number only."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


def _envi(_: Described) -> str:
    system = os.uname()
    facts = {
        "zookeeper.version": _FULL_VERSION,
        "host.name": system.nodename,
        "os.name": system.sysname,
        "os.arch": system.machine,
        "os.version": system.release,
        "user.name": _user(),
        "user.home": Path("~").expanduser(),
        "user.dir": _folder(),
    }
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in facts.items())


def _ahead_s(server: Described) -> float:
    """Return what the clock of the wall is ahead of the one that tells of timeouts."""
    return server.world.clock.wall_ms() / 1000 - server.world.clock.monotonic()


def _wchs(server: Described) -> str:
    """Return how many watches on data there are: those are what ZooKeeper counts here."""
    watchers = [[c for c in some if c.session is not None] for some in server.watches.data.values()]
    watched = [some for some in watchers if some]
    connections, total = set().union(*watched), sum(map(len, watched))
    return f"{len(connections)} connections watching {len(watched)} paths\nTotal watches:{total}\n"


WORDS: dict[bytes, Callable[[Described], str]] = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"envi": _envi,
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"conf": _conf,
    b"wchs": _wchs,
    b"mntr": lambda server: "".join(f"zk_{k}\t{v}\n" for k, v in _figures(server)),
}
