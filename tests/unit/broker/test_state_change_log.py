"""state-change.log: lines as Kafka's, in a file of their own."""

import argparse
import asyncio
import logging
import re

import pytest

from ottla.broker.process import _state_change_path
from ottla.broker.process_log import write_state_changes
from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Outgoing
from ottla.controller.context import Context
from ottla.controller.state_change_logger import StateChangeLogger
from ottla.controller.states import PartitionReplica
from ottla.log.files import OsFiles
from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.state_changes import LOGGER_NAME

TP = TopicPartition("flights", 0)


@pytest.fixture
def logger():
    logger = logging.getLogger(LOGGER_NAME)
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers = []
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def lines_of(tmp_path, *, trace=False):
    """Return what a controller of epoch 1 writes about one partition's beginning."""
    context = Context(epoch=1)
    context.set_assignment(TP, ReplicaAssignment((0, 1)))
    context.leadership[TP] = LeaderIsrAndControllerEpoch(LeaderAndIsr(0, 0, (0, 1)), 1)

    async def write():
        log = StateChangeLogger(context, 2)
        log.changed(
            [
                (TP, "NonExistentPartition", "NewPartition"),
                (PartitionReplica(TP, 1), "NonExistentReplica", "NewReplica"),
                (TP, "NewPartition", "OnlinePartition"),
                (TP, "OnlinePartition", "OfflinePartition"),
            ]
        )

        def encode():
            return []

        log.sent(
            [
                Outgoing(0, LEADER_AND_ISR, 7, encode, 1, "1 become-leader and 0 become-follower"),
                Outgoing(0, UPDATE_METADATA, 8, encode, 1, ""),
                Outgoing(1, UPDATE_METADATA, 8, encode, 1, ""),
                Outgoing(1, STOP_REPLICA, 4, encode, 3, "", frozenset({TP})),
            ]
        )

    path = tmp_path / "state-change.log"
    write_state_changes(OsFiles(), str(path), trace=trace)
    asyncio.run(write())
    for handler in logging.getLogger(LOGGER_NAME).handlers:
        handler.close()
    return path.read_text().splitlines()


def test_lines_are_those_of_kafka(tmp_path, logger):
    lines = lines_of(tmp_path)
    head = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (INFO|TRACE) ")
    assert all(head.match(line) for line in lines)
    assert [head.sub("", line) for line in lines] == [
        f"[Controller id=2 epoch=1] {text} (state.change.logger)"
        for text in (
            (
                "Changed partition flights-0 state from NonExistentPartition to NewPartition with "
                "assigned replicas 0,1"
            ),
            (
                "Changed partition flights-0 from NewPartition to OnlinePartition with state "
                "LeaderAndIsr(leader=0, leaderEpoch=0, isrWithBrokerEpoch=List("
                "BrokerState(brokerId=0, brokerEpoch=-1), "
                "BrokerState(brokerId=1, brokerEpoch=-1)), "
                "leaderRecoveryState=RECOVERED, partitionEpoch=0)"
            ),
            "Sending UpdateMetadata request to brokers Set(0, 1) for 1 partitions",
            (
                "Sending LeaderAndIsr request to broker 0 with 1 become-leader "
                "and 0 become-follower partitions"
            ),
            "Sending StopReplica request (delete = true) for 1 replicas to broker 1",
            "Sending StopReplica request (delete = false) for 2 replicas to broker 1",
        )
    ]


def test_replicas_are_logged_at_trace(tmp_path, logger):
    text = "\n".join(lines_of(tmp_path, trace=True))
    assert "Changed state of replica 1 for partition flights-0 from NonExistentReplica" in text
    assert "Changed partition flights-0 state from OnlinePartition to OfflinePartition" in text


def test_it_can_be_switched_off(tmp_path, logger):
    write_state_changes(OsFiles(), "none")
    assert not logger.isEnabledFor(logging.ERROR)
    assert not logger.propagate


@pytest.mark.parametrize(
    ("asked", "log_file", "path"),
    [
        (None, None, "/logs/a/state-change.log"),
        (None, "/var/log/server.log", "/var/log/state-change.log"),
        (None, "server.log", "./state-change.log"),
        ("/x/y", "/var/log/server.log", "/x/y"),
    ],
)
def test_where_the_file_is(asked, log_file, path):
    config = BrokerConfig(
        {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/logs/a,/logs/b"}
    )
    arguments = argparse.Namespace(state_change_log=asked, log_file=log_file)
    assert _state_change_path(arguments, config) == path
