"""Brokers' data paths on the simulated world: real logs, codec, connections, handlers, fetchers.

Loop, clock, network, disks and workers are those of `ottla.sim`. The brokers share one loop, that
of the node `test`, so that a scenario can call their parts. Stand-ins are the controller and the
metadata cache: the test decides who leads.
"""

import asyncio
import fnmatch
import random
import types

import pytest

from ottla.broker.connections import ControlConnection
from ottla.broker.requests.control import replica_control
from ottla.broker.requests.records import fetch, offsets, produce
from ottla.broker.requests.router import Router
from ottla.broker.tasks import Tasks
from ottla.log.manager import LogManager
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.model.ids import NO_EPOCH, TopicPartition
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.net.server import Server
from ottla.replication.replica_manager import ReplicaManager
from ottla.sim.clock import SimWorkers
from ottla.sim.files import SimDisk, SimFile, SimFiles
from ottla.sim.network import SimNetwork
from ottla.sim.world import Simulation
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.cluster import ApiVersionsResponse
from ottla.wire.messages.control import (
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
)
from ottla.wire.messages.records import FetchRequest, ListOffsetsRequest, ProduceRequest
from ottla.wire.records import Record, build_batch, iter_batches, iter_records
from support.logs import load_logs

LISTENER = "PLAINTEXT"
TOPIC_ID = bytes(range(16))
CONTROLLER = "controller"
CONTROLLER_PORT = 9000
APIS = (
    produce.PRODUCE,
    fetch.FETCH,
    offsets.LIST_OFFSETS,
    replica_control.LEADER_AND_ISR,
    replica_control.STOP_REPLICA,
    offsets.OFFSET_FOR_LEADER_EPOCH,
)


class CountingFile(SimFile):
    """A simulated file that counts what workers prefetch, and whose methods a test can replace."""

    def prefetch(self, size, offset):
        self._files.prefetches += 1
        super().prefetch(size, offset)


class CountingFiles(SimFiles):
    prefetches = 0

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        return CountingFile(self, file._path, file._inode)


class DiskPath:
    """A path on a simulated disk, with what tests use of `pathlib.Path`."""

    def __init__(self, disk, path):
        self._disk, self._path = disk, str(path)

    def __repr__(self):
        return self._path

    def __eq__(self, other):
        return self._path == other._path

    def __hash__(self):
        return hash(self._path)

    def __lt__(self, other):
        return self._path < other._path

    def __truediv__(self, name):
        return DiskPath(self._disk, f"{self._path}/{name}")

    @property
    def parent(self):
        return DiskPath(self._disk, self._path.rpartition("/")[0])

    def exists(self):
        return self._path in self._disk.inodes or self._path in self._disk.folders

    def glob(self, pattern):
        names = self._disk.children(self._path)
        return [self / name for name in names if fnmatch.fnmatch(name, pattern)]

    def read_bytes(self):
        return bytes(self._disk.inodes[self._path].data)

    def write_bytes(self, data):
        """Change what lies on the disk, also what was synced."""
        inode = self._disk.inodes[self._path]
        inode.sync()
        inode.changes += 1
        inode.data[:] = inode.durable[:] = data


class Network(SimNetwork):
    """A host's network. What is in `cluster.cuts` is refused."""

    def __init__(self, cluster, host):
        super().__init__(cluster.simulation.internet, host, cluster.loop)
        self._cluster = cluster

    async def connect(self, host, port, factory, *, timeout_s):
        self._refuse(host)
        transport, protocol = await super().connect(host, port, factory, timeout_s=timeout_s)
        try:
            self._refuse(host)  # it was cut off meanwhile
        except ConnectionRefusedError:
            transport.abort()
            raise
        return transport, protocol

    def _refuse(self, host):
        if frozenset((self.host, host)) in self._cluster.cuts:
            raise ConnectionRefusedError(f"{self.host} is cut off from {host}")


