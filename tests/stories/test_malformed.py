"""Nonsense in znodes (F41) and in requests for reassignment (F42): that item is ignored and said,
the rest goes on, and so does the next controller.

Real controllers on the in-memory ZooKeeper. `tests/compat/test_malformed.py` does the same to real
processes.
"""

import json
import logging

import pytest
from story_harness import play
from story_script import partition

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.control import AllocateProducerIdsRequest
from ottla.zookeeper import znodes

T0, T1 = partition("t-0"), partition("t-1")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("ottla.controller.loop.RESIGNATION_BACKOFF_S", 0.0)


async def topic(cluster, name, *replicas):
    await cluster.create_topic(name, dict(enumerate(replicas)), {})
    await cluster.settle()


# --- reassignments ----------------------------------------------------------------------------

GOOD = {"topic": "t", "partition": 1, "replicas": [3, 1]}
INVALID, UNKNOWN = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TARGETS = {
    "no replicas": ("t-0", [], INVALID),
    "replica twice": ("t-0", [3, 3], INVALID),
    "old replica twice": ("t-0", [1, 1], INVALID),
    "negative replica": ("t-0", [1, -1], INVALID),
    "dead broker": ("t-0", [1, 9], INVALID),
    "only dead brokers": ("t-0", [8, 9], INVALID),
    "unknown topic": ("x-0", [1], UNKNOWN),
    "unknown partition": ("t-7", [1], UNKNOWN),
    "negative partition": ("t--1", [1], UNKNOWN),
    "unknown topic, dead broker": ("x-0", [9], INVALID),
    "empty topic": ("-0", [1], UNKNOWN),
}

WAITED_FOR = ("dead broker", "only dead brokers")


async def before_and_after(cluster, ask):
    """Run `ask` on two partitions; return its result and whether t-0 is exactly as it was."""
    await topic(cluster, "t", (1, 2), (2, 1))
    before = await cluster.admin.topics.get_many(["t"]), await states(cluster)
    cluster.lines.clear()
    result = await ask()
    await cluster.settle()
    after = await cluster.admin.topics.get_many(["t"]), await states(cluster)
    stopped = [t for t in cluster.told[1] if t.api_key == 5]
    same = (
        before[0]["t"].assignment[0] == after[0]["t"].assignment[0]
        and before[1][T0] == after[1][T0]
        and not stopped
    )
    return result, same, after[0]["t"].assignment[1]


async def states(cluster):
    return await cluster.admin.states.get([T0, T1])


@pytest.mark.parametrize("case", TARGETS)
def test_an_invalid_target_by_request(case):
    where, replicas, expected = TARGETS[case]
    name, _, index = where.partition("-")
    bad = TopicPartition(name, int(index))

    async def scene(cluster):
        wanted = {bad: tuple(replicas), T1: (3, 1)}
        answers, same, good = await before_and_after(
            cluster, lambda: cluster.active.alter_reassignments(wanted)
        )
        assert answers[bad][0] == expected
        assert answers[bad][1], "a reason"
        assert same
        assert answers[T1][0] == ErrorCode.NONE
        assert good.target == (3, 1)

    play(scene, 1, 2, 3)


WAITED_FOR = ("dead broker", "only dead brokers")
"""By znode Kafka takes these: its ControllerIntegrationTest has them wait for the broker."""


@pytest.mark.parametrize("case", WAITED_FOR)
def test_a_dead_target_by_znode_is_waited_for(case):
    _, replicas, _ = TARGETS[case]

    async def scene(cluster):
        await topic(cluster, "t", (1, 2))
        await cluster.admin.admin_requests.create_reassignment({T0: tuple(replicas)})
        await cluster.settle()
        assert cluster.active.context.assignment(T0).target == tuple(replicas)
        state = await cluster.admin.states.get_one(T0)
        assert (state.leader_and_isr.leader, state.leader_and_isr.isr) == (1, (1, 2))
        assert await cluster.admin.admin_requests.is_reassigning()

    play(scene, 1, 2, 3)


@pytest.mark.parametrize("case", [case for case in TARGETS if case not in WAITED_FOR])
def test_an_invalid_target_by_znode(case, caplog):
    where, replicas, _ = TARGETS[case]
    name, _, index = where.partition("-")
    bad = {"topic": name, "partition": int(index), "replicas": replicas}

    async def scene(cluster):
        plan = json.dumps({"version": 1, "partitions": [bad, GOOD]}).encode()
        _, same, good = await before_and_after(
            cluster, lambda: cluster.admin.zk.create_recursive(znodes.REASSIGN_PARTITIONS, plan)
        )
        assert same
        assert good.target == (3, 1), "the rest is done"
        assert f"reassignment refused partition={where}" in caplog.text
        left = await cluster.admin.admin_requests.get_reassignment()
        assert left == {T1: (3, 1)}, "what is refused is taken off the list"

    play(scene, 1, 2, 3)


