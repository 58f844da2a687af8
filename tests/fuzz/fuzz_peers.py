"""The fuzz target of answers: a false broker, which a real one follows, obeys or asks.

b9 is registered in ZooKeeper and listens, but answers what the input says. Broker b0 is real and
the controller: it follows b9's partitions (Fetch, ListOffsets, OffsetForLeaderEpoch) and as
controller tells it (LeaderAndIsr, UpdateMetadata, StopReplica); `client` asks it (ApiVersions,
Metadata). It must hold: nothing uncaught, nothing logged with a traceback; what b0 took over can be
read to its end; the witness is served by b0 as ever.

An input is one byte of flags, then frames: api key and version (int16 each) and an answer's body.
A request is answered with the next frame of its key, else with what an honest broker would say.
"""

import asyncio
import struct
from collections import defaultdict, deque

from fuzz_broker import BrokerTarget, Finding, World
from fuzz_mutations import frames

from ottla.client.client import Client
from ottla.log.validate import check_follower_batches
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.errors import OttlaError
from ottla.net.server import Server
from ottla.sim.broker_processes import PORT
from ottla.sim.scheduler import SimulationError
from ottla.wire import codec
from ottla.wire.batch_header import BASE_OFFSET, LAST_OFFSET_DELTA
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest

FALSE = 9
PARTITIONS = 2
FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, EPOCH_END = 1, 2, 3, 18, 23
TOLD = {4, 5, 6}
FITTING = 1
"""This flag has the records' base offsets set to where the follower is."""

ASKED_BY_CLIENTS = {API_VERSIONS, METADATA, 0, LIST_OFFSETS}


class FalseBroker:
    """What b9 says. `script` holds bodies by key."""

    def __init__(self):
        self.script = defaultdict(deque)
        self.fitting = False
        self.waiting = []
        self.topics = 0

    async def run(self, world):
        from ottla.zookeeper.session import Session
        from ottla.zookeeper.store import Store

        await Server(world, "b9", PORT, self.dispatch).start()
        session = await Session.connect(world, "zk:2181", 6000, 5000)
        info = BrokerInfo(FALSE, (Endpoint("b9", PORT),))
        await Store(session).brokers.register(info, wait_ms=0)
        await asyncio.Event().wait()

    def play(self, script, *, fitting):
        """Answer so from now on, also who waits already."""
        self.script = script
        self.fitting = fitting
        waiting, self.waiting = self.waiting, []
        for pending, header, request in waiting:
            self.say(pending, header, request)

    def say(self, pending, header, request):
        if not pending.done:
            pending.complete(self.answer(header, request))

    def dispatch(self, connection, frame):
        header, pos = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        request = codec.decode_request(key, version, frame, pos)
        if key == FETCH and not self.script[FETCH]:
            pending = connection.pending(pipelined=False)
            self.waiting.append((pending, header, request))
            asyncio.get_running_loop().call_later(0.5, self.say, pending, header, request)
            return pending
        return self.answer(header, request)

    def answer(self, header, request):
        key, version = header.api_key, header.api_version
        head = response_header(key, version, header.correlation_id)
        if self.script[key]:
            body = bytearray(self.script[key].popleft())
            if key == FETCH and self.fitting:
                self._fit(body, version, request)
            return [head, body]
        return [head, *codec.encode_response(honest(key, request), version)]

    @staticmethod
    def _fit(body, version, request):
        """Set base offsets to what was asked for; they lie outside the CRC."""
        asked = {
            (t.topic_id, p.partition): p.fetch_offset for t in request.topics for p in t.partitions
        }
        try:
            response = codec.decode_response(FETCH, version, memoryview(body))
        except OttlaError:
            return
        for topic in response.responses:
            for part in topic.partitions:
                offset = asked.get((topic.topic_id, part.partition_index))
                if offset is not None and part.records is not None and len(part.records) >= 8:
                    struct.pack_into(">q", part.records, 0, offset)


