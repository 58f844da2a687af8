"""Lifecycle: this server's standing in ZooKeeper, one session generation after another.

Invariants: a generation is connect, register (the czxid of `/brokers/ids/N` is the broker epoch),
take part in elections; after its loss nothing of it is used again and a new one begins, without
bound in time, until `leave`. An ephemeral of ours that an earlier session left behind is deleted
only if that session was ours (R16, KAFKA-7165); a stranger's is waited for as long as a dead one
may linger. Kafka: `KafkaServer.startup`, `KafkaZkClient.registerBroker` and `KafkaController`'s
session expiration.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata.metadata_cache import NO_CONTROLLER, Change, TopicState
from ottla.broker.services import BrokerState
from ottla.controller.crash_detection import CRASH_DETECTION, OFF
from ottla.log.lives import Stated
from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ErrorCode, OttlaError, StartupError
from ottla.model.recent_times import RecentTimes
from ottla.net.tls_world import tls_world
from ottla.replication.partition import Partition
from ottla.replication.strays import stop_deleted
from ottla.wire.messages.control import ControlledShutdownRequest
from ottla.zookeeper.errors import (
    AuthFailedError,
    BadVersionError,
    MalformedZnodeError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.security_settings import zookeeper_security, zookeeper_tls
from ottla.zookeeper.session import Session, SessionEvent, SessionState
from ottla.zookeeper.store import Store, ensure_chroot
from ottla.zookeeper.znodes import CONTROLLER, broker_path, decode_broker, encode_broker

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

logger = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_VERSION = 3
RECONNECT_BACKOFF_S = 0.2
REFUSED_BACKOFF_S = 5.0
"""After ZooKeeper refused who we are: a person has to change that."""
WITHDRAWAL_WAIT_S = 1.0
TOPICS_EXPECTED_S = 10.0
"""How long after its first update a broker waits for topics: a controller does not name
those that never had a leader."""


REMEMBERED_EVERY_S = 5.0


class RegistrationTakenError(StartupError):
    """Another process has registered with our broker id, and lives."""


def _endpoints(data: bytes) -> str:
    """Return the addresses in a registration, "not readable" if it has none."""
    try:
        return ",".join(map(str, decode_broker(-1, data, 0).endpoints))
    except MalformedZnodeError:
        return "not readable"


class Membership:
    """Connects, registers, and does it all again when the session is lost."""

    def __init__(
        self,
        server: "BrokerServices",
        broker_info: Callable[[], BrokerInfo],
        on_registered: Callable[[], None],
        on_taken: Callable[[OttlaError], None],
    ) -> None:
        self._server = server
        self._broker_info = broker_info
        self._on_registered = on_registered
        self._on_taken = on_taken
        self.taken = False
        """Whether another process has registered with our broker id."""
        self._session: Session | None = None
        read_bytes = server.world.files.read_bytes
        tls = zookeeper_tls(server.config, read_bytes)
        self._zookeeper_world = server.world if tls is None else tls_world(server.world, tls)
        self._zookeeper_security = zookeeper_security(server.config, read_bytes)
        self.session_counts = dict.fromkeys(SessionState, 0)
        """how often the session came into each state: also one that continues is connected again"""
        self._connected = False
        self.refused_count = 0
        """how often ZooKeeper refused who we are"""
        self.latencies = RecentTimes()
        """how long ZooKeeper took to respond"""
        self._previous_session_id = 0
        self._lost = asyncio.Event()
        self._leaving = False
        self._joined = False
        self._registering = False
        """Whether the session in hand may have registered us."""
        self._removed_alive = False
        """Whether a registration was removed though this process lived."""
        server.metadata.on_change(self._metadata_changed)

    async def connect(self) -> Store:
        """Open a session (the one in hand if it lives) and return its store."""
        if self._session is not None and self._session.alive:
            return self._server.session.store
        config = self._server.config
        session_timeout_ms = config.integer("zookeeper.session.timeout.ms")
        connect_timeout_ms = config["zookeeper.connection.timeout.ms"] or session_timeout_ms
        assert isinstance(connect_timeout_ms, int)
        self._lost.clear()
        await ensure_chroot(
            self._zookeeper_world,
            config.text("zookeeper.connect"),
            session_timeout_ms,
            connect_timeout_ms,
            self._zookeeper_security,
        )
        try:
            self._session = await Session.connect(
                self._zookeeper_world,
                config.text("zookeeper.connect"),
                session_timeout_ms,
                connect_timeout_ms,
                self._on_event,
                security=self._zookeeper_security,
            )
        except AuthFailedError:
            self.refused_count += 1
            raise
        logger.info(
            "zookeeper connected session=%#x timeout_ms=%d",
            self._session.session_id,
            self._session.timeout_ms,
        )
        self.session_counts[SessionState.CONNECTED] += 1
        self._connected = True
        self._session.latencies = self.latencies
        self._server.session.current = self._new_store(self._session)
        return self._server.session.current

    @property
    def session_state(self) -> SessionState:
        """Return the state of the ZooKeeper session in hand."""
        return SessionState.DEAD if self._session is None else self._session.state

    async def through(self, step: Callable[[Store], Awaitable[None]]) -> None:
        """Do a step of the start through a living session: if it expires, again with a new one.

        A start may take longer than a session lasts, and what was loaded is not to be loaded again
        for that (F9, F19). OperationTimeoutError where ZooKeeper is not reachable any more.
        """
        while True:
            known = self._session
            try:
                store = await self.connect()
                if self._session is not known:
                    await self._server.load(store)
                await step(store)
            except SessionExpiredError as error:
                logger.warning("session expired during the start, starting again error=%s", error)
                await self._lose()
            else:
                return

    def recall_session(self) -> None:
        """Learn which session the last process on our folders had; call it with them locked.

        That process is gone, if we hold the very lock that it held, so its registration may be
        deleted at once: a crashed broker that comes back quickly is elected again without the wait
        for its old session. On a copy of its folders, or after a reboot, it is waited for: the
        original may be alive (R22).
        """
        lives = self._server.replicas.logs.lives
        # No other process has both, whatever time its clock shows.
        session_id = 0 if self._session is None else self._session.session_id
        lives.name = f"{session_id:x}-{self._server.world.clock.wall_ms():x}"
        if not (session_id := lives.former_session()):
            return
        self._previous_session_id = session_id
        if self._server.session.current is not None and self._session is not None:
            self._server.session.current = self._new_store(self._session)

    def _new_store(self, session: Session) -> Store:
        return Store(session, previous_session_id=self._previous_session_id)

    def _on_event(self, event: SessionEvent) -> None:
        logger.info(
            "zookeeper session state=%s reason=%r session=%#x",
            event.state.value,
            event.reason,
            event.session_id,
        )
        session = self._session
        if session is None or event.session_id != session.session_id:
            return
        self.session_counts[event.state] += 1
        was_connected, self._connected = self._connected, event.state is SessionState.CONNECTED
        if event.state is SessionState.DEAD:
            # Of a process that was stopped for long both end at once.
            self.session_counts[SessionState.SUSPENDED] += was_connected
            self._previous_session_id = event.session_id
            self._server.session.current = None
            self._server.replicas.fence()
            self._lost.set()

    async def join(self) -> None:
        """Register and take part in elections; StartupError if the broker id is in use."""
        store = await self.connect()
        info = self._broker_info()
        await self._check_endpoints(store, info)
        await self._delete_former_controller(store)
        has_topics = bool(self._server.metadata.snapshot.topics)
        if not has_topics:
            has_topics = bool(await store.topics.get_names())
            self._server.metadata.expects_topics = has_topics
        self._registering = True
        server = self._server
        server.session.broker_epoch = await self._register(store, info)
        if not has_topics:
            server.replicas.logs.replicas_received()  # no controller will send any
        server.replicas.unfence()
        self._on_registered()
        await self._watch_registration(store)
        await self._read_features(store)
        # Only now, as requests for our former registration are refused from here on: what they
        # said of a topic until then is no sign that a later deletion of it will reach us.
        known = list(server.metadata.snapshot.topics.values())
        had = list(server.replicas.partitions.values())
        await self._forget_deleted(store, known, had)
        await server.topic_configs.watch()
        await server.controller.start(store)
        self._joined = True

    async def _register(self, store: Store, info: BrokerInfo) -> int:
        """Register with what can be said of our log dirs (adr/0025); return the broker epoch."""
        server, workers = self._server, self._server.world.workers
        lives = server.replicas.logs.lives
        while True:
            found = await store.brokers.get_standing(info.id)
            stated = Stated(
                found.statement.life, found.zxid, found.newest_zxid, found.controller_epoch
            )
            if back := lives.compare(stated):
                server.zookeeper_went_back = back
                logger.error(
                    "zookeeper went back to an older state broker=%d: %s. This broker keeps its "
                    "logs and asks other replicas before it leads. If ZooKeeper was moved or "
                    "restored on purpose, compare the topics with the log dirs, then restart all "
                    "brokers one by one; else stop the brokers and restore its newest data",
                    info.id,
                    back,
                )
            await lives.announce(workers)
            try:
                epoch = await store.brokers.register(
                    info,
                    logs_whole=self._logs_are_whole(),
                    removable=self._is_removable(),
                    life=lives.name,
                    zookeeper_went_back=server.zookeeper_went_back,
                    statement_version=found.version,
                )
            except BadVersionError:
                continue  # another process with our id, or whoever removed our registration
            except NodeExistsError as error:
                raise RegistrationTakenError(f"broker.id={info.id}: {error}") from None
            await lives.registered(
                workers,
                epoch,
                store.session.last_zxid,
                found.controller_epoch or 0,
                store.session.session_id,
            )
            return epoch

    async def remember_zookeeper(self) -> None:
        """Note now and then, durably, how far ZooKeeper is, until cancelled. A loop root."""
        server = self._server
        lives = server.replicas.logs.lives
        while True:
            await asyncio.sleep(REMEMBERED_EVERY_S)
            store = server.session.current
            if store is not None and lives.note(
                store.session.last_zxid, server.replicas.controller_epoch
            ):
                await lives.write(server.world.workers)

    def _logs_are_whole(self) -> bool:
        """Whether our logs have all that they had when we last were registered (adr/0007)."""
        logs = self._server.replicas.logs
        return logs.found_whole and logs.lives.proven and not logs.unclean and not logs.offline_dirs

    def _is_removable(self) -> bool:
        """Whether our registration may be removed where our endpoints refuse connections.

        Not after that was a mistake: something before them refuses, as a packet filter may.
        """
        return self._server.config.text(CRASH_DETECTION) != OFF and not self._removed_alive

    async def _watch_registration(self, store: Store) -> None:
        """Register again, in a new session, if our registration is removed while we live (R17)."""
        server = self._server
        path = broker_path(server.broker_id)

        def changed(_event: object) -> None:
            if store is server.session.current and not self._leaving and not server.tasks.closed:
                server.tasks.start(self._keep_registration(store), "registration")

        while store is server.session.current:
            try:
                found = await store.zk.get_data_and_stat(path, changed)
                removal = None if found else await store.removals.get(server.broker_id)
                break
            except SessionExpiredError:
                return
            except OttlaError as error:
                logger.warning("registration not watched, trying again error=%s", error)
                await asyncio.sleep(RECONNECT_BACKOFF_S)
        if store is not server.session.current:
            return
        if found is not None:
            data, stat = found
            if stat.czxid != server.session.broker_epoch:
                raise RegistrationTakenError(
                    f"broker.id={server.broker_id}: another process has registered with it, at "
                    f"{_endpoints(data)} (session {stat.ephemeral_owner:#x}); stop that process, "
                    "or give it a broker.id and log.dirs of its own"
                )
            if _endpoints(data) == _endpoints(encode_broker(self._broker_info(), 0)):
                return
            logger.error(
                "registration was rewritten by another client, registering anew broker=%d "
                "broker_epoch=%d endpoints=%s",
                server.broker_id,
                server.session.broker_epoch,
                _endpoints(data),
            )
            await self._end_session()
            return
        mistaken = removal is not None and removal.broker_epoch == server.session.broker_epoch
        self._removed_alive |= mistaken
        logger.error(
            "registration was removed while this broker lives, registering anew broker=%d "
            "broker_epoch=%d removed_by=%d reason=%s",
            server.broker_id,
            server.session.broker_epoch,
            removal.by if removal is not None and mistaken else -1,
            removal.evidence if removal is not None and mistaken else "deleted by another client",
        )
        await self._end_session()

    async def _end_session(self) -> None:
        """Fence this broker and begin another session, which registers it again."""
        self._server.replicas.fence()
        if self._session is not None:
            await self._session.close()
        self._lost.set()

    async def _keep_registration(self, store: Store) -> None:
        try:
            await self._watch_registration(store)
        except RegistrationTakenError as error:
            await self._give_up(error)

    async def _give_up(self, error: RegistrationTakenError) -> None:
        """End this process: another one has its id, so nothing here may be acknowledged any more.

        Both took over the same log dirs or copies of them; only one may go on (R22).
        """
        logger.error("registration was taken by another process, shutting down: %s", error)
        self.taken = self._leaving = True
        self._server.replicas.fence()
        self._server.session.current = None
        if self._session is not None:
            await self._session.close()
        self._lost.set()
        self._on_taken(error)

    async def withdraw(self) -> None:
        """Before the listeners close: an orderly end is no crash, so state nothing any more.

        That of a start is one, too: it may be stopped when it has just been registered.
        """
        store = self._server.session.current
        if store is None or not self._registering:
            return
        with contextlib.suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(WITHDRAWAL_WAIT_S):
                lives = self._server.replicas.logs.lives
                zxid = await store.removals.withdraw_statement(self._server.broker_id, lives.name)
                if zxid:
                    lives.note(zxid, self._server.replicas.controller_epoch, zxid)

    async def _check_endpoints(self, store: Store, info: BrokerInfo) -> None:
        ours = {(e.host, e.port) for e in info.endpoints}
        for other in await store.brokers.get_all():
            common = sorted(ours & {(e.host, e.port) for e in other.endpoints})
            if other.id != info.id and common:
                host, port = common[0]
                raise StartupError(
                    f"advertised.listeners: {host}:{port} is already registered by broker "
                    f"{other.id}; give each broker an address of its own"
                )

    async def _delete_former_controller(self, store: Store) -> None:
        """Delete a /controller that a former session of ours left behind, so that all may elect."""
        if not self._previous_session_id:
            return
        found = await store.zk.get_data_and_stat(CONTROLLER)
        if found is not None and found[1].ephemeral_owner == self._previous_session_id:
            logger.info("deleting /controller of our former session")
            with contextlib.suppress(NoNodeError, BadVersionError):
                await store.zk.write(Delete(CONTROLLER, found[1].version))

    async def _forget_deleted(
        self, store: Store, known: Sequence[TopicState], had: Sequence[Partition]
    ) -> None:
        """Drop what is known of topics that were deleted without our hearing, stop their replicas.

        Either between two sessions of ours, or by a controller that ended before it reached us: a
        later one does not know that they existed, and it is not sent any more.
        """
        if self._server.zookeeper_went_back:
            return  # what it does not have may be newer than it
        if known or had:
            await store.zk.catch_up()
            present = set(await store.topics.get_names())
            metadata = self._server.metadata
            metadata.forget([topic for topic in metadata.unchanged(known) if topic not in present])
            gone = {partition.tp.topic for partition in had} - present
            stop_deleted(self._server.replicas, had, gone)

    def _metadata_changed(self, change: Change) -> None:
        """See to it that no topic stays whose deletion was in a request that never reached us.

        A controller drops what it did not deliver when our registration changes, and completes
        deletions until it learns of the new one: what was deleted by then is gone from ZooKeeper
        before its first update for the new registration. All that it says later reaches us.
        """
        server = self._server
        store = server.session.current
        if not change.new_epochs or store is None or server.tasks.closed:
            return
        if server.metadata.expects_topics:
            server.tasks.start(self._expect_topics(), "expect-topics")
        named = set(change.topics)
        known = [t for t in server.metadata.snapshot.topics.values() if t.name not in named]
        had = [p for p in server.replicas.partitions.values() if p.tp.topic not in named]
        if known or had:
            work = self._check_for_deleted(store, server.metadata.epochs, known, had)
            server.tasks.start(work, "deleted-topics")

    async def _expect_topics(self) -> None:
        """Wait for the cluster's topics, but not forever."""
        await asyncio.sleep(TOPICS_EXPECTED_S)
        self._server.metadata.expects_topics = False

    async def _check_for_deleted(
        self,
        store: Store,
        epochs: tuple[int, int],
        known: Sequence[TopicState],
        had: Sequence[Partition],
    ) -> None:
        """Ask ZooKeeper until it responds, another controller comes or our session ends.

        What earlier controllers deleted, or sent to an earlier registration, is gone by now.
        """
        server = self._server
        while store is server.session.current and server.metadata.epochs == epochs:
            try:
                await self._forget_deleted(store, known, had)
                await self._say_whether_ours(store)
            except OttlaError as error:
                logger.info("deleted topics not read error=%s", error)
                await asyncio.sleep(RECONNECT_BACKOFF_S)
            else:
                return

    async def _say_whether_ours(self, store: Store) -> None:
        """Say so where a JVM broker is the controller: it knows nothing of eligible replicas."""
        controller = await store.brokers.get(self._server.metadata.controller_id)
        if controller is not None and not await store.brokers.is_stated(controller):
            logger.warning(
                "controller=%d is a JVM broker: eligible leader replicas and unclean elections by "
                "the longest log are not in force (adr/0007)",
                controller.id,
            )

    async def _read_features(self, store: Store) -> None:
        """Note the version of /feature, which ApiVersions shows, and read again when it changes."""

        def changed(_event: object) -> None:
            if store is self._server.session.current:
                self._server.tasks.start(self._read_features(store), "features")

        try:
            found = await store.cluster.get_features(changed)
        except OttlaError as error:
            logger.info("features not read error=%s", error)
        else:
            self._server.features_epoch = -1 if found is None else found[1]

    async def run(self) -> None:
        """Live through session losses. A loop root: ends only by `leave`."""
        while not self._leaving:
            await self._lost.wait()
            if self._leaving:
                return
            await self._lose()
            await self._rejoin()

    async def _lose(self) -> None:
        server = self._server
        self._joined = self._registering = False
        server.session.current = None
        server.replicas.fence()
        server.forget_session()
        await server.controller.on_session_lost()

    async def _rejoin(self) -> None:
        while not self._leaving:
            refused = False
            try:
                store = await self.connect()
                await self._server.load(store)
                await self.join()
                return
            except OperationTimeoutError as error:
                logger.warning("zookeeper not reachable error=%s", error)
            except RegistrationTakenError as error:
                await self._give_up(error)
                return
            except OttlaError as error:
                logger.warning("not registered again yet error=%s", error)
                refused = isinstance(error, AuthFailedError)
            except Exception:  # a broker that gave up here would run on, and serve no client
                logger.exception("not registered again yet")
            if self._joined or self._lost.is_set():
                await self._lose()
            pause_s = REFUSED_BACKOFF_S if refused else RECONNECT_BACKOFF_S
            await asyncio.sleep(pause_s * (1 + self._server.world.random.random()))

    async def leave(self) -> None:
        """Close the session; our znodes go with it."""
        self._leaving = True
        self._lost.set()
        self._server.session.current = None
        if self._session is not None:
            await self._session.close()


