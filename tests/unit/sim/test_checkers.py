"""Each checker finds its anomaly, and nothing where there is none."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord, check_all
from ottla.sim.history import History, Read

TP = TopicPartition("t", 0)


def good():
    history = History()
    for i in range(3):
        write = history.invoke("p0", TP, (b"%d-a" % i, b"%d-b" % i), -1, float(i))
        write.completed_s = i + 0.5
        write.offset = 2 * i
    log = [
        LogRecord(n, 1, value)
        for n, value in enumerate(v for w in history.writes for v in w.values)
    ]
    history.reads = [Read("c0", TP, r.offset, r.value, 9.0) for r in log]
    return history, {TP: {0: list(log), 1: list(log)}}


def test_a_good_run_has_no_anomalies():
    assert check_all(*good()) == []


def lose_a_record(history, logs):
    for records in logs[TP].values():
        records.pop()


def swap_two(history, logs):
    for records in logs[TP].values():
        records[1], records[2] = (
            records[1]._replace(value=records[2].value),
            records[2]._replace(value=records[1].value),
        )


def truncate_one_replica(history, logs):
    logs[TP][1].pop()


def another_epoch(history, logs):
    logs[TP][1][3] = logs[TP][1][3]._replace(leader_epoch=2)


def phantom(history, logs):
    for records in logs[TP].values():
        records.append(LogRecord(6, 1, b"nobody wrote this"))


def duplicate(history, logs):
    for records in logs[TP].values():
        records.append(LogRecord(6, 1, b"0-a"))


def refused_but_there(history, logs):
    history.writes[2].failed = "NOT_ENOUGH_REPLICAS"


def epoch_goes_back(history, logs):
    for records in logs[TP].values():
        records[5] = records[5]._replace(leader_epoch=0)


def read_something_else(history, logs):
    history.reads[2] = Read("c0", TP, 2, b"0-a", 9.0)


def read_beyond(history, logs):
    history.reads.append(Read("c0", TP, 6, b"gone again", 9.0))


def read_backwards(history, logs):
    history.reads.append(history.reads[0])


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (lose_a_record, "acked record lost"),
        (swap_two, "reordered"),
        (truncate_one_replica, "replicas differ"),
        (another_epoch, "replicas differ"),
        (phantom, "phantom record"),
        (duplicate, "duplicate record"),
        (refused_but_there, "phantom record"),
        (epoch_goes_back, "reordered"),
        (read_something_else, "read not repeatable"),
        (read_beyond, "read not repeatable"),
        (read_backwards, "read not repeatable"),
    ],
)
def test_every_anomaly_is_found(harm, kind):
    history, logs = good()
    harm(history, logs)
    assert any(line.startswith(kind) for line in check_all(history, logs))


def test_an_open_write_may_be_there_or_not():
    history, logs = good()
    history.writes[2].completed_s = None
    assert check_all(history, logs) == []
    history.reads = history.reads[:4]
    for records in logs[TP].values():
        del records[4:]
    assert check_all(history, logs) == []


def test_many_anomalies_are_counted():
    history, logs = good()
    for write in history.writes:
        write.offset += 100
    found = check_all(history, logs)
    assert found[-1] == "acked record lost: … 6 in all"


def test_gaps_are_counted_per_partition():
    history, _ = good()
    other = TopicPartition("t", 1)
    write = history.invoke("p0", other, (b"x",), -1, 0.0)
    write.completed_s, write.offset = 8.0, 0
    assert history.gaps_s(0.0, 10.0) == [2.0, 7.5, 8.0]
