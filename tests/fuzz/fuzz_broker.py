"""The fuzz target that matters: a stream of bytes at a whole broker's port, and the oracle.

A simulated cluster of one broker, in process: production code, real codec, virtual time. Each input
is what one connection sends. Then it must hold:

- nothing was logged with a traceback, nothing was left uncaught, no answer has error -1
- each request was answered in order, in its own version, or the connection was closed; only what
  may wait is silent
- who was refused changed nothing: topics, log ends, watermarks and ISRs are as before
- another connection is served as if nothing had been; nothing of the input's is kept
- it took little processor time and memory
"""

import asyncio
import gc
import logging
import resource
import struct
import time

from fuzz_messages import OF_THE_CONTROLLER
from fuzz_mutations import frames

from ottla.broker.requests.routes import ROUTES
from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.net.framing import DEFAULT_MAX_FRAME_BYTES
from ottla.net.peer import PeerConnection
from ottla.sim.broker_processes import PORT
from ottla.sim.clients import create_topic
from ottla.sim.cluster import Cluster
from ottla.sim.plans import Plan
from ottla.sim.scheduler import SimulationError
from ottla.sim.verdict import Tracebacks
from ottla.sim.world import PATIENT_COLLECTOR
from ottla.wire.apis import APIS
from ottla.wire.codec import decode_request, decode_response
from ottla.wire.headers import decode_request_header, decode_response_header
from ottla.wire.messages.records import ListOffsetsRequest, ProduceRequest
from ottla.wire.records import Record, build_batch
from ottla.wire.schema import WireStruct

PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "max.connection.creation.rate": "1000000",
}
TOPICS = {"hostile": {}, "compacted": {"cleanup.policy": "compact"}, "witness": {}}
PRODUCE, FETCH, JOIN, SYNC, API_VERSIONS = 0, 1, 11, 14, 18
MAY_WAIT = {FETCH, JOIN, SYNC, 19, 20, 37, 43, 45}
"""These have waits of their own: for records, for members, for the controller's work."""

READ_ONLY = {1, 2, 3, 9, 15, 16, 18, 23, 32, 35, 46, 48, 60, 61, 65, 66}
SAYS_UNKNOWN = {1, 2, 8, 9, 37, 43}
"""As Kafka's, these answer UNKNOWN_SERVER_ERROR to isolation levels and elections there are not,
and to names that make no path in ZooKeeper (offsets in version 0, partitions of a topic)."""


REQUEST_TIMED_OUT = 7
SILENCE_S = 3.0
CPU_S = 2.0
RSS_MIB = 400
USES = 1500
"""So many inputs see one world; then it has grown enough."""


class Finding(Exception):  # noqa: N818 - what a target was looking for
    """An input broke a promise; the text says which."""


class Sender(asyncio.Protocol):
    """Collects what comes back."""

    def __init__(self):
        self.received = bytearray()
        self.lost = False

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.lost = True


