"""The command line proof: what goes wrong around a command, one thing at a time, on real clusters.

Hostile names, folders of others and copies, a full disk, closed and full streams, servers that are
no brokers, addresses of other hosts, a dead ZooKeeper, ports below 1024, files that cannot be read,
Ctrl-C at any early moment, names that are not there, words that are wrong.

For each thing that is done it prints the exit code, the line that was said, and what does not hold:
one line on standard error, no traceback, the exit code, the thing named, the way out named, and
nothing changed. What changed is not asked of Ottla: files are hashed, znodes are read by kazoo,
topics, leaders, offsets and groups by librdkafka, processes by /proc.

    python tests/proofs/command_line_proof.py [--only streams names] [--tries 80] [--brief]
Exit status 0 only if all holds. As root it also tries what takes another user or a namespace.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from support import kafka_tools
from support.clients import admin_client, named
from support.cluster import free_ports, free_row
from support.kafka39 import Kafka39Cluster
from support.waiting import until

OTTLA = [sys.executable, "-m", "ottla"]
NOBODY = 65534
TOPIC, GROUP = "orders", "audit"
EVIL = "[/evil]\x1b[31mred"
SETTINGS = (
    "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1",
    "offsets.retention.check.interval.ms=86400000",  # groups stay as they are while it looks
    "offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1",
    "group.initial.rebalance.delay.ms=0",
)  # fmt: skip
WITHIN_S, LONGEST_S = 20.0, 45.0
"""So long a command may take to say what is wrong: at most, or while it says what it waits for."""
WAITING = "waiting: "
SHOWN = 150


class MissingError(Exception):
    """This machine lacks what a part needs."""


@dataclass
class Row:
    """One thing that was done."""

    part: str
    what: str
    code: int
    line: str
    wrong: list[str] = field(default_factory=list)


@dataclass
class Proof:
    """The rows so far. `unchanged` is asked before and after each thing."""

    tries: int
    brief: bool
    part: str = ""
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, what: str, code: int, line: str, wrong: list[str]) -> None:
        self.rows.append(Row(self.part, what, code, line, wrong))
        row = self.rows[-1]
        print(f"| {row.part} | {_cell(what)} | {code} | {_cell(line)} | "
              f"{_cell('; '.join(wrong)) or 'holds'} |", flush=True)  # fmt: skip

    def refused(
        self,
        what: str,
        command: Sequence[str],
        code: int,
        *words: str,
        state: "Callable[[], object] | None" = None,
        lines: int = 1,
        **how: Any,
    ) -> str:
        """Do it; check the code, one line that has all words, and that nothing is changed."""
        before = state() if state else None
        done, seconds = run(command, **how)
        wrong = judged(done, code, words, lines)
        if seconds > (LONGEST_S if WAITING in done.stderr else WITHIN_S):
            wrong.append(f"it took {seconds:.0f} s")
        after = state() if state else None
        if before != after:
            wrong.append(f"changed: {difference(before, after)}")
        said = last_line(done.stderr)
        self.add(what, done.returncode, said, wrong)
        return said


def _cell(text: str) -> str:
    shown = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return shown.replace("|", "\\|").replace("\n", " ")


def run(
    command: Sequence[str],
    *,
    stdin: Any = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 90,
    **more: Any,
) -> tuple["subprocess.CompletedProcess[str]", float]:
    """Run a command as a person's shell does: with Python's own buffers."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    began = time.monotonic()
    done = subprocess.run(
        list(command), stdin=stdin, capture_output=True, text=True, errors="replace",
        timeout=timeout_s, check=False, env={**env, **(environment or {})}, **more,
    )  # fmt: skip
    return done, time.monotonic() - began


def ottla(*arguments: object) -> list[str]:
    return [*OTTLA, *map(str, arguments)]


def shell(line: str) -> list[str]:
    """Return what runs `ottla` with the redirections of a shell."""
    return ["bash", "-c", f"{' '.join(OTTLA)} {line}"]


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def judged(
    done: "subprocess.CompletedProcess[str]", code: int, words: Sequence[str], lines: int | None
) -> list[str]:
    """Return what is not as it is to be."""
    wrong = []
    if done.returncode != code:
        wrong.append(f"exit code {done.returncode}, not {code}")
    if "Traceback" in done.stderr or "Exception ignored" in done.stderr:
        wrong.append("a traceback")
    told = [line for line in done.stderr.splitlines() if not line.startswith(WAITING)]
    if lines is not None and len(told) != lines:
        wrong.append(f"{len(told)} lines, not {lines}")
    if "\x1b" in done.stderr + done.stdout:
        wrong.append("an escape sequence reached the output")
    said = last_line(done.stderr)
    wrong += [f"{word!r} is not said" for word in words if word not in said]
    return wrong


def difference(before: object, after: object) -> str:
    """Return what is different in two states."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{before} -> {after}"
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    return ", ".join(f"{k}: {before.get(k)} -> {after.get(k)}" for k in keys[:3])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def files(folder: Path) -> dict[str, object]:
    """Return a hash of each file of a folder, and its mode and owner."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        stat = path.lstat()
        content = digest(path) if path.is_file() else "-"
        found[name] = (content, oct(stat.st_mode), stat.st_uid)
    return found


