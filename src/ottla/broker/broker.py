"""Broker: one server from configuration to clean end, and the order of every step.

Order of start: ZooKeeper session and cluster id, data folders (locked, and of this cluster), topic
settings, logs, listeners, then the registration that makes the controller talk to us, then
elections. Order of end: leadership moved away, listeners, replicas, logs (clean marker),
controller, session. Kafka: `KafkaServer`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.authorization.request_authorizer import RequestAuthorizer, configured_authorizer
from ottla.broker.batch_checks import BatchChecks
from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.broker.configs.dynamic_configs import DynamicConfigs
from ottla.broker.configs.scram_users import ScramUsers
from ottla.broker.configs.throttle_lease import ThrottleLease
from ottla.broker.configs.topic_configs import TopicConfigs
from ottla.broker.configs.unsupported_configs import refuse_unsupported_configs
from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.coordination import Coordination
from ottla.broker.current_session import CurrentSession
from ottla.broker.lifecycle.controller_watch import ControllerWatch
from ottla.broker.lifecycle.log_tasks import remove_deleted, run_log_tasks
from ottla.broker.lifecycle.membership import Membership, shut_down_controlled
from ottla.broker.metadata.metadata_blobs import MetadataBlobs
from ottla.broker.metadata.metadata_cache import Change, MetadataCache
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.broker.requests.error_counts import ErrorCounts
from ottla.broker.requests.request_log import request_log
from ottla.broker.requests.request_times import RequestTimes
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.requests.security.listeners import SaslListeners
from ottla.broker.requests.security.sasl import SaslDispatch
from ottla.broker.services import BrokerServices, BrokerState
from ottla.broker.tasks import Tasks
from ottla.broker.topic_creation import TopicCreation
from ottla.controller.crash_detection import CRASH_DETECTION, OFF
from ottla.controller.loop import Controller
from ottla.log.checkpoints import (
    META_PROPERTIES,
    CheckpointError,
    MetaProperties,
    decode_meta_properties,
)
from ottla.log.cleaner import LogCleaner
from ottla.log.manager import LogManager
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.config import TLS_PROTOCOLS, BrokerConfig, TopicConfig
from ottla.model.errors import OttlaError, StartupError, StorageError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_to_text
from ottla.model.ports import Clock, World
from ottla.model.throttle_settings import FOLLOWER_RATE, LEADER_RATE, LEASE, LOG_DIRS_RATE
from ottla.model.time_slices import TimeSlice
from ottla.net.limits import ConnectionQuotas, ServerLimits
from ottla.net.server import Server, SharedBounds
from ottla.replication.eligible_records import IsrsInEpochs
from ottla.replication.replica_manager import ReplicaManager
from ottla.security.client import ClientSecurity
from ottla.security.sasl.settings import broker_sasl
from ottla.zookeeper.errors import SessionExpiredError
from ottla.zookeeper.store import Store

if TYPE_CHECKING:
    from ottla.broker.lifecycle.tls_listeners import BrokerTls

logger = logging.getLogger(__name__)

MOST_BROKER_CONNECTIONS = 1000
"""Of the listeners that only brokers use; of all brokers together, and of one address."""
MOST_KEPT_PLACES = 256
"""Above the limits of a listener that clients use, too: only brokers get these."""


NEVER_MS = 2**40
"""35 years: less than 0 milliseconds of idleness mean that there is no limit, as with Kafka."""


def server_limits(config: BrokerConfig) -> ServerLimits:
    """Return the bounds of a listener, from the settings Kafka names for them."""
    number = config.integer
    idle_ms = number("connections.max.idle.ms")
    rate = "max.connection.creation.rate"
    return ServerLimits(
        max_frame_bytes=number("socket.request.max.bytes"),
        max_connections=number("max.connections"),
        max_connections_per_ip=number("max.connections.per.ip"),
        max_connection_rate=(
            number(rate) if rate in config.properties else ServerLimits().max_connection_rate
        ),
        idle_ms=idle_ms if idle_ms >= 0 else NEVER_MS,
        queued_bytes=number("queued.max.request.bytes"),
        queued_response_bytes=number("ottla.queued.max.response.bytes"),
    )


def _tls_of(config: BrokerConfig, world: World) -> "BrokerTls | None":
    """Return the TLS of a broker, None if it has none: then nothing of it is even imported."""
    if not any(endpoint.protocol in TLS_PROTOCOLS for endpoint in config.listeners):
        return None
    from ottla.broker.lifecycle.tls_listeners import BrokerTls

    return BrokerTls(config, world)


def _security_of(
    config: BrokerConfig, tls: "BrokerTls | None", listener: str
) -> ClientSecurity | None:
    """Return how this broker connects to a listener of the others; None: in the clear."""
    client_tls = None if tls is None else tls.client(listener)
    sasl = broker_sasl(config, listener)
    return None if client_tls is None and sasl is None else ClientSecurity(client_tls, sasl)


def client_quotas(config: BrokerConfig) -> ClientQuotas:
    """Return the quotas of clients, without bounds as yet."""
    samples, window_s = "quota.window.num", "quota.window.size.seconds"
    return ClientQuotas(config.integer(samples), config.integer(window_s) * 1000)


def mutation_quotas(
    config: BrokerConfig, quotas: ClientQuotas, clock: Clock
) -> ControllerMutationQuotas:
    """Return the quotas of those who create and delete partitions."""
    samples, window_s = "controller.quota.window.num", "controller.quota.window.size.seconds"
    return ControllerMutationQuotas(
        quotas,
        config.integer(samples),
        config.integer(window_s) * 1000,
        lambda: clock.monotonic() * 1000,
    )


class Broker:
    """One server. Start it once, shut it down once."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        host_name: str = "localhost",
        sockets: int | None = None,
    ) -> None:
        """Make all parts. `sockets`: descriptors there are for connections; None: enough."""
        refuse_unsupported_configs(config)
        self._sasl = SaslListeners(config)
        self.config = config
        self.world, self.broker_id = world, config.broker_id
        self._host_name, self._sockets, self._loaded = host_name, sockets, False
        self._servers: dict[str, Server] = {}
        self._connection_quotas: ConnectionQuotas | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks = Tasks()
        self._tls = _tls_of(config, world)
        between_brokers = _security_of(config, self._tls, config.inter_broker_listener)
        session = CurrentSession()
        self.logs = LogManager(world, config)
        self.logs.expect_replicas()
        self._lease = ThrottleLease(world.clock, config.broker_id, session, self._moves_logs)
        metadata = MetadataCache()
        channel = ControllerChannel(world, config, metadata, between_brokers)
        dynamic = DynamicConfigs(
            config, self._broker_config_changed, None if self._tls is None else self._tls.check
        )
        replicas = ReplicaManager(
            world,
            config,
            self.logs,
            cluster=metadata,
            broker_epoch=lambda: session.broker_epoch,
            controller_peer=channel.peer,
            on_log_dir_offline=self._log_dir_offline,
            announce=self._announce_replicas,
            void_eligible=self._void_eligible,
            security=between_brokers,
        )
        creation = TopicCreation(world, config, metadata, session)
        producer_ids = ProducerIds(config.broker_id, session, channel.send)
        coordination = Coordination(
            world,
            config,
            replicas,
            metadata,
            creation,
            self.tasks,
            session,
            producer_ids,
            between_brokers,
        )
        quotas = client_quotas(config)
        users, tokens = ScramUsers(), DelegationTokens(world, config, self.tasks)
        acls = configured_authorizer(config)
        self.services = BrokerServices(
            world=world,
            config=config,
            broker_id=config.broker_id,
            session=session,
            metadata=metadata,
            blobs=MetadataBlobs(metadata),
            dynamic_configs=dynamic,
            topic_configs=self._topic_configs(dynamic, quotas, users, tokens),
            scram_users=users,
            delegation_tokens=tokens,
            quotas=quotas,
            mutation_quotas=mutation_quotas(config, quotas, world.clock),
            tasks=self.tasks,
            replicas=replicas,
            controller=self._new_controller(replicas),
            controller_channel=channel,
            producer_ids=producer_ids,
            topic_creation=creation,
            coordination=coordination,
            groups=coordination.groups,
            transactions=coordination.transactions,
            verifier=coordination.verifier,
            batch_checks=BatchChecks(config, world.workers),
            authorizer=None if acls is None else RequestAuthorizer(acls, world.clock),
            acl_cache=None if acls is None else AclCache(world, self.tasks, acls),
        )
        metadata.on_change(self._metadata_changed)
        self.router = self._new_router()
        self.membership = Membership(
            self.services, self.broker_info, self._serve_requests, self._fail
        )

    def _moves_logs(self) -> bool:
        """Return whether a log is being moved to another folder of this broker."""
        return any(self.logs.future(log.tp) for log in self.logs.all_logs())

    def _new_router(self) -> Router:
        monotonic = self.world.clock.monotonic
        protocols = {one.listener: one.protocol for one in self.config.listeners}
        log = request_log(self.config.integer("ottla.slow.request.ms"), monotonic, protocols)
        return Router(self.services, ROUTES.values(), monotonic, log)

    def _new_controller(self, replicas: ReplicaManager) -> Controller:
        return Controller(
            self.world,
            self.config,
            self.broker_info,
            seen_epoch=lambda: replicas.controller_epoch,
            security=_security_of(self.config, self._tls, self.config.control_plane_listener),
            known_topic_ids=self._known_topic_ids,
        )

    async def _void_eligible(self, isrs: IsrsInEpochs) -> Collection[TopicPartition]:
        return await self.services.session.store.eligible.void(isrs)

    def _known_topic_ids(self) -> dict[str, set[bytes]]:
        """Return the ids of topics on our disks; of others, those that a controller sent us."""
        known: dict[str, set[bytes]] = {}
        for log in self.services.replicas.logs.logs():
            if log.topic_id != ZERO_UUID:
                known.setdefault(log.tp.topic, set()).add(log.topic_id)
        for topic in self.services.metadata.snapshot.topics.values():
            if topic.topic_id != ZERO_UUID:
                known.setdefault(topic.name, {topic.topic_id})
        return known

    def _topic_configs(
        self,
        dynamic: DynamicConfigs,
        quotas: ClientQuotas,
        users: ScramUsers,
        tokens: DelegationTokens,
    ) -> TopicConfigs:
        """Return what hears of all changes of settings, and hands them on."""
        return TopicConfigs(
            self.world,
            self.config,
            self.tasks,
            self._topic_config_changed,
            dynamic,
            quotas,
            users if self._sasl.with_scram else None,
            tokens,
        )

    @property
    def state(self) -> BrokerState:
        return self.services.state

    @cached_property
    def cleaner(self) -> LogCleaner:
        """What compacts the logs."""
        return LogCleaner(self.world, self.config, self.logs)

    @property
    def times(self) -> RequestTimes:
        return self.router.times

    @property
    def errors(self) -> ErrorCounts:
        return self.router.errors

    @property
    def listeners(self) -> Mapping[str, Server]:
        """Return the listening servers by the names of their listeners."""
        return self._servers

    @property
    def sasl(self) -> Mapping[str, SaslDispatch]:
        """Return what listeners with SASL do, by their names."""
        return self._sasl.dispatches

    def port(self, listener: str) -> int:
        """Return the port a listener is bound to, also when 0 was configured."""
        return self._servers[listener].port

    def broker_info(self) -> BrokerInfo:
        """Return what this broker registers: its advertised addresses with real ports and host."""
        return BrokerInfo(
            self.broker_id,
            tuple(map(self._advertised, self.config.advertised_listeners)),
            self.config.text("broker.rack") or None,
        )

    def _advertised(self, endpoint: Endpoint) -> Endpoint:
        port = endpoint.port
        if port == 0 and endpoint.listener in self._servers:
            port = self.port(endpoint.listener)
        return replace(endpoint, host=endpoint.host or self._host_name, port=port)

    def _broker_config_changed(self, names: frozenset[str]) -> None:
        """Have everyone obey settings that changed while we run; all others look each time."""
        server, replicas, config = self.services, self.services.replicas, self.config
        if self._tls is not None:
            self._tls.apply()
        server.topic_configs.broker_changed()
        for log in self.logs.all_logs():
            log.update_config(server.topic_configs.get(log.tp.topic))
        rates = server.dynamic_configs
        replicas.leader_quota.bound = rates.throttle(LEADER_RATE)
        replicas.follower_quota.bound = rates.throttle(FOLLOWER_RATE)
        replicas.log_dirs_quota.bound = rates.throttle(LOG_DIRS_RATE)
        if LEASE in rates.own and not self._lease.running:
            self._lease.running = True
            self.tasks.keep(self._lease.run, "throttle-lease")
        replicas.fetchers.resize(config.integer("num.replica.fetchers"))
        if self._connection_quotas is not None:
            self._connection_quotas.limit(
                config.integer("max.connections"), config.integer("max.connections.per.ip")
            )
        unclean = "unclean.leader.election.enable"
        if unclean in names and config.flag(unclean):
            server.controller.unclean_election_enabled(None)

    def _metadata_changed(self, change: Change) -> None:
        if change.brokers_changed and not self.tasks.closed:
            work = self.services.replicas.raise_high_watermarks()
            self.tasks.start(work, "high-watermarks")

    def _topic_config_changed(self, topic: str, config: TopicConfig) -> None:
        self.services.replicas.throttle(topic, config)
        for log in self.logs.all_logs():
            if log.tp.topic == topic:
                log.update_config(config)
        if config.unclean_leader_election_enable:
            self.services.controller.unclean_election_enabled(topic)

    def _log_dir_offline(self, path: str) -> None:
        """Tell the controller that a folder of ours failed, or give up when none is left (F17)."""
        if not self.logs.live_dirs:
            reason = self.logs.why_offline(path)
            self._fail(
                StorageError(f"no log dir is usable any more; the last was {path}: {reason}")
            )
            return
        self._announce_replicas()

    def _fail(self, error: OttlaError) -> None:
        """Have the task that waits for a failure end this server."""
        if not self._failure.done():
            self._failure.set_exception(error)

    def _announce_replicas(self) -> None:
        """Have the controller ask which of our replicas are to be had: one failed, or is back."""
        store = self.services.session.current
        if store is not None and not self.tasks.closed:
            self.tasks.start(self._propagate_log_dir_event(store), "log-dir-event")

    async def _propagate_log_dir_event(self, store: Store) -> None:
        try:
            await store.log_dir_events.notify(self.broker_id)
        except SessionExpiredError as error:
            # With the next session the controller asks for everything, and hears of it then.
            logger.warning("log dir event not written error=%s", error)

    async def start(self) -> None:
        """Start every part; StartupError (one line) if something in the world is wrong."""
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise

    async def _start(self) -> None:
        server = self.services
        server.enter(BrokerState.STARTING)
        store = await self.membership.connect()
        await store.cluster.create_top_level_paths()
        proposed = uuid_to_text(self.world.random.randbytes(16))
        server.cluster_id = await store.cluster.create_or_get_id(proposed)
        logger.info("starting broker=%d cluster_id=%s", self.broker_id, server.cluster_id)
        await server.load(store)
        server.enter(BrokerState.RECOVERY)
        await self._load_logs()
        await self.membership.through(server.coordination.start)
        await self._sasl.start(self.world, self.tasks)
        await self._listen()
        await server.replicas.start()
        await self.membership.through(lambda _: self.membership.join())
        keep = self.tasks.keep
        keep(lambda: run_log_tasks(self.world, self.config, self.logs), "log-tasks")
        keep(lambda: remove_deleted(self.world, self.logs), "removal")
        keep(self.cleaner.run, "cleaner")
        keep(self.membership.run, "membership")
        keep(self.membership.remember_zookeeper, "zookeeper-notes")
        if self._tls is not None:
            keep(self._tls.run, "certificates")
        if server.delegation_tokens.enabled:
            tokens = server.delegation_tokens
            keep(
                lambda: tokens.run_expiry(lambda: server.controller.is_active, server.session),
                "token-expiry",
            )
        if self.config.text(CRASH_DETECTION) != OFF:
            watch = ControllerWatch(
                self.world,
                self.config,
                server.metadata,
                server.controller_channel,
                server.session,
            )
            keep(watch.run, "controller-watch")
        server.enter(BrokerState.RUNNING)
        logger.info(
            "started broker=%d listeners=%s",
            self.broker_id,
            ",".join(str(e) for e in self.broker_info().endpoints),
        )

    async def _load_logs(self) -> None:
        """Lock and load the data folders in slices: the ZooKeeper session is kept alive meanwhile.

        What is not in memory is waited for by a worker.
        """
        self._check_folders()
        clock = self.world.clock
        started_s = clock.monotonic()
        turn = TimeSlice(clock)
        for cold in self.logs.loading(self.services.topic_configs.get):
            if cold is not None:
                with contextlib.suppress(OSError):  # a reader gets the error
                    await self.world.workers.run(cold.file.prefetch, cold.size, cold.position)
                turn = TimeSlice(clock)
            elif turn.over:
                await turn.next()
        self._loaded = True
        self.membership.recall_session()
        self.logs.write_meta(MetaProperties(self.services.cluster_id, self.broker_id))
        logger.info(
            "logs loaded count=%d recovered=%d took_s=%.2f",
            len(self.logs.logs()),
            self.logs.recovered_logs,
            clock.monotonic() - started_s,
        )

    def _check_folders(self) -> None:
        """Refuse folders of another cluster before anything in them is touched (F11)."""
        for folder in self.config.log_dirs:
            path = f"{folder}/{META_PROPERTIES}"
            try:
                meta = decode_meta_properties(self.world.files.read_bytes(path))
            except (OSError, CheckpointError):
                continue  # the log manager says what is wrong with it
            if meta.cluster_id not in (self.services.cluster_id, None):
                raise StartupError(
                    f"{folder} belongs to cluster {meta.cluster_id}, but the ZooKeeper at "
                    f"{self.config.text('zookeeper.connect')} is of cluster "
                    f"{self.services.cluster_id}; use another log.dirs or zookeeper.connect"
                )

    async def _listen(self) -> None:
        """Open the listeners. No request is read before the broker is registered.

        Until then the controller may take us for our earlier registration, whose epoch we cannot
        tell from our own yet: an empty disk would be made leader (R8, F11).
        """
        limits = server_limits(self.config)
        sockets = self._sockets
        of_brokers = max(8, (sockets or 0) // 8)  # those we open ourselves, too
        connection_quotas = self._connection_quotas = ConnectionQuotas(
            limits.max_connections,
            limits.max_connections_per_ip,
            None if sockets is None else max(8, sockets - of_brokers),
            MOST_KEPT_PLACES if sockets is None else min(MOST_KEPT_PLACES, of_brokers // 2),
        )
        # As with Kafka, brokers are let in however many clients there are.
        broker_connection_quotas = ConnectionQuotas(
            max(of_brokers, MOST_BROKER_CONNECTIONS), MOST_BROKER_CONNECTIONS
        )
        connection_quotas.rate_of = self.services.quotas.connection_rate
        bounds = SharedBounds(limits, self.world.clock.monotonic)
        between_brokers = self.config.broker_only_listeners
        services = self.services
        for endpoint in self.config.listeners:
            sasl = self._sasl.dispatch(
                endpoint.listener,
                self.world,
                self.router,
                services.scram_users,
                services.delegation_tokens,
            )
            own = limits
            if (largest := self._sasl.max_receive_bytes(endpoint.listener)) is not None:
                own = replace(limits, max_unauthenticated_bytes=largest)
            server = Server(
                self.world,
                endpoint.host,
                endpoint.port,
                self.router.dispatch if sasl is None else sasl.dispatch,
                own,
                rules=self.router.frame_rules,
                listener=endpoint.listener,
                connection_quotas=broker_connection_quotas
                if endpoint.listener in between_brokers
                else connection_quotas,
                is_of_broker=self.router.is_of_broker,
                bounds=bounds,
                sent=self.router.times.sent,
                between_brokers=endpoint.listener in between_brokers,
                held=True,
                tls=None if self._tls is None else self._tls.listeners.get(endpoint.listener),
                authentication=None if sasl is None else sasl.begin,
            )
            try:
                await server.start()
            except OSError as error:
                where = f"{endpoint.host or '*'}:{endpoint.port}"
                raise StartupError(
                    f"cannot listen on {where} (listeners): {error.strerror or error}"
                ) from error
            self._servers[endpoint.listener] = server

    def statistics(self) -> dict[str, object]:
        """Return what an operator wants to see of every part."""
        authorizer = self.services.authorizer
        return {
            "state": self.state.name,
            "BrokerState": self.state.value,
            "broker_epoch": self.services.session.broker_epoch,
            "controller_id": self.services.metadata.controller_id,
            "tasks": len(self.tasks),
            "logs": self.logs.statistics(),
            "replicas": self.services.replicas.statistics(),
            "groups": self.services.coordination.groups.statistics(),
            "transactions": self.services.coordination.transactions.statistics(),
            "quotas": self.services.quotas.statistics(),
            "listeners": [server.statistics() for server in self._servers.values()],
            "authorizer": None if authorizer is None else authorizer.statistics(),
            "sasl": self._sasl.statistics(),
        }

    def _serve_requests(self) -> None:
        for listener in self._servers.values():
            listener.release()

    async def wait_failed(self) -> None:
        """Wait for a failure that the server cannot live with, and raise it."""
        await self._failure

    async def shutdown(self) -> None:
        """End well: hand leadership over, close everything, mark the folders clean. Once."""
        server = self.services
        if server.state in (BrokerState.SHUTTING_DOWN, BrokerState.NOT_RUNNING):
            return
        logger.info("shutting down")
        if server.state is BrokerState.RUNNING and not self.membership.taken:
            server.replicas.leaving = True
            await shut_down_controlled(server)
        await self._end()
        logger.info("shut down")

    async def _end(self) -> None:
        self.services.enter(BrokerState.SHUTTING_DOWN)
        await self._clean_up()
        self.services.enter(BrokerState.NOT_RUNNING)

    async def _clean_up(self) -> None:
        """Close what is open, in the reverse order of dependence; each step even if one fails."""
        server = self.services
        server.forget_session()
        await self.membership.withdraw()
        server.session.current = None  # what still fires starts nothing any more
        async with contextlib.AsyncExitStack() as steps:
            steps.push_async_callback(self.membership.leave)
            steps.push_async_callback(server.controller.shutdown)
            steps.push_async_callback(self._close_logs)
            steps.push_async_callback(server.replicas.shutdown)
            steps.push_async_callback(server.coordination.close)
            steps.push_async_callback(server.producer_ids.close)
            steps.callback(server.controller_channel.close)
            steps.push_async_callback(self.tasks.close)
            for listener in self._servers.values():
                steps.push_async_callback(listener.close)

    async def _close_logs(self) -> None:
        if self._loaded:
            await self.logs.shutdown(self.world.workers)
        else:
            self.logs.abort_startup()
