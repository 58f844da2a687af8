"""What the broker's stories run on: whole brokers in the simulated world, a scripted controller.

Real are the brokers (`Broker(config, world)`), the codec, the connections and all that is done to
files; simulated are time, network and disks; ZooKeeper is the in-memory ZooKeeper. The controller
is the test: it holds `/controller` as broker 9, sends what the story says and answers what brokers
ask of it.

`Watching` notes what a broker does where it does it: each entry of `WATCHED` wraps one method of
the product for as long as a story runs. Who did it is told by the loop it runs on.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Self

from ottla.broker.broker import Broker
from ottla.broker.requests.router import Router
from ottla.broker.services import BrokerServices, BrokerState
from ottla.log import dir_checkpoints
from ottla.log.checkpoints import HIGH_WATERMARKS
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.net.connection import Connection, Pending
from ottla.net.peer import PeerConnection
from ottla.net.server import Server
from ottla.replication.fetch_session import FINAL_EPOCH
from ottla.replication.fetcher import LeaderFetcher
from ottla.replication.fetching import DelayedFetch, FetchPath
from ottla.replication.isr import Follower
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import FetcherManager, ReplicaManager
from ottla.sim.world import Simulation
from ottla.wire.codec import APIS, decode_request, encode_response
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.cluster import ApiVersionsResponse
from ottla.wire.messages.control import AlterPartitionResponse, ControlledShutdownResponse
from ottla.zookeeper import znodes
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

CONTROLLER = 9
PORT = 9092
FOLDER = "/data"
DESK = "10.0.0.2"  # the address of node c, the second one made
ALTER_PARTITION, CONTROLLED_SHUTDOWN, API_VERSIONS = 56, 7, 18
LISTENED_TO = (
    "ottla.broker.broker",
    "ottla.broker.requests.control.replica_control",
    "ottla.replication.control",
)
NOT_TOLD = "LeaderAndIsr received |delete replica |start|shut"


class BrokerWorld:
    """Brokers b1…, ZooKeeper zk, and c: the controller and every client."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self.lines: list[str] = []
        self.simulation = Simulation(1)
        self.simulation.internet.jitter_s = 0.0
        self.brokers: dict[int, Broker] = {}
        self.epochs: dict[int, list[int]] = {}
        self.stops: dict[int, asyncio.Event] = {}
        self.controller_epoch = 1
        self.partition_epochs: dict[Any, int] = {}
        self.refusal = 0
        self.remaining: list[tuple[str, int]] = []
        self.zookeeper: MemoryZooKeeper | None = None
        self.simulation.node("zk").boot(self._zookeeper)
        self.simulation.run_for(0.1)
        self.desk = self.simulation.node("c")
        self.desk.boot(self._controller)
        assert self.simulation.internet.address_of("c") == DESK
        self.simulation.run_for(0.5)

    def close(self) -> None:
        failures = self.simulation.failures()
        self.simulation.close()
        assert not failures, failures

    def note(self, line: str) -> None:
        self.lines.append(line)

    def wait(self, done: Callable[[], bool], within_s: float = 60.0) -> None:
        self.simulation.run_until(done, within_s=within_s)
        assert done(), "did not come about"

    # --- mains ------------------------------------------------------------------------------

    async def _zookeeper(self, world: Any) -> None:
        self.zookeeper = MemoryZooKeeper(world, tick_ms=1000)
        await self.zookeeper.start("zk", 2181)
        await asyncio.Event().wait()

    async def _controller(self, world: Any) -> None:
        session = await Session.connect(world, "zk:2181", 60_000, 5_000)
        await Store(session).cluster.create_top_level_paths()
        data = znodes.encode_controller(CONTROLLER, 0)
        await session.create(znodes.CONTROLLER, data, ephemeral=True)
        await Server(world, "c", PORT, self._answer).start()
        await asyncio.Event().wait()

    def boot(self, number: int) -> None:
        async def main(world: Any) -> None:
            stop = self.stops[number] = asyncio.Event()
            config = BrokerConfig(
                {
                    "broker.id": str(number),
                    "zookeeper.connect": "zk:2181",
                    "zookeeper.session.timeout.ms": "6000",
                    "listeners": f"PLAINTEXT://b{number}:{PORT}",
                    "log.dirs": FOLDER,
                    "replica.high.watermark.checkpoint.interval.ms": "5000",
                    "controlled.shutdown.retry.backoff.ms": "1000",
                    **self.properties,
                }
            )
            try:
                broker = self.brokers[number] = Broker(config, world, host_name=f"b{number}")
                await broker.start()
                await stop.wait()
                await broker.shutdown()
            except OttlaError as error:
                self.note(f"{number} ends: {error}")

        self.brokers.pop(number, None)
        self.simulation.node(f"b{number}").boot(main)

    def start(self, number: int) -> None:
        self.boot(number)
        self.wait(lambda: number in self.brokers and self.running(number))
        entry = self.zookeeper.tree.nodes[znodes.broker_path(number)]  # type: ignore[union-attr]
        self.epochs.setdefault(number, []).append(entry.czxid)

    def running(self, number: int) -> bool:
        return self.brokers[number].state is BrokerState.RUNNING

    @property
    def live(self) -> list[int]:
        return sorted(n for n in self.brokers if self.simulation.node(f"b{n}").up)

    # --- the controller's end ---------------------------------------------------------------

    def _answer(self, conn: Any, frame: memoryview) -> Any:
        del conn
        header, position = decode_request_header(frame)
        request = decode_request(header.api_key, header.api_version, frame, position)
        answer: Any
        if header.api_key == API_VERSIONS:
            item = ApiVersionsResponse.ApiVersion
            answer = ApiVersionsResponse(
                api_keys=[item(api_key=ALTER_PARTITION, min_version=0, max_version=3)]
            )
        elif header.api_key == CONTROLLED_SHUTDOWN:
            answer = self._controlled_shutdown(request)
        else:
            assert header.api_key == ALTER_PARTITION
            answer = self._alter_partition(request)
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return [head, *encode_response(answer, header.api_version)]

    def _controlled_shutdown(self, request: Any) -> ControlledShutdownResponse:
        left = ",".join(f"{t}-{p}" for t, p in self.remaining) or "none"
        code = f" error={self.refusal}" if self.refusal else ""
        self.note(f"{request.broker_id} asks controller ControlledShutdown, left {left}{code}")
        item = ControlledShutdownResponse.RemainingPartition
        response = ControlledShutdownResponse(
            error_code=self.refusal,
            remaining_partitions=[item(topic_name=t, partition_index=p) for t, p in self.remaining],
        )
        self.remaining = self.remaining[1:]
        return response

    def _alter_partition(self, request: Any) -> AlterPartitionResponse:
        response = AlterPartitionResponse()
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                isr = [b.broker_id for b in p.new_isr_with_epochs]
                name = bytes(topic.topic_id).rstrip(b"\1").decode() + f"-{p.partition_index}"
                outcome = f"error {self.refusal}" if self.refusal else "written"
                shown = ",".join(map(str, isr))
                self.note(
                    f"{request.broker_id} asks controller AlterPartition {name} isr={shown} "
                    f"epoch={p.leader_epoch} v{p.partition_epoch}: {outcome}"
                )
                answers.append(
                    AlterPartitionResponse.PartitionData(
                        partition_index=p.partition_index,
                        error_code=self.refusal,
                        leader_id=request.broker_id,
                        leader_epoch=p.leader_epoch,
                        isr=isr,
                        partition_epoch=p.partition_epoch + 1,
                    )
                )
            item = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=answers)
            response.topics.append(item)
        return response

    # --- asking brokers ---------------------------------------------------------------------

    def ask(self, number: int, message: Any, version: int, show: Callable[[Any], str]) -> Any:
        """Send a request of the controller or a client; its answer becomes a line when it comes."""
        desk = self.desk

        async def go() -> None:
            try:
                peer = await PeerConnection.open(desk.world, f"b{number}", PORT, "c", timeout_s=5)
                try:
                    answer = await peer.send(message, version, 60.0)
                finally:
                    peer.close()
            except OttlaError:
                self.note(f"{number} closes the connection")
                return
            self.note(f"{number} answers {show(answer)}")

        return desk.loop.create_task(go())


