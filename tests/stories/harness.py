"""What stories run on: real controllers, sessions, stores, channels; an in-memory ZooKeeper behind
a network of function calls; brokers that only answer and remember what they were told.

Everything happens on the test's own loop in call order, so a story's transcript is the same each
time. Time stands still: sessions end by command.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ottla.controller.loop import LIST_OFFSETS, Controller
from ottla.model.cluster import BrokerInfo, Endpoint, ReplicaAssignment, TopicInfo
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.wire.codec import decode_request
from ottla.wire.messages.control import (
    AlterPartitionRequest,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from ottla.wire.messages.records import ListOffsetsResponse
from ottla.zookeeper import znodes
from ottla.zookeeper.memory import LoggedWrite, MemoryZooKeeper
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.session import Session, SessionEvent, SessionState
from ottla.zookeeper.store import Store, ensure_chroot

SESSION_TIMEOUT_MS = 18_000
QUIET_TURNS = 15
IDLE_TURNS = 3
REAL_QUIET_TURNS = 4
SETTLE_S = 30


class StillClock:
    """Time does not pass."""

    slice_s = 0.008

    def monotonic(self) -> float:
        return 1000.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class CallTransport(asyncio.Transport):
    """Bytes arrive at the other end at the loop's next turn."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.other: CallTransport | None = None
        self.gone = False

    def write(self, data: Any) -> None:
        if not self.gone and self.other is not None:
            asyncio.get_running_loop().call_soon(self.other.receive, bytes(data))

    def receive(self, data: bytes) -> None:
        if not self.gone:
            self.protocol.data_received(data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self.gone:
            return
        self.gone = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self.protocol.connection_lost, None)
        if self.other is not None:
            loop.call_soon(self.other.abort)

    def is_closing(self) -> bool:
        return self.gone

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class CallListener:
    def __init__(self, network: "CallNetwork", port: int) -> None:
        self._network = network
        self.port = port

    def close(self) -> None:
        self._network.listening.pop(self.port, None)


class CallNetwork:
    """A network without sockets."""

    def __init__(self) -> None:
        self.listening: dict[int, Callable[[], Any]] = {}

    async def connect(
        self, host: str, port: int, factory: Callable[[], Any], *, timeout_s: float
    ) -> tuple[Any, Any]:
        if port not in self.listening:
            raise ConnectionRefusedError(port)
        near, far = CallTransport(), CallTransport()
        near.other, far.other = far, near
        near.protocol, far.protocol = factory(), self.listening[port]()
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near, near.protocol

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        """Refuse no connection: the brokers of a story end by their sessions."""
        return False

    async def listen(self, host: str, port: int, factory: Callable[[], Any]) -> CallListener:
        port = port or 2181 + len(self.listening)
        self.listening[port] = factory
        return CallListener(self, port)


@dataclass
class Told:
    """A request as a broker received it."""

    broker: int
    api_key: int
    message: Any


class StubPeer:
    """A broker's end of a controller's line: remembers and answers."""

    def __init__(self, stub: "StubBroker", controller: int) -> None:
        self.stub = stub
        self.controller = controller
        self.closed = False

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Take note of who would hear of this connection's end: none ends here."""

    def send_encoded(
        self, api_key: int, version: int, body: Sequence[Any], timeout_s: float
    ) -> "asyncio.Future[Any]":
        if self.stub.deaf:
            raise ConnectionLostError("deaf")
        message = decode_request(api_key, version, b"".join(body))
        future = asyncio.get_running_loop().create_future()
        answer = self.stub.receive(self.controller, api_key, message)
        if answer is not None:
            future.set_result(answer)
        return future

    def close(self) -> None:
        self.closed = True