async def shut_down_controlled(server: "BrokerServices") -> bool:
    """Ask the controller to move leadership away from us, a few times; tell whether it did.

    The pause before the next try ends early when another controller makes itself known, and there
    is no next one when no other broker is left.
    """
    config = server.config
    if not config.flag("controlled.shutdown.enable"):
        return True
    server.enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    tries = config.integer("controlled.shutdown.max.retries")
    timeout_s = config.integer("controller.socket.timeout.ms") / 1000
    metadata = server.metadata
    for left in range(tries - 1, -1, -1):
        asked = metadata.controller_id
        request = ControlledShutdownRequest(
            broker_id=server.broker_id, broker_epoch=server.session.broker_epoch
        )
        try:
            response = await server.controller_channel.send(
                request, CONTROLLED_SHUTDOWN_VERSION, timeout_s
            )
        except OttlaError as error:
            logger.info("no response to controlled shutdown error=%s retries_left=%d", error, left)
        else:
            remaining = len(response.remaining_partitions)
            if response.error_code == ErrorCode.NONE and not remaining:
                logger.info("controlled shutdown done")
                return True
            logger.info(
                "controlled shutdown refused error=%d remaining=%d retries_left=%d",
                response.error_code,
                remaining,
                left,
            )
        if metadata.alone(server.broker_id):
            logger.info("controlled shutdown: no other broker is left to lead anything")
            return False
        if left:
            backoff_s = config.integer("controlled.shutdown.retry.backoff.ms") / 1000
            await metadata.wait_until(partial(_news, server, asked), backoff_s)
    logger.warning("controlled shutdown gave up; shutting down without it")
    return False


def _news(server: "BrokerServices", asked: int) -> bool:
    """Return whether to ask again at once: another controller, or no other broker."""
    metadata = server.metadata
    return metadata.controller_id not in (asked, NO_CONTROLLER) or metadata.alone(server.broker_id)
