"""Loop: one event at a time, from election to resignation and back.

Invariants: there is one queue and one handler at work; a handler may wait for ZooKeeper, and while
it waits nothing else changes the context; every event has a `cause` id that goes with all it leads
to into the journal. A session's loss ends everything at once: the queue, the handler, the term;
nothing of them reaches the next session. Whoever learns of a newer controller, by a failed fence, a
refused request or a state from a later epoch, looks at /controller and resigns. Kafka:
`KafkaController` and `ControllerEventManager`.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ottla.controller import events as happened
from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, Outgoing
from ottla.controller.channels import Channels, Connect
from ottla.controller.context import Context, Settings
from ottla.controller.crash_detection import CRASH_DETECTION, OFF, CrashDetector
from ottla.controller.elections import ElectionKind, LogEnd
from ottla.controller.events import Event, RequestReceived
from ottla.controller.handlers import Handlers
from ottla.controller.journal import Journal
from ottla.controller.term import ControllerTerm, KnownTopicIds
from ottla.log.predecessors import keep_of
from ottla.log.rolling_file import RollingFile
from ottla.model.cluster import BrokerInfo, Endpoint, ReplicaAssignment
from ottla.model.config import BrokerConfig
from ottla.model.errors import ControllerMovedError, ErrorCode, NotControllerError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import JOURNAL_NAME, Elected, Resigned
from ottla.model.ports import World
from ottla.model.protocol import DEBUGGING_CONSUMER, LATEST
from ottla.model.recent_times import RecentTimes
from ottla.model.time_slices import yield_to_loop
from ottla.net.garbage import growing
from ottla.net.peer import PeerConnection
from ottla.security.client import ClientSecurity
from ottla.wire.codec import encode_request
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.wire.messages.records import ListOffsetsRequest
from ottla.zookeeper.errors import ConnectionLossError, SessionExpiredError
from ottla.zookeeper.store import Store
from ottla.zookeeper.watches import WatchEvent
from ottla.zookeeper.znodes import CONTROLLER

LEADER_ELECTION = "LeaderElectionRateAndTimeMs"

METRICS: Mapping[type[Event], str] = {
    happened.ControllerChanged: "ControllerChangeRateAndTimeMs",
    happened.SessionBegan: "ControllerChangeRateAndTimeMs",
    happened.BrokersChanged: LEADER_ELECTION,
    happened.BrokerModified: LEADER_ELECTION,
    happened.TopicsChanged: "TopicChangeRateAndTimeMs",
    happened.PartitionsModified: "TopicChangeRateAndTimeMs",
    happened.TopicDeletionsRequested: "TopicDeletionRateAndTimeMs",
    happened.StopReplicaResponseReceived: "TopicDeletionRateAndTimeMs",
    happened.IsrChangesNotified: "IsrChangeRateAndTimeMs",
    happened.AlterPartitionReceived: "IsrChangeRateAndTimeMs",
    happened.LogDirsFailed: "LogDirChangeRateAndTimeMs",
    happened.PreferredElectionRequested: "ManualLeaderBalanceRateAndTimeMs",
    happened.ElectLeadersReceived: "ManualLeaderBalanceRateAndTimeMs",
    happened.LeaderBalanceDue: "AutoLeaderBalanceRateAndTimeMs",
    happened.ReassignmentRequested: "PartitionReassignmentRateAndTimeMs",
    happened.AlterReassignmentsReceived: "PartitionReassignmentRateAndTimeMs",
    happened.ListReassignmentsReceived: "ListPartitionReassignmentRateAndTimeMs",
    happened.UncleanElectionEnabled: "TopicUncleanLeaderElectionEnableRateAndTimeMs",
    happened.ControlledShutdownReceived: "ControlledShutdownRateAndTimeMs",
    happened.LeaderAndIsrResponseReceived: "LeaderAndIsrResponseReceivedRateAndTimeMs",
}
"""Events without a metric are not Kafka's, or Kafka's `Idle`."""


LOG_ENDS_WITHIN_S = 2.0
VERSION = 5
"""Known to every broker of 2.2 and later; responses carry the leader epoch since version 4."""
LIST_OFFSETS = 2


class LogEndRequests:
    """Sends ListOffsets over connections that `connect` opens to the controller's listener.

    Each broker gets one request, over a connection of its own, all at the same time; a broker
    without a response within `LOG_ENDS_WITHIN_S` is left out. The request is ListOffsets with the
    replica id of the "debugging consumer", to which followers respond with their log end, JVM
    brokers too. In KRaft it is GetReplicaLogInfo (KIP-966).
    """

    def __init__(self, context: Context, connect: Connect, listener: str) -> None:
        self._context = context
        self._connect = connect
        self._listener = listener

    async def fetch(
        self, wanted: Mapping[int, Sequence[TopicPartition]]
    ) -> dict[TopicPartition, dict[int, LogEnd]]:
        """Return the log ends in the brokers' responses, by partition and broker."""
        found: dict[TopicPartition, dict[int, LogEnd]] = {}
        brokers = list(wanted)
        responses = await asyncio.gather(
            *(self._fetch(b, wanted[b]) for b in brokers), return_exceptions=True
        )
        for broker, response in zip(brokers, responses, strict=True):
            if isinstance(response, BaseException):
                if not isinstance(response, (OttlaError, TimeoutError)):
                    raise response
                logger.warning("log ends not read broker=%d error=%r", broker, response)
                continue
            for tp, end in response.items():
                found.setdefault(tp, {})[broker] = end
        return found

    async def _fetch(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LogEnd]:
        broker = self._context.brokers[broker_id]
        endpoint = next((e for e in broker.endpoints if e.listener == self._listener), None)
        if endpoint is None:
            return {}
        async with asyncio.timeout(LOG_ENDS_WITHIN_S):
            peer = await self._connect(endpoint)
            try:
                body = encode_request(_request(partitions), VERSION)
                response = await peer.send_encoded(LIST_OFFSETS, VERSION, body, LOG_ENDS_WITHIN_S)
            finally:
                peer.close()
        return {
            TopicPartition(topic.name, p.partition_index): (p.leader_epoch, p.offset)
            for topic in response.topics
            for p in topic.partitions
            if p.error_code == ErrorCode.NONE
        }


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    r = ListOffsetsRequest
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, r.ListOffsetsTopic(name=tp.topic))
        topic.partitions.append(
            r.ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST)
        )
    return r(replica_id=DEBUGGING_CONSUMER, topics=list(topics.values()))