class StubBroker:
    """One registered broker, its own controller included."""

    def __init__(self, cluster: "Cluster", info: BrokerInfo) -> None:
        self.cluster = cluster
        self.info = info
        self.session: Session | None = None
        self.store: Store | None = None
        self.controller: Controller | None = None
        self.epochs: list[int] = []
        self.failed_replicas: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()
        self.deaf = False
        self.silent = False
        self.whole: bool | None = None
        """What it says of its logs when it registers; None as a JVM broker, nothing."""
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}

    def receive(self, controller: int, api_key: int, message: Any) -> Any:
        if api_key == LIST_OFFSETS:
            return None if self.silent else self._log_ends(message)
        self.cluster.told[controller].append(Told(self.info.id, api_key, message))
        if self.silent:
            return None
        stale = self.cluster.highest_epoch > message.controller_epoch
        error = 11 if stale else 77 if message.broker_epoch < self.epochs[-1] else 0
        if api_key == LEADER_AND_ISR:
            return self._lead_or_follow(message, error)
        if api_key == UPDATE_METADATA:
            return UpdateMetadataResponse(error_code=error)
        assert api_key == STOP_REPLICA
        return self._stop(message, error)

    def _log_ends(self, message: Any) -> ListOffsetsResponse:
        assert message.replica_id == -2
        r = ListOffsetsResponse
        topics = []
        for topic in message.topics:
            answers = []
            for p in topic.partitions:
                epoch, end = self.ends.get((topic.name, p.partition_index), (0, 0))
                answers.append(
                    r.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, leader_epoch=epoch, offset=end
                    )
                )
            topics.append(r.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return r(topics=topics)

    def _lead_or_follow(self, message: Any, error: int) -> LeaderAndIsrResponse:
        if error:
            return LeaderAndIsrResponse(error_code=error)
        topics = []
        for topic in message.topic_states:
            answers = [
                LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                    partition_index=p.partition_index,
                    error_code=56
                    if TopicPartition(topic.topic_name, p.partition_index) in self.failed_replicas
                    else 0,
                )
                for p in topic.partition_states
            ]
            topics.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id, partition_errors=answers
                )
            )
        return LeaderAndIsrResponse(topics=topics)

    def _stop(self, message: Any, error: int) -> StopReplicaResponse:
        if error:
            return StopReplicaResponse(error_code=error)
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=p.partition_index,
                    error_code=56
                    if TopicPartition(topic.topic_name, p.partition_index) in self.undeletable
                    else 0,
                )
                for topic in message.topic_states
                for p in topic.partition_states
            ]
        )