class TopicConfigs:
    async def refresh(self, topics):
        """Nothing to read: a test's settings never change."""


class Node:
    """One broker's data path. `crash` leaves only the files."""

    def __init__(self, cluster, broker_id):
        self.cluster, self.id = cluster, broker_id
        self.port = 9100 + broker_id
        self.running = False
        self.host = f"b{broker_id}"
        self.folder = "/data"
        self.disk = SimDisk()
        self.network = Network(cluster, self.host)

    @property
    def endpoint(self):
        return Endpoint(self.host, self.port)

    def path(self, name):
        """Return a path in the log dir, for reading and changing what lies there."""
        return DiskPath(self.disk, f"{self.folder}/{name}")

    async def start(self):
        cluster = self.cluster
        self.epoch = cluster.next_broker_epoch()
        config = BrokerConfig(
            {
                "broker.id": str(self.id),
                "zookeeper.connect": "unused:1",
                "log.dirs": self.folder,
                **cluster.properties,
            }
        )
        self.files = CountingFiles(self.disk)
        workers = SimWorkers(random.Random(self.id), files=self.files)
        world = World(cluster.clock, random.Random(self.id), self.files, self.network, workers)
        self.world = world
        self.logs = LogManager(world, config)
        load_logs(self.logs, lambda topic: config.topic_config(cluster.topic_properties))
        self.replicas = ReplicaManager(
            world,
            config,
            self.logs,
            cluster=cluster.metadata,
            broker_epoch=lambda: self.epoch,
            controller_peer=self._controller_peer,
            announce=lambda: cluster.controller.announced(self.id),
        )
        self.services = types.SimpleNamespace(
            world=world,
            config=config,
            broker_id=self.id,
            replicas=self.replicas,
            metadata=cluster.metadata,
            quotas=types.SimpleNamespace(active=False),
            authorizer=None,
            tasks=Tasks(),
            topic_configs=TopicConfigs(),
            session=types.SimpleNamespace(
                broker_epoch=self.epoch, store=types.SimpleNamespace(topic_ids=cluster)
            ),
            is_stale=lambda epoch: -1 < epoch < self.epoch,
            control_connection=ControlConnection(),
            accept_controller_epoch=lambda epoch: epoch >= self.replicas.controller_epoch,
        )
        router = Router(self.services, APIS)
        self.server = Server(world, self.host, self.port, router.dispatch, rules=router.frame_rules)
        await self.server.start()
        await self.replicas.start()
        cluster.metadata.alive[self.id] = self.endpoint
        self.running = True
        self._to_controller = None
        self._client = None

    async def _controller_peer(self):
        if self._to_controller is None or self._to_controller.closed:
            self._to_controller = await PeerConnection.open(
                self.world, CONTROLLER, CONTROLLER_PORT, "test", timeout_s=5
            )
        return self._to_controller

    async def send(self, message, version, timeout_s=60):
        """Send a request to this broker as a client would, over a connection of its own."""
        peer = await self.cluster.client.open(self)
        try:
            return await peer.send(message, version, timeout_s)
        finally:
            peer.close()

    async def stop(self, *, clean=True):
        if not self.running:
            return
        self.running = False
        self.cluster.metadata.alive.pop(self.id, None)
        await self.services.tasks.close()
        await self.replicas.shutdown()
        await self.server.close()
        if clean:
            await self.logs.shutdown(self.world.workers)
        else:
            self.logs.abandon()
            # The machine crashed, not the process alone: the next start finds another boot. What
            # it loses is for the test to say (`lose_tail`).
            self.sync_disk()
            self.disk.power_loss(random.Random(self.id))
        self.files.kill()

    def sync_disk(self):
        for inode in self.disk.inodes.values():
            inode.sync()
        self.disk.commit()

    def evict(self):
        """Have everything read from the disk anew."""
        self.sync_disk()
        self.disk.evict()

    def warm(self):
        for inode in self.disk.inodes.values():
            inode.cold.clear()

    def lose_tail(self, keep, index=0):
        """Let a power loss take all records from offset `keep` on; the node is stopped."""
        path = self.path(f"t-{index}/{0:020d}.log")
        data = path.read_bytes()
        size = next(
            (p for p, h in iter_batches(memoryview(data)) if h.base_offset >= keep), len(data)
        )
        path.write_bytes(data[:size])

    def lose_disk(self):
        """Put an empty disk in the place of the node's own."""
        self.disk.wipe()

    # What tests look at.

    def partition(self, index=0, topic="t"):
        return self.replicas.partitions[TopicPartition(topic, index)]

    def log(self, index=0, topic="t"):
        return self.logs.get(TopicPartition(topic, index))

    def records(self, index=0, topic="t"):
        """Return (offset, epoch, value) of all records in the log."""
        log = self.log(index, topic)
        found = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            parts = log.read(offset, 1 << 20, log.log_end_offset).parts
            data = memoryview(b"".join(parts))
            for pos, header in iter_batches(data):
                found += [
                    (record.offset, header.partition_leader_epoch, bytes(record.value))
                    for record in iter_records(data[pos : pos + header.size])
                ]
                offset = header.last_offset + 1
        return found