class Watching:
    """While it is entered, what brokers do becomes lines of `world`."""

    def __init__(self, world: BrokerWorld, *, requests: bool) -> None:
        self.world = world
        self.watched = WATCHED + (REQUESTS if requests else [])
        self.undo: list[Callable[[], None]] = []
        self.handler = Listening(self)

    def __enter__(self) -> Self:
        for owner, name, notice in self.watched:
            self._wrap(owner, name, notice)
        for name in LISTENED_TO:
            log = logging.getLogger(name)
            log.addHandler(self.handler)
            level = log.level
            log.setLevel(logging.INFO)
            self.undo.append(lambda log=log, level=level: log.setLevel(level))
            self.undo.append(lambda log=log: log.removeHandler(self.handler))
        return self

    def __exit__(self, *exc: object) -> None:
        while self.undo:
            self.undo.pop()()

    def _wrap(self, owner: type, name: str, notice: Any) -> None:
        original = owner.__dict__[name]

        def wrapped(subject: Any, *args: Any, **kwargs: Any) -> Any:
            before = notice(subject, *args, **kwargs)
            if not callable(before):
                self.note(before)
                return original(subject, *args, **kwargs)
            result = original(subject, *args, **kwargs)
            self.note(before(result))
            return result

        setattr(owner, name, wrapped)
        self.undo.append(lambda: setattr(owner, name, original))

    def note(self, what: str | None) -> None:
        who = self.broker()
        if what and who:
            self.world.note(f"{who} {what}")

    @staticmethod
    def broker() -> str | None:
        name = getattr(asyncio.get_running_loop(), "name", "")
        found = re.match(r"b(\d+)\.", name)
        return found[1] if found else None


