"""Lifecycle: this server's standing in ZooKeeper, one session generation after another.

Who may call: `broker.Broker`. Invariants: a generation is connect, register (the czxid of
`/brokers/ids/N` is the broker epoch), take part in elections; after its loss nothing of it is
used again and a new one begins, without bound in time, until `leave`. An ephemeral of ours that
an earlier session left behind is deleted only if that session was ours (R16, KAFKA-7165); a
stranger's is waited for as long as a dead one may linger. Answers to `KafkaServer.startup`,
`KafkaZkClient.registerBroker` and `KafkaController`'s session expiration.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata_cache import NO_CONTROLLER
from ottla.broker.state import BrokerState
from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ErrorCode, OttlaError, StartupError
from ottla.replication.inter_broker import protocol_level
from ottla.replication.partition import Partition
from ottla.replication.strays import let_go_of_topics
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
)
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.session import Session, SessionEvent, SessionState
from ottla.zookeeper.store import Store, ensure_chroot
from ottla.zookeeper.znodes import CONTROLLER

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

logger = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_VERSION = 3
RECONNECT_BACKOFF_S = 0.2
SESSION_FILE = ".ottla-session"
"""In the first log dir: the ZooKeeper session of the process that has the dir locked."""


class Membership:
    """Connects, registers, and does it all again when the session is lost."""

    def __init__(
        self,
        server: "BrokerServices",
        broker_info: Callable[[], BrokerInfo],
        on_registered: Callable[[], None],
    ) -> None:
        self._server = server
        self._broker_info = broker_info
        self._on_registered = on_registered
        self._session: Session | None = None
        self._previous_session_id = 0
        self._lost = asyncio.Event()
        self._leaving = False
        self._joined = False

    async def connect(self) -> Store:
        """Open a session (the one in hand if it lives) and return its store."""
        if self._session is not None and self._session.alive:
            return self._server.store
        config = self._server.config
        session_timeout_ms = config.integer("zookeeper.session.timeout.ms")
        connect_timeout_ms = config["zookeeper.connection.timeout.ms"] or session_timeout_ms
        assert isinstance(connect_timeout_ms, int)
        self._lost.clear()
        await ensure_chroot(
            self._server.world,
            config.text("zookeeper.connect"),
            session_timeout_ms,
            connect_timeout_ms,
        )
        self._session = await Session.connect(
            self._server.world,
            config.text("zookeeper.connect"),
            session_timeout_ms,
            connect_timeout_ms,
            self._on_event,
        )
        logger.info(
            "zookeeper connected session=%#x timeout_ms=%d",
            self._session.session_id,
            self._session.timeout_ms,
        )
        self._server.current_store = self._new_store(self._session)
        return self._server.current_store

    def recall_session(self) -> None:
        """Learn which session the last process on our folders had; call it with them locked.

        That process is gone, as we hold its locks, so its registration may be deleted at once: a
        crashed broker that comes back quickly is elected anew without the wait for its old session.
        """
        files = self._server.world.files
        try:
            text = files.read_bytes(self._session_file()).decode()
            self._previous_session_id = int(text, 16)
        except (OSError, ValueError):
            return
        if self._server.current_store is not None and self._session is not None:
            self._server.current_store = self._new_store(self._session)

    def _remember_session(self, session_id: int) -> None:
        try:
            data = f"{session_id:#x}\n".encode()
            self._server.world.files.write_atomic(self._session_file(), data)
        except OSError as error:
            logger.warning("session not remembered error=%s", error)

    def _session_file(self) -> str:
        return f"{self._server.config.log_dirs[0]}/{SESSION_FILE}"

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
        if event.state is SessionState.DEAD:
            self._previous_session_id = event.session_id
            self._server.current_store = None
            self._server.replicas.fence()
            self._lost.set()

    async def join(self) -> None:
        """Register and take part in elections; StartupError if the broker id is somebody else's."""
        store = await self.connect()
        info = self._broker_info()
        await self._check_endpoints(store, info)
        await self._leave_former_office(store)
        known = list(self._server.metadata.snapshot.topics)
        had = list(self._server.replicas.partitions.values())
        try:
            epoch = await store.register_broker(info, version=self._registration_version())
        except NodeExistsError as error:
            raise StartupError(f"broker.id={info.id}: {error}") from None
        self._remember_session(store.session.session_id)
        server = self._server
        server.broker_epoch = epoch
        server.replicas.unfence()
        self._on_registered()
        await self._read_features(store)
        await self._forget_deleted(store, known, had)
        await server.topic_configs.watch()
        await server.controller.start(store)
        self._joined = True

    async def _check_endpoints(self, store: Store, info: BrokerInfo) -> None:
        ours = {(e.host, e.port) for e in info.endpoints}
        for other in await store.get_all_brokers_in_cluster():
            common = sorted(ours & {(e.host, e.port) for e in other.endpoints})
            if other.id != info.id and common:
                host, port = common[0]
                raise StartupError(
                    f"advertised.listeners: {host}:{port} is already registered by broker "
                    f"{other.id}; give each broker an address of its own"
                )

    def _registration_version(self) -> int:
        """Return the version of our znode: brokers before 2.7 know no features in it."""
        level = protocol_level(self._server.config.text("inter.broker.protocol.version"))
        return 5 if level >= (2, 7) else 4

    async def _leave_former_office(self, store: Store) -> None:
        """Delete a /controller that a former session of ours left behind, so that all may elect."""
        if not self._previous_session_id:
            return
        found = await store.get_data_and_stat(CONTROLLER)
        if found is not None and found[1].ephemeral_owner == self._previous_session_id:
            logger.info("deleting /controller of our former session")
            with contextlib.suppress(NoNodeError, BadVersionError):
                await store.write(Delete(CONTROLLER, found[1].version))

    async def _forget_deleted(
        self, store: Store, known: Sequence[str], had: Sequence[Partition]
    ) -> None:
        """Drop what is known of topics that were deleted between two sessions, stop their replicas.

        The controller told those that were registered then; nobody tells us any more.
        """
        if known or had:
            present = set(await store.get_all_topics_in_cluster())
            self._server.metadata.forget([topic for topic in known if topic not in present])
            gone = {partition.tp.topic for partition in had} - present
            let_go_of_topics(self._server.replicas, had, gone)

    async def _read_features(self, store: Store) -> None:
        """Note the version of /feature, which ApiVersions shows, and read again when it changes."""

        def changed(_event: object) -> None:
            if store is self._server.current_store:
                self._server.tasks.start(self._read_features(store), "features")

        try:
            found = await store.get_feature(changed)
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
        self._joined = False
        server.current_store = None
        server.replicas.fence()
        server.topic_configs.stop()
        await server.controller.on_session_lost()

    async def _rejoin(self) -> None:
        while not self._leaving:
            try:
                store = await self.connect()
                await self._server.topic_configs.load(store)
                await self.join()
                return
            except OperationTimeoutError as error:
                logger.warning("zookeeper not reachable error=%s", error)
            except OttlaError as error:
                logger.warning("not registered again yet error=%s", error)
            if self._joined or self._lost.is_set():
                await self._lose()
            await asyncio.sleep(RECONNECT_BACKOFF_S * (1 + self._server.world.random.random()))

    async def leave(self) -> None:
        """Close the session; our znodes go with it."""
        self._leaving = True
        self._lost.set()
        self._server.current_store = None
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
    level = protocol_level(config.text("inter.broker.protocol.version"))
    version = CONTROLLED_SHUTDOWN_VERSION if level >= (2, 4) else CONTROLLED_SHUTDOWN_VERSION - 1
    tries = config.integer("controlled.shutdown.max.retries")
    timeout_s = config.integer("controller.socket.timeout.ms") / 1000
    metadata = server.metadata
    for left in range(tries - 1, -1, -1):
        asked = metadata.controller_id
        request = ControlledShutdownRequest(
            broker_id=server.broker_id, broker_epoch=server.broker_epoch
        )
        try:
            response = await server.controller_channel.send(request, version, timeout_s)
        except OttlaError as error:
            logger.info("controlled shutdown: no answer error=%s retries_left=%d", error, left)
        else:
            remaining = len(response.remaining_partitions)
            if response.error_code == ErrorCode.NONE and not remaining:
                logger.info("controlled shutdown done")
                return True
            logger.info(
                "controlled shutdown: error=%d remaining=%d retries_left=%d",
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
    logger.warning("leadership was not moved away; shutting down all the same")
    return False


def _news(server: "BrokerServices", asked: int) -> bool:
    """Tell whether asking again makes sense at once: another controller, or nobody to lead."""
    metadata = server.metadata
    return metadata.controller_id not in (asked, NO_CONTROLLER) or metadata.alone(server.broker_id)
