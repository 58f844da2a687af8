"""What single lines say: Kafka's three forms, ours, journals; files, options and the page."""

# ruff: noqa: E501 - lines of logs
import json
import re
from zoneinfo import ZoneInfo

import pytest

from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.state_changes import state_text
from ottla.pipelines import paths
from ottla.pipelines.timeline import command, files, journals, report
from ottla.pipelines.timeline.lines import parse

UTC = ZoneInfo("UTC")
HEAD = "[2026-11-22 16:27:33,713] "
NEW_STATE = (
    "PartitionState(topicName='a.b-c', partitionIndex=3, controllerEpoch=7, leader=2, leaderEpoch=5, "
    "isr=[2, 10], {}=9, replicas=[2, 10, 1], {}=[])"
)
OLD_STATE = (
    "(LeaderAndIsrInfo:(Leader:2,ISR:2,10,LeaderEpoch:5,ControllerEpoch:7),ReplicationFactor:3),"
    "AllReplicas:2,10,1)"
)
SAID = {"topic": "a.b-c", "partition": 3, "leader": 2, "leader_epoch": 5, "isr": "2,10"}
DECIDED = state_text(LeaderAndIsr(2, 5, (2, 10), 9, 0))

LINES = [
    ("TRACE [Broker id=1] Cached leader info UpdateMetadata"
     + NEW_STATE.format("zkVersion", "offlineReplicas")
     + " for partition a.b-c-3 in response to UpdateMetadata request sent by controller 4 epoch 8 "
     "with correlation id 2",
     {"kind": "cached", "epoch": 8, "about": 4, "version": 9, **SAID}),
    ("TRACE [Broker id=1] Received LeaderAndIsr request LeaderAndIsr"
     + NEW_STATE.format("partitionEpoch", "addingReplicas")
     + " correlation id 1 from controller 4 epoch 8",
     {"kind": "asked", "epoch": 8, "version": 9, **SAID}),
    (("INFO [Broker id=1] Leader a.b-c-3 with topic id Some(hD15WMViXciYbFu4oOXmPQ) starts at leader "
     "epoch 5 from offset 300 with partition epoch 9, high watermark 10, ISR [2,10], adding replicas "
     "[] and removing replicas [] (under-min-isr). Previous leader Some(0) and previous leader epoch "
     "was 4."),
     {"kind": "led", "leader_epoch": 5, "isr": "2,10", "offset": 300, "version": 9, "previous": 4,
      "topic_id": "hD15WMViXciYbFu4oOXmPQ", "topic": "a.b-c", "partition": 3}),
    (("INFO [Broker id=1] Leader a.b-c-3 starts at leader epoch 5 from offset 0 with high watermark 0 "
     "ISR [2,10] addingReplicas [] removingReplicas []. Previous leader epoch was -1."),
     {"kind": "led", "leader_epoch": 5, "previous": -1, "isr": "2,10"}),
    (("INFO [Broker id=1] Follower a.b-c-3 starts at leader epoch 5 from offset 7 with partition epoch "
     "9 and high watermark 7. Current leader is -1. Previous leader Some(2) and previous leader epoch "
     "was 4."),
     {"kind": "followed", "leader": -1, "leader_epoch": 5, "previous": 4, "offset": 7}),
    ((f"INFO [Controller id=4 epoch=8] Changed partition a.b-c-3 from OfflinePartition to "
     f"OnlinePartition with state {DECIDED}"),
     {"kind": "decided", "epoch": 8, "before": "OfflinePartition", "version": 9, **SAID}),
    (("INFO [Controller id=4 epoch=8] Partition a.b-c-3 state changed to (Leader:2,ISR:2,10,"
     "LeaderRecoveryState:RECOVERED,LeaderEpoch:5,ZkVersion:9,ControllerEpoch:8) after removing replica 1 from the ISR as part of transition to OfflineReplica"),
     {"kind": "decided", "epoch": 8, **SAID}),
    (("TRACE [Controller id=4 epoch=8] Changed partition a.b-c-3 state from OnlinePartition to "
     "OfflinePartition"), {"kind": "moved", "after": "OfflinePartition", "side": "controller"}),
    (("TRACE [Controller id=4 epoch=8] Changed state of replica 1 for partition a.b-c-3 from "
     "OnlineReplica to OfflineReplica"), {"kind": "other", "topic": "a.b-c", "partition": 3}),
    ("TRACE [Controller id=4 epoch=8] Sending become-leader LeaderAndIsr request LeaderAndIsr"
     + NEW_STATE.format("partitionEpoch", "addingReplicas") + " to broker 2 for partition a.b-c-3",
     {"kind": "sent", "about": 2, "epoch": 8, **SAID}),
    (("WARN [Broker id=1] Ignoring LeaderAndIsr request from controller 2 with correlation id 3 since "
     "its controller epoch 4 is old. Latest known controller epoch is 5"),
     {"kind": "refused", "epoch": 4, "about": 2, "topic": None}),
    (("INFO [Broker id=1] Add 3 partitions and deleted 0 partitions from metadata cache in response to "
     "UpdateMetadata request sent by controller 1 epoch 6 with correlation id 2"),
     {"kind": "cached", "epoch": 6, "topic": None}),
    (("INFO [Broker id=1] Handling LeaderAndIsr request correlationId 1 from controller 1 for 3 "
     "partitions"), {"kind": "other", "topic": None, "broker": 1}),
    # Kafka 1.0 to 2.3
    (("TRACE [Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=7, leader=2, "
     "leaderEpoch=5, isr=2,10, zkVersion=9, replicas=2,10, isNew=true) correlation id 3 from "
     "controller 4 epoch 8 for partition a.b-c-3"), {"kind": "asked", "version": 9, **SAID}),
    (("TRACE [Controller id=4 epoch=8] Changed partition a.b-c-3 from NewPartition to OnlinePartition "
     "with state LeaderAndIsr(leader=2, leaderEpoch=5, isr=List(2, 10), zkVersion=9)"),
     {"kind": "decided", "version": 9, **SAID}),
    # Kafka 0.8 to 0.11
    ((f"TRACE Broker 1 received LeaderAndIsr request {OLD_STATE} correlation id 5 from controller 4 "
     "epoch 8 for partition [a.b-c,3]"), {"kind": "asked", "epoch": 8, "broker": 1, **SAID}),
    ((f"TRACE Broker 1 cached leader info {OLD_STATE} for partition [a.b-c,3] in response to "
     "UpdateMetadata request sent by controller 4 epoch 8 with correlation id 9"),
     {"kind": "cached", "epoch": 8, **SAID}),
    (("TRACE Broker 1 completed LeaderAndIsr request correlationId 5 from controller 4 epoch 8 for the "
     "become-leader transition for partition [a.b-c,3]"),
     {"kind": "led", "epoch": 8, "leader_epoch": None, "topic": "a.b-c", "partition": 3}),
    (("TRACE Controller 4 epoch 8 changed partition [a.b-c,3] from OfflinePartition to "
     "OnlinePartition with leader 2"), {"kind": "decided", "leader": 2, "epoch": 8, "broker": 4}),
    (("TRACE Controller 4 epoch 8 sending become-leader LeaderAndIsr request (Leader:2,ISR:2,10,"
     "LeaderEpoch:5,ControllerEpoch:7) with correlationId 3 to broker 2 for partition [a.b-c,3]"),
     {"kind": "sent", "about": 2, **SAID}),
    ("TRACE Broker 1 handling stop replica (delete=true) for partition [a.b-c,3]",
     {"kind": "stopped", "topic": "a.b-c"}),
    ("ERROR Controller 4 epoch 8 aborted leader election for partition [a.b-c,3] because of it",
     {"kind": "other", "topic": "a.b-c", "partition": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), LINES, ids=lambda v: v if isinstance(v, str) else "")
def test_each_form_is_understood(text, says):
    event = parse(f"{HEAD}{text} (state.change.logger)\n", UTC)
    assert event.time_ms == 1795364853713
    assert {name: getattr(event, name) for name in says} == says


@pytest.mark.parametrize(
    "line",
    ["", "java.io.IOException: gone", "\tat kafka.Kafka.main",
     "[2026-02-31 16:00:00,000] INFO [Broker id=1] x",
     HEAD + "INFO [ReplicaFetcher replicaId=1] x (kafka.server.Fetcher)"],
)  # fmt: skip
def test_what_is_no_state_change_is_none(line):
    assert parse(line, UTC) is None


def test_times_are_those_of_the_zone():
    line = HEAD + "INFO [Broker id=1] Handling x (state.change.logger)"
    assert parse(line, ZoneInfo("Europe/Vienna")).time_ms == 1795364853713 - 3_600_000


def test_journals():
    def line(kind, **more):
        return json.dumps({"kind": kind, "ts": 5, "controller": 1, "epoch": 2, "cause": 3, **more})

    after = {
        "leader": 2,
        "leader_epoch": 5,
        "isr": [2, 10],
        "partition_epoch": 1,
        "recovery_state": 0,
    }
    decision = {
        "election": "offline",
        "rule": "first live ISR member",
        "before": None,
        "after": after,
        "replicas": [2, 10],
    }
    (decided,) = journals.parse(
        line("decision", partition="a.b-c-3", **decision, outcome="written")
    )
    assert {k: getattr(decided, k) for k in SAID} == SAID
    assert (decided.kind, decided.broker, decided.epoch) == ("decided", 1, 2)
    assert journals.parse(line("decision", partition="t-0", **decision, outcome="raced")) == []
    moved = journals.parse(
        line("states", before="OnlinePartition", after="OfflinePartition", subjects=["t-0", "t-1"])
    )
    assert [(m.topic, m.partition, m.after) for m in moved] == [
        ("t", 0, "OfflinePartition"), ("t", 1, "OfflinePartition"),
    ]  # fmt: skip
    assert (
        journals.parse(
            line("states", before="OnlineReplica", after="OfflineReplica", subjects=["t-0 on 1"])
        )
        == []
    )
    events = journals.parse(
        line(
            "event",
            event="BrokersChanged",
            inputs={"present": [[5, 9, None]], "dead": [4], "new": [5], "bounced": [6]},
        )
    )
    assert [(x.kind, x.about) for x in events] == [
        ("broker-gone", 4), ("broker-gone", 6), ("broker-came", 5), ("broker-came", 6),
    ]  # fmt: skip
    (known,) = journals.parse(
        line(
            "snapshot",
            part="topic",
            facts={
                "topic": "t",
                "id": "",
                "partitions": {"0": {**after, "replicas": [2, 10]}, "1": {"replicas": [2]}},
            },
        )
    )
    assert (known.kind, known.leader, known.isr) == ("known", 2, "2,10")
    assert journals.parse('{"kind":"dropped","lines":7}')[0].offset == 7
    assert journals.parse(line("event", event="FromALaterVersion", inputs={"x": 1})) == []
    for damaged in (
        '{"kind":"dec',
        "x",
        line("decision", partition="t", **decision, outcome="written"),
        line("decision", partition="t-0", after=after, outcome="written"),
        line("event", event="BrokersChanged", inputs={"dead": [4]}),
    ):
        assert journals.parse(damaged) is None


def test_files_are_found_once(tmp_path):
    folder = tmp_path / "broker-0"
    folder.mkdir()
    for name in (
        "state-change.log",
        "state-change.log.1",
        "ottla-controller-journal.jsonl",
        "x.log",
    ):
        (folder / name).touch()
    found = files.find([str(tmp_path), str(folder / "state-change.log")], f"{folder}/state-.*")
    assert [p.rpartition("/")[2] for p in found.logs] == ["state-change.log", "state-change.log.1"]
    assert len(found.journals) == 1
    for wrong in ([str(tmp_path / "none")], [str(tmp_path / "empty")]):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(files.NoLogsError):
            files.find(wrong)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the logs"),
        (["/nowhere"], "no such file or folder"),
        (["x", "--partitions", "1"], "--partitions needs --topic"),
        (["x", "--topic", "t", "--partitions", "one"], "write 0,1,2"),
        (["x", "--start-time", "noon"], "write a time as"),
        (["x", "--time-zone", "Nowhere/None"], "there is no time zone"),
        (["x", "--set", "timeline.print=page"], "[timeline.print]: Invalid enum value 'page'"),
        (["x", "--set", "timeline.overlap=1"], "there is no setting `overlap`"),
        (["--logs-regex", "/tmp/["], "is no regular expression"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_before_spark_starts(arguments, says, capsys):
    assert command.main(arguments) == 1
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_an_output_folder_that_is_not_empty_is_left_alone(tmp_path):
    paths.new_folder(str(tmp_path), "--output")
    (tmp_path / "x").touch()
    with pytest.raises(ConfigError, match="not empty"):
        paths.new_folder(str(tmp_path), "--output")


EVIL = "<script>alert('&')</script>"
TERM = {
    "leader": 1,
    "first_epoch": 0,
    "last_epoch": 2,
    "began_ms": 1000,
    "ended_to_ms": 5000,
    "how": "died",
}
GAP = {"after": 1, "next": 2, "start_from_ms": 3000, "start_to_ms": 5000, "end_ms": 6000,
       "least_ms": 1000, "most_ms": 3000, "how": "died", "topic": EVIL, "partition": 0}  # fmt: skip
FINDING = {
    "kind": "double-leader",
    "level": "error",
    "time_ms": 2000,
    "text": EVIL,
    "topic": EVIL,
    "partition": 0,
}
TOLD = {
    "lines": 1, "unread": 0, "dropped": 0, "partitions": 1, "terms": 1, "gaps": 1, "findings": 1,
    "errors": 1, "clocks": [EVIL], "found": [FINDING], "longest_gaps": [GAP],
    "files": [
        {"file": EVIL, "brokers": [1], "lines": 1, "unread": 0, "first_ms": 1000, "last_ms": 9000}
    ],
}  # fmt: skip


def test_the_page_escapes_all_it_shows_and_is_put_in_place_whole(tmp_path):
    shown = {(EVIL, 0): {"terms": [TERM], "gaps": [GAP], "findings": [FINDING], "states": []}}
    page = report.page(TOLD, shown, "UTC")
    assert "<script" not in page
    assert "http" not in page
    # A second is an eighth of the width: the term half, the gap an eighth, the doubt a quarter.
    widths = re.findall(r'width="([\d.]+)"', page)
    assert widths == ["500.0", "250.0", "125.0"]
    report.write(tmp_path / "page.html", TOLD, shown, "UTC")
    assert (tmp_path / "page.html").read_text() == page
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(OttlaError, match="No such file"):
        report.write(tmp_path / "none" / "page.html", TOLD, shown, "UTC")
