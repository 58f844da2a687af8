"""What must not happen to leaders is found in brokers' logs and in journals, and nothing else is."""

# ruff: noqa: E501 - lines of logs
import gzip
import json

import pytest

from ottla.explain.findings import (
    DOUBLE_LEADER,
    STALE_CONTROLLER,
    STALE_LEADER_EPOCH,
    Decisions,
    logs_in,
    of_logs,
)
from ottla.explain.lines import parse

ID = "hD15WMViXciYbFu4oOXmPQ"


def led(broker, epoch, previous, second=0, topic_id=ID, partition=0):
    with_id = "" if topic_id is None else f"with topic id Some({topic_id}) "
    return (
        f"[2026-11-22 16:27:{second:02},713] INFO [Broker id={broker}] Leader a.b-c-{partition} {with_id}starts at leader "
        f"epoch {epoch} from offset 300 with partition epoch 9, high watermark 10, ISR [2,10], adding replicas "
        f"[] and removing replicas [] (under-min-isr). Previous leader Some(0) and previous leader epoch was {previous}. (state.change.logger)"
    )


def followed(broker, epoch, previous, second=0, partition=0):
    return (
        f"[2026-11-22 16:27:{second:02},713] INFO [Broker id={broker}] Follower a.b-c-{partition} starts at leader epoch {epoch} from offset 7 with partition epoch "
        f"9 and high watermark 7. Current leader is -1. Previous leader Some(2) and previous leader epoch was {previous}. (state.change.logger)"
    )


def heard(broker, epoch, second=0):
    return (
        f"[2026-11-22 16:27:{second:02},713] INFO [Broker id={broker}] Add 3 partitions and deleted 0 partitions from metadata cache in response to "
        f"UpdateMetadata request sent by controller 1 epoch {epoch} with correlation id 2 (state.change.logger)"
    )


def refused(broker, epoch):
    return (
        f"[2026-11-22 16:27:33,713] WARN [Broker id={broker}] Ignoring LeaderAndIsr request from controller 2 with correlation id 3 since "
        f"its controller epoch {epoch} is old. Latest known controller epoch is 5 (state.change.logger)"
    )


@pytest.fixture
def found(tmp_path):
    def found(*brokers, older=()):
        for number, lines in enumerate(brokers):
            folder = tmp_path / f"broker-{number}"
            folder.mkdir(exist_ok=True)
            (folder / "state-change.log").write_text("\n".join(lines) + "\n")
        if older:
            data = ("\n".join(older) + "\n").encode()
            (tmp_path / "broker-0" / "state-change.log.1.gz").write_bytes(gzip.compress(data))
        return [
            (one.kind, one.broker, one.tp and str(one.tp)) for one in of_logs(logs_in([tmp_path]))
        ]

    return found


def test_a_failover_and_a_restart_are_no_findings(found):
    first = [
        led(0, 0, -1),
        heard(0, 5),
        followed(0, 2, 0, 20),
        followed(0, 2, -1, 40),
        refused(0, 4),
    ]
    second = [followed(1, 0, -1), led(1, 1, 0, 10), led(1, 2, 1, 19), heard(1, 5), heard(1, 6)]
    assert found(first, second) == []


def test_one_leader_epoch_led_by_two_brokers(found):
    assert found([led(0, 4, 3)], [followed(1, 3, 2), led(1, 4, 3, 9)]) == [
        (DOUBLE_LEADER, 1, "a.b-c-0")
    ]
    assert found([led(0, 4, 3)], [led(1, 4, 3, partition=1), led(1, 5, 4)]) == []


def test_a_topic_that_was_made_anew_begins_with_its_epochs(found):
    other = "aaaaaaaaaaaaaaaaaaaaaa"
    assert found([led(0, 3, 2)], [led(1, 3, -1, topic_id=other)]) == []
    assert (
        found([led(0, 3, 2), led(0, 0, -1, 5, other)], [followed(1, 3, 2), followed(1, 0, -1, 5)])
        == []
    )
    # Without ids: no one knows whose leader epoch 0 it was.
    assert (
        found(
            [led(0, 0, -1, 0, None), led(0, 3, 2, 1, None), followed(0, 0, -1, 5)],
            [led(1, 0, -1, 5, None)],
        )
        == []
    )
    assert found([led(0, 0, -1, 0, None)], [led(1, 0, -1, 5, None)]) == [
        (DOUBLE_LEADER, 1, "a.b-c-0")
    ]


def test_a_role_of_an_epoch_that_was_over(found):
    assert found([led(0, 5, 4), followed(0, 4, 5, 9)]) == [(STALE_LEADER_EPOCH, 0, "a.b-c-0")]
    assert found([led(0, 5, 4), led(0, 4, -1, 9)]) == [(STALE_LEADER_EPOCH, 0, "a.b-c-0")]
    stop = "[2026-11-22 16:27:33,713] TRACE [Broker id=0] handling stop replica (delete=true) for partition a.b-c-0"
    assert found([led(0, 5, 4), stop, followed(0, 4, 5, 9)]) == []


def test_files_that_were_set_aside_come_before(found):
    assert found([followed(0, 4, 5, 30)], older=[led(0, 5, 4)]) == [
        (STALE_LEADER_EPOCH, 0, "a.b-c-0")
    ]


def test_a_request_of_a_former_controller(found):
    assert found([heard(0, 5), heard(0, 4)], [heard(1, 4)]) == [(STALE_CONTROLLER, 0, None)]


def test_folders_without_logs_say_nothing(tmp_path):
    assert logs_in([tmp_path, tmp_path / "nothing"]) == []


# -- journals --------------------------------------------------------------------------------------


def decision(leader, leader_epoch, controller=1, epoch=2, **more):
    after = {
        "leader": leader, "leader_epoch": leader_epoch, "isr": [2, 10], "partition_epoch": 1,
        "recovery_state": 0,
    }  # fmt: skip
    return {
        "kind": "decision", "ts": 5, "controller": controller, "epoch": epoch, "cause": 3,
        "partition": "t-0", "election": "offline", "rule": "first live ISR member", "before": None,
        "after": after, "replicas": [2, 10], "live": [2, 10], "rejected": [], "outcome": "written",
        "written": True, **more,
    }  # fmt: skip


def decided(*lines):
    taken = Decisions()
    for line in lines:
        taken.take(parse(json.dumps(line).encode(), "journal", 1))
    return [(one.kind, one.broker, one.text) for one in taken.findings()]


def test_one_leader_epoch_given_to_two():
    fine = [decision(2, 5), decision(2, 5), decision(10, 6, epoch=3)]
    assert decided(*fine) == []
    ((kind, broker, text),) = decided(*fine, decision(2, 6, 4, 4))
    assert (kind, broker) == (DOUBLE_LEADER, 4)
    assert text == (
        "leader epoch 6 was given to broker 10 by controller 1 (epoch 3) and to broker 2 by "
        "controller 4 (epoch 4)"
    )


def test_what_a_former_controller_wrote_too_late():
    ((kind, broker, text),) = decided(decision(2, 7, 1, 2), decision(10, 6, 4, 3))
    assert (kind, broker) == (STALE_CONTROLLER, 1)
    assert text.startswith("controller 1 of epoch 2 wrote leader epoch 7 after controller 4")