def processes_of(folder: Path) -> list[int]:
    """Return the processes that name a folder in their command line, by /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            about = any(os.fsencode(folder) in w for w in words)
            if about and (b"ottla" in b" ".join(words[:4]) or b"java" in words[0]):
                found.append(int(entry.name))
    return sorted(found)


class Watched:
    """A running cluster, seen without Ottla: by kazoo, librdkafka, /proc and the files."""

    def __init__(self, bootstrap: str, zookeeper: str, folder: Path | None) -> None:
        self.bootstrap, self.zookeeper, self.folder = bootstrap, zookeeper, folder
        self._admin = admin_client(bootstrap)
        self._consumer = Consumer(named(bootstrap, {"group_id": "watcher"}))
        self._zookeeper = KazooClient(zookeeper)
        self._zookeeper.start(15)

    def close(self) -> None:
        self._consumer.close()
        self._zookeeper.stop()
        self._zookeeper.close()

    def state(self) -> dict[str, object]:
        """Return all that a command may change."""
        found: dict[str, object] = {}
        self._znodes("/", found)
        metadata = self._admin.list_topics(timeout=15)
        for topic in metadata.topics.values():
            for p in topic.partitions.values():
                tp = TopicPartition(topic.topic, p.id)
                ends = self._consumer.get_watermark_offsets(tp, timeout=15)
                facts = (p.leader, p.replicas, p.isrs, ends)
                found[f"topic {topic.topic}-{p.id}"] = facts
        groups = self._admin.list_consumer_groups(request_timeout=15).result().valid
        found["groups"] = sorted((g.group_id, str(g.state)) for g in groups)
        if self.folder is not None:
            found["processes"] = processes_of(self.folder)
            for name in ("cluster.json", "broker-0/server.properties"):
                found[name] = digest(self.folder / name)
        return found

    def _znodes(self, path: str, found: dict[str, object]) -> None:
        with contextlib.suppress(NoNodeError):
            data, stat = self._zookeeper.get(path)
            found[f"znode {path}"] = (data, stat.version)
            for name in self._zookeeper.get_children(path):
                self._znodes(f"{path.rstrip('/')}/{name}", found)


@contextlib.contextmanager
def cluster(folder: Path, *arguments: object) -> Iterator[Watched]:
    """Run a cluster of `ottla up` with one broker, a topic and a group."""
    port = free_row(2)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    up, _ = run(ottla("up", "-n", 1, "--dir", folder, "--port-base", port, *sets, *arguments))
    assert up.returncode == 0, up.stderr
    told = dict(line.split("=", 1) for line in up.stderr.splitlines() if "=" in line)
    try:
        watched = Watched(told["bootstrap.servers"], told["zookeeper.connect"], folder)
        try:
            filled(watched)
            yield watched
        finally:
            watched.close()
    finally:
        run(ottla("down", "--dir", folder))
        left = processes_of(folder)
        assert not left, f"{left} still run"


def filled(watched: Watched) -> None:
    """Make a topic of three partitions with records, and a group without members."""
    at = ("-b", watched.bootstrap)
    for command, text in (
        (("topics", "create", TOPIC, "--partitions", 3), None),
        (("produce", TOPIC), "a\nb\nc\n"),
        (("consume", TOPIC, "--group", GROUP, "--from-beginning", "--max-messages", 3), None),
    ):
        done = subprocess.run(
            ottla(*command, *at),
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    # Internal topics are made when a client first asks for their coordinator.
    run(ottla("txn", "describe", "nobody", *at))
    time.sleep(1)


# -- parts ----------------------------------------------------------------------------------------


def words(proof: Proof, here: Watched) -> None:
    """What is typed wrong: exit code 2, nobody is asked."""
    at = ("-b", here.bootstrap)
    folder = ("--dir", here.folder)
    for command, *said in (
        (("topic", "list"), "topic", "did you mean topics?"),
        (("topics", "lst"), "lst", "did you mean list?"),
        (("topics", "list", "--ouput", "json"), "--ouput", "did you mean --output?"),
        (("topics", "list", "--output", "xml"), "'xml' is not one of", "json"),
        (("topics", "create", *at), "Missing argument 'NAME'"),
        (("topics", "create", "x", "y", *at), "unexpected extra argument (y)"),
        (("topics", "create", "x", "--partitions", "0", *at), "--partitions 0", "1 or more"),
        (("topics", "create", "x", "--partitions", "many", *at), "'many' is not a valid integer"),
        (("topics", "create", "x", "--config", "foo", *at), "--config foo", "KEY=VALUE"),
        (("topics", "create", "x", "--assignment", "zz", *at), "zz", "as 0:1,1:2"),
        (("topics", "alter", TOPIC, *at), "nothing to change", "--partitions"),
        (("topics", "describe", *at), "name a topic", "--under-replicated"),
        (("topics", "delete", TOPIC, *at), TOPIC, "--yes"),
        (("topics", "delete-records", TOPIC, "--before", "end", *at), "gone", "--yes"),
        (("topics", "offsets", TOPIC, "--at", "noon", *at), "--at noon", "write"),
        (("configs", "describe", *at), "say whose settings", "--topic"),
        (("configs", "alter", "--topic", TOPIC, *at), "nothing to change", "--set"),
        (("configs", "alter", "--topic", TOPIC, "--set", "foo", *at), "foo", "KEY=VALUE"),
        (("groups", "reset-offsets", GROUP, *at), "choose one of", "--to"),
        (("groups", "reset-offsets", GROUP, "--to", "noon", *at), "noon", "earliest"),
        (("groups", "delete", GROUP, *at), GROUP, "--yes"),
        (("txn", "abort", TOPIC, "0", "--start-offset", "0", *at), "lost", "--yes"),
        (("elect", "better", "--all", *at), "better", "preferred or unclean"),
        (("consume", *at), "name a topic"),
        (("consume", TOPIC, "--max-messages", "0", *at), "--max-messages", "the range x>=1"),
        (("consume", TOPIC, "--timeout-ms", "-1", *at), "--timeout-ms", "the range x>=1"),
        (("consume", TOPIC, "--from", "noon", *at), "--from noon", "beginning"),
        (("consume", TOPIC, "--format", "%q", *at), "%q", "%k %v"),
        (("consume", "[", "--regex", *at), "[", "unterminated"),
        (("produce", TOPIC, "--compression", "best", *at), "best", "zstd"),
        (("produce", TOPIC, "--key-separator", "", *at), "--key-separator", "write one"),
        (("produce", TOPIC, "--partition", "x", *at), "'x' is not a valid integer"),
        (("up", "-n", "0", *folder), "-n", "0 is not in the range 1<=x<=50"),
        (("up", "-n", "x", *folder), "-n", "'x' is not a valid integer"),
        (("up", "--set", "foo", *folder), "foo", "key=value"),
        (("up", "--set", "nosuch=1", *folder), "nosuch", "no broker setting"),
        (("up", "--set", "num.partition=3", *folder), "did you mean num.partitions?"),
        (("up", "--set", "broker.id=9", *folder), "broker.id", "`ottla up` chooses"),
        (("schema", "topics", "lst"), "topics lst", "prints no JSON"),
        (("completion", "tcsh"), "'tcsh' is not one of", "fish"),
        (("profile", "set", "a/b", "-b", "x:1"), "a/b", "letters"),
        (("why", TOPIC, *folder), TOPIC, "such as"),
    ):  # fmt: skip
        proof.refused(" ".join(map(str, _plain(command))), ottla(*command), 2, *said,
                      state=here.state)  # fmt: skip


def _plain(command: Sequence[object]) -> list[object]:
    """Return a command without where its cluster is."""
    found = list(command)
    for name in ("-b", "--dir"):
        if name in found and found.index(name) == len(found) - 2:
            found = found[:-2]
    return found


def names(proof: Proof, here: Watched) -> None:
    """What is not there: exit code 1, the way to those that are."""
    at = ("-b", here.bootstrap)
    folder = ("--dir", here.folder)
    listed = "`ottla topics list`"
    cases: list[tuple[Any, ...]] = [
        (("topics", "describe", "nope", *at), "topic nope", listed),
        (("topics", "alter", "nope", "--partitions", 9, *at), "topic nope", listed),
        (("topics", "delete", "nope", "--yes", *at), "topic nope", listed),
        (("topics", "delete", TOPIC, "nope", "--yes", *at), "topic nope", "nothing was deleted"),
        (("topics", "delete-records", "nope", "--before", "end", "--yes", *at), "nope", listed),
        (("topics", "offsets", "nope", *at), "topic nope", listed),
        (("topics", "offsets", f"{TOPIC}:7", *at), "no partition 7", "it has 3"),
        (("topics", "offsets", "--regex", "no.*", *at), "no topic has a name like no.*"),
        (("topics", "create", TOPIC, *at), TOPIC, "already exists", "--if-not-exists"),
        (("topics", "create", "a/b", *at), "a/b", "alphanumerics"),
        (("topics", "create", "x", "--replication-factor", 9, *at), "9", "available brokers: 1"),
        (("topics", "create", "x", "--assignment", "0:9", *at), "broker 9", "alive are 0"),
        (("topics", "create", "x", "--config", "nosuch=1", *at), "nosuch"),
        (("topics", "create", "x", "--config", "retention.ms=abc", *at), "retention.ms", "abc"),
        (("topics", "alter", TOPIC, "--partitions", 1, *at), TOPIC, "3 partitions"),
        (("topics", "alter", TOPIC, "--config", "nosuch=1", *at), "nosuch"),
        (("configs", "describe", "--topic", "nope", *at), "topic nope", listed),
        (("configs", "alter", "--topic", "nope", "--set", "retention.ms=5", *at), "nope", listed),
        (("configs", "describe", "--broker", 77, *at), "broker 77", "alive are 0"),
        (("configs", "alter", "--broker", 77, "--set", "a=1", *at), "broker 77", "alive are 0"),
        (("configs", "alter", "--topic", TOPIC, "--set", "nosuch=1", *at), "nosuch"),
        (("configs", "alter", "--client-id", "c", "--set", "nosuch=1", *at), "nosuch", "are "),
        (("groups", "describe", "nope", *at), "group nope", "`ottla groups list`"),
        (("groups", "lag", "nope", *at), "group nope", "`ottla groups list`"),
        (("groups", "watch", "nope", "--count", 1, *at), "group nope", "`ottla groups list`"),
        (("groups", "delete", "nope", "--yes", *at), "group nope", "`ottla groups list`"),
        (("groups", "delete-offsets", "nope", "-t", TOPIC, "--yes", *at), "nope", "groups list"),
        (("groups", "reset-offsets", "nope", "--to", "earliest", *at), "group nope", "--topic"),
        (("txn", "describe", "nope", *at), "nope", "`ottla txn list`"),
        (("txn", "producers", "nope", 0, *at), "topic nope", listed),
        (("txn", "producers", TOPIC, 9, *at), "no partition 9", "it has 3"),
        (("txn", "abort", TOPIC, 0, "--start-offset", 0, "--yes", *at), TOPIC, "txn producers"),
        (("reassign", "plan", "--topics", "nope", *at), "topic nope", listed),
        (("broker", "drain", 9, *at), "broker 9", "alive are 0"),
        (("log-dirs", "nope", *at), "topic nope", listed),
        (("consume", "nope", *at), "topic nope", listed),
        (("consume", TOPIC, "--partition", 9, *at), "partition 9", "0 to 2"),
        (("produce", "nope", *at), "topic nope", listed),
        (("produce", TOPIC, "--partition", 9, *at), "partition 9", "0 to 2"),
        (("produce", TOPIC, "--file", "/nosuch", *at), "/nosuch", "No such file"),
        (("cluster", "diff", "/nosuch", *at), "/nosuch", "No such file"),
        (("cluster", "apply", "/etc/hostname", *at), "/etc/hostname", "`ottla cluster snapshot`"),
        (("reassign", "execute", "--file", "/etc/hostname", *at), "/etc/hostname", "the format is"),
        (("reassign", "execute", "--file", "/tmp", *at), "/tmp", "name a file"),
        (("topics", "list", "--command-config", "/nosuch", *at), "/nosuch", "is the name right?"),
        (("topics", "list", "--profile", "nope"), "profile nope", "there are"),
        (("znode", "get", "/nope", "--zookeeper", here.zookeeper), "/nope", "`ottla znode ls`"),
        (("znode", "ls", "/nope", "--zookeeper", here.zookeeper), "/nope", "`ottla znode ls`"),
        (("dump-log", "/nosuch"), "/nosuch", "No such file"),
        (("dump-log", "/etc/hostname"), "/etc/hostname", "their names are"),
    ]
    if here.folder is not None:
        cases += [
            (("broker", "stop", 9, *folder), "broker 9", "there are 0"),
            (("broker", "remove", 9, "--yes", *folder), "broker 9", "there are 0"),
            (("why", "nope-0", *folder), "nope-0", "the topics are"),
            (("why", f"{TOPIC}-0", "/nosuch"), "/nosuch", "no such file"),
            (("up", "-n", 51, *folder), "51", "1<=x<=50"),
        ]
    for command, *said in cases:
        code = 2 if "51" in map(str, command) else 1
        proof.refused(" ".join(map(str, _plain(command))), ottla(*command), code, *said,
                      state=here.state)  # fmt: skip
    proof.refused(f"elect preferred nope-0 {TOPIC}-7", ottla("elect", "preferred", "nope-0", *at),
                  1, "nope-0", "does not exist", state=here.state)  # fmt: skip


def hostile(proof: Proof, here: Watched) -> None:
    """Names of others are data: never markup, never a command to the terminal."""
    at = ("-b", here.bootstrap)
    consumer = Consumer(named(here.bootstrap, {"group_id": "[bold]hi", "client_id": EVIL}))
    try:
        consumer.subscribe([TOPIC])
        until(lambda: consumer.poll(0.2) is None and consumer.assignment(), 60, "it is assigned")
        for command, name in (
            (("groups", "list"), "[bold]hi"),
            (("groups", "describe", "[bold]hi"), r"[/evil]\x1b[31mred"),
            (("groups", "lag", "[bold]hi"), r"[/evil]\x1b[31mred"),
        ):
            for terminal in (False, True):
                words_ = ottla(*command, *at)
                if terminal:
                    words_ = ["script", "-qec", " ".join(f"'{w}'" for w in words_), "/dev/null"]
                done, _ = run(words_, environment={"COLUMNS": "300", "NO_COLOR": "1"})
                wrong = [] if done.returncode == 0 else [f"exit code {done.returncode}"]
                if name not in done.stdout:
                    wrong.append(f"{name} is not shown")
                if "\x1b" in done.stdout + done.stderr:
                    wrong.append("an escape sequence reached the output")
                what = " ".join(command) + (" at a terminal" if terminal else "")
                proof.add(f"{what}, client.id {EVIL!r}", done.returncode,
                          last_line(done.stdout), wrong)  # fmt: skip
        done, _ = run(ottla("groups", "delete", "[bold]hi", "--yes", *at))
        wrong = judged(done, 1, ("[bold]hi", "stop them first"), 1)
        proof.add("groups delete [bold]hi while it has a member", done.returncode,
                  last_line(done.stderr), wrong)  # fmt: skip
    finally:
        consumer.close()
    user = "[/u]\x1b[2J"
    done, _ = run(ottla("configs", "alter", "--user", user, "--set", "producer_byte_rate=1e6", *at))
    state = here.state()
    kept = [k for k in state if k.startswith("znode /config/users/") and "evil" not in k]
    wrong = judged(done, 0, (r"[/u]\x1b[2J",), 1)
    if not kept:
        wrong.append("kazoo finds no quota")
    proof.add(f"configs alter --user {user!r}", done.returncode, last_line(done.stderr), wrong)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve one answer to whatever is said, and close the connection; yield the address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(65536)
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def servers(proof: Proof, here: Watched) -> None:
    """Servers that are no brokers, or none at all."""

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        proof.refused("a port that is silent", ottla("topics", "list", "-b", address), 1, address,
                      "did not respond", "is it a Kafka broker", state=here.state)  # fmt: skip
        proof.refused("produce to it", ottla("produce", TOPIC, "-b", address), 1, address,
                      "did not respond", state=here.state)  # fmt: skip
    with answering(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as address:
        proof.refused("a port that speaks HTTP", ottla("status", "-b", address), 1, address,
                      "not a Kafka listener", "HTTP", state=here.state)  # fmt: skip
    with answering(b"\x15\x03\x03\x00\x02\x02\x46") as address:
        proof.refused("a port that speaks TLS", ottla("status", "-b", address), 1, address,
                      "not a Kafka listener", "TLS", state=here.state)  # fmt: skip
    with answering(os.urandom(64)) as address:
        proof.refused("a port that says anything", ottla("status", "-b", address), 1, address,
                      state=here.state)  # fmt: skip
    (free,) = free_ports(1)
    right = "is --bootstrap-server right?"
    for what, address, *said in (
        ("ZooKeeper's port", here.zookeeper, here.zookeeper, "not a Kafka listener", right),
        ("a port where nobody is", f"127.0.0.1:{free}", "Connection refused", right),
        ("the same, IPv6", f"[::1]:{free}", f"[::1]:{free}", right),
        ("a host that is not known", "nosuch.invalid:9092", "nosuch.invalid", right),
        ("no port", "localhost", "'localhost'", "host:port"),
        ("a port that is none", "localhost:99999", "'localhost:99999'", "host:port"),
        ("an empty address", "", "--bootstrap-server", "host:port"),
    ):
        proof.refused(what, ottla("topics", "list", "-b", address), 1, *said, state=here.state)
    # One that does not respond beside one that does: it does not matter.
    done, _ = run(ottla("topics", "list", "-b", f"127.0.0.1:{free},{here.bootstrap}"))
    proof.add("a broker that is down beside one that is up", done.returncode,
              last_line(done.stdout), judged(done, 0, (), 0))  # fmt: skip


def streams(proof: Proof, here: Watched) -> None:
    """Streams that are closed, full, or not what they should be."""
    at = f"-b {here.bootstrap}"
    for command in (f"topics list {at}", f"produce {TOPIC} {at}",
                    f"consume {TOPIC} --from-beginning --until end {at}"):  # fmt: skip
        for closed in ("<&-", ">&-", "<&- >&- 2>&-", "2>/dev/full"):
            before = here.state()
            done, _ = run(shell(f"{command} {closed}"))
            wrong = [] if done.returncode == 0 else [f"exit code {done.returncode}"]
            for sign in ("Traceback", "Assertion", "Exception ignored", "Fatal"):
                wrong += [sign] if sign in done.stderr else []
            wrong += ["changed"] if here.state() != before else []
            proof.add(f"{command.replace(at, '')} {closed}", done.returncode,
                      last_line(done.stderr), wrong)  # fmt: skip
    for command in ("--help", f"topics list {at}", f"topics list --output json {at}",
                    f"consume {TOPIC} --from-beginning --until end {at}"):  # fmt: skip
        proof.refused(f"{command.replace(at, '')} > /dev/full", shell(f"{command} >/dev/full"), 1,
                      "standard output", "No space left", "free some space",
                      state=here.state)  # fmt: skip
        done, _ = run(shell(f"{command} | head -c 0; exit ${{PIPESTATUS[0]}}"))
        quiet = 1 if command.startswith("consume") else 0
        wrong = judged(done, 0, (), min(quiet, done.stderr.count("\n")))
        proof.add(f"{command.replace(at, '')} | head -c 0", done.returncode,
                  last_line(done.stderr), wrong)  # fmt: skip
    # Python itself ends where standard input is a folder, before a line of Ottla runs.
    before = here.state()
    done, _ = run(shell(f"produce {TOPIC} {at} </tmp"))
    wrong = [] if done.returncode == 1 else [f"exit code {done.returncode}"]
    wrong += [] if "is a directory" in done.stderr else ["the reason is not said"]
    wrong += ["Ottla ran"] if "ottla/" in done.stderr else []
    wrong += ["changed"] if here.state() != before else []
    proof.add(f"produce {TOPIC} < /tmp", done.returncode, done.stderr.split("\n")[0], wrong)


def as_nobody() -> list[str]:
    """Return what runs a command as another user; MissingError where that cannot be."""
    if os.geteuid() != 0:
        raise MissingError("another user: only root can be one")
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if shutil.which("setpriv") is None:
        raise MissingError("setpriv")
    done, _ = run([*command, *ottla("--version")], cwd="/")
    if done.returncode != 0:
        raise MissingError(f"another user cannot run Python here: {last_line(done.stderr)}")
    return command


def others(proof: Proof, here: Watched) -> None:
    """Files and folders of another user, and damaged ones."""
    assert here.folder is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, text, *said in (
            ("a cluster.json that is cut off", "{", "is damaged", "remove it"),
            ("a cluster.json of something else", '{"a": 1}', "is damaged", "remove it"),
        ):
            (folder / "cluster.json").write_text(text)
            for command in ("status", "up", "down"):
                proof.refused(f"{command}: {what}", ottla(command, "--dir", folder), 1,
                              str(folder / "cluster.json"), *said,
                              state=lambda: files_but_lock(folder))  # fmt: skip
        (folder / "file").write_text("")
        for command in ("status", "up", "down"):
            proof.refused(f"{command} --dir of a file", ottla(command, "--dir", folder / "file"),
                          1, str(folder / "file"), "--dir",
                          state=lambda: files_but_lock(folder))  # fmt: skip
        bad = folder / "client.properties"
        bad.write_text("security.protocol=SSL\n")
        for command in ("topics list", "status"):
            proof.refused(f"{command} with client settings that ask for TLS",
                          ottla(*command.split(), "-b", here.bootstrap, "--command-config", bad),
                          1, "no TLS", "--bootstrap-server", state=here.state)  # fmt: skip
        bad.write_text("request.timeout.ms=soon\n")
        proof.refused("client settings with a time that is none",
                      ottla("topics", "list", "-b", here.bootstrap, "--command-config", bad),
                      1, str(bad), "soon", "write milliseconds", state=here.state)  # fmt: skip
        (folder / "profiles").write_text("= x")
        proof.refused("a file of profiles that is none", ottla("topics", "list"), 1,
                      str(folder / "profiles"),
                      environment={"OTTLA_CONFIG": str(folder / "profiles")},
                      cwd=folder, state=here.state)  # fmt: skip
    nobody = as_nobody()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.json").write_bytes((here.folder / "cluster.json").read_bytes())
        (folder / "cluster.json").chmod(0o600)
        folder.chmod(0o755)
        for command in ("status", "down", "topics list"):
            proof.refused(f"{command}: a cluster.json of root", [*nobody, *ottla(
                *command.split(), "--dir", folder)], 1, "cluster.json", "Permission denied",
                "belongs to root", "use the account", state=lambda: files(folder),
                cwd="/")  # fmt: skip
        proof.refused("up in a folder of root", [*nobody, *ottla("up", "--dir", folder)], 1,
                      str(folder), "belongs to root", "use the account",
                      state=lambda: files(folder), cwd="/")  # fmt: skip
        proof.refused("up --dir below a folder of root",
                      [*nobody, *ottla("up", "--dir", folder / "mine")], 1, str(folder / "mine"),
                      "Permission denied", "--dir", state=lambda: files(folder),
                      cwd="/")  # fmt: skip
    least = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        if least > 80:
            command = [*nobody, *ottla("up", "-n", 1, "--port-base", 80, "--dir", folder / "d")]
            proof.refused("up --port-base 80 as another user than root", command, 1, "port 80",
                          "root only", "--port-base", cwd="/", state=lambda: files_of_root(folder),
                          )  # fmt: skip
        busy = int(here.bootstrap.rpartition(":")[2])
        proof.refused("up on a port that is taken",
                      ottla("up", "-n", 1, "--port-base", busy, "--dir", folder / "e"), 1,
                      f"port {busy}", "in use", "--port-base", state=here.state)  # fmt: skip


def files_but_lock(folder: Path) -> dict[str, object]:
    """Return a folder's files without the lock, which any command that changes things makes."""
    return {name: of for name, of in files(folder).items() if not name.endswith(".lock")}