class Metadata:
    """Live brokers and existing topics, as the test sets them."""

    def __init__(self):
        self.alive = {}
        self.topics = {}
        self.ids = {}

    def endpoint(self, broker_id, listener):
        return self.alive.get(broker_id)

    def partition(self, topic, index):
        return self.topics.get((topic, index))

    def topic_name(self, topic_id):
        return self.ids.get(topic_id)

    @property
    def snapshot(self):
        brokers = {i: BrokerInfo(i, (e,)) for i, e in self.alive.items()}
        return types.SimpleNamespace(brokers=brokers)


class Controller:
    """Elects leaders, and handles AlterPartition as a ZooKeeper controller does."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.epoch = 1
        self.states = {}
        self.refuse = None
        self.silent = False
        self.requests = []
        self.announcements = []
        self.answers = []
        self.offline = set()
        self.deaf = False
        self._asking = set()

    async def start(self):
        server = Server(
            types.SimpleNamespace(
                clock=self.cluster.clock, network=Network(self.cluster, CONTROLLER)
            ),
            CONTROLLER,
            CONTROLLER_PORT,
            self.dispatch,
        )
        await server.start()
        self.server = server

    def dispatch(self, conn, frame):
        header, pos = decode_request_header(frame)
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        if header.api_key == 18:
            listed = ApiVersionsResponse(
                api_keys=[ApiVersionsResponse.ApiVersion(api_key=56, min_version=0, max_version=3)]
            )
            return [head, *encode_response(listed, header.api_version)]
        request = decode_request(header.api_key, header.api_version, frame, pos)
        self.requests.append(request)
        if self.silent:
            return conn.pending(pipelined=False)
        response = AlterPartitionResponse()
        for topic in request.topics:
            items = [self.alter(request.broker_id, p) for p in topic.partitions]
            response.topics.append(
                AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=items)
            )
        return [head, *encode_response(response, header.api_version)]

    def alter(self, broker_id, p):
        item = AlterPartitionResponse.PartitionData(partition_index=p.partition_index)
        state = self.states["t", p.partition_index]
        isr = [b.broker_id for b in p.new_isr_with_epochs]
        if self.refuse is not None:
            item.error_code = self.refuse
        elif p.leader_epoch < state.leader_epoch:
            item.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif isr == state.isr:
            pass
        elif p.partition_epoch != state.partition_epoch:
            item.error_code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(b not in self.cluster.metadata.alive for b in isr if b not in state.isr):
            item.error_code = ErrorCode.INELIGIBLE_REPLICA
        else:
            state.isr = isr
            state.partition_epoch += 1
        if not item.error_code:
            item.leader_id = state.leader
            item.leader_epoch = state.leader_epoch
            item.isr = list(state.isr)
            item.partition_epoch = state.partition_epoch
        return item

    async def lead(self, leader, *, isr=None, replicas=None, index=0, to=None, new=False):
        """Make `leader` the leader in a new epoch and send it to the replicas (or only `to`)."""
        known = self.states.get(("t", index))
        state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=self.epoch,
            leader=leader,
            leader_epoch=0 if known is None else known.leader_epoch + 1,
            isr=list(isr if isr is not None else known.isr if known else replicas),
            partition_epoch=0 if known is None else known.partition_epoch + 1,
            replicas=list(replicas if replicas is not None else known.replicas),
            is_new=new,
        )
        self.states["t", index] = state
        self.cluster.metadata.topics["t", index] = state
        self.cluster.metadata.ids[TOPIC_ID] = "t"
        return await self.tell(state, to)

    async def tell(self, state, to=None, *, topic_id=TOPIC_ID):
        answers = {}
        for broker in state.replicas if to is None else to:
            if self.cluster[broker].running:
                answers[broker] = await self.tell_all(broker, [state], topic_id=topic_id)
        return answers

    async def tell_all(self, broker, states, *, topic_id=TOPIC_ID):
        """Send one broker the states of several partitions in one request."""
        node = self.cluster[broker]
        request = LeaderAndIsrRequest(
            controller_id=99,
            controller_epoch=self.epoch,
            broker_epoch=node.epoch,
            topic_states=[
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name="t", topic_id=topic_id, partition_states=states
                )
            ],
        )
        return await node.send(request, 7)

    def announced(self, broker):
        """Do what a log_dir_event_notification makes Kafka's controller do."""
        self.announcements.append(broker)
        if self.deaf:
            return
        task = asyncio.get_running_loop().create_task(self._ask_for_replicas(broker))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask_for_replicas(self, broker):
        """Find offline replicas by LeaderAndIsr; move their leadership to other replicas."""
        for (_, index), state in list(self.states.items()):
            if broker not in state.replicas:
                continue
            response = (await self.tell(state, [broker])).get(broker)
            if response is None:
                return
            code = response.topics[0].partition_errors[0].error_code
            self.answers.append((broker, ErrorCode(code)))
            if code == ErrorCode.NONE:
                self.offline.discard((broker, index))
            elif code == ErrorCode.KAFKA_STORAGE_ERROR and (broker, index) not in self.offline:
                self.offline.add((broker, index))
                await self._move_away(broker, index)

    async def _move_away(self, broker, index):
        state = self.states["t", index]
        live = [
            b for b in state.replicas
            if (b, index) not in self.offline and b in self.cluster.metadata.alive
        ]  # fmt: skip
        left = [b for b in state.isr if b != broker] or [broker]
        leader = state.leader if state.leader != broker else -1
        if leader == -1:
            leader = next((b for b in live if b in left), -1)
        await self.lead(leader, isr=left, index=index, to=live)

    async def stop_replica(self, broker, *, delete, leader_epoch=-2, index=0):
        request = StopReplicaRequest(
            controller_epoch=self.epoch,
            broker_epoch=self.cluster[broker].epoch,
            topic_states=[
                StopReplicaRequest.StopReplicaTopicState(
                    topic_name="t",
                    partition_states=[
                        StopReplicaRequest.StopReplicaPartitionState(
                            partition_index=index,
                            leader_epoch=leader_epoch,
                            delete_partition=delete,
                        )
                    ],
                )
            ],
        )
        return await self.cluster[broker].send(request, 4)