class Listening(logging.Handler):
    """What a broker writes into its log about control requests."""

    def __init__(self, watching: Watching) -> None:
        super().__init__(logging.INFO)
        self.watching = watching

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not re.match(NOT_TOLD, message):
            self.watching.note("logs " + re.sub(r" (broker_epoch|took_s)=.*", "", message))


# --- what is noticed: before a method runs, or by a function of its result -------------------


def _enters(services: Any, state: BrokerState) -> str:
    return f"state {services.state.name} -> {state.name}"


def _creates(_logs: Any, tp: Any, is_new: bool) -> str:
    return f"creates log {tp}" + ("" if is_new else ", which was not called new")


def _deletes(logs: Any, tp: Any) -> str | None:
    return f"deletes log {tp}" if logs.get(tp) is not None else f"removes what is left of {tp}"


def _leads(partition: Any, _update: Any, log: Any) -> Callable[[Any], str]:
    state = partition.state
    before = state.leader_epoch

    def after(_result: bool) -> str:
        isr = ",".join(map(str, state.isr.committed))
        new = "" if state.leader_epoch > before else " (epoch as before)"
        return (
            f"leads {partition.tp} epoch={state.leader_epoch} from={state.epoch_start} "
            f"isr={isr} hw={log.high_watermark}{new}"
        )

    return after


def _waits_to_lead(partition: Any, _update: Any, _log: Any) -> str:
    return f"waits to lead {partition.tp}: its log may lack records, the other replicas are asked"


def _follows(partition: Any, _update: Any, log: Any) -> Callable[[Any], str]:
    def after(new_epoch: bool) -> str:
        how = "" if new_epoch else " (epoch as before)"
        end, mark = log.log_end_offset, log.high_watermark
        who = f"{partition.state.leader} epoch={partition.state.leader_epoch}"
        return f"follows {partition.tp} leader={who} end={end} hw={mark}{how}"

    return after


def _fetcher_starts(fetcher: Any) -> str:
    return f"starts fetcher of leader {fetcher.leader}"


def _fetcher_ends(fetcher: Any) -> str:
    return f"ends fetcher of leader {fetcher.leader}"


def _fetches(fetcher: Any, partition: Any) -> Callable[[Any], str | None]:
    known = fetcher.states.get(partition.tp)

    def after(_result: None) -> str | None:
        state = fetcher.states[partition.tp]
        if state is known:
            return None
        return f"fetches {partition.tp} from {fetcher.leader} at {state.offset}"

    return after


def _stops_fetching(manager: Any, tps: Any) -> str | None:
    found = [f"{tp} from {manager._where[tp].leader}" for tp in tps if tp in manager._where]
    return f"stops fetching {', '.join(found)}" if found else None


def _truncates(log: Any, offset: int) -> str | None:
    end = log.log_end_offset
    return f"truncates {log.tp} from {end} to {offset}" if offset < end else None


def _starts_over(log: Any, offset: int, *_rest: Any) -> str:
    return f"empties {log.tp} and starts at {offset}"


def _appends(log: Any, *_args: Any, **_kwargs: Any) -> Callable[[Any], str]:
    start = log.log_end_offset
    return lambda _info: f"appends {log.tp} {start}..{log.log_end_offset - 1}"


def _moves_watermark(log: Any, _offset: int) -> Callable[[Any], str | None]:
    before = log.high_watermark

    def after(new: int) -> str | None:
        return f"moves high watermark of {log.tp} {before} -> {new}" if new != before else None

    return after


def _fences(replicas: Any) -> str | None:
    return "proposes no ISR changes any more" if replicas.may_propose else None


def _unfences(replicas: Any) -> str | None:
    return None if replicas.may_propose else "proposes ISR changes again"


def _begins_checkpoints(replicas: Any) -> Callable[[Any], str | None]:
    before = replicas._checkpointing
    return lambda _none: None if before else "starts the high watermark checkpoint"