def files_of_root(folder: Path) -> list[str]:
    """Return files that a cluster would have, were it started."""
    return [name for name in files(folder) if name.endswith(("server.log", "cluster.json"))]


def folders(proof: Proof, here: Watched) -> None:
    """Two clusters on one ZooKeeper; a folder that is a copy."""
    assert here.folder is not None
    with tempfile.TemporaryDirectory() as name:
        other = Path(name) / "other"
        port = free_row(2)
        command = ottla("up", "-n", 1, "--dir", other, "--zookeeper", here.zookeeper,
                        "--port-base", port)  # fmt: skip
        before = here.state()
        done, _ = run(command, timeout_s=150)
        wrong = judged(done, 1, ("broker id 0 is registered", "another"), None)
        wrong += [f"changed: {difference(before, here.state())}"] if before != here.state() else []
        wrong += ["it left processes"] if processes_of(other) else []
        proof.add("up of a second folder on the same ZooKeeper", done.returncode,
                  last_line(done.stderr), wrong)  # fmt: skip
        copy = Path(name) / "copy"
        shutil.copytree(here.folder, copy, ignore=shutil.ignore_patterns("*.sock"))
        for command_ in ("down", "status", "up", "topics list", "broker stop 0", "broker kill 0"):
            proof.refused(f"{command_} in a copied folder", ottla(*command_.split(), "--dir", copy),
                          1, "is a copy of", str(here.folder), "--adopt",
                          state=here.state)  # fmt: skip