class World:
    """One broker, booted, with topics and a witness on a connection of its own."""

    def __init__(self, seed=1):
        gc.set_threshold(*PATIENT_COLLECTOR)
        self.uses = 0
        self.tainted = False
        plan = Plan(
            seed, brokers=1, replicas=1, min_isr=1, producers=0, no_retry_producers=0, consumers=0,
            operators=False, faults=(), properties=PROPERTIES,
        )  # fmt: skip
        self.cluster = Cluster(plan)
        self.simulation = self.cluster.simulation
        self.cluster.boot()
        self.node = self.simulation.node("client")
        self.node.call(self._prepare())
        self.broker = self.cluster.brokers["b0"]
        cache = self.broker.services.metadata
        self.topic_ids = [cache.topic_id(name) for name in ("hostile", "compacted")]
        self.written = 0

    async def _prepare(self):
        client = Client(self.node.world, self.cluster.bootstrap, timeout_s=5.0)
        for name, configs in TOPICS.items():
            await create_topic(client, name, 1 if name == "witness" else 3, 1, configs)
            await client.leader(name, 0, refresh=True)
        await client.close()
        self.witness = await PeerConnection.open(self.node.world, "b0", PORT, "w", timeout_s=5.0)

    def close(self):
        self.cluster.close()

    def state(self):
        """Return what a refused request must leave alone."""
        replicas = self.broker.services.replicas
        tree = self.cluster.zookeeper.tree.nodes
        parts = {
            str(p.tp): (
                p.log.log_end_offset,
                p.log.high_watermark,
                p.state.leader_epoch,
                p.state.isr,
            )
            for p in replicas.leaders()
            if p.log is not None and p.tp.topic in ("hostile", "compacted")
        }
        znodes = {
            path: entry.data
            for path, entry in tree.items()
            if path.startswith(("/brokers/topics/", "/config/", "/admin/")) and "/__" not in path
        }
        return parts, znodes

    async def deliver(self, stream, enough):
        """Send a stream; return what came back and whether the connection was closed."""
        transport, sender = await self.node.world.network.connect("b0", PORT, Sender, timeout_s=5.0)
        transport.write(stream)
        until = self.simulation.now + SILENCE_S
        while not sender.lost and self.simulation.now < until:
            await asyncio.sleep(0.002)
            if enough(sender.received):
                break
        for _ in range(10):  # what is on its way may come in two segments
            if sender.lost or not frames(sender.received)[1]:
                break
            await asyncio.sleep(0.002)
        closed = sender.lost
        transport.close()
        await asyncio.sleep(0.01)
        return bytes(sender.received), closed

    async def ask_witness(self):
        """Produce a record, ask for the end: both must be what they always were."""
        batch = build_batch([Record(timestamp=1, key=b"k", value=b"v")])
        part = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name="witness", partition_data=[part])
        produced = await self.witness.send(
            ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9, 60.0
        )
        found = produced.responses[0].partition_responses[0]
        if (found.error_code, found.base_offset) != (0, self.written):
            raise Finding(f"the witness wrote {self.written}, was told {found}")
        self.written += 1
        place = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        asked = ListOffsetsRequest.ListOffsetsTopic(name="witness", partitions=[place])
        listed = await self.witness.send(ListOffsetsRequest(-1, 0, [asked]), 7, 60.0)
        if listed.topics[0].partitions[0].offset != self.written:
            raise Finding(f"the witness wrote {self.written}, reads {listed}")


class BrokerTarget:
    """Feeds streams to a broker; `check` raises Finding."""

    name = "broker"
    WORLD = World

    def __init__(self, seed=1):
        self._seed = seed
        self._world = None
        self._caught = Tracebacks()
        logging.getLogger("ottla").addHandler(self._caught)

    def close(self):
        logging.getLogger("ottla").removeHandler(self._caught)
        self.fresh()

    def fresh(self):
        """Let the next input see a new world."""
        if self._world is not None:
            self._world.close()
            self._world = None

    @property
    def world(self):
        if self._world is not None and (self._world.tainted or self._world.uses >= USES):
            self.fresh()
        if self._world is None:
            self._world = self.WORLD(self._seed)
            self._caught.found.clear()
        return self._world

    @property
    def topic_ids(self):
        return self.world.topic_ids

    def check(self, stream):
        world = self.world
        world.uses += 1
        whole, rest = frames(stream)
        expected, ends = _expected(whole, rest)
        if any(key in OF_THE_CONTROLLER for key, *_ in expected):
            world.tainted = True  # obeyed, as in Kafka: what follows says nothing
        before = world.state()
        began_s, rss = time.process_time(), _rss_mib()
        try:
            answered = self._round(world, stream, expected, ends=ends)
        except BaseException:
            self.fresh()
            raise
        spent_s, grown = time.process_time() - began_s, _rss_mib() - rss
        if spent_s > CPU_S:
            raise Finding(f"{spent_s:.1f} s of processor time for {len(stream)} bytes")
        if grown > RSS_MIB:
            raise Finding(f"{grown} MiB more for {len(stream)} bytes")
        # Of what was not answered, as with acks=0, nobody knows whether it was refused.
        known = len(answered) == len(expected) or all(key in READ_ONLY for key, *_ in expected)
        after = world.state()
        if not world.tainted and known and all(map(_refused, answered)) and after != before:
            self.fresh()
            changed = _changed(before, after)
            raise Finding(f"all was refused, and yet the broker's state is another: {changed}")
        if before[0].keys() != after[0].keys() or any(
            p.startswith("/admin/delete_topics/") for p in after[1]
        ):
            world.tainted = True  # a topic is gone, or about to go: that goes on behind the answer

    def _round(self, world, stream, expected, *, ends):
        try:
            received, closed = world.node.call(
                world.deliver(stream, lambda r: not ends and len(frames(r)[0]) >= len(expected)),
                within_s=60.0,
            )
            answered = self._judge(received, expected, closed=closed, ends=ends)
            if not world.tainted:
                world.node.call(world.ask_witness(), within_s=120.0)
        except SimulationError as error:
            raise Finding(f"stuck: {error}") from error
        except OttlaError as error:
            raise Finding(f"the witness was not served: {error!r}") from error
        self._nothing_uncaught(world)
        self._leaks(world)
        return answered

    def _nothing_uncaught(self, world):
        errors = self._caught.found + world.cluster.uncaught()
        if errors:
            self._caught.found.clear()
            raise Finding(errors[0])
        if not world.cluster.broker_nodes()[0].up:
            raise Finding("the broker has ended")

    @staticmethod
    def _leaks(world):
        for server in world.broker._servers.values():
            statistics = server.statistics()
            if statistics["queued_bytes"] or statistics["waiting_for_bytes"]:
                raise Finding(f"a budget is still held: {statistics}")
            if statistics["connections"] > 5:
                raise Finding(f"connections are left: {statistics}")

    @staticmethod
    def _judge(received, expected, *, closed, ends):
        """Match answers with questions; return (key, version, response or None) of each."""
        answers, torn = frames(received)
        if torn:
            raise Finding(f"{len(torn)} bytes that are no frame")
        found = []
        waiting = list(expected)
        for answer in answers:
            (correlation_id,) = struct.unpack_from(">i", answer)
            # Without an answer, as with acks=0; a later question may have the same number.
            while (
                waiting
                and waiting[0][3]
                and not (
                    waiting[0][2] == correlation_id
                    and all(w[3] or w[2] != correlation_id for w in waiting[1:])
                )
            ):
                waiting.pop(0)
            if not waiting or waiting[0][2] != correlation_id:
                raise Finding(f"answer {correlation_id} to no question; open: {waiting[:3]}")
            key, version, _, _ = waiting.pop(0)
            found.append((key, version, _read(key, version, answer)))
        open_ones = [w for w in waiting if not w[3]]
        if open_ones and not closed and open_ones[0][0] not in MAY_WAIT:
            raise Finding(f"neither answered nor closed: {open_ones[0]}")
        if ends and not open_ones and not closed:
            raise Finding("what cannot be read has not closed the connection")
        return found


