"""Log dirs as the command line asks for them: on a simulated cluster's answers."""

import asyncio

import pytest

from ottla.client import configs, log_dirs
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.cluster import AlterReplicaLogDirsResponse, DescribeLogDirsResponse
from ottla.wire.messages.configs import DescribeConfigsResponse, IncrementalAlterConfigsResponse
from support.fake_client import FakeClient

TP = TopicPartition("t", 0)
A, B = "/a", "/b"


def lying(lag=0, *, is_future=False, size=10):
    d = DescribeLogDirsResponse
    partition = d.DescribeLogDirsPartition(
        partition_index=0, partition_size=size, offset_lag=lag, is_future_key=is_future
    )
    return [d.DescribeLogDirsTopic(name="t", partitions=[partition])]


class Brokers(FakeClient):
    """A client of brokers that answer what they are told to, in turn."""

    def __init__(self, **dirs):
        self.dirs = dirs
        self.codes = []
        self.asked = []

    async def call(self, message, broker, **_):
        if broker == 3:
            raise ConnectionLostError("it is down")
        if type(message).__name__ == "DescribeLogDirsRequest":
            r = DescribeLogDirsResponse
            results = [
                r.DescribeLogDirsResult(log_dir=f"/{n}", topics=t, total_bytes=9, usable_bytes=5)
                for n, t in self.dirs.items()
            ]
            results.append(r.DescribeLogDirsResult(log_dir="/bad", error_code=56))
            return r(results=results)
        self.asked.append((broker, message.dirs[0].path))
        r = AlterReplicaLogDirsResponse
        partition = r.AlterReplicaLogDirPartitionResult(
            partition_index=0, error_code=self.codes.pop(0)
        )
        return r(results=[r.AlterReplicaLogDirTopicResult(topic_name="t", partitions=[partition])])


def test_what_lies_where_and_who_is_silent():
    client = Brokers(a=lying(), b=lying(4, is_future=True))
    found = asyncio.run(log_dirs.describe(client, [3, 1]))
    assert found.silent == [3]
    assert [(d.path, d.problem, d.usable) for d in found.dirs] == [
        (A, "", 5), (B, "", 5), ("/bad", "KAFKA_STORAGE_ERROR", -1)
    ]  # fmt: skip
    assert [(r.path, r.lag, r.is_future) for r in found.replicas] == [(A, 0, False), (B, 4, True)]
    assert asyncio.run(log_dirs.describe(client, [1], ["u"])).replicas == []


@pytest.mark.parametrize(
    ("dirs", "state"),
    [
        ({"a": lying(), "b": lying(4, is_future=True)}, "in progress, 4 records to go"),
        ({"a": lying(), "b": lying(-1, is_future=True)}, "in progress"),
        ({"b": lying()}, "done"),
        ({"a": lying()}, "in /a"),
        ({}, "not there"),
    ],
)
def test_how_far_a_replica_is(dirs, state):
    (placed,) = asyncio.run(log_dirs.progress(Brokers(**dirs), {(TP, 1): B}))
    assert placed.state == state
    assert placed.done is (state == "done")


def test_a_replica_that_has_yet_to_be_created_is_asked_for_again():
    client = Brokers()
    client.codes = [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NONE]
    asyncio.run(log_dirs.place(client, {(TP, 1): B}))
    assert client.asked == [(1, B)] * 2


def test_a_refusal_names_the_replica_the_dir_and_the_reason():
    client = Brokers()
    client.codes = [ErrorCode.LOG_DIR_NOT_FOUND]
    with pytest.raises(
        OttlaError, match=r"t-0 on broker 1 was not sent to /b: .*LOG_DIR_NOT_FOUND"
    ):
        asyncio.run(log_dirs.place(client, {(TP, 1): B}))


class SlowToObey(Brokers):
    """Brokers that show a changed setting only when they are asked for the third time."""

    def __init__(self, shown, **dirs):
        super().__init__(**dirs)
        self.codes = [ErrorCode.NONE]
        self.shown = shown
        self.steps = []

    async def call(self, message, broker, **more):
        kind = type(message).__name__.removesuffix("Request")
        self.steps.append(kind)
        if kind == "IncrementalAlterConfigs":
            r = IncrementalAlterConfigsResponse
            return r(responses=[r.AlterConfigsResourceResponse(resource_name="1")])
        if kind == "DescribeConfigs":
            r = DescribeConfigsResponse
            configs = [self.shown] if self.steps.count(kind) >= 3 else []
            return r(results=[r.DescribeConfigsResult(configs=configs)])
        return await super().call(message, broker, **more)


def shown(**more):
    entry = {"name": log_dirs.THROTTLE, "value": "7", "config_source": 2, **more}
    return DescribeConfigsResponse.DescribeConfigsResourceResult(**entry)


@pytest.mark.parametrize("setting", [shown(), shown(value=None, is_sensitive=True)])
def test_no_replica_is_sent_before_its_broker_obeys_the_throttle(setting):
    """A move that begins before the broker heard of the throttle is over when it does.

    Kafka does not show the value of a throttle, only that it is set.
    """
    client = SlowToObey(setting)
    asyncio.run(log_dirs.place(client, {(TP, 1): B}, 7))
    assert client.steps == [
        "IncrementalAlterConfigs", *["DescribeConfigs"] * 3, "AlterReplicaLogDirs"
    ]  # fmt: skip


def test_a_broker_that_never_obeys_is_named():
    client = SlowToObey(shown(value="6"))
    with pytest.raises(OttlaError, match=r"broker 1 does not obey replica\..*=7 after 0\.1 s"):
        asyncio.run(configs.wait_in_force(client, 1, {log_dirs.THROTTLE: "7"}, 0.1))