def disk(proof: Proof, _here: Watched) -> None:
    """A disk that is full: `down` stops what runs, `up` says where and why."""
    if os.geteuid() != 0:
        raise MissingError("tmpfs: only root can mount it")
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "small", Path(name)
        folder.mkdir()
        port = free_row(2)
        script = f"""
            mount -t tmpfs -o size=12m tmpfs {folder} || exit 99
            ottla() {{ {" ".join(OTTLA)} "$@" --dir {folder}/data; }}
            ottla up -n 1 --port-base {port} >{out}/first 2>&1 || exit 98
            head -c 20000000 /dev/zero >{folder}/filler 2>/dev/null
            ottla status >{out}/status-out 2>{out}/status; echo $? >{out}/codes
            ottla down 2>{out}/down; echo $? >>{out}/codes
            head -c 20000000 /dev/zero >{folder}/filler2 2>/dev/null
            ottla up -n 1 2>{out}/up; echo $? >>{out}/codes
            ottla status >{out}/status2-out 2>{out}/status2; echo $? >>{out}/codes
            rm {folder}/filler*
            ottla up 2>{out}/again; echo $? >>{out}/codes
            ottla down 2>{out}/end; echo $? >>{out}/codes
        """
        done, _ = run(["unshare", "-m", "bash", "-c", script], timeout_s=300)
        if done.returncode == 99:
            raise MissingError(f"tmpfs: {last_line(done.stderr)}")
        assert done.returncode != 98, (out / "first").read_text()
        codes = dict(zip(("status", "down", "up", "status2", "again", "end"),
                         map(int, (out / "codes").read_text().split()), strict=True))  # fmt: skip

        def told(step: str, what: str, expected: tuple[int, ...], *words_: str) -> None:
            text = (out / step).read_text()
            wrong = [] if codes[step] in expected else [f"exit code {codes[step]}"]
            wrong += ["a traceback"] if "Traceback" in text else []
            if codes[step]:
                said = last_line(text) or last_line((out / f"{step}-out").read_text())
                wrong += [f"{w!r} is not said" for w in words_ if w not in said]
            proof.add(what, codes[step], last_line(text), wrong)

        told("status", "status on a full disk", (0, 1))
        told("down", "down on a full disk", (0, 1), "everything is stopped", "cluster.json",
             "free some space")  # fmt: skip
        told("up", "up on a full disk", (1,), "bytes free on", "free some space")
        told("status2", "status after that", (1,))
        told("again", "up when there is space again", (0,))
        told("end", "down after that", (0,))
        left = processes_of(folder)
        if left:
            proof.rows[-1].wrong.append(f"{left} still run")


