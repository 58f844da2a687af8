"""What each API costs a broker at its worst: time of the event loop, memory, bytes of the answer.

A broker runs in a thread of this process, a ZooKeeper server in another; it holds very much of
everything (`fill_broker`). Each API of the router's table gets, in its newest version, requests of
as many elements as one may have: one thing with many parts, many things, one thing named again and
again, long names (`shapes`), and whatever else is worse (`SPECIAL`). A turn is what one iteration
of the broker's event loop takes of the processor; memory is what is allocated at most until the
response is sent, and what is left 0.1 s later (tracemalloc).

    PYTHONPATH=src:tests python -m support.request_costs [--only Metadata …] [--write]

prints the table of docs/SECURITY.md; `--write` puts these rows there. Exit status 1 if a limit is
exceeded.
"""

import argparse
import asyncio
import contextlib
import gc
import math
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ottla.broker.broker import Broker
from ottla.broker.requests.api import Api
from ottla.broker.requests.routes import ROUTES
from ottla.log.files import OsFiles
from ottla.model.config import BrokerConfig
from ottla.net import garbage
from ottla.net.runtime import real_world
from ottla.testing.forked import start_coordination
from ottla.wire.apis import APIS
from ottla.wire.codec import MAX_ELEMENTS, MAX_ELEMENTS_AT_ONCE, decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.portions import InPortions
from ottla.wire.records import Record, build_batch
from ottla.wire.schema import FieldLayout, StructLayout

MIB = 1 << 20
LONGEST_TURN_MS, MOST_MIB = 50.0, 64.0
LONG_NAME = 32_000
PAGE = Path(__file__).parents[2] / "docs" / "SECURITY.md"
BEGIN, END = "<!-- request costs -->", "<!-- end of request costs -->"


@dataclass(frozen=True)
class Size:
    """How much the broker holds, and how many elements a request has at most."""

    partitions: int = 1000
    """of the topic `big`"""
    topics: int = 500
    known: int = 100_000
    """partitions of other brokers"""
    groups: int = 5000
    members: int = 200
    offsets: int = 1000
    """of each of ten groups, with 4,000 bytes of metadata each"""
    acls: int = 20_000
    quotas: int = 1000
    users: int = 500
    tokens: int = 200
    transactions: int = 5000
    producers: int = 20_000
    most: int = MAX_ELEMENTS
    timeout_s: float = 120.0
    pause_s: float = 0.02
    """How long its effects are waited for after a response."""


LARGE = Size()
SMALL = Size(100, 20, 5000, 50, 10, 100, 500, 20, 10, 60, 20, 100, 600, 60.0, 0.0)
EMPTY = Size(1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 100, 30.0, 0.0)