def honest(key, request):
    """Return what a broker without faults and without records answers."""
    if key == LIST_OFFSETS:
        r = ListOffsetsResponse
        return r(
            topics=[
                r.ListOffsetsTopicResponse(
                    name=t.name,
                    partitions=[
                        r.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, offset=0, leader_epoch=0
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )
    if key == EPOCH_END:
        r = OffsetForLeaderEpochResponse
        return r(
            topics=[
                r.OffsetForLeaderTopicResult(
                    topic=t.topic,
                    partitions=[
                        r.EpochEndOffset(partition=p.partition, leader_epoch=0, end_offset=0)
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )
    return FetchResponse() if key == FETCH else codec.response_class(key)()


class PeerWorld(World):
    """The broker target's world, and in it the false broker and a topic that it leads."""

    def __init__(self, seed=1):
        super().__init__(seed)
        self.false = FalseBroker()
        node = self.simulation.node("b9")
        node.boot(self.false.run)
        cache = self.broker.services.metadata
        self.simulation.run_until(lambda: FALSE in cache.snapshot.brokers, within_s=30.0)
        self.node.call(self.create_topic("followed"))
        self.simulation.run_until(lambda: self.followed() == PARTITIONS, within_s=30.0)
        self.topic_ids = [cache.topic_id("followed")]

    async def create_topic(self, name):
        """Create a topic that b9 leads and b0 follows."""
        r = CreateTopicsRequest
        spread = [
            r.CreatableReplicaAssignment(partition_index=p, broker_ids=[FALSE, 0])
            for p in range(PARTITIONS)
        ]
        topic = r.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=spread
        )
        client = Client(self.node.world, self.cluster.bootstrap, timeout_s=5.0)
        await client.call(r(topics=[topic], timeout_ms=2000), "controller", timeout_s=10.0)
        await client.close()

    def followed(self):
        """Return how many partitions the fetchers still follow."""
        fetchers = self.broker.services.replicas.fetchers._fetchers.values()
        return sum(tp.topic == "followed" for f in fetchers for tp in f.states)

    def log(self, index):
        """Return b0's copy of a partition."""
        return self.broker.services.replicas.hosted("followed", index).log

    def close(self):
        self.simulation.node("b9").crash()
        super().close()


class PeerTarget(BrokerTarget):
    """Feeds answers; `check` raises Finding."""

    name = "peers"
    WORLD = PeerWorld

    def check(self, data):
        if not data:
            return
        world = self.world
        world.uses += 1
        script = defaultdict(deque)
        for frame in frames(data[1:])[0][:20]:
            if len(frame) >= 4:
                script[struct.unpack_from(">h", frame)[0]].append(frame[4:])
        try:
            self._act(world, script, fitting=bool(data[0] & FITTING))
            world.node.call(world.ask_witness(), within_s=120.0)
        except SimulationError as error:
            self.fresh()
            raise Finding(f"stuck: {error}") from error
        except OttlaError as error:
            self.fresh()
            raise Finding(f"the witness was not served: {error!r}") from error
        try:
            self._nothing_uncaught(world)
            _readable(world)
        except Finding:
            self.fresh()
            raise
        if world.followed() != PARTITIONS:
            world.tainted = True  # given up, as a bad partition is: the next input needs new ones

    @staticmethod
    def _act(world, script, *, fitting):
        """Have b0 and a client ask b9, until the script is said or time is up."""
        keys = set(script)
        loop = world.simulation.node("b9").loop
        loop.call_soon(lambda: world.false.play(script, fitting=fitting))
        world.simulation.run_for(0.001)
        if keys & TOLD:
            world.tainted = True  # a topic more each time
            world.node.call(world.create_topic(f"told-{world.uses}"), within_s=60.0)
        if keys & ASKED_BY_CLIENTS:
            world.node.call(_ask(world), within_s=300.0)
        if keys & {FETCH, LIST_OFFSETS, EPOCH_END}:
            until = world.simulation.now + 3.0
            while script[FETCH] and world.simulation.now < until:
                world.simulation.run_for(0.02)
            world.simulation.run_for(0.05)
        world.false.script = defaultdict(deque)


async def _ask(world):
    client = Client(world.node.world, [("b9", PORT)], timeout_s=2.0)
    part = ProduceRequest.PartitionProduceData(index=0, records=b"")
    topic = ProduceRequest.TopicProduceData(name="followed", partition_data=[part])
    for work in (
        lambda: client.call(MetadataRequest(topics=None)),
        lambda: client.leader("followed", 0, refresh=True),
        lambda: client.call(MetadataRequest(topics=[]), "controller"),
        lambda: client.call(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), FALSE),
    ):
        try:
            await work()
        except OttlaError:
            continue
    await client.close()


def _readable(world):
    """What the follower has taken over must be whole batches, rising; the watermark within."""
    for index in range(PARTITIONS):
        log = world.log(index)
        if log is None:
            continue
        start, end = log.log_start_offset, log.log_end_offset
        if not start <= log.high_watermark <= end:
            raise Finding(f"watermark {log.high_watermark} of a log from {start} to {end}")
        if start == end:
            continue
        last = -1
        for part in log.read(start, 1 << 20, end).parts:
            for _, header in check_follower_batches(memoryview(part)):
                base = header[BASE_OFFSET]
                if base <= last:
                    raise Finding(f"offset {base} follows {last}")
                last = base + header[LAST_OFFSET_DELTA]
                if last < start:  # the first one may hold the start of the log in its middle
                    raise Finding(f"a batch up to offset {last} of a log from {start}")