def addresses(proof: Proof, _here: Watched) -> None:
    """Brokers that listen for other hosts: right, without an advertised name, with a wrong one."""
    if os.geteuid() != 0:
        raise MissingError("namespaces: only root can make them")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        script = f"""
            ip link set lo up && ip address add 10.99.0.1/24 dev lo || exit 99
            ottla() {{ {" ".join(OTTLA)} "$@"; }}
            ottla up -n 1 --dir {out}/a --listen 0.0.0.0 2>{out}/none; echo $? >{out}/codes
            ottla up -n 1 --dir {out}/a --listen 10.1.2.3 2>{out}/elsewhere; echo $? >>{out}/codes
            time ottla up -n 1 --dir {out}/a --listen 127.0.0.1 --advertise 10.99.7.7 \
                2>{out}/wrong; echo $? >>{out}/codes
            ottla up -n 1 --dir {out}/a --listen 0.0.0.0 --advertise 10.99.0.1 2>{out}/right
            echo $? >>{out}/codes
            ottla topics create t -b 10.99.0.1:9092 2>{out}/used; echo $? >>{out}/codes
            ottla down --dir {out}/a
        """
        done, _ = run(["unshare", "-n", "bash", "-c", script], timeout_s=300)
        if done.returncode == 99:
            raise MissingError(f"a network namespace: {last_line(done.stderr)}")
        codes = (out / "codes").read_text().split()
        for (step, what, expected, *words_), code in zip(
            (
                ("none", "up --listen 0.0.0.0 alone", 1, "--advertise"),
                ("elsewhere", "up --listen of an address this machine lacks", 1, "10.1.2.3",
                 "--listen"),
                ("wrong", "up --advertise of an address nobody has", 1, "10.99.7.7"),
                ("right", "up --listen 0.0.0.0 --advertise 10.99.0.1", 0),
                ("used", "a topic, asked for by that address", 0, "topic t created"),
            ),
            codes,
            strict=True,
        ):  # fmt: skip
            text = (out / step).read_text()
            wrong = [] if int(code) == expected else [f"exit code {code}, not {expected}"]
            wrong += ["a traceback"] if "Traceback" in text else []
            wrong += [f"{w!r} is not said" for w in words_ if w not in last_line(text)]
            proof.add(what, int(code), last_line(text), wrong)