class Turns(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """The selector of an event loop: measures what happens between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._began_s = math.inf

    def select(self, timeout: float | None = None) -> Any:
        self.longest_s = max(self.longest_s, time.thread_time() - self._began_s)
        found = super().select(timeout)
        self._began_s = time.thread_time()
        return found


class Loop(threading.Thread):
    """An event loop in a thread of its own, which runs `main` until it is stopped."""

    def __init__(self, name: str, main: Callable[["Loop"], Any]) -> None:
        super().__init__(name=name, daemon=True)
        self.turns = Turns()
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self._main = main

    def run(self) -> None:
        loop = self.loop = asyncio.SelectorEventLoop(self.turns)
        try:
            loop.run_until_complete(self._live())
        finally:
            loop.close()

    async def _live(self) -> None:
        self.stop = asyncio.Event()
        try:
            await self._main(self)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.ready.set()

    def begin(self) -> None:
        self.start()
        assert self.ready.wait(60)
        if self.failure is not None:
            raise self.failure

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the thread and return what it returns."""

        async def work() -> Any:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(60)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.join(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Client:
    """A connection of a user; a response is read into one buffer, whatever its size."""

    def __init__(self, port: int, user: str = "admin", timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.settimeout(timeout_s)
        self._buffer = bytearray(MIB)
        self.ask(ROUTES[17].request(mechanism="PLAIN"), 1)
        auth = f"\0{user}\0secret".encode()
        assert self.ask(ROUTES[36].request(auth_bytes=auth), 2).error_code == 0

    def close(self) -> None:
        self._socket.close()

    def send(self, raw: "bytes | memoryview") -> None:
        self._socket.sendall(raw)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def skip(self) -> int | None:
        """Read one response; return its size, None if the connection was closed instead."""
        try:
            size = left = struct.unpack(">i", self._read(4))[0]
            while left:
                count = self._socket.recv_into(self._buffer, min(left, len(self._buffer)))
                if not count:
                    raise EOFError
                left -= count
        except (EOFError, ConnectionError):
            return None
        return int(size)

    def ask(self, request: Any, version: int | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        self.send(framed(request, version))
        whole = memoryview(self._read(struct.unpack(">i", self._read(4))[0]))
        key = request.API_KEY
        at = decode_response_header(key, version, whole)[1]
        return decode_response(key, version, whole, at)

    def ask_all(self, requests: Iterator[Any], at_once: int = 100) -> None:
        """Send many requests, some of them at once; their responses are not looked at."""
        open_count = 0
        for request in requests:
            self.send(framed(request, type(request).MAX_VERSION))
            open_count += 1
            if open_count >= at_once:
                self.skip()
                open_count -= 1
        for _ in range(open_count):
            self.skip()


def framed(request: Any, version: int, client_id: str = "costs") -> bytes:
    raw = encode_request_header(request.API_KEY, version, 1, client_id)
    raw += b"".join(encode_request(request, version))
    return struct.pack(">i", len(raw)) + raw


class Rig:
    """One broker, its ZooKeeper, and what it holds."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-costs-"))
        self._port = free_port()
        self.zookeeper = Loop("zookeeper", self._coordinate)
        self.thread = Loop("broker", self._serve)
        self.broker: Broker
        self.run = 0
        """how many requests were made: names that must be new contain it"""

    def __enter__(self) -> Self:
        try:
            self.zookeeper.begin()
            self.thread.begin()
            self.port = self.broker.port("SASL_PLAINTEXT")
            self.client = Client(self.port)
            fill_broker(self)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.thread, self.zookeeper):
            if one.is_alive() and one.failure is None:
                one.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _coordinate(self, me: Loop) -> None:
        await start_coordination(real_world(OsFiles()), self._port)
        me.ready.set()
        await me.stop.wait()

    async def _serve(self, me: Loop) -> None:
        world = real_world(OsFiles())
        self.broker = Broker(BrokerConfig(self._properties()), world)
        await self.broker.start()
        while self.broker.services.metadata.controller_id != 1:
            await asyncio.sleep(0.02)
        me.ready.set()
        await me.stop.wait()
        await self.broker.shutdown()
        world.workers.close()  # type: ignore[attr-defined]

    def _properties(self) -> dict[str, str]:
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        users = 'user_admin="secret" user_app="secret"'
        return {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._port}",
            "zookeeper.session.timeout.ms": "60000",
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{plain} {users};",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{scram};",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "delegation.token.master.key": "key",
            "log.dirs": f"{self.folder}/a,{self.folder}/b",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.max.session.timeout.ms": "3600000",
            "auto.create.topics.enable": "false",
            "log.cleaner.enable": "false",
            "controlled.shutdown.enable": "false",
        }

    @property
    def changes(self) -> int:
        """Return how many changes to ZooKeeper a request makes."""
        return max(self.size.most // 20, 20)

    def epochs(self) -> dict[str, int]:
        """Return what requests of the controller say of it and of this broker."""
        services = self.broker.services
        return {
            "controller_id": 1,
            "controller_epoch": services.replicas.controller_epoch,
            "broker_epoch": services.session.broker_epoch,
        }


# --- what the broker holds ------------------------------------------------------------------------


def request(api_key: int, /, **fields: Any) -> Any:
    return ROUTES[api_key].request(**fields)


def element(api_key: int, /, *path: str, **fields: Any) -> Any:
    """Return an element of a request's list: the struct of the field at `path`."""
    layout = ROUTES[api_key].request.LAYOUT
    for name in path:
        layout = next(f for f in layout.fields if f.name == name).struct
    return layout.made(**fields)


def topic_name(number: int) -> str:
    return f"topic-{number:05}" + "x" * 200


def group_name(number: int) -> str:
    return f"group-{number:05}"


def transaction_name(number: int) -> str:
    return f"transaction-{number:05}"


def fill_broker(rig: Rig) -> None:
    """Have the broker hold what `rig.size` says, mostly by requests."""
    size, client = rig.size, rig.client
    _have_topics(rig)
    _know_other_partitions(rig)
    while client.ask(request(10, key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
        time.sleep(0.1)
    while client.ask(request(10, key_type=1, coordinator_keys=["t"])).coordinators[0].error_code:
        time.sleep(0.1)
    while client.ask(_commit(group_name(0), 1, "m")).topics[0].partitions[0].error_code:
        time.sleep(0.1)
    for number in range(10):
        for first in range(0, size.offsets, 100):
            count = min(100, size.offsets - first)
            found = client.ask(_commit(group_name(number), count, "m" * 4000, first))
            assert found.topics[0].partitions[0].error_code == 0
    client.ask_all(_commit(group_name(n), 1, "m") for n in range(10, size.groups))
    _produce(rig)
    client.ask_all(
        request(22, transactional_id=transaction_name(n), transaction_timeout_ms=60_000)
        for n in range(size.transactions)
    )
    _begin_transaction(rig)
    rig.thread.call(_add_acls, rig.broker, size.acls)
    client.ask_all(_quota(n) for n in range(size.quotas))
    client.ask_all(_user(n) for n in range(size.users))
    client.ask_all(request(38, max_lifetime_ms=-1) for _ in range(size.tokens))
    _join(rig)


def _have_topics(rig: Rig) -> None:
    size, new = rig.size, ROUTES[19].request
    topics = [("big", size.partitions), *((topic_name(n), 1) for n in range(size.topics))]
    made = [
        element(19, "topics", name=n, num_partitions=p, replication_factor=1) for n, p in topics
    ]
    for first in range(0, len(made), 100):
        found = rig.client.ask(new(topics=made[first : first + 100], timeout_ms=60_000))
        assert {t.error_code for t in found.topics} == {0}, found
    rig.ids = {  # type: ignore[attr-defined]
        t.name: t.topic_id for t in rig.broker.services.metadata.snapshot.topics.values()
    }


def _know_other_partitions(rig: Rig) -> None:
    """Tell the broker of partitions that another broker has, as its controller would."""
    each = 1000
    state = [
        element(
            6, "topic_states", "partition_states",
            partition_index=i, controller_epoch=1, leader=2, isr=[2, 3], replicas=[2, 3],
        )
        for i in range(each)
    ]  # fmt: skip
    live = _live(rig)
    for number in range(max(rig.size.known // each, 1)):
        topic = element(
            6, "topic_states", topic_name=f"known-{number}",
            topic_id=struct.pack(">qq", 7, number), partition_states=state,
        )  # fmt: skip
        made = request(6, topic_states=[topic], live_brokers=live, **rig.epochs())
        assert rig.client.ask(made).error_code == 0


def _live(rig: Rig) -> list[Any]:
    live = []
    for broker in rig.broker.services.metadata.snapshot.brokers.values():
        ends = [
            element(6, "live_brokers", "endpoints", port=e.port, host=e.host, listener=e.listener)
            for e in broker.endpoints
        ]
        live.append(element(6, "live_brokers", id=broker.id, endpoints=ends))
    return live


def _commit(group: str, count: int, metadata: str, first: int = 0) -> Any:
    partitions = [
        element(
            8, "topics", "partitions",
            partition_index=i, committed_offset=1, committed_metadata=metadata,
        )
        for i in range(first, first + count)
    ]  # fmt: skip
    topic = element(8, "topics", name="big", partitions=partitions)
    return request(8, group_id=group, generation_id_or_member_epoch=-1, topics=[topic])


def _produce(rig: Rig) -> None:
    """Let partition 0 know many idempotent producers."""

    def one(number: int) -> Any:
        batch = build_batch([Record(-1, 0, None, b"v")], producer_id=10**6 + number,
                            producer_epoch=0, base_sequence=0)  # fmt: skip
        part = element(0, "topic_data", "partition_data", index=0, records=batch)
        topic = element(0, "topic_data", name="big", partition_data=[part])
        return request(0, acks=1, timeout_ms=10_000, topic_data=[topic])

    rig.client.ask_all(map(one, range(rig.size.producers)))


def _begin_transaction(rig: Rig) -> None:
    """Let one transaction have all partitions of `big`."""
    found = rig.client.ask(request(22, transactional_id="large", transaction_timeout_ms=900_000))
    rig.producer = (found.producer_id, found.producer_epoch)  # type: ignore[attr-defined]
    topic = element(24, "transactions", "topics", name="big",
                    partitions=list(range(rig.size.partitions)))  # fmt: skip
    one = element(24, "transactions", transactional_id="large", producer_id=found.producer_id,
                  producer_epoch=found.producer_epoch, topics=[topic])  # fmt: skip
    rig.client.ask(request(24, transactions=[one]))


def _add_acls(broker: Broker, count: int) -> None:
    """ACLs that say nothing of most names, of which a quarter are prefixes."""
    from ottla.security.acls import Entry, Pattern

    cache = broker.services.acl_cache
    assert cache is not None
    for number in range(count):
        kind, pattern = 2 + number % 2, 4 if number % 4 == 0 else 3
        cache.authorizer.set(
            Pattern(kind, f"other-{number}", pattern), [Entry("User:app", "*", 3, 3)]
        )
    for kind, name in ((2, "*"), (3, "*"), (5, "*"), (4, "kafka-cluster")):
        cache.authorizer.set(Pattern(kind, name, 3), [Entry("User:app", "*", 2, 3)])


def _quota(number: int) -> Any:
    entity = element(49, "entries", "entity", entity_type="client-id", entity_name=f"c{number}")
    change = element(49, "entries", "ops", key="producer_byte_rate", value=1e9)
    return request(49, entries=[element(49, "entries", entity=[entity], ops=[change])])


def _user(number: int) -> Any:
    one = element(51, "upsertions", name=f"user-{number}", mechanism=1, iterations=4096,
                  salt=b"salt", salted_password=b"p" * 32)  # fmt: skip
    return request(51, upsertions=[one])


def _join(rig: Rig) -> None:
    """Let the group `full` have as many members as it may, none of which answers."""
    offered = [element(11, "protocols", name=f"p{i}", metadata=b"m" * 1000) for i in range(50)]
    rig.members = []  # type: ignore[attr-defined]
    for _ in range(rig.size.members):
        member = Client(rig.port)
        join = {
            "group_id": "full", "session_timeout_ms": 3_600_000, "protocol_type": "consumer",
            "rebalance_timeout_ms": 3_600_000, "protocols": offered,
        }  # fmt: skip
        named = member.ask(request(11, **join)).member_id
        member.send(framed(request(11, member_id=named, **join), 9))
        rig.members.append(member)  # type: ignore[attr-defined]


# --- the requests ---------------------------------------------------------------------------------


def most_elements(api: Api[Any], most: int) -> int:
    """Return how many elements a request of this API may hold."""
    bound = {1: 100_000, 56: 200_000}.get(int(api.key), MAX_ELEMENTS_AT_ONCE)
    if isinstance(api.large, InPortions):
        bound = MAX_ELEMENTS
    return min(bound, most)


@dataclass
class Filler:
    """Fills a request: `counts` at each depth of its lists, `names` for its texts."""

    rig: Rig
    key: int
    counts: tuple[int, ...]
    same: bool = False
    pad: int = 0
    numbers: dict[str, int] = field(default_factory=dict)

    def next(self, name: str) -> int:
        number = self.numbers.get(name, -1) + 1
        self.numbers[name] = number
        return 0 if self.same else number

    def text(self, name: str, owner: str) -> str:
        number, size = self.next(f"{owner}.{name}"), self.rig.size
        if self.pad:
            return f"{number:06}".ljust(self.pad, "x")
        if "group" in name and "instance" not in name:
            return group_name(number % size.groups)
        if "transaction" in name:
            return transaction_name(number % size.transactions)
        if name in ("name", "topic", "topic_name", "resource_name"):
            return "big" if number == 0 else topic_name((number - 1) % size.topics)
        if name == "coordinator_keys":
            return group_name(number)
        return f"{name}-{number}"

    def scalar(self, item: FieldLayout, owner: str, depth: int) -> Any:
        name, kind, rig = item.name, item.type, self.rig
        if kind == "string":
            return self.text(name, owner)
        if kind in ("bytes", "records"):
            return b"x" * (self.pad or 16)
        if kind == "uuid":
            ids = list(rig.ids.values())  # type: ignore[attr-defined]
            return ids[self.next(name) % len(ids)]
        if kind in ("int32", "int64") and name in INDEXES:
            return self.next(f"{owner}.{name}") % rig.size.partitions if depth else 0
        if name in FIXED:
            return FIXED[name]
        return 1 if item.array else item.default

    def fill(self, layout: StructLayout, version: int, depth: int = 0) -> Any:
        values: dict[str, Any] = {}
        arrays = [f for f in layout.fields if f.present(version) and f.array]
        for item in layout.fields:
            if not item.present(version):
                continue
            if not item.array:
                if item.struct is not None:
                    values[item.name] = item.struct.made()
                else:
                    values[item.name] = self.scalar(item, layout.name, depth)
                continue
            count = self.counts[min(depth, len(self.counts) - 1)]
            count = max(count // len(arrays), 1)
            values[item.name] = [
                self.fill(item.struct, version, depth + 1)
                if item.struct is not None
                else self.scalar(item, layout.name, depth + 1)
                for _ in range(count)
            ]
        values.update(self.rig_values(layout))
        return layout.made(**values)

    def rig_values(self, layout: StructLayout) -> dict[str, Any]:
        names = {f.name for f in layout.fields}
        own = self.rig.epochs() if self.key in CONTROL else {}
        return {name: value for name, value in own.items() if name in names}


CHANGES = {19, 20, 30, 31, 37, 49, 51}
"""Each of their elements is written to ZooKeeper."""
CONTROL = {4, 5, 6, 7, 56, 67}
INDEXES = {
    "partition", "partitions", "partition_index", "partition_indexes", "index", "producer_id",
}  # fmt: skip
FIXED = {
    "timeout_ms": 1000, "validate_only": False, "num_partitions": 1, "replication_factor": 1,
    "resource_type": 2, "resource_type_filter": 1, "resource_pattern_type": 3,
    "pattern_type_filter": 1, "operation": 3, "permission_type": 3, "acks": 1, "broker_id": 1,
    "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1000, "max_lifetime_ms": -1,
    "transaction_timeout_ms": 60_000, "include_synonyms": True, "include_documentation": True,
    "include_authorized_operations": True, "include_topic_authorized_operations": True,
    "mechanism": 1, "iterations": 4096, "generation_id": -1, "generation_id_or_member_epoch": -1,
    "timestamp": -1, "leader_epoch": 0, "current_leader_epoch": -1, "replica_id": -1,
    "value": 1.0, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "broker_ids": 1,
    "replicas": 1, "include_cluster_authorized_operations": True, "is_new": False,
    "max_version_level": 1, "duration_filter": -1, "count": 2, "session_epoch": 0,
}  # fmt: skip


def depth_of(layout: StructLayout, version: int) -> int:
    return max(
        (
            1 + (depth_of(f.struct, version) if f.struct is not None else 0)
            for f in layout.fields
            if f.present(version) and f.array
        ),
        default=0,
    )


def shapes(rig: Rig, key: int) -> Iterator[tuple[str, Any, int]]:
    """Yield (what it is, request, version) of the requests that any API gets."""
    if key in ONLY_SPECIAL:
        return
    api = ROUTES[key]
    version, layout = api.max_version, api.request.LAYOUT
    depth = depth_of(layout, version)
    most = most_elements(api, rig.size.most)
    if key in CHANGES:
        most = min(most, rig.changes)
    few = most // 10

    def filled(counts: tuple[int, ...], **how: Any) -> Any:
        return Filler(rig, key, counts, **how).fill(layout, version)

    if not depth:
        yield "once", filled((1,)), version
        yield "long texts", filled((1,), pad=LONG_NAME), version
        return
    inner = (most - depth,)
    yield "one, with many parts", filled((*(1,) * (depth - 1), *inner)), version
    if depth > 1:
        yield "many", filled((most // depth - 1, *(1,) * (depth - 1))), version
    yield "one, named many times", filled((few,) + (1,) * (depth - 1), same=True), version
    yield "long names", filled((few // 50 or 2,) + (1,) * (depth - 1), pad=LONG_NAME), version


def specials(rig: Rig, key: int) -> Iterator[tuple[str, Any, int]]:
    """Yield what is worse for an API than what any API gets: all there is, and what amplifies."""
    make = SPECIAL.get(key)
    version = ROUTES[key].max_version
    for what, made in make(rig) if make is not None else ():
        if isinstance(made, tuple):
            yield what, made[0], made[1]
        else:
            yield what, made, version


def _produce_everywhere(rig: Rig) -> Iterator[tuple[str, Any]]:
    batch = build_batch([Record(-1, 0, None, b"v" * 100)] * 10)
    parts = [element(0, "topic_data", "partition_data", index=i, records=batch)
             for i in range(rig.size.partitions)]  # fmt: skip
    topic = element(0, "topic_data", name="big", partition_data=parts)
    yield "a batch for each partition", request(0, acks=1, timeout_ms=1000, topic_data=[topic])


def _fetch_all(rig: Rig) -> Iterator[tuple[str, Any]]:
    names = [f"{n:06}".ljust(200, "x") for n in range(rig.size.most // 4)]
    topics = [
        element(1, "topics", topic=name, partitions=[element(1, "topics", "partitions")])
        for name in names
    ]
    yield "a session of unknown names", (request(1, topics=topics, session_epoch=0), 12)


def _metadata(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all topics", request(3, topics=None, include_topic_authorized_operations=True)
    named = [element(3, "topics", name="known-0") for _ in range(rig.size.most // 2)]
    yield "a large topic named many times", request(3, topics=named)
    known = [element(3, "topics", name=f"known-{n}") for n in range(rig.size.known // 1000)]
    yield "large topics", request(3, topics=known)


def _leader_and_isr(rig: Rig) -> Iterator[tuple[str, Any]]:
    states = []
    for name, topic in rig.broker.services.metadata.snapshot.topics.items():
        if name.startswith("known"):
            continue
        made = [
            element(4, "topic_states", "partition_states", partition_index=i, controller_epoch=1,
                    leader=1, leader_epoch=p.leader_epoch, isr=[1], replicas=[1])
            for i, p in topic.partitions.items()
        ]  # fmt: skip
        states.append(element(4, "topic_states", topic_name=name, topic_id=topic.topic_id,
                              partition_states=made))  # fmt: skip
    live = [element(4, "live_leaders", broker_id=1, host_name="127.0.0.1", port=1)]
    yield "all there are", request(4, topic_states=states, live_leaders=live, **rig.epochs())


def _stop_replica(rig: Rig) -> Iterator[tuple[str, Any]]:
    each = [element(5, "topic_states", "partition_states", partition_index=i, leader_epoch=-1)
            for i in range(1000)]  # fmt: skip
    states = [element(5, "topic_states", topic_name=f"known-{n}", partition_states=each)
              for n in range(rig.size.known // 1000)]  # fmt: skip
    yield "all of another broker", request(5, topic_states=states, **rig.epochs())


def _update_metadata(rig: Rig) -> Iterator[tuple[str, Any]]:
    each = [
        element(6, "topic_states", "partition_states", partition_index=i, controller_epoch=1,
                leader=2, isr=[2, 3], replicas=[2, 3])
        for i in range(1000)
    ]  # fmt: skip
    states = [
        element(6, "topic_states", topic_name=f"known-{n}", topic_id=struct.pack(">qq", 7, n),
                partition_states=each)
        for n in range(rig.size.known // 1000)
    ]  # fmt: skip
    yield "all there are", request(6, topic_states=states, live_brokers=_live(rig), **rig.epochs())


def _offset_commit(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "long metadata", _commit(group_name(1), min(rig.size.partitions, 200), "m" * 4000)


def _offset_fetch(rig: Rig) -> Iterator[tuple[str, Any]]:
    def groups(names: "list[str]") -> Any:
        return request(9, groups=[element(9, "groups", group_id=n, topics=None) for n in names])

    yield "all offsets of one group, named many times", groups([group_name(0)] * 240)
    yield "all offsets of 3 groups", groups([group_name(n) for n in range(3)])
    yield "all offsets of all groups", groups([group_name(n) for n in range(rig.size.groups)])
    yield "all offsets of one group (7)", (request(9, group_id=group_name(0), topics=None), 7)


def _join_group(rig: Rig) -> Iterator[tuple[str, Any]]:
    offered = [element(11, "protocols", name=f"p{i}", metadata=b"m" * 9000) for i in range(99)]
    yield "many protocols", request(
        11, group_id=f"new-{rig.run}", session_timeout_ms=6000, rebalance_timeout_ms=1000,
        member_id="", group_instance_id="i", protocol_type="consumer", protocols=offered,
    )  # fmt: skip


def _leave_group(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "unknown members of a full group", Filler(rig, 13, (10_000,)).fill(request(13).LAYOUT, 5)


def _describe_groups(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "a full group", request(15, groups=["full"], include_authorized_operations=True)
    yield "a full group, named many times", request(15, groups=["full"] * 1000)
    yield "all groups", request(15, groups=[group_name(n) for n in range(rig.size.groups)])


def _create_topics(rig: Rig) -> Iterator[tuple[str, Any]]:
    def one(name: str, partitions: int, **more: Any) -> Any:
        return element(19, "topics", name=name, num_partitions=partitions,
                       replication_factor=1, **more)  # fmt: skip

    run, new = rig.run, rig.changes // 10
    yield "many topics, validated only", request(
        19, topics=[one(f"v-{run}-{n}", 1) for n in range(new * 10)], timeout_ms=1000,
        validate_only=True,
    )  # fmt: skip
    yield (
        "the most partitions, validated only",
        request(19, topics=[one(f"v-{run}", 10_000)], timeout_ms=1000, validate_only=True),
    )
    yield (
        "many topics",
        request(19, topics=[one(f"n-{run}-{n}", 1) for n in range(new)], timeout_ms=30_000),
    )
    configs = [element(19, "topics", "configs", name="retention.ms", value=str(n))
               for n in range(rig.size.most // 2)]  # fmt: skip
    yield (
        "many settings",
        request(
            19, topics=[one(f"c-{run}", 1, configs=configs)], timeout_ms=1000, validate_only=True
        ),
    )


def _delete_topics(rig: Rig) -> Iterator[tuple[str, Any]]:
    names = [n for n in rig.broker.services.metadata.snapshot.topics if n.startswith("n-")]
    topics = [element(20, "topics", name=n) for n in names[: max(len(names) // 2, 1)]]
    yield "many topics", request(20, topics=topics, timeout_ms=30_000)


def _delete_records(rig: Rig) -> Iterator[tuple[str, Any]]:
    parts = [element(21, "topics", "partitions", partition_index=i, offset=-1)
             for i in range(rig.size.partitions)]  # fmt: skip
    topic = element(21, "topics", name="big", partitions=parts)
    yield "all partitions", request(21, topics=[topic], timeout_ms=10_000)


def _init_producer_id(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield (
        "a new transactional id",
        request(
            22, transactional_id=f"{rig.run}".ljust(LONG_NAME, "x"), transaction_timeout_ms=60_000
        ),
    )


def _add_partitions(rig: Rig) -> Iterator[tuple[str, Any]]:
    number, epoch = rig.producer  # type: ignore[attr-defined]
    indexes = list(range(rig.size.partitions))
    topic = element(24, "transactions", "topics", name="big", partitions=indexes)
    one = element(24, "transactions", transactional_id="large", producer_id=number,
                  producer_epoch=epoch, topics=[topic])  # fmt: skip
    yield "all partitions", request(24, transactions=[one])
    yield "all partitions (3)", (
        request(24, v3_and_below_transactional_id="large", v3_and_below_producer_id=number,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[element(24, "v3_and_below_topics", name="big",
                                             partitions=indexes)]), 3)  # fmt: skip


def _markers(rig: Rig) -> Iterator[tuple[str, Any]]:
    indexes = list(range(rig.size.partitions))
    topic = element(27, "markers", "topics", name="big", partition_indexes=indexes)
    markers = [element(27, "markers", producer_id=10**6 + n, producer_epoch=0, topics=[topic],
                       transaction_result=True) for n in range(10)]  # fmt: skip
    yield "ten for each partition", request(27, markers=markers)


def _acl_filter(key: int, *path: str) -> Any:
    made = element(key, *path) if path else request(key)
    made.resource_type_filter = made.pattern_type_filter = 1
    made.operation = made.permission_type = 1
    made.resource_name_filter = made.principal_filter = made.host_filter = None
    return made


def _describe_acls(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", _acl_filter(29)


def _create_acls(rig: Rig) -> Iterator[tuple[str, Any]]:
    made = [
        element(30, "creations", resource_type=2, resource_name="one", resource_pattern_type=3,
                principal=f"User:{rig.run}-{n}", host="*", operation=3, permission_type=3)
        for n in range(rig.changes)
    ]  # fmt: skip
    yield "many of one resource", request(30, creations=made)


def _delete_acls(rig: Rig) -> Iterator[tuple[str, Any]]:
    named = _acl_filter(31, "filters")
    named.resource_name_filter = "one"
    yield "all of one resource", request(31, filters=[named])
    none = _acl_filter(31, "filters")
    none.principal_filter = "User:nobody"
    yield "many filters of all there are", request(31, filters=[none] * rig.changes)
    yield "all there are", request(31, filters=[_acl_filter(31, "filters")])


def _describe_configs(rig: Rig) -> Iterator[tuple[str, Any]]:
    def resources(*names: str, kind: int = 2) -> Any:
        return request(
            32, include_synonyms=True, include_documentation=True,
            resources=[element(32, "resources", resource_type=kind, resource_name=n,
                               configuration_keys=None) for n in names],
        )  # fmt: skip

    yield "all of all topics", resources(*(topic_name(n) for n in range(rig.size.topics)))
    yield "all of one topic, named many times", resources(*["big"] * (rig.size.most // 10))
    yield "all of the broker, named many times", resources(*["1"] * 5000, kind=4)


def _alter_configs(key: int) -> Callable[[Rig], Iterator[tuple[str, Any]]]:
    def made(rig: Rig) -> Iterator[tuple[str, Any]]:
        def resource(name: str, count: int) -> Any:
            configs = [element(key, "resources", "configs", name="retention.ms", value=f"{rig.run}")
                       for _ in range(count)]  # fmt: skip
            return element(key, "resources", resource_type=2, resource_name=name, configs=configs)

        few = min(rig.size.topics, rig.changes // 20)
        yield (
            "many topics",
            request(key, resources=[resource(topic_name(n), 1) for n in range(few)]),
        )
        yield "one setting many times", request(key, resources=[resource("big", 10_000)])

    return made


def _log_dirs(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(35, topics=None)


def _alter_log_dirs(rig: Rig) -> Iterator[tuple[str, Any]]:
    path = rig.broker.logs.live_dirs[0]
    topic = element(34, "dirs", "topics", name="known-0", partitions=list(range(1000)))
    yield (
        "partitions of others",
        request(34, dirs=[element(34, "dirs", path=path, topics=[topic] * 20)]),
    )


def _create_partitions(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "the most", request(
        37, topics=[element(37, "topics", name="big", count=rig.size.partitions + 9999,
                            assignments=None)], timeout_ms=1000, validate_only=True)  # fmt: skip
    wanted = [element(37, "topics", "assignments", broker_ids=[1]) for _ in range(10_000)]
    yield "many assignments", request(
        37, topics=[element(37, "topics", name="big", count=rig.size.partitions + 10_000,
                            assignments=wanted)], timeout_ms=1000, validate_only=True)  # fmt: skip


def _create_token(rig: Rig) -> Iterator[tuple[str, Any]]:
    for count in (1000, 10_000):
        renewers = [
            element(38, "renewers", principal_type="User", principal_name=f"u{n}".ljust(90, "x"))
            for n in range(count)
        ]
        yield f"{count} renewers", request(38, renewers=renewers, max_lifetime_ms=-1)


def _tokens(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(41, owners=None)


def _elect(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(43, topic_partitions=None, timeout_ms=5000)


def _reassign(rig: Rig) -> Iterator[tuple[str, Any]]:
    topic = element(45, "topics", name="big", partitions=[
        element(45, "topics", "partitions", partition_index=i, replicas=[1])
        for i in range(rig.size.partitions)])  # fmt: skip
    yield "all partitions", request(45, topics=[topic], timeout_ms=10_000)
    one = element(45, "topics", "partitions", partition_index=0, replicas=[1] * 10_000)
    yield (
        "many replicas",
        request(
            45, topics=[element(45, "topics", name="big", partitions=[one])], timeout_ms=10_000
        ),
    )


def _reassignments(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(46, topics=None, timeout_ms=1000)


def _offset_delete(rig: Rig) -> Iterator[tuple[str, Any]]:
    parts = [element(47, "topics", "partitions", partition_index=i)
             for i in range(rig.size.partitions)]  # fmt: skip
    topic = element(47, "topics", name="big", partitions=parts)
    yield "all of a group", request(47, group_id=group_name(5 + rig.run % 5), topics=[topic])


def _quotas(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(48, components=[], strict=False)
    yield "all client ids", request(48, components=[
        element(48, "components", entity_type="client-id", match_type=2, match=None)])  # fmt: skip


def _alter_quotas(rig: Rig) -> Iterator[tuple[str, Any]]:
    entries = [e for n in range(rig.changes // 10) for e in _quota(rig.run * 10**5 + n).entries]
    yield "many client ids", request(49, entries=entries)


def _scram(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(50, users=None)


def _alter_scram(rig: Rig) -> Iterator[tuple[str, Any]]:
    made = [_user(rig.run * 10**5 + n).upsertions[0] for n in range(rig.changes // 10)]
    yield "many users", request(51, upsertions=made)
    yield "the most iterations", request(51, upsertions=[
        element(51, "upsertions", name="user-0", mechanism=1, iterations=16_384, salt=b"x",
                salted_password=b"p" * 32)] * 1)  # fmt: skip


def _describe_producers(rig: Rig) -> Iterator[tuple[str, Any]]:
    def producers(*indexes: int) -> Any:
        topic = element(61, "topics", name="big", partition_indexes=list(indexes))
        return request(61, topics=[topic])

    yield "all of one partition", producers(0)
    yield "all of one partition, named many times", producers(*[0] * 1000)
    yield "all partitions", producers(*range(rig.size.partitions))


def _describe_transactions(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "a large one", request(65, transactional_ids=["large"])
    yield "a large one, named many times", request(65, transactional_ids=["large"] * 10_000)
    yield (
        "all there are",
        request(65, transactional_ids=[transaction_name(n) for n in range(rig.size.transactions)]),
    )


def _list_transactions(rig: Rig) -> Iterator[tuple[str, Any]]:
    yield "all there are", request(66)


def _end_txn(rig: Rig) -> Iterator[tuple[str, Any]]:
    number, epoch = rig.producer  # type: ignore[attr-defined]
    yield (
        "a large transaction",
        request(
            26, transactional_id="large", producer_id=number, producer_epoch=epoch, committed=True
        ),
    )


SPECIAL: dict[int, Callable[[Rig], Iterator[tuple[str, Any]]]] = {
    0: _produce_everywhere, 1: _fetch_all, 3: _metadata, 4: _leader_and_isr, 5: _stop_replica,
    6: _update_metadata, 8: _offset_commit, 9: _offset_fetch, 11: _join_group, 13: _leave_group,
    15: _describe_groups, 19: _create_topics, 20: _delete_topics, 21: _delete_records,
    22: _init_producer_id, 24: _add_partitions, 26: _end_txn, 27: _markers, 29: _describe_acls,
    30: _create_acls, 31: _delete_acls, 32: _describe_configs, 33: _alter_configs(33),
    34: _alter_log_dirs, 35: _log_dirs, 37: _create_partitions, 38: _create_token, 41: _tokens,
    43: _elect, 44: _alter_configs(44), 45: _reassign, 46: _reassignments, 47: _offset_delete,
    48: _quotas, 49: _alter_quotas, 50: _scram, 51: _alter_scram, 61: _describe_producers,
    65: _describe_transactions, 66: _list_transactions,
}  # fmt: skip

ONLY_SPECIAL = {4, 5, 6}
"""The controller's: anything else would be obeyed, or is no request it sends."""

LAST = (31, 42, 26, 7)
"""They take away what others need."""


# --- measuring ------------------------------------------------------------------------------------


@dataclass
class Cost:
    """What one request cost."""

    key: int
    what: str
    request_bytes: int
    response_bytes: int | None
    turn_ms: float
    memory_mib: float
    left_mib: float
    took_s: float

    @property
    def faults(self) -> list[str]:
        found = []
        if self.turn_ms > LONGEST_TURN_MS:
            found.append(f"a turn of {self.turn_ms:.0f} ms")
        if self.memory_mib > MOST_MIB:
            found.append(f"{self.memory_mib:.0f} MiB")
        return found


def measure(rig: Rig, key: int, what: str, made: Any, version: int, *, memory: bool) -> Cost:
    raw = framed(made, version)
    del made
    client = Client(rig.port, timeout_s=rig.size.timeout_s)
    before = 0
    gc.collect()
    if memory:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
    rig.thread.turns.longest_s = 0.0
    began = time.monotonic()
    client.send(raw)
    size = client.skip()
    took_s = time.monotonic() - began
    time.sleep(rig.size.pause_s)
    for _ in range(2):  # the turn that sent the response has ended then
        rig.thread.call(int)
    turn_s = rig.thread.turns.longest_s
    peak = left = 0
    if memory:
        peak = tracemalloc.get_traced_memory()[1] - before
        time.sleep(0.05)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    client.close()
    sent = len(raw)
    return Cost(key, what, sent, size, turn_s * 1000, peak / MIB, left / MIB, took_s)


def costs_of(rig: Rig, key: int, *, memory: bool = True) -> Iterator[Cost]:
    """Measure each request of an API; turns above the limit again, without what records memory."""
    for requests in (shapes, specials):
        costs = [measure(rig, key, *made, memory=memory) for made in requests(rig, key)]
        rig.run += 1
        if memory and any(cost.turn_ms > LONGEST_TURN_MS for cost in costs):
            again = [measure(rig, key, *made, memory=False) for made in requests(rig, key)]
            rig.run += 1
            for cost, second in zip(costs, again, strict=True):
                cost.turn_ms = min(cost.turn_ms, second.turn_ms)
        yield from costs


@contextlib.contextmanager
def collecting_as_brokers_do() -> Iterator[None]:
    """Collect garbage as a broker's process does; afterwards as before."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*garbage.THRESHOLDS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def row(costs: list[Cost]) -> str:
    """Return an API's row of the table: its worst requests, each for its own reason."""
    key = costs[0].key
    slow = max(costs, key=lambda c: c.turn_ms)
    large = max(costs, key=lambda c: c.memory_mib)
    long = max(costs, key=lambda c: c.response_bytes or 0)
    left = max(costs, key=lambda c: c.left_mib)
    sent = max(c.request_bytes for c in costs)
    return (
        f"| {APIS[key].name} | {len(costs)} | {sent:,} | {long.response_bytes or 0:,} | "
        f"{slow.turn_ms:.1f} ({slow.what}) | {large.memory_mib:.1f} ({large.what}) | "
        f"{max(left.left_mib, 0.0):.2f} |\n"
    )


HEAD = """\
| request | tried | most bytes | of a response | longest turn (ms) | memory (MiB) | left (MiB) |
|---|---:|---:|---:|---|---|---:|
"""


def rows_of(page: str) -> dict[str, tuple[float, float]]:
    """Return (longest turn in ms, most memory in MiB) of each API in a page with the table."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1].isdigit():
            found[cells[0]] = (float(cells[4].split()[0]), float(cells[5].split()[0]))
    return found


def order(keys: Iterable[int]) -> list[int]:
    return sorted(keys, key=lambda key: (LAST.index(key) if key in LAST else -1, key))


def write(rows: dict[int, str]) -> None:
    """Put rows into the page; those of other APIs stay."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {line.split(" | ")[0][2:]: f"{line}\n" for line in table.splitlines()[3:]}
    kept |= {APIS[key].name: text for key, text in rows.items()}
    table = HEAD + "".join(kept[APIS[k].name] for k in sorted(ROUTES) if APIS[k].name in kept)
    PAGE.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[], metavar="API")
    parser.add_argument("--small", action="store_true", help="as the test does")
    parser.add_argument("--no-memory", action="store_true", help="turns only")
    parser.add_argument("--most", type=int, help="elements of a request")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    arguments = parser.parse_args()
    began = time.monotonic()
    rows: dict[int, str] = {}
    faults = 0
    size = SMALL if arguments.small else LARGE
    size = replace(size, most=arguments.most or size.most)
    with Rig(size) as rig, collecting_as_brokers_do():
        print(f"filled in {time.monotonic() - began:.1f} s", flush=True)
        for key in order(ROUTES):
            if arguments.only and APIS[key].name not in arguments.only:
                continue
            costs = []
            for cost in costs_of(rig, key, memory=not arguments.no_memory):
                costs.append(cost)
                faults += bool(cost.faults)
                print(
                    f"{APIS[key].name:28} {cost.what[:34]:34} {cost.request_bytes:>10,} "
                    f"{cost.response_bytes or -1:>11,} {cost.turn_ms:7.1f} ms "
                    f"{cost.memory_mib:7.1f} MiB left {cost.left_mib:6.2f} "
                    f"{cost.took_s:6.2f} s {'; '.join(cost.faults)}",
                    flush=True,
                )
            rows[key] = row(costs)
            if arguments.write:
                write(rows)
    if not arguments.write:
        print(HEAD + "".join(rows[key] for key in sorted(rows)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