def _writes_watermarks(logs: Any) -> Callable[[Any], str]:
    def after(_snapshot: Any) -> str:
        shown = " ".join(f"{log.tp}={log.high_watermark}" for log in logs)
        return f"writes {HIGH_WATERMARKS} {shown or 'empty'}"

    return after


def _notes_follower(follower: Any, offset: int, *_rest: Any) -> Callable[[bool], str | None]:
    def after(moved: bool) -> str | None:
        return f"notes replica {follower.broker_id} at {offset}" if moved else None

    return after


# The story's own fetches are known by their epoch: they open no session, as fetchers do.


def _reads(_path: Any, fetch: Any, *, observe: bool) -> Callable[[Any], str | None]:
    again = "" if observe else " again"

    def after(_none: None) -> str | None:
        if fetch.session_epoch != FINAL_EPOCH:
            return None
        replica = fetch.parameters.replica_id
        who = f"replica {replica}" if replica >= 0 else "a consumer"
        return f"reads {fetch.found.size} bytes for {who}{again}, wanted are {fetch.min_bytes}"

    return after


def _parks(path: Any, fetch: Any) -> str | None:
    if fetch.session_epoch != FINAL_EPOCH:
        return None
    if any(entry[2] is fetch for entry in path.purgatory._heap):
        return "leaves it parked"
    return f"parks the fetch for {fetch.parameters.max_wait_ms} ms"


def _gives_up_waiting(fetch: Any) -> str | None:
    return "ends the wait: its time is over" if fetch.session_epoch == FINAL_EPOCH else None


def _from_desk(connection: Any) -> bool:
    return connection._transport is not None and connection.peer[0] == DESK


def _accepts(connection: Any, _transport: Any) -> Callable[[Any], str | None]:
    return lambda _none: f"accepts connection {connection.id}" if _from_desk(connection) else None


def _dispatches(_router: Any, conn: Any, frame: Any) -> Callable[[Any], str | None]:
    key = int.from_bytes(bytes(frame[:2]), "big")
    name = APIS[key].name if key in APIS else f"key {key}"

    def after(outcome: Any) -> str | None:
        if not _from_desk(conn):
            return None
        how = "the answer is to follow" if isinstance(outcome, Pending) else "answered at once"
        return f"hands {name} of connection {conn.id} to its handler: {how}"

    return after


def _writes(connection: Any) -> str | None:
    if not _from_desk(connection) or not connection._out:
        return None
    return f"writes to connection {connection.id}"


def _waits(connection: Any, frame: Any) -> Callable[[Any], str | None]:
    key = int.from_bytes(bytes(frame[:2]), "big")

    def after(may: bool) -> str | None:
        if may or not _from_desk(connection):
            return None
        return f"keeps {APIS[key].name} of connection {connection.id} until the one before is done"

    return after


def _refuses(connection: Any, reason: str) -> str | None:
    return f"closes connection {connection.id}: {reason}" if _from_desk(connection) else None


WATCHED: list[tuple[Any, str, Any]] = [
    (BrokerServices, "enter", _enters),
    (LogManager, "_create", _creates),
    (LogManager, "delete_stray_folder", _deletes),
    (dir_checkpoints, "high_watermarks", _writes_watermarks),
    (ReplicaManager, "fence", _fences),
    (ReplicaManager, "unfence", _unfences),
    (ReplicaManager, "begin_checkpoints", _begins_checkpoints),
    (Partition, "make_leader", _leads),
    (Partition, "await_leadership", _waits_to_lead),
    (Partition, "make_follower", _follows),
    (LeaderFetcher, "start", _fetcher_starts),
    (LeaderFetcher, "close", _fetcher_ends),
    (LeaderFetcher, "add", _fetches),
    (FetcherManager, "remove", _stops_fetching),
    (Log, "truncate_to", _truncates),
    (Log, "truncate_fully_and_start_at", _starts_over),
    (Log, "append_as_leader", _appends),
    (Log, "append_as_follower", _appends),
    (Log, "set_high_watermark", _moves_watermark),
    (Follower, "observe", _notes_follower),
    (FetchPath, "read", _reads),
    (FetchPath, "watch", _parks),
    (DelayedFetch, "expire", _gives_up_waiting),
]
REQUESTS: list[tuple[type, str, Any]] = [
    (Connection, "connection_made", _accepts),
    (Connection, "_may_dispatch", _waits),
    (Connection, "flush", _writes),
    (Connection, "refuse", _refuses),
    (Router, "dispatch", _dispatches),
]
"""What a story that says `show requests` sees besides."""