def zookeeper(proof: Proof, _here: Watched) -> None:
    """A ZooKeeper that is dead: whoever asks for a change is told so."""
    with tempfile.TemporaryDirectory() as name, cluster(Path(name) / "data") as watched:
        folder = Path(name) / "data"
        known = json.loads((folder / "cluster.json").read_text())
        os.kill(known["zookeeper"]["process"]["pid"], signal.SIGKILL)

        def partitions() -> dict[str, object]:
            topics = watched._admin.list_topics(timeout=15).topics.values()
            return {t.topic: sorted(t.partitions) for t in topics}

        down = ("ZooKeeper at", watched.zookeeper, "is down", "`ottla up`")
        for command in (
            ("topics", "create", "late"),
            ("topics", "delete", TOPIC, "--yes"),
            ("configs", "alter", "--topic", TOPIC, "--set", "retention.ms=5"),
        ):
            proof.refused(f"{' '.join(command)}: ZooKeeper is dead",
                          ottla(*command, "--dir", folder), 1, *down, state=partitions,
                          timeout_s=150)  # fmt: skip
        for command in (("status",), ("znode", "ls", "/")):
            done, _ = run(ottla(*command, "--dir", folder))
            said = last_line(done.stderr) or done.stdout
            wrong = [] if done.returncode == 1 else [f"exit code {done.returncode}"]
            wrong += ["ZooKeeper is not named"] if watched.zookeeper not in said else []
            wrong += ["a traceback"] if "Traceback" in done.stderr else []
            proof.add(f"{' '.join(command)}: ZooKeeper is dead", done.returncode,
                      last_line(said), wrong)  # fmt: skip
        done, _ = run(ottla("up", "--dir", folder))
        proof.add("up starts ZooKeeper again", done.returncode, last_line(done.stderr),
                  [] if done.returncode == 0 else [done.stderr])  # fmt: skip
        done, _ = run(ottla("topics", "create", "late", "--dir", folder))
        proof.add("topics create works again", done.returncode, last_line(done.stderr),
                  judged(done, 0, ("topic late created",), 1))  # fmt: skip


