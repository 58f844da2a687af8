"""The brokers' processes: how they start, how they end, and who starts them again.

Invariants: brokers enter by the product's own entry point, as `broker.process` does it; a process
that ended on its own is started again, as systemd would do.
"""

import asyncio
from collections.abc import Callable

from ottla.broker.broker import Broker
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.sim.plans import Plan
from ottla.sim.world import Main, Node, Simulation
from ottla.sim.zookeeper_node import PORT as ZOOKEEPER_PORT
from ottla.sim.zookeeper_node import ZooKeeperNode

PORT = 9092
LOG_DIRS = ("/var/ottla/a", "/var/ottla/b", "/var/ottla/c")
SMALL_FETCHES = {"replica.fetch.max.bytes": "2000", "replica.fetch.response.max.bytes": "4000"}
SMALL_MEMORY_BYTES = 4_000
"""What a broker keeps of its logs' ends in memory where reads are to come from its disk."""
SUPERVISOR_RESTART_S = 1.0
COPIES = "copies"
"""The topic that transactional copiers write to."""
INTERNAL_PARTITIONS = 3
ABORT_EVERY_MS = 2_000
"""How often a coordinator looks for transactions that have timed out."""


def broker_config(plan: Plan, broker_id: int, host: str) -> BrokerConfig:
    """Return a broker's settings: small segments and short waits, so that more happens."""
    return BrokerConfig(
        {
            "broker.id": str(broker_id),
            "zookeeper.connect": f"zk:{ZOOKEEPER_PORT}",
            "listeners": f"PLAINTEXT://{host}:{PORT}",
            "log.dirs": ",".join(LOG_DIRS[: plan.log_dirs]),
            "zookeeper.session.timeout.ms": "6000",
            "replica.lag.time.max.ms": "6000",
            "replica.socket.timeout.ms": "6000",
            # Idle followers ask that often: at 500 ms they were half of all requests.
            "replica.fetch.wait.max.ms": "2000",
            "default.replication.factor": str(plan.replicas),
            "min.insync.replicas": str(plan.min_isr),
            "auto.create.topics.enable": "false",
            "log.segment.bytes": "16384",
            "log.flush.offset.checkpoint.interval.ms": "5000",
            "replica.high.watermark.checkpoint.interval.ms": "2000",
            "controlled.shutdown.retry.backoff.ms": "1000",
            "ottla.crash.detection": "own" if plan.crash_detection else "off",
            **(_coordinator_settings(plan) if plan.coordinated else {}),
            **(SMALL_FETCHES if plan.small_fetches else {}),
            **plan.properties,
        }
    )


def _coordinator_settings(plan: Plan) -> dict[str, str]:
    """Return settings of coordinators: short waits, and internal logs that get compacted."""
    settings = {
        "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
        "offsets.topic.replication.factor": plan.replicas,
        "offsets.topic.segment.bytes": 8_192,
        "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": plan.replicas,
        "transaction.state.log.min.isr": plan.min_isr,
        "transaction.state.log.segment.bytes": 8_192,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": ABORT_EVERY_MS,
        "group.initial.rebalance.delay.ms": 500,
        "log.cleaner.backoff.ms": 3_000,
        "log.cleaner.min.cleanable.ratio": 0.1,
        "log.cleaner.delete.retention.ms": 60_000,
    }
    return {name: f"{value:g}" for name, value in settings.items()}


class BrokerProcesses:
    """All of them. `brokers` has those that started, by node."""

    def __init__(
        self,
        simulation: Simulation,
        plan: Plan,
        zookeeper: ZooKeeperNode,
        config: Callable[[int, str], BrokerConfig],
        prepare: Callable[[Broker], None],
    ) -> None:
        """`config` returns the settings of a broker id on a host; `prepare` sees each broker."""
        self.brokers: dict[str, Broker] = {}
        self.exits: list[str] = []
        """Why processes ended on their own, one line each."""
        self.log_dirs = LOG_DIRS[: plan.log_dirs]
        self._simulation = simulation
        self._plan = plan
        self._zookeeper = zookeeper
        self._config = config
        self._prepare = prepare
        self._boot_zxids: dict[str, int] = {}
        self._stops: dict[str, asyncio.Event] = {}

    def main(self, node: Node, broker_id: int) -> Main:
        """Return what the process of one broker id does on a node."""

        async def main(world: World) -> None:
            stop = self._stops[node.name] = asyncio.Event()
            assert self._zookeeper.server is not None
            self._boot_zxids[node.name] = self._zookeeper.server.tree.zxid
            self.brokers.pop(node.name, None)
            try:
                # As `broker.process` does it.
                broker = Broker(self._config(broker_id, node.name), world, host_name=node.name)
                self._prepare(broker)
                stopped = asyncio.ensure_future(stop.wait())
                if self._plan.reads_disks:
                    broker.logs.budget.limit = SMALL_MEMORY_BYTES
                starting = asyncio.ensure_future(broker.start())
                await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    starting.cancel()
                    await asyncio.gather(starting, return_exceptions=True)
                    self._simulation.note(node.name, "exit", "stopped while it started")
                else:
                    starting.result()
                    self.brokers[node.name] = broker
                    failed = asyncio.ensure_future(broker.wait_failed())
                    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
                    await broker.shutdown()
                    if failed.done():
                        failed.result()
            except OttlaError as error:
                self.ended(node, str(error))
                return
            self._supervise(node)

        return main

    def ended(self, node: Node, why: str) -> None:
        """Note why a process ended on its own, and have it started again."""
        self._simulation.note(node.name, "exit", why)
        self.exits.append(f"{node.name}: {why}")
        self._supervise(node)

    def _supervise(self, node: Node) -> None:
        incarnation = node.incarnation

        def restart() -> None:
            if node.incarnation == incarnation and not node.up and not node.loop.dead:
                node.boot()

        self._simulation.scheduler.after(SUPERVISOR_RESTART_S, restart)

    def stop(self, node: Node) -> None:
        """Send SIGTERM to a node's process."""
        stop = self._stops.get(node.name)
        if node.up and stop is not None:
            self._simulation.note(node.name, "sigterm")
            node.loop.call_soon(stop.set)

    def started(self, node: Node) -> bool:
        """Whether a broker runs and has said that it has started."""
        broker = self.brokers.get(node.name)
        return node.up and broker is not None and broker.world is node.world

    def registered_anew(self, node: Node, broker_id: int) -> bool:
        """Whether a broker is alive and registered, and ZooKeeper has this registration."""
        assert self._zookeeper.server is not None
        entry = self._zookeeper.server.tree.nodes.get(f"/brokers/ids/{broker_id}")
        return node.up and entry is not None and entry.czxid > self._boot_zxids.get(node.name, 0)