class EventTimes:
    """Counts and milliseconds by the metric's name; both are 0 until the first event of a kind.

    Kinds and names are those of Kafka's `ControllerState.rateAndTimeMetricName`, which the oracle
    tests compare. From an event's begin until its procedure has ended, waits for ZooKeeper
    included, as in Kafka.
    """

    def __init__(self) -> None:
        self._of = {name: RecentTimes() for name in METRICS.values()}

    def note(self, event: Event, seconds: float) -> None:
        """Note that an event was handled, and how long it took."""
        name = METRICS.get(type(event))
        if name is not None:
            self._of[name].note(seconds)

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yield (metric, events handled since the start)."""
        for name, of in self._of.items():
            yield name, of.count

    def times(self) -> Iterator[tuple[str, list[float]]]:
        """Yield (metric, the last times in ms, sorted) of kinds that have come."""
        for name, of in self._of.items():
            if of.count:
                yield name, of.times()


logger = logging.getLogger(__name__)

SNAPSHOTS_A_FILE = 8
HIGH_WATERMARK_FROZEN_FROM = (3, 7)
"""The inter.broker.protocol.version from which no leader moves the high watermark below
min.insync.replicas (KAFKA-15583): what eligible replicas rest on."""
RESIGNATION_BACKOFF_S = 0.5
"""Between a failed failover and resigning, so that failing brokers do not spin."""


class Controller:
    """A broker's part in the controllership. Lives across sessions; see the module."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        broker_info: Callable[[], BrokerInfo],
        connect: Connect | None = None,
        journal: Callable[[bytes], None] | None = None,
        seen_epoch: Callable[[], int] = lambda: 0,
        security: ClientSecurity | None = None,
        known_topic_ids: KnownTopicIds = dict,
    ) -> None:
        """`connect` opens a connection to a broker; `journal` takes lines instead of a file.

        `seen_epoch` returns the highest controller epoch this broker has been sent,
        `known_topic_ids` the ids of the topics on its disks.
        """
        self._known_topic_ids = known_topic_ids
        self._seen_epoch = seen_epoch
        self._security = security
        self._world = world
        self.times = EventTimes()
        self.crash_times = RecentTimes()
        """how long it took to show that the processes of brokers are gone"""
        self._config = config
        self._id = config.broker_id
        self._broker_info = broker_info
        self._connect = connect or self._open
        self._journal_file: RollingFile | None = None
        self._journal_write = journal
        self._store: Store | None = None
        self._term: ControllerTerm | None = None
        self._handlers: Handlers | None = None
        """The same term's."""
        self._queue: deque[tuple[int, Event]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        """Whether an event is being handled."""
        self._causes = 0
        self._last_epoch = 0
        self._past_totals = (Counter[str](), 0, 0)
        self._watching: Store | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self, store: Store) -> None:
        """Take part in elections, in this session. Returns at once; events follow."""
        assert self._task is None, "on_session_lost was not called for the last session"
        self._store = store
        self._post(happened.SessionBegan())
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")

    async def on_session_lost(self) -> None:
        """End everything that belongs to the session in hand."""
        await self._leave_session("the ZooKeeper session is lost")

    async def _leave_session(self, reason: str) -> None:
        self._end_term(reason, self._next_cause())
        self._store = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._end_term(reason, self._next_cause())
        waiting, self._queue = self._queue, deque()
        for _, event in waiting:
            self._refuse(event)

    async def shutdown(self) -> None:
        """Stop. /controller goes with the session, which is not ours to close."""
        await self._leave_session("the broker shuts down")
        if self._journal_file is not None:
            self._journal_file.close()
            self._journal_file = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, by all it can know at this moment."""
        return self._term is not None and self._term.store.session.alive

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker's term; the last one's after it ended."""
        return self._last_epoch

    @property
    def context(self) -> Context | None:
        """What is known during a term. Not to be changed."""
        return None if self._term is None else self._term.context

    def statistics(self) -> dict[str, object]:
        elections, unclean, removed = self._totals()
        kinds = dict.fromkeys((kind.value for kind in ElectionKind), 0)
        figures: dict[str, object] = {
            "active": self.is_active,
            "events_queued": len(self._queue),
            "elections_total": elections.total(),
            "elections_by_kind": kinds | elections,
            "unclean_elections_total": unclean,
            "registrations_removed_total": removed,
        }
        if self._term is not None:
            figures.update(self._term.context.statistics())
            figures["requests_queued"] = self._term.channels.statistics()
        return figures

    def _totals(self) -> tuple[Counter[str], int, int]:
        """Return what this broker did as controller: elections, unclean ones, removals (R17)."""
        elections, unclean, removed = self._past_totals
        if self._handlers is not None:
            elections = elections + self._handlers.outbox.elections
            unclean += self._handlers.outbox.unclean_total
            removed += self._handlers.cluster.removed_total
        return elections, unclean, removed

    # --- requests of brokers and clients ------------------------------------------------------

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change ISRs. Errors are in the response."""
        try:
            response = await self._request(happened.AlterPartitionReceived, request)
        except OttlaError as error:
            return AlterPartitionResponse(error_code=error.code)
        assert isinstance(response, AlterPartitionResponse)
        return response

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Give out a block of producer ids. Errors are in the response."""
        try:
            response = await self._request(happened.AllocateProducerIdsReceived, request)
        except OttlaError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        assert isinstance(response, AllocateProducerIdsResponse)
        return response

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Move leadership away from a broker. Errors are in the response."""
        try:
            response = await self._request(happened.ControlledShutdownReceived, request)
        except NotControllerError:
            # Kafka's ControllerMovedException, which is this code on the wire.
            return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        except OttlaError as error:
            return ControlledShutdownResponse(error_code=error.code)
        assert isinstance(response, ControlledShutdownResponse)
        return response

    async def elect_leaders(
        self, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Hold PREFERRED or UNCLEAN elections; None: where needed. NotControllerError."""
        results: dict[TopicPartition, tuple[ErrorCode, str | None]]
        results = await self._request(happened.ElectLeadersReceived, (kind, partitions))
        return results

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Begin, replace or (None) cancel reassignments. NotControllerError."""
        results: dict[TopicPartition, tuple[ErrorCode, str | None]]
        results = await self._request(happened.AlterReassignmentsReceived, wanted)
        return results

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return what is being reassigned, of these partitions or of all. NotControllerError."""
        found: dict[TopicPartition, ReplicaAssignment]
        found = await self._request(happened.ListReassignmentsReceived, partitions)
        return found

    def unclean_election_enabled(self, topic: str | None) -> None:
        """Elect again where a topic's settings (None: the defaults) now allow unclean elections."""
        if self.is_active:
            self._post(happened.UncleanElectionEnabled(topic))

    async def _request(self, kind: type[RequestReceived], request: Any) -> Any:
        if not self.is_active:
            raise NotControllerError("This is not the correct controller for this cluster.")
        result = asyncio.get_running_loop().create_future()
        self._post(kind(request, result))
        return await result

    # --- the queue --------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._queue.append((self._next_cause(), event))
        self._wake.set()

    def _post_first(self, event: Event) -> None:
        self._queue.appendleft((self._next_cause(), event))
        self._wake.set()

    def _next_cause(self) -> int:
        self._causes += 1
        return self._causes

    async def _run(self) -> None:
        """Handle events until the session is lost. A loop root."""
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            cause, event = self._queue.popleft()
            self._busy = True
            began_s = self._world.clock.monotonic()
            try:
                await self._handle(cause, event)
            finally:
                self._busy = False
                self._refuse(event)
                self.times.note(event, self._world.clock.monotonic() - began_s)
            if self._queue:
                await yield_to_loop()  # many small events make one long step

    async def _handle(self, cause: int, event: Event) -> None:
        """Handle one event and whatever goes wrong in it."""
        term = self._term
        try:
            result = await self._dispatch(cause, event, term)
        except ControllerMovedError as error:
            logger.info("controller moved event=%s reason=%s", type(event).__name__, error)
            self._refuse(event)
            await self._after_move(cause)
        except SessionExpiredError as error:
            logger.info("event failed event=%s error=%s", type(event).__name__, error)
            self._fail(event, error)
        except ConnectionLossError as error:
            logger.warning("event failed event=%s error=%s", type(event).__name__, error)
            self._fail(event, error)
            await self._recover(cause, event)
        except OttlaError as error:
            logger.error("event failed event=%s error=%s", type(event).__name__, error)  # noqa: TRY400
            self._fail(event, error)
        except Exception as error:
            logger.exception("event failed event=%s", type(event).__name__)
            self._fail(event, OttlaError(str(error)))
        else:
            if isinstance(event, RequestReceived):
                event.answer(result)

    async def _after_move(self, cause: int) -> None:
        try:
            await self._resign_if_moved(cause)
            term, store = self._term, self._store
            if term is None or store is None:
                return
            if await store.election.delete_if_overwritten(term.context.epoch_zk_version):
                self._end_term("its epoch was overwritten", cause)
        except OttlaError as error:
            logger.info("controller not known error=%s", error)

    async def _recover(self, cause: int, event: Event) -> None:
        """After ZooKeeper failed us in the middle: what was half done is undone by a new term."""
        if self._term is not None and not isinstance(event, RequestReceived):
            try:
                await self._resign(self._term, "ZooKeeper failed in the middle of an event", cause)
            except OttlaError as error:
                logger.info("/controller not deleted error=%s", error)
        if self._term is None:
            await asyncio.sleep(RESIGNATION_BACKOFF_S)
            self._post(happened.ControllerChanged())

    async def _resign(self, term: ControllerTerm, reason: str, cause: int) -> None:
        self._end_term(reason, cause)
        await asyncio.sleep(RESIGNATION_BACKOFF_S)
        await term.store.election.resign()

    @staticmethod
    def _fail(event: Event, error: Exception) -> None:
        if isinstance(event, RequestReceived) and not event.result.done():
            event.result.set_exception(error)

    @staticmethod
    def _refuse(event: Event) -> None:
        if isinstance(event, RequestReceived) and not event.result.done():
            event.result.set_exception(NotControllerError("No longer the controller."))

    async def _dispatch(self, cause: int, event: Event, term: ControllerTerm | None) -> Any:
        match event:
            case happened.SessionBegan():
                return await self._check_and_elect(cause)
            case happened.ControllerChanged():
                return await self._check_and_elect(cause)
        if term is None or term.ended or self._handlers is None:
            return self._refuse(event)
        return await self._handlers.handle(cause, event)

    # --- elections --------------------------------------------------------------------------

    async def _check_and_elect(self, cause: int) -> None:
        """Watch /controller; resign if it names another; stand for election if it is free."""
        store = self._store
        assert store is not None
        if self._watching is not store:
            # Noted first: the watch may fire before this coroutine is back from setting it, and a
            # watch taken for standing that is not would leave the cluster without a controller.
            self._watching = store
            try:
                await store.zk.path_exists(CONTROLLER, self._controller_watch(store))
            except BaseException:
                self._watching = None
                raise
        controller = await self._resign_if_moved(cause)
        if controller != self._id and await store.election.remove_tampered(self._id):
            controller = None
        if controller is None:
            await self._elect(store, cause)

    def _controller_watch(self, store: Store) -> Callable[[WatchEvent], None]:
        def fired(_event: WatchEvent) -> None:
            if self._store is store:
                self._watching = None
                self._post(happened.ControllerChanged())

        return fired

    async def _resign_if_moved(self, cause: int) -> int | None:
        """Return the controller's broker id; end our term if it is not this broker."""
        assert self._store is not None
        controller = await self._store.election.get_controller_id()
        if self._term is not None and controller != self._id:
            self._end_term(f"broker {controller} is the controller now", cause)
        return controller

    async def _elect(self, store: Store, cause: int) -> None:
        try:
            epoch, version = await store.election.elect(
                self._id, max(self._last_epoch, self._seen_epoch())
            )
        except ControllerMovedError as error:
            logger.info("not elected reason=%s", error)
            return
        logger.info("elected controller_epoch=%d epoch_zk_version=%d", epoch, version)
        self._last_epoch = epoch
        term = self._term = self._new_term(store, epoch, version)
        handlers = self._handlers = Handlers(term)
        try:
            removed = {b: r.evidence for b, r in (await store.removals.get_all()).items()}
            elected = Elected(epoch=epoch, controller=self._id, removed=removed)
            term.journal.cause = cause
            term.journal.event(elected)
            with growing():
                await handlers.on_controller_failover(cause)
        except (ControllerMovedError, SessionExpiredError):
            raise
        except Exception:
            logger.exception("failover failed controller_epoch=%d", epoch)
            await self._resign(term, "its failover failed", cause)

    def _new_term(self, store: Store, epoch: int, epoch_zk_version: int) -> ControllerTerm:
        config = self._config
        listener = config.control_plane_listener
        context = Context(epoch, epoch_zk_version)
        journal = Journal(
            self._journal_sink(), self._world.clock, self._id, epoch, self._journal_takes
        )
        crashes = (
            None
            if config.text(CRASH_DETECTION) == OFF
            else CrashDetector(self._world, self._on_process_gone)
        )
        channels = Channels(
            self._connect,
            listener,
            config.integer("request.timeout.ms") / 1000,
            self._on_response,
            lambda broker: self._post(happened.FullResyncDue(broker)),
            crashes,
        )
        return ControllerTerm(
            self._world,
            config,
            Settings(
                self._id,
                config.inter_broker_listener,
                delete_topics=config.flag("delete.topic.enable"),
                eligible_replicas=config.protocol_level >= HIGH_WATERMARK_FROZEN_FROM,
            ),
            store.fenced(epoch_zk_version),
            context,
            channels,
            journal,
            self._post,
            self._post_first,
            LogEndRequests(context, self._connect, listener).fetch,
            self._known_topic_ids,
            crashes,
        )

    def _on_process_gone(self, broker: BrokerInfo, evidence: str, took_s: float) -> None:
        self.crash_times.note(took_s)
        self._post(happened.ProcessGone(broker.id, broker.epoch, broker.endpoints, evidence))

    def _journal_sink(self) -> Callable[[bytes], None]:
        if self._journal_write is not None:
            return self._journal_write
        if self._journal_file is None:
            path = f"{self._config.log_dirs[0]}/{JOURNAL_NAME}"
            self._journal_file = RollingFile(
                self._world.files,
                path,
                self._world.clock.wall_ms,
                keep_of(self._config),
                self._journal_rotated,
            )
        return self._journal_file.write

    def _journal_rotated(self) -> None:
        """Let the new file begin with a snapshot."""
        if self._term is not None:
            self._post(happened.JournalRotated())

    def _journal_takes(self, snapshot_bytes: int) -> None:
        """Make room for several snapshots of this size, or the journal would be nothing else."""
        if self._journal_file is not None:
            room = SNAPSHOTS_A_FILE * snapshot_bytes
            self._journal_file.max_bytes = max(self._journal_file.max_bytes, room)

    def _end_term(self, reason: str, cause: int) -> None:
        self._past_totals = self._totals()
        term, self._term, self._handlers = self._term, None, None
        if term is not None:
            logger.info("resigned controller_epoch=%d reason=%s", term.context.epoch, reason)
            term.journal.cause = cause
            term.journal.event(Resigned(reason=reason))
            term.end()

    # --- channels ---------------------------------------------------------------------------

    async def _open(self, endpoint: Endpoint) -> PeerConnection:
        timeout_s = self._config.integer("socket.connection.setup.timeout.ms") / 1000
        return await PeerConnection.open(
            self._world,
            endpoint.host,
            endpoint.port,
            str(self._id),
            timeout_s=timeout_s,
            security=self._security,
        )

    def _on_response(self, request: Outgoing, response: Any) -> None:
        """Turn a response into an event. Responses without news are not queued."""
        broker = request.broker
        if request.api_key == LEADER_AND_ISR:
            self._post(happened.LeaderAndIsrResponseReceived(broker, response))
        elif request.api_key == STOP_REPLICA:
            if request.deletes or response.error_code != ErrorCode.NONE:
                self._post(happened.StopReplicaResponseReceived(broker, response, request.deletes))
        elif response.error_code != ErrorCode.NONE:
            self._post(happened.UpdateMetadataResponseReceived(broker, response))