def interrupts(proof: Proof, here: Watched) -> None:
    """Ctrl-C at any early moment: no traceback, and what was begun is whole or not there."""
    assert here.folder is not None
    chance = random.Random(11)
    commands: dict[str, tuple[object, ...]] = {
        "--help": ("--help",),
        "topics list": ("topics", "list"),
        "consume": ("consume", TOPIC, "--from-beginning"),
        "produce": ("produce", TOPIC),
        "topics create": ("topics", "create"),
        "status": ("status",),
    }
    for what, command in commands.items():
        wrong: dict[str, int] = {}
        codes: dict[int, int] = {}
        early = 0
        for n in range(proof.tries):
            topic = f"new-{what.replace(' ', '-')}-{n}"
            words_ = ottla(
                *command, *([topic, "--partitions", 2] if what.endswith("create") else [])
            )
            if what != "--help":
                words_ += ["-b", here.bootstrap]
            code, text, ours = interrupted(words_, chance.uniform(0.005, 0.4))
            codes[code] = codes.get(code, 0) + 1
            early += "Traceback" in text and not ours
            for problem in interrupt_problems(code, text, ours=ours):
                wrong[problem] = wrong.get(problem, 0) + 1
            if what.endswith("create"):
                until(
                    lambda t=topic, c=code: _whole(here, t, c), 40, f"{topic} is whole or not there"
                )
        told = ", ".join(f"{count} x exit code {code}" for code, count in sorted(codes.items()))
        told += f"; {early} before a line of Ottla ran" if early else ""
        proof.add(f"{what}, {proof.tries} x Ctrl-C after 5 to 400 ms",
                  max(codes, key=lambda c: codes[c]), told,
                  [f"{count} x {problem}" for problem, count in wrong.items()])  # fmt: skip
    interrupted_up(proof, chance)