@dataclass
class Cluster:
    """The story's world."""

    zookeeper: Any
    world: World
    properties: dict[str, str] = field(default_factory=dict)
    brokers: dict[int, StubBroker] = field(default_factory=dict)
    whole: dict[int, bool] = field(default_factory=dict)
    """What brokers will say of their logs at their first start."""
    told: dict[int, deque[Told]] = field(default_factory=dict)
    lines: list[tuple[str, Any]] = field(default_factory=list)
    sessions: dict[int, str] = field(default_factory=dict)
    journals: dict[int, list[bytes]] = field(default_factory=dict)
    highest_epoch: int = 0
    topic_ids_on_disk: dict[str, set[bytes]] = field(default_factory=dict)

    @classmethod
    async def create(cls, **properties: str) -> "Cluster":
        nothing: Any = None
        world = World(StillClock(), random.Random(1), nothing, CallNetwork(), nothing)
        zookeeper = await MemoryZooKeeper(world).start()
        cluster = cls(zookeeper, world, properties)
        zookeeper.writes = Writes(cluster)
        await cluster._begin()
        return cluster

    @classmethod
    async def create_on(
        cls, real: "RealZooKeeper", network: Any, properties: dict[str, str]
    ) -> "Cluster":
        """Use a real ZooKeeper: there are no `zk` lines then, and settling takes real time."""
        nothing: Any = None
        world = World(StillClock(), random.Random(1), nothing, network, nothing)
        await ensure_chroot(world, real.connect_string, SESSION_TIMEOUT_MS, 5000)
        cluster = cls(real, world, properties)
        await cluster._begin()
        return cluster

    async def _begin(self) -> None:
        session = await self._connect()
        self.sessions[session.session_id] = "admin"
        self._admin = Store(session)
        await self._admin.cluster.create_top_level_paths()
        self.lines.clear()

    _admin: Store | None = None

    @property
    def admin(self) -> Store:
        assert self._admin is not None
        return self._admin

    async def _connect(self, on_event: Callable[[SessionEvent], None] | None = None) -> Session:
        return await Session.connect(
            self.world, self.zookeeper.connect_string, SESSION_TIMEOUT_MS, 1000, on_event
        )

    # --- brokers ----------------------------------------------------------------------------

    async def start(self, broker_id: int, rack: str | None = None) -> None:
        """Register a broker and let it take part in elections."""
        info = BrokerInfo(broker_id, (Endpoint(f"host{broker_id}", 9092),), rack)
        stub = StubBroker(self, info)
        stub.whole = self.whole.get(broker_id)
        self.brokers[broker_id] = stub
        self.told[broker_id] = deque()
        config = BrokerConfig(
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": "zookeeper:2181",
                "log.dirs": "/logs",
                "listeners": "PLAINTEXT://:0",
                "auto.leader.rebalance.enable": "false",
                **self.properties,
            }
        )
        stub.controller = Controller(
            self.world,
            config,
            lambda: info,
            self._connector(broker_id),
            lambda line: self._journal(broker_id, line),
            known_topic_ids=lambda: self.topic_ids_on_disk,
        )
        await self._join(stub)

    async def _join(self, stub: StubBroker) -> None:
        lost = asyncio.Event()

        def on_event(event: SessionEvent) -> None:
            if event.state is SessionState.DEAD:
                lost.set()

        stub.session = await self._connect(on_event)
        self.sessions[stub.session.session_id] = str(stub.info.id)
        stub.store = Store(stub.session)
        stub.epochs.append(await self._register(stub))
        assert stub.controller is not None
        await stub.controller.start(stub.store)

    @staticmethod
    async def _register(stub: StubBroker) -> int:
        assert stub.store is not None
        return await stub.store.brokers.register(stub.info, wait_ms=0, logs_whole=stub.whole)

    def _connector(self, controller: int) -> Callable[[Endpoint], Any]:
        async def connect(endpoint: Endpoint) -> StubPeer:
            broker = self.brokers[int(endpoint.host.removeprefix("host"))]
            if broker.deaf or broker.session is None:
                raise ConnectionLostError("refused")
            return StubPeer(broker, controller)

        return connect

    def _journal(self, broker_id: int, line: bytes) -> None:
        self.journals.setdefault(broker_id, []).append(line)
        self.lines.append(("journal", (broker_id, msgspec.json.decode(line))))

    async def kill(self, broker_id: int) -> None:
        """A broker's process dies and ZooKeeper ends its session."""
        stub = self.brokers[broker_id]
        session, stub.session = stub.session, None
        assert session is not None
        assert stub.controller is not None
        await stub.controller.on_session_lost()
        self.zookeeper.expire(session.session_id)
        await session.close()

    async def bounce(self, broker_id: int) -> None:
        """A broker dies and is back before anybody saw it gone: another czxid, one change."""
        stub = self.brokers[broker_id]
        assert stub.controller is not None
        assert stub.session is not None
        await stub.controller.on_session_lost()
        new = await self._connect()
        self.sessions[new.session_id] = str(broker_id)
        path = znodes.broker_path(broker_id)
        data = znodes.encode_broker(stub.info, self.world.clock.wall_ms())
        await new.multi([Delete(path), Create(path, data, ephemeral=True)])
        await stub.session.close()
        stub.session = new
        stub.store = Store(new)
        stat = await new.exists(path)
        assert stat is not None
        stub.epochs.append(stat.czxid)
        await stub.controller.start(stub.store)

    async def close(self) -> None:
        for stub in self.brokers.values():
            if stub.controller is not None:
                await stub.controller.shutdown()
            if stub.session is not None:
                await stub.session.close()
        if self._admin is not None:
            await self._admin.session.close()
        self.zookeeper.stop()

    # --- who is who -------------------------------------------------------------------------

    @property
    def active(self) -> Controller:
        found = [s.controller for s in self.brokers.values() if s.controller is not None]
        (controller,) = [c for c in found if c.is_active]
        return controller

    def incarnation(self, broker_id: int, epoch: int) -> str:
        epochs = self.brokers[broker_id].epochs
        return f"{broker_id}" + "'" * epochs.index(epoch)

    async def settle(self) -> None:
        """Return when nothing happens any more; on a real server within SETTLE_S, or it fails."""
        if isinstance(self.zookeeper, RealZooKeeper):
            await asyncio.wait_for(self._quiet(REAL_QUIET_TURNS, self._hear_everything), SETTLE_S)
        else:
            await self._quiet(QUIET_TURNS, lambda: asyncio.sleep(0), idle_turns=IDLE_TURNS)

    async def _quiet(
        self, turns: int, turn: Callable[[], Awaitable[None]], idle_turns: int = 1 << 30
    ) -> None:
        """`idle_turns`: so many are enough if no callback waits, either."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        quiet = 0
        before: Any = None
        while quiet < turns:
            await turn()
            controllers = [s.controller for s in self.brokers.values() if s.controller]
            working = any(c._busy or c._queue for c in controllers)
            now = (
                self.zookeeper.tree.zxid,
                len(self.lines),
                sum(map(len, self.told.values())),
            )
            quiet = quiet + 1 if now == before and not working else 0
            before = now
            if quiet >= idle_turns and not ready:
                return

    async def _hear_everything(self) -> None:
        """Let every session hear of what was written: a sync's answer comes after those watches."""
        await asyncio.sleep(0.002)
        sessions = [s.session for s in self.brokers.values() if s.session is not None]
        for session in [self.admin.session, *sessions]:
            await session.sync("/")

    # --- what people do ---------------------------------------------------------------------

    async def create_topic(
        self, name: str, replicas: dict[int, tuple[int, ...]], config: dict[str, str]
    ) -> None:
        store = self.admin
        path = znodes.config_path("topics", name)
        await store.zk.create_recursive(path, znodes.encode_config(config))
        assignment = {p: ReplicaAssignment(r) for p, r in replicas.items()}
        topic_id = name.encode().ljust(16, b"\1")
        await store.topics.create(TopicInfo(name, topic_id, assignment))

    async def grow(self, name: str, added: dict[int, tuple[int, ...]]) -> None:
        info = (await self.admin.topics.get_many([name]))[name]
        assert info is not None
        assignment = {
            **info.assignment,
            **{p: ReplicaAssignment(r) for p, r in added.items()},
        }
        await self.admin.topics.set(TopicInfo(name, info.topic_id, assignment))

    async def shrink(self, name: str, partitions: int) -> None:
        info = (await self.admin.topics.get_many([name]))[name]
        assert info is not None
        assignment = {p: a for p, a in info.assignment.items() if p < partitions}
        await self.admin.topics.set(TopicInfo(name, info.topic_id, assignment))

    async def move_endpoint(self, broker_id: int, port: int) -> None:
        stub = self.brokers[broker_id]
        assert stub.session is not None
        stub.info = replace(stub.info, endpoints=(Endpoint(f"host{broker_id}", port),))
        data = znodes.encode_broker(stub.info, self.world.clock.wall_ms())
        await stub.session.set(znodes.broker_path(broker_id), data)

    async def ask_isr(self, tp: TopicPartition, isr: Sequence[int]) -> int:
        """Let the leader ask for an ISR; return the error of that partition."""
        context = self.active.context
        assert context is not None
        known = context.leadership[tp].leader_and_isr
        request = AlterPartitionRequest(
            broker_id=known.leader,
            broker_epoch=self.brokers[known.leader].epochs[-1],
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=context.topic_id(tp.topic),
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=tp.partition,
                            leader_epoch=known.leader_epoch,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(
                                    broker_id=b, broker_epoch=self.brokers[b].epochs[-1]
                                )
                                for b in isr
                            ],
                            partition_epoch=known.partition_epoch,
                        )
                    ],
                )
            ],
        )
        response = await self.active.alter_partition(request)
        if response.error_code:
            return int(response.error_code)
        return int(response.topics[0].partitions[0].error_code)

    def count_writes(self, heard: Callable[[int], None]) -> None:
        """Call `heard` with 1, 2, ... at every write to ZooKeeper from now on."""
        self.zookeeper.writes.heard = heard
        self.zookeeper.writes.count = 0

    async def usurp(self) -> None:
        """Another controller, seen by nobody yet, raises the epoch."""
        found = await self.admin.election.get_epoch()
        assert found is not None
        data = znodes.encode_controller_epoch(found[0] + 1)
        await self.admin.session.multi([Set(znodes.CONTROLLER_EPOCH, data)])


