"""Lifecycle: this server's standing in ZooKeeper, one session generation after another.

Who may call: `broker.Broker`. Invariants: a generation is connect, register (the czxid of
`/brokers/ids/N` is the broker epoch), take part in elections; after its loss nothing of it is
used again and a new one begins, without bound in time, until `leave`. An ephemeral of ours that
an earlier session left behind is deleted only if that session was ours (R16, KAFKA-7165); a
stranger's is waited for as long as a dead one may linger. Answers to `KafkaServer.startup`,
`KafkaZkClient.registerBroker` and `KafkaController`'s session expiration.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.state import BrokerState
from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ErrorCode, OttlaError, StartupError
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.zookeeper.errors import NodeExistsError, OperationTimeoutError
from ottla.zookeeper.session import Session, SessionEvent, SessionState
from ottla.zookeeper.store import Store

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

logger = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_VERSION = 3
RECONNECT_BACKOFF_S = 0.2
REGISTER_POLL_S = 0.25
LINGER_SLACK_MS = 4_000
"""ZooKeeper expires sessions in ticks, so a dead one may outlive its timeout by a little."""


class Membership:
    """Connects, registers, and does it all again when the session is lost."""

    def __init__(self, server: "BrokerServices", broker_info: Callable[[], BrokerInfo]) -> None:
        self._server = server
        self._broker_info = broker_info
        self._session: Session | None = None
        self._old_sessions: list[int] = []
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
        self._server.current_store = Store(self._session)
        return self._server.current_store

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
            self._old_sessions.append(event.session_id)
            self._server.current_store = None
            self._lost.set()

    async def join(self) -> None:
        """Register and take part in elections; StartupError if the broker id is somebody else's."""
        store = await self.connect()
        info = self._broker_info()
        await self._check_endpoints(store, info)
        epoch = await self._register(store, info)
        server = self._server
        server.broker_epoch = epoch
        server.features_epoch = await store.get_feature_epoch()
        logger.info("broker registered id=%d epoch=%d", info.id, epoch)
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

    async def _register(self, store: Store, info: BrokerInfo) -> int:
        """Create our ephemeral znode and return its czxid."""
        clock = self._server.world.clock
        session = store.session
        path = f"/brokers/ids/{info.id}"
        patience_ms = session.timeout_ms + LINGER_SLACK_MS
        give_up_s = clock.monotonic() + patience_ms / 1000
        told = False
        while True:
            try:
                return await store.register_broker(info)
            except NodeExistsError:
                stat = await session.exists(path)
            if stat is None:
                continue
            owner = stat.ephemeral_owner
            if owner == session.session_id:
                return stat.czxid  # our create was done, only its reply was lost
            if owner in self._old_sessions:
                logger.info("deleting our own stale registration session=%#x", owner)
                await store.delete_if_version(path, stat.version)
                continue
            if clock.monotonic() >= give_up_s:
                raise StartupError(
                    f"broker.id={info.id} is registered by another session ({owner:#x}) and was "
                    f"still so after {patience_ms} ms; is a second broker using this id?"
                )
            if not told:
                told = True
                logger.info("waiting for an earlier session to expire session=%#x", owner)
            await asyncio.sleep(REGISTER_POLL_S)

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
    """Ask the controller to move leadership away from us, a few times; tell whether it did."""
    config = server.config
    if not config.flag("controlled.shutdown.enable"):
        return True
    server.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
    tries = config.integer("controlled.shutdown.max.retries")
    timeout_s = config.integer("controller.socket.timeout.ms") / 1000
    for left in range(tries - 1, -1, -1):
        request = ControlledShutdownRequest(
            broker_id=server.broker_id, broker_epoch=server.broker_epoch
        )
        try:
            response = await server.controller_channel.send(
                request, CONTROLLED_SHUTDOWN_VERSION, timeout_s
            )
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
        if left:
            await asyncio.sleep(config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
    logger.warning("leadership was not moved away; shutting down all the same")
    return False