def _whole(here: Watched, topic: str, code: int) -> bool:
    found = here._admin.list_topics(timeout=15).topics.get(topic)
    if found is None:
        return code != 0
    return sorted(found.partitions) == [0, 1] and all(
        p.leader >= 0 for p in found.partitions.values()
    )


def interrupted(command: Sequence[str], after_s: float) -> tuple[int, str, bool]:
    """Return exit code, standard error, and whether a line of Ottla had run."""
    process = subprocess.Popen(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    # Before `main` of `ottla/__main__.py` is called, a traceback is the interpreter's.
    return (
        process.returncode,
        told,
        "ottla: " in told or ("__main__.py" in told and ", in main" in told),
    )


def interrupt_problems(code: int, text: str, *, ours: bool) -> Iterator[str]:
    """Yield what is wrong with how a command ended that was interrupted."""
    if ours and "Traceback" in text:
        yield "a traceback of Ottla"
    if ours and code not in (0, 130):
        yield f"exit code {code}"
    if code not in (0, 1, 130, -signal.SIGINT):
        yield f"exit code {code}"
    if code == 130 and "ottla: interrupted" not in text:
        yield "130 without a word"


def interrupted_up(proof: Proof, chance: random.Random) -> None:
    """Interrupt `up`: nothing that it started runs on; the next one works."""
    with tempfile.TemporaryDirectory() as name:
        for n in range(0 if proof.brief else 8):
            folder = Path(name) / f"up-{n}"
            after_s = chance.uniform(0.05, 2.0)
            port = free_row(2)
            command = ottla("up", "-n", 1, "--dir", folder, "--port-base", port)
            code, text, ours = interrupted(command, after_s)
            wrong = list(interrupt_problems(code, text, ours=ours))
            if code and processes_of(folder):
                wrong.append(f"{processes_of(folder)} run on")
            done, _ = run(ottla("up", "-n", 1, "--dir", folder, "--port-base", port))
            wrong += [] if done.returncode == 0 else [f"the next up: {last_line(done.stderr)}"]
            down, _ = run(ottla("down", "--dir", folder))
            wrong += [] if down.returncode == 0 else [f"down: {last_line(down.stderr)}"]
            wrong += ["processes are left"] if processes_of(folder) else []
            proof.add(f"up, Ctrl-C after {after_s:.2f} s, then up and down", code,
                      last_line(text), wrong)  # fmt: skip


PARTS: dict[str, Callable[[Proof, Watched], None]] = {
    "words": words, "names": names, "hostile": hostile, "servers": servers, "streams": streams,
    "others": others, "folders": folders, "disk": disk, "addresses": addresses,
    "zookeeper": zookeeper, "interrupts": interrupts,
}  # fmt: skip
OF_KAFKA = ("words", "names", "hostile", "servers", "streams")
"""Parts that need a broker and no folder: a real Kafka does as well."""


def prove(proof: Proof, chosen: Sequence[str], here: Watched, suffix: str = "") -> None:
    """Do the parts in turn; one that this machine cannot do is said."""
    for name in chosen:
        proof.part = name + suffix
        try:
            PARTS[name](proof, here)
        except MissingError as missing:
            proof.skipped.append(f"{name}: {missing}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tries", type=int, default=80, help="interrupts of each command")
    parser.add_argument("--brief", action="store_true", help="no interrupts of up")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args()
    proof = Proof(options.tries, options.brief)
    began = time.monotonic()
    print("| part | what was done | exit code | what was said | verdict |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        with cluster(Path(name) / "data") as here:
            prove(proof, options.only, here)
        missing = kafka_tools.why_not()
        of_kafka = [part for part in OF_KAFKA if part in options.only]
        if missing is None and of_kafka and not options.without_kafka:
            with Kafka39Cluster(Path(name) / "kafka", brokers=1) as theirs:
                watched = Watched(theirs.bootstrap, theirs.zookeeper, None)
                try:
                    filled(watched)
                    prove(proof, of_kafka, watched, " (Kafka)")
                finally:
                    watched.close()
        elif missing is not None:
            proof.skipped.append(f"Kafka: {missing}")
    failed = [row for row in proof.rows if row.wrong]
    print()
    for reason in proof.skipped:
        print(f"not tried: {reason}")
    for row in failed:
        print(f"DOES NOT HOLD: {row.part}: {row.what}: {'; '.join(row.wrong)}")
    print(f"{len(proof.rows)} things done, {len(failed)} do not hold, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if failed or not proof.rows else 0


if __name__ == "__main__":
    sys.exit(main())