class RealZooKeeper:
    """A real server, seen as the in-memory one is; each story has a chroot of its own."""

    class tree:  # noqa: N801 - as MemoryZooKeeper names it
        zxid = 0

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string

    def expire(self, session_id: int) -> None:
        """Closing the session, which follows, has the same effect."""

    def stop(self) -> None:
        """The server serves the next story."""


class Writes(deque[LoggedWrite]):
    """The in-memory ZooKeeper's log of writes, told to the story as well."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(maxlen=100_000)
        self._cluster = cluster
        self.count = 0
        self.heard: Callable[[int], None] | None = None

    def append(self, write: LoggedWrite) -> None:
        super().append(write)
        self.count += 1
        if self.heard is not None:
            self.heard(self.count)
        self._cluster.lines.append(("write", write))
        if write.path == znodes.CONTROLLER_EPOCH and (write.data or b"").isdigit():
            self._cluster.highest_epoch = int(write.data or b"0")


def play(scene: Callable[[Cluster], Awaitable[None]], *brokers: int, **properties: str) -> None:
    """Play a scene on a cluster whose brokers have started one after the other."""

    async def run() -> None:
        cluster = await Cluster.create(**properties)
        try:
            for broker in brokers:
                await cluster.start(broker)
                await cluster.settle()
            await scene(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())
