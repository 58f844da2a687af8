"""A small simulated cluster whose brokers a test starts, stops and sends requests one by one."""

import asyncio

import pytest

from ottla.broker.broker import Broker
from ottla.broker.services import BrokerState
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.net.peer import PeerConnection
from ottla.sim.world import Simulation
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.records import Record, build_batch
from ottla.zookeeper.memory import MemoryZooKeeper

FOLDER = "/data"


class Scene:
    """an in-memory ZooKeeper on a node, brokers on theirs, and a node for clients."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.brokers = {}
        self.errors = {}
        self.stops = {}
        self.zookeeper = None
        self.settings = {}
        simulation.node("zk").boot(self._zookeeper)
        simulation.run_for(0.1)

    async def _zookeeper(self, world):
        self.zookeeper = MemoryZooKeeper(world, tick_ms=1000)
        await self.zookeeper.start("zk", 2181)
        await asyncio.Event().wait()

    def config(self, number, **extra):
        values = {
            "broker.id": str(number),
            "zookeeper.connect": "zk:2181",
            "zookeeper.session.timeout.ms": "6000",
            "listeners": f"PLAINTEXT://b{number}:9092",
            "log.dirs": FOLDER,
            "controlled.shutdown.retry.backoff.ms": "1000",
        }
        return BrokerConfig(values | {k.replace("_", "."): v for k, v in extra.items()})

    def boot(self, number, node=None, **extra):
        name = node or f"b{number}"
        self.settings[name] = (number, extra)
        self.brokers.pop(name, None)

        async def main(world):
            number, extra = self.settings[name]
            self.errors.pop(name, None)
            stop = self.stops[name] = asyncio.Event()
            try:
                broker = Broker(self.config(number, **extra), world, host_name=name)
                self.brokers[name] = broker
                await broker.start()
                failed = asyncio.ensure_future(broker.wait_failed())
                stopped = asyncio.ensure_future(stop.wait())
                await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
                await broker.shutdown()
                if failed.done():
                    failed.result()
            except OttlaError as error:
                self.errors[name] = error

        self.simulation.node(name).boot(main)
        return name

    def up(self, number, **extra):
        name = self.boot(number, **extra)
        self.wait(lambda: name in self.errors or self.heard(name))
        assert name not in self.errors, self.errors[name]
        return self.brokers[name]

    def heard(self, name):
        broker = self.brokers.get(name)
        return (
            broker is not None
            and broker.state is BrokerState.RUNNING
            and bool(broker.services.metadata.snapshot.brokers)
        )

    def stop(self, number):
        node = self.simulation.node(f"b{number}")
        node.loop.call_soon(self.stops[f"b{number}"].set)
        self.wait(lambda: not node.up)

    def wait(self, done, within_s=60.0):
        self.simulation.run_until(done, within_s=within_s)
        assert done()

    def znode(self, path):
        return self.zookeeper.tree.nodes.get(path)

    def ask(self, number, message, version, timeout_s=30.0, port=9092):
        node = self.simulation.node("client")

        async def go():
            peer = await PeerConnection.open(node.world, f"b{number}", port, "t", timeout_s=5)
            try:
                return await peer.send(message, version, timeout_s)
            finally:
                peer.close()

        return node.call(go())

    def produce(self, topic, count=1, *, index=0, size=2, key=None, **header):
        """Append a batch with acks=all at the current leader."""
        r = ProduceRequest
        records = [Record(key=key, value=b"%d" % n + b"x" * size) for n in range(count)]
        data = r.PartitionProduceData(index=index, records=build_batch(records, **header))
        request = r(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[r.TopicProduceData(name=topic, partition_data=[data])],
        )
        known = next(iter(self.brokers.values())).services.metadata
        answer = self.ask(known.partition(topic, index).leader, request, 9)
        while (
            answer.responses[0].partition_responses[0].error_code
            == ErrorCode.NOT_LEADER_OR_FOLLOWER
        ):
            # The leader still waits for the topic's id to be durable.
            answer = self.ask(known.partition(topic, index).leader, request, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer


@pytest.fixture
def scene():
    with Simulation(11) as simulation:
        yield Scene(simulation)
        assert not simulation.failures()
