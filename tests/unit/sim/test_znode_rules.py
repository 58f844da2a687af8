"""Each rule over ZooKeeper's writes finds its breach, and nothing where there is none."""

import json

import pytest

from ottla.sim.znode_rules import check_znodes
from ottla.zookeeper.memory import LoggedWrite

ONE, TWO = 0x1, 0x2
TOPIC = "/brokers/topics/t"
MARK = "/admin/delete_topics/t"
STATE = f"{TOPIC}/partitions/0/state"


def write(zxid, path, data, session=ONE, op="set"):
    text = None if data is None else json.dumps(data).encode()
    return LoggedWrite(zxid, session, "delete" if data is None else op, path, text, 0)


def epoch(zxid, number, session=ONE):
    return write(zxid, "/controller_epoch", number, session)


def topic(zxid, replicas, session=ONE, topic_id="a", partition="0"):
    return write(zxid, TOPIC, {"partitions": {partition: replicas}, "topic_id": topic_id}, session)


def state(zxid, session=ONE, **changes):
    fields = {"controller_epoch": 1, "leader": 1, "leader_epoch": 3, "isr": [1, 2], "version": 1}
    return write(zxid, STATE, fields | changes, session)


MARKED = LoggedWrite(4, ONE, "create", MARK, None, 0)
START = [epoch(1, 1), topic(2, [1, 2, 3]), state(3)]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ([state(4, leader_epoch=4, leader=2)], None),
        ([state(4, leader=-1, leader_epoch=4)], None),
        ([state(4, isr=[1, 2, 3])], None),
        ([state(4, leader_epoch=2)], "leader epoch 3 → 2"),
        ([state(4, leader=7)], "not in ISR"),
        ([state(4, isr=[1, 1])], "twice"),
        ([state(4, isr=[1, 4])], "takes in [4]"),
        ([epoch(4, 1)], "controller epoch 1 → 1"),
        ([state(4, controller_epoch=2)], "names controller epoch 2, not 1"),
        ([state(4, session=TWO)], "by session 0x2, but controller epoch 1 is of session 0x1"),
        ([epoch(4, 2, TWO), state(5, TWO, controller_epoch=2)], None),
        ([epoch(4, 2, TWO), state(5, controller_epoch=1)], "by session 0x1"),
        ([epoch(4, 2, TWO), write(5, STATE, None)], "delete by session 0x1"),
        ([write(4, "/admin/delete_topics/t", None, TWO)], "delete by session 0x2"),
        ([write(4, STATE, None), write(5, TOPIC, None)], None),
        (
            [
                write(4, STATE, None),
                write(5, TOPIC, None),
                topic(6, [1, 2], topic_id="b"),
                state(7, leader_epoch=0),
            ],
            None,
        ),
        (
            [
                write(4, STATE, None),
                write(5, TOPIC, None),
                topic(6, [1, 2]),
                state(7, leader_epoch=0),
            ],
            "leader epoch 3 → 0",
        ),
        ([topic(4, [1, 2, 4])], None),
        ([topic(4, [1, 2, 4], TWO)], "set by session 0x2"),
        ([topic(4, [1, 2, 3], TWO)], None),
        ([topic(4, [1, 2, 3], topic_id="b")], "id a → b"),
        ([topic(4, [1, 2, 3], partition="1")], "lost partitions ['0']"),
        # A topic being deleted does not grow: the controller takes back what was added.
        ([MARKED, topic(5, [1, 2, 3], partition="1")], None),
        (
            [MARKED, write(5, MARK, None), topic(6, [1, 2, 3], partition="1")],
            "lost partitions ['0']",
        ),
        # A cancelled move: the ISR may name what has just left the assignment, but not take it in.
        ([topic(4, [2, 3]), state(5, isr=[2, 1], leader=2)], None),
    ],
)
def test_znode_rules(more, word):
    found = check_znodes([*START, *more])
    if word is None:
        assert found == []
    else:
        assert word in found[0]