def _changed(before, after):
    """Return what differs between two states, in a line."""
    return "; ".join(
        f"{name}: {old.get(name, 'not there')} -> {new.get(name, 'not there')}"
        for old, new in zip(before, after, strict=True)
        for name in sorted(old.keys() | new.keys())
        if (name in old, old.get(name)) != (name in new, new.get(name))
    )[:500]


def _read(key, version, answer):
    """Return a response; it has to be well-formed and no admission of a bug."""
    if key == API_VERSIONS and not APIS[key].supports(version):
        version = 0
    try:
        _, pos = decode_response_header(key, version, memoryview(answer))
        response = decode_response(key, version, memoryview(answer), pos)
    except OttlaError as error:
        raise Finding(f"an answer to {key} v{version} that cannot be read: {error}") from error
    if -1 in error_codes(response) and key not in SAYS_UNKNOWN:
        raise Finding(f"UNKNOWN_SERVER_ERROR to {key} v{version}: {response}")
    return response


def error_codes(value):
    """Return every error code in a message."""
    found = []
    if isinstance(value, WireStruct):
        for name in value.__struct_fields__:
            part = getattr(value, name)
            found += [part] if name == "error_code" else error_codes(part)
    elif isinstance(value, list):
        for part in value:
            found += error_codes(part)
    return found


def _refused(answered):
    key, _, response = answered
    codes = error_codes(response) or [0]
    # What timed out goes on behind the answer, as in Kafka.
    return key in READ_ONLY or (all(codes) and REQUEST_TIMED_OUT not in codes)


def _expected(whole, rest):
    """Return (key, version, correlation id, silent) of what is served; whether it ends there.

    What a broker does not serve, or cannot read, closes the connection; what follows is not heard.
    """
    found = []
    for raw in whole:
        if len(raw) < 8:
            return found, True
        key, version, correlation_id = struct.unpack_from(">hhi", raw)
        if key == API_VERSIONS and not APIS[key].supports(version):
            found.append((key, version, correlation_id, False))
            continue
        if key not in ROUTES:
            return found, True
        try:
            _, pos = decode_request_header(memoryview(raw))
            request = decode_request(key, version, memoryview(raw), pos, rest_ok=True)
        except OttlaError:
            return found, True
        found.append((key, version, correlation_id, key == PRODUCE and request.acks == 0))
    if len(rest) < 4:
        return found, False
    (size,) = struct.unpack_from(">i", rest)
    return found, not 0 <= size <= DEFAULT_MAX_FRAME_BYTES


def _rss_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