@pytest.mark.parametrize("target", [(1, 9), (8, 9)])
def test_dead_brokers_are_waited_for_by_znode_as_in_kafka(target):
    """Nothing is taken away meanwhile, and a request takes the partition back."""

    async def scene(cluster):
        await topic(cluster, "t", (1, 2), (2, 1))
        await cluster.admin.admin_requests.create_reassignment({T0: target})
        await cluster.settle()
        moving = (await cluster.admin.topics.get_many(["t"]))["t"].assignment[0]
        assert moving.target == target
        assert moving.original == (1, 2)
        assert (await states(cluster))[T0].leader_and_isr.isr == (1, 2)
        answers = await cluster.active.alter_reassignments({T0: None})
        assert answers[T0][0] == ErrorCode.NONE
        await cluster.settle()
        assert (await cluster.admin.topics.get_many(["t"]))["t"].assignment[0].replicas == (1, 2)
        assert not await cluster.admin.zk.path_exists(znodes.REASSIGN_PARTITIONS)

    play(scene, 1, 2, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b"\xff\xfe",
        b'{"version":1}',
        b'{"version":1,"partitions":{}}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[NaN]}]}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0.5,"replicas":[1]}]}',
        b'{"version":1,"partitions":[{"topic":"t","replicas":[1]}]}',
        b'{"version":1,"partitions":[{"topic":7,"partition":0,"replicas":[1]}]}',
        b'{"version":1,"partitions":[' + b"[" * 50_000,
        b" " * 900_000,
    ],
    ids=lambda data: data[:60].decode("latin-1"),
)
def test_a_reassignment_znode_that_cannot_be_read_is_removed(data, caplog):
    """Kafka ignores it too, but leaves it there, where it blocks whoever asks next."""

    async def scene(cluster):
        _, same, _ = await before_and_after(
            cluster, lambda: cluster.admin.zk.create_recursive(znodes.REASSIGN_PARTITIONS, data)
        )
        assert same
        assert "ignored path=/admin/reassign_partitions" in caplog.text
        assert not await cluster.admin.zk.path_exists(znodes.REASSIGN_PARTITIONS)
        await cluster.admin.admin_requests.create_reassignment({T1: (3, 1)})
        await cluster.settle()
        after = (await cluster.admin.topics.get_many(["t"]))["t"]
        assert after.assignment[1].target == (3, 1)

    play(scene, 1, 2, 3)


# --- every znode ------------------------------------------------------------------------------

RAW = {
    "empty": b"",
    "blank": b" ",
    "not JSON": b"{not json",
    "null": b"null",
    "a number": b"7",
    "a text": b'"x"',
    "a list": b"[]",
    "an empty object": b"{}",
    "not UTF-8": b'{"version":1,"\xff\xfe":1}',
    "nested deeply": b"[" * 100_000,
    "huge": b'{"x":"' + b"x" * 900_000 + b'"}',
}
VALUES = (None, "x", -1, 2**31, 1.5, [], {}, [[]])


MORE = {
    "/controller": (b'{"version":2,"brokerid":3}', b'{"version":2,"brokerid":99}'),
    "/controller_epoch": (b"0", b"-3", b"2147483646", b"99999999999", b"1e3", b"1.0"),
}


def mutants(path, valid):
    """Yield (what is wrong, content): raw nonsense, then the valid content with one thing wrong."""
    yield from RAW.items()
    yield from ((repr(data), data) for data in MORE.get(path, ()))
    try:
        fields = json.loads(valid)
    except ValueError:
        return
    if not isinstance(fields, dict):
        return
    for key in fields:
        yield f"without {key}", json.dumps({k: v for k, v in fields.items() if k != key}).encode()
        for value in VALUES:
            shown = json.dumps(value)[:20]
            yield f"{key} {shown}", json.dumps({**fields, key: value}).encode()


