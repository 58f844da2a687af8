"""Topic creation: what is refused and with which code, what is written, who waits for what."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.broker.requests.topics import create_topics
from ottla.broker.topic_creation import TopicCreation, check_assignment
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, InvalidReplicaAssignmentError
from ottla.security.principals import ANONYMOUS
from ottla.wire.codec import decode_response
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.messages.control import UpdateMetadataRequest as Update
from ottla.wire.messages.topics import CreateTopicsRequest as Create
from ottla.zookeeper.errors import NodeExistsError
from support.logs import SystemClock

VERSION = 7


class FakeStore:
    def __init__(self, *topics, deleting=(), race=False):
        self.names = list(topics)
        self.topics = self
        self.configs = SimpleNamespace(set=self.set_config)
        self.deleting = deleting
        self.race = race
        self.settings = {}
        self.created = {}
        self.order = []

    async def is_deletion_requested(self, name):
        return name in self.deleting

    async def get_names(self):
        return self.names

    async def set_config(self, kind, name, config):
        self.order.append(f"config {name}")
        self.settings[name] = config

    async def create(self, info):
        self.order.append(f"topic {info.name}")
        if self.race:
            raise NodeExistsError(path=info.name)
        self.created[info.name] = info


def scene(store, brokers=3, **settings):
    extra = {k.replace("_", "."): v for k, v in settings.items()}
    config = BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1"} | extra)
    world = SimpleNamespace(random=random.Random(7), clock=SystemClock())
    cache = MetadataCache()
    live = [Update.UpdateMetadataBroker(id=b) for b in range(brokers)]
    cache.apply(Update(controller_id=1, live_brokers=live))
    creation = TopicCreation(world, config, cache, SimpleNamespace(store=store))
    return SimpleNamespace(
        world=world,
        config=config,
        metadata=cache,
        topic_creation=creation,
        mutation_quotas=ControllerMutationQuotas(ClientQuotas(11, 1000), 11, 1000, lambda: 0.0),
        controller=SimpleNamespace(is_active=True),
        authorizer=None,
        live=live,
    )


def leaders(server, name, partitions):
    states = [
        Update.UpdateMetadataPartitionState(partition_index=p, leader=0, isr=[0], replicas=[0])
        for p in range(partitions)
    ]
    topic = Update.UpdateMetadataTopicState(topic_name=name, partition_states=states)
    server.metadata.apply(Update(controller_id=1, topic_states=[topic], live_brokers=server.live))


async def ask(server, *topics, after=None, **fields):
    conn = SimpleNamespace(peer=("h", 1), listener="PLAINTEXT", principal=ANONYMOUS)
    fields.setdefault("timeout_ms", 50)
    request = Create(topics=list(topics), **fields)
    parts = create_topics.handle(server, conn, RequestHeader(19, VERSION, 1, "t"), request)
    if asyncio.iscoroutine(parts):
        task = asyncio.ensure_future(parts)
        if after is not None:
            for _ in range(20):
                await asyncio.sleep(0)
            after()
        parts = await task
    whole = memoryview(b"".join(parts))
    _, pos = decode_response_header(19, VERSION, whole)
    return decode_response(19, VERSION, whole, pos).topics


def new(name, partitions=1, factor=1, assignments=None, **configs):
    return Create.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            Create.CreatableReplicaAssignment(partition_index=p, broker_ids=list(b))
            for p, b in (assignments or {}).items()
        ],
        configs=[
            Create.CreatableTopicConfig(name=k.replace("_", "."), value=v)
            for k, v in configs.items()
        ],
    )


REFUSED = [
    (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (new("going"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (new("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("x", partitions=0), ErrorCode.INVALID_PARTITIONS),
    (new("x", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
    (new("x", factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (new("x", factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
    (new("x", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    (new("x", no_such="1"), ErrorCode.INVALID_CONFIG),
    (new("x", retention_ms=None), ErrorCode.INVALID_CONFIG),
    (new("x", 1, -1, {0: (0,)}), ErrorCode.INVALID_REQUEST),
    (new("x", -1, -1, {0: (0, 0)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (new("x", -1, -1, {0: (0,), 1: (0, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (new("x", -1, -1, {1: (0,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("topic", "code"), REFUSED)
def test_refused_and_nothing_written(topic, code):
    async def go():
        store = FakeStore("there", "with.dot", deleting=("going",))
        (result,) = await ask(scene(store), topic)
        assert (result.error_code, store.order) == (code, [])
        assert (result.num_partitions, result.replication_factor) == (-1, -1)

    asyncio.run(go())


def test_created_config_first_and_the_response_when_the_leaders_are_known():
    async def go():
        store = FakeStore()
        server = scene(store)
        (result,) = await ask(
            server,
            new("x", 4, 2, retention_ms="5"),
            timeout_ms=60_000,
            after=lambda: leaders(server, "x", 4),
        )
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 2)
        assert store.order == ["config x", "topic x"]
        assert store.settings == {"x": {"retention.ms": "5"}}
        assert result.topic_id == store.created["x"].topic_id
        assignment = store.created["x"].assignment
        assert all(len(set(a.replicas)) == 2 for a in assignment.values())
        configs = {c.name: (c.value, c.config_source) for c in result.configs}
        assert configs["retention.ms"] == ("5", 1)

    asyncio.run(go())


def test_leaders_that_are_late_are_a_timeout_although_the_topic_is_there():
    async def go():
        store = FakeStore()
        server = scene(store)
        (result,) = await ask(server, new("x", 2), after=lambda: leaders(server, "x", 1))
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "x" in store.created
        (result,) = await ask(server, new("y"), timeout_ms=0)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(go())


def test_one_bad_topic_does_not_spoil_the_others():
    async def go():
        store = FakeStore()
        server = scene(store)
        results = await ask(
            server,
            new("bad", 0),
            new("twice"),
            new("twice"),
            new("good"),
            timeout_ms=60_000,
            after=lambda: leaders(server, "good", 1),
        )
        codes = {r.name: r.error_code for r in results}
        assert codes == {
            "bad": ErrorCode.INVALID_PARTITIONS,
            "twice": ErrorCode.INVALID_REQUEST,
            "good": ErrorCode.NONE,
        }

    asyncio.run(go())


def test_only_validated():
    async def go():
        store = FakeStore()
        (result,) = await ask(scene(store), new("x", 3, 3), validate_only=True)
        assert (result.error_code, result.num_partitions) == (0, 3)
        assert store.order == []

    asyncio.run(go())


def test_another_broker_was_first():
    async def go():
        (result,) = await ask(scene(FakeStore(race=True)), new("x"))
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    asyncio.run(go())


def test_defaults_of_the_broker():
    async def go():
        store = FakeStore()
        server = scene(store, num_partitions="5", default_replication_factor="2")
        await ask(server, new("x", -1, -1), timeout_ms=0)
        assert len(store.created["x"].assignment) == 5
        assert len(store.created["x"].assignment[0].replicas) == 2

    asyncio.run(go())


def test_only_the_controller_creates():
    async def go():
        server = scene(FakeStore())
        server.controller.is_active = False
        (result,) = await ask(server, new("x"))
        assert result.error_code == ErrorCode.NOT_CONTROLLER
        assert result.error_message == "", "Kafka's default there is the empty string"

    asyncio.run(go())


def test_created_by_asking():
    async def go():
        store = FakeStore("late")
        creation = scene(store, brokers=1, offsets_topic_replication_factor="1").topic_creation
        answers = await creation.auto_create(["a", "b c", "late", "__consumer_offsets"])
        assert answers == {
            "a": ErrorCode.LEADER_NOT_AVAILABLE,
            "b c": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "late": ErrorCode.LEADER_NOT_AVAILABLE,
            "__consumer_offsets": ErrorCode.LEADER_NOT_AVAILABLE,
        }
        assert len(store.created["__consumer_offsets"].assignment) == 50
        assert store.settings["__consumer_offsets"]["cleanup.policy"] == "compact"
        none = scene(FakeStore(), brokers=0).topic_creation
        assert await none.auto_create(["a"]) == {"a": ErrorCode.INVALID_REPLICATION_FACTOR}

    asyncio.run(go())


def test_an_assignment_needs_replicas():
    with pytest.raises(InvalidReplicaAssignmentError):
        check_assignment({0: ()})
    with pytest.raises(InvalidReplicaAssignmentError):
        check_assignment({})