class Client:
    def __init__(self, cluster):
        self.world = types.SimpleNamespace(network=Network(cluster, "client"))

    async def open(self, node):
        return await PeerConnection.open(self.world, node.host, node.port, "client", timeout_s=5)


class Cluster:
    """Nodes 1..n, a controller and a client, on one loop."""

    def __init__(self, simulation, size, properties, topic_properties):
        self.simulation = simulation
        self.loop = simulation.node("test").loop
        self.clock = simulation.node("test").clock
        self.cuts = set()
        self.properties = {"replica.lag.time.max.ms": "10000", **properties}
        self.topic_properties = topic_properties
        self.metadata = Metadata()
        self.client = Client(self)
        self.controller = Controller(self)
        self.nodes = {i: Node(self, i) for i in range(1, size + 1)}
        self._broker_epoch = 100
        self.topics = {}

    async def was_created_as(self, name, topic_id):
        """Return whether ZooKeeper has the topic under this id from its creation on."""
        return self.topics.get(name) == topic_id

    def __getitem__(self, broker):
        return self.nodes[broker]

    def next_broker_epoch(self):
        self._broker_epoch += 1
        return self._broker_epoch

    @property
    def now(self):
        """The virtual time in seconds."""
        return self.simulation.now

    def part(self, broker, other):
        """Reset the connections between a broker and another or the controller; refuse new ones."""
        hosts = self[broker].host, other if other == CONTROLLER else self[other].host
        self.cuts.add(frozenset(hosts))
        self.simulation.internet.reset_connections(*hosts)

    def heal(self):
        self.cuts.clear()

    async def start(self):
        await self.controller.start()
        for node in self.nodes.values():
            await node.start()

    async def stop(self):
        for node in self.nodes.values():
            await node.stop()
        await self.controller.server.close()

    async def settle(self, seconds=2.0):
        """Let that much time pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition, seconds=60.0):
        """Let time pass until a condition holds."""
        end = self.now + seconds
        while not condition():
            assert self.now < end, "did not come about"
            await asyncio.sleep(0.01)

    async def produce(self, broker, *values, acks=-1, index=0, timeout_ms=5000, version=11):
        request = produce_request(values, acks=acks, index=index, timeout_ms=timeout_ms)
        response = await self[broker].send(request, version)
        return response.responses[0].partition_responses[0]


def batch(values, **fields):
    return build_batch(
        [Record(offset=i, timestamp=1000 + i, key=None, value=v.encode(), headers=())
         for i, v in enumerate(values)],
        **fields,
    )  # fmt: skip


def produce_request(values, *, acks=-1, index=0, timeout_ms=5000, records=None):
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=index, records=batch(values) if records is None else records
                    )
                ],
            )
        ],
    )


def fetch_request(offset, *, index=0, epoch=NO_EPOCH, last_epoch=-1, replica=-1, **fields):
    fields.setdefault("max_wait_ms", 0)
    fields.setdefault("min_bytes", 1)
    fields.setdefault("session_epoch", -1)
    partition_max = fields.pop("partition_max_bytes", 1 << 20)
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica),
        max_bytes=fields.pop("max_bytes", 1 << 20),
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                topic_id=TOPIC_ID,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=0,
                        partition_max_bytes=partition_max,
                    )
                ],
            )
        ],
        **fields,
    )


def list_offsets_request(timestamp, *, replica=-1, epoch=NO_EPOCH, isolation=0, index=0):
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
        ],
    )


@pytest.fixture
def wired():
    """Run a scenario: `wired(scenario, brokers=3, ...)` calls `await scenario(cluster)`."""

    def run(scenario, brokers=3, topic=None, **properties):
        simulation = Simulation("replication")
        cluster = Cluster(
            simulation,
            brokers,
            {k.replace("_", "."): str(v) for k, v in properties.items()},
            topic or {},
        )

        async def whole():
            await cluster.start()
            try:
                await scenario(cluster)
            finally:
                await cluster.stop()

        try:
            simulation.node("test").call(whole(), within_s=100_000)
        finally:
            simulation.close(collect=False)
        return cluster

    run.batch = batch
    run.produce_request = produce_request
    run.fetch_request = fetch_request
    run.list_offsets_request = list_offsets_request
    run.topic_id = TOPIC_ID
    run.lost = ConnectionLostError
    return run