PATHS = (
    "/controller",
    "/controller_epoch",
    "/brokers/ids/1",
    "/brokers/ids/77",
    "/brokers/topics/t",
    "/brokers/topics/new",
    "/brokers/topics/t/partitions/0/state",
    "/brokers/topics/" + "x" * 300,
    "/brokers/topics/not legal",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics/nosuch",
    "/isr_change_notification/isr_change_0000000007",
    "/log_dir_event_notification/log_dir_event_0000000007",
    "/latest_producer_id_block",
    "/feature",
    "/config/topics/t",
    "/config/changes/config_change_0000000007",
)
VALID = {
    "/brokers/ids/77": b'{"version":5,"endpoints":["PLAINTEXT://host1:1"],"jmx_port":-1,'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{},"rack":"r"}',
    "/brokers/topics/new": b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAg",'
    b'"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}',
    "/admin/reassign_partitions": b'{"version":1,"partitions":[]}',
    "/admin/preferred_replica_election": b'{"version":1,"partitions":[]}',
    "/isr_change_notification/isr_change_0000000007": b'{"version":1,"partitions":[]}',
    "/log_dir_event_notification/log_dir_event_0000000007": b'{"version":1,"broker":1,"event":1}',
    "/latest_producer_id_block": b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    "/config/topics/t": b'{"version":1,"config":{}}',
    "/config/changes/config_change_0000000007": b'{"version":2,"entity_path":"topics/t"}',
}


async def tamper(cluster, path, data):
    session = cluster.admin.session
    if await session.exists(path) is None:
        await cluster.admin.zk.create_recursive(path, data)
    else:
        await session.set(path, data)
    await cluster.settle()


async def works(cluster, name):
    """Create a topic and see that it is led: there is a controller and it can write."""
    await topic(cluster, name, (1, 2, 3), (3, 2, 1))
    found = await cluster.admin.states.get([TopicPartition(name, 0), TopicPartition(name, 1)])
    return len(found) == 2 and all(s.leader_and_isr.leader > 0 for s in found.values())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:60])
def test_tampered(path, caplog):
    """Nonsense of every kind in one znode: the cluster works, and so does the next controller."""
    caplog.set_level(logging.WARNING)
    wrong = []

    def one(what, data):
        async def scene(cluster):
            await topic(cluster, "t", (1, 2, 3), (2, 3, 1))
            epoch = cluster.highest_epoch
            await tamper(cluster, path, data)
            if not await works(cluster, "after"):
                wrong.append(f"{what}: no topic is created")
            (active,) = [b for b, s in cluster.brokers.items() if s.controller.is_active] or [0]
            if active:
                await cluster.kill(active)
                await cluster.settle()
                if not await works(cluster, "later"):
                    wrong.append(f"{what}: the next controller creates no topic")
            else:
                wrong.append(f"{what}: no controller")
            if cluster.highest_epoch > epoch + 500 or len(caplog.records) > 200:
                wrong.append(f"{what}: a loop, epoch {cluster.highest_epoch}")

        caplog.clear()
        play(scene, 1, 2, 3)
        unexpected = [r.getMessage() for r in caplog.records if r.exc_info]
        if unexpected:
            wrong.append(f"{what}: {unexpected[0]}")

    valid = VALID.get(path, b"")
    if not valid:

        async def read(cluster):
            nonlocal valid
            await topic(cluster, "t", (1, 2, 3), (2, 3, 1))
            found = await cluster.admin.zk.get_data_and_stat(path)
            valid = found[0] if found else b""

        play(read, 1, 2, 3)
    for what, data in mutants(path, valid):
        one(what, data)
    assert not wrong, "\n".join(wrong)


def test_no_producer_id_is_guessed():
    """Two producers with one id would be one to the logs: rather none than a doubtful one."""

    async def scene(cluster):
        request = AllocateProducerIdsRequest(
            broker_id=1, broker_epoch=cluster.brokers[1].epochs[-1]
        )
        first = await cluster.active.allocate_producer_ids(request)
        assert (first.error_code, first.producer_id_start) == (0, 0)
        path = znodes.PRODUCER_ID_BLOCK
        good = (await cluster.admin.zk.get_data_and_stat(path))[0]
        await tamper(cluster, path, b"{}")
        refused = await cluster.active.allocate_producer_ids(request)
        assert refused.error_code != 0
        assert (await cluster.admin.zk.get_data_and_stat(path))[0] == b"{}"
        await tamper(cluster, path, good)
        second = await cluster.active.allocate_producer_ids(request)
        assert (second.error_code, second.producer_id_start) == (0, 1000)

    play(scene, 1)


@pytest.mark.parametrize("name", ["x" * 250, "not legal", "ä"])
def test_no_broker_is_told_of_a_topic_whose_name_is_not_legal(name, caplog):
    """A folder of that name could not be made, and the broker would take its disk for broken."""

    async def scene(cluster):
        await topic(cluster, name, (1, 2))
        await topic(cluster, "legal", (1, 2))
        told = {
            told.topic_name
            for request in cluster.told[1]
            for told in getattr(request.message, "topic_states", ())
        }
        assert "legal" in told
        assert name not in told
        assert "ignored path=/brokers/topics/" in caplog.text

    play(scene, 1, 2)
