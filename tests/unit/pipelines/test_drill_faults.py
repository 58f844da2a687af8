"""Faults planted in a small cluster's files: each is named with its partition and offsets.

The truth is what the test itself cut, flipped, doubled or wrote; see `drill_world`.
"""

import json

import msgspec
import pytest

from ottla.cli.grammar import read
from ottla.pipelines import audit, drill
from ottla.pipelines.auditing.judging import Finding
from ottla.pipelines.drilling import here
from support import planted
from support.drill_world import BEGAN, OFFSETS, START_MS, TOPIC, World, role


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "cluster")


def report(world, *more, code, acks=True, lake=True):
    """Run the job; return {partition: its report} and the whole JSON."""
    output = world.folder.parent / f"report-{len(list(world.folder.parent.iterdir()))}"
    arguments = [
        str(world.folder), "--here", "--topic", TOPIC, "--time-zone", "UTC", "--output", str(output)
    ]  # fmt: skip
    arguments += ["--acks", str(world.folder / "acks.csv")] if acks else []
    arguments += ["--lake", str(world.folder / "lake")] if lake else []
    assert drill.main([*arguments, *more]) == code
    if not (output / "report.json").exists():
        return {}, {}
    found = json.loads((output / "report.json").read_text())
    page = (output / "index.html").read_text()
    assert "http" not in page
    assert "<script" not in page
    return {p["partition"]: p for p in found["partitions"]}, found


def wrong(of):
    """Return (partition, kind, offsets, broker) of all that is wrong."""
    return sorted(
        (number, f["kind"], [tuple(s) for s in f["offsets"]], f["broker"])
        for number, one in of.items()
        for f in one["findings"]
        if f["wrong"]
    )


def notes(of, number):
    return [(f["kind"], f["count"]) for f in of[number]["findings"] if not f["wrong"]]


def test_a_clean_drill_finds_nothing(world, capsys):
    of, whole = report(world, code=0)
    assert wrong(of) == []
    assert [one["verdicts"] for one in of.values()] == [["held"], ["held"]]
    assert (whole["result"]["acknowledged"], whole["result"]["lost"]) == (2 * OFFSETS, 0)
    line = capsys.readouterr().out
    assert line.startswith("HELD: 2 partitions: 200 acknowledged, 0 of them lost")
    led = [
        (t["leader"], t["first_epoch"], t["offset"], t["acknowledged"]["count"])
        for t in of[0]["leaders"]
    ]
    assert led == [(1, 0, 0, 40), (2, 1, 40, 40), (1, 3, 80, 20)]
    reasons = [t["reason"] for t in of[0]["leaders"]]
    assert reasons[0].startswith("the topic was created")
    assert reasons[1].startswith("broker 1 died: its session ended")
    assert "preferred election" in reasons[2]
    (gap,) = [g for g in of[0]["without_leader"] if g["after"] == 1]
    assert gap["start_to_ms"] == BEGAN[0, 1]
    assert gap["end_ms"] == BEGAN[0, 1] + 10
    assert {
        r["broker"]: (r["start"], r["end"], r["agrees"]) for r in of[0]["replicas"]
    } == dict.fromkeys(range(3), (0, OFFSETS, True))
    assert (of[1]["lake"]["rows"], of[1]["lake"]["first"], of[1]["lake"]["last"]) == (100, 0, 99)


def test_acknowledged_and_cut_from_all_replicas(world):
    for broker in range(3):
        assert planted.cut_tail(world.segments(broker, 0)[-1], 2) == 90
    of, whole = report(world, code=1)
    assert (0, "lost", [(90, 99)], None) in wrong(of)
    assert (0, "in the lake, not in the log", [(90, 99)], None) in wrong(of)
    assert of[0]["verdicts"][:2] == ["acknowledged records lost", "lake differs"]
    assert (of[1]["verdicts"], whole["result"]["lost"]) == (["held"], 10)


def test_acknowledged_and_taken_from_the_middle_of_all(world):
    for broker in range(3):
        assert planted.lose(world.segments(broker, 1)[1], 1) == (25, 29)
    of, _ = report(world, code=1, lake=False)
    assert (1, "lost", [(25, 29)], None) in wrong(of)
    assert (0, "lost") not in [w[:2] for w in wrong(of)]


def test_damaged_everywhere_is_lost_and_in_one_replica_is_not(world):
    for broker in range(3):
        assert planted.flip(world.segments(broker, 0)[0], 1) == 5
    planted.flip(world.segments(2, 1)[2], 0)
    of, _ = report(world, code=1, lake=False)
    assert (0, "lost", [(5, 9)], None) in wrong(of)
    assert {(0, "bad checksum", 5, b) for b in range(3)} | {(1, "bad checksum", 40, 2)} <= {
        (p, kind, spans[0][0], broker) for p, kind, spans, broker in wrong(of) if spans
    }
    assert "lost" not in {kind for p, kind, *_ in wrong(of) if p == 1}
    agrees = {r["broker"]: r["agrees"] for r in of[1]["replicas"]}
    assert agrees == {0: True, 1: True, 2: False}
    lacking = {r["broker"]: r["lacking"]["spans"] for r in of[1]["replicas"]}
    assert lacking == {0: [], 1: [], 2: [[40, 44]]}


def test_one_replica_has_another_record(world):
    planted.other_value(world.segments(1, 0)[1], 2)
    of, _ = report(world, code=1)
    assert [(p, kind, b) for p, kind, _, b in wrong(of)] == [(0, "divergent", 1)]
    assert wrong(of)[0][2] == [(30, 30)]


def test_a_delta_log_that_differs_from_the_lakes_manifests(world, capsys):
    table = world.folder / "lake" / TOPIC
    told = json.loads((table / "table.json").read_text())
    (table / "table.json").write_text(json.dumps(told | {"format": 2}))
    report(world, code=0)  # the newest version may still come
    log = table / "delta" / "data" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{1:020d}.json").touch()
    _, whole = report(world, code=1)
    assert "is the version of a batch that is not there" in json.dumps(whole)
    assert "Delta logs 1" in capsys.readouterr().out


def test_rows_missing_and_doubled_in_the_lake(world):
    world.rows.remove((0, 33))
    world.rows.append((1, 7))
    world.write_lake()
    of, _ = report(world, code=1)
    assert wrong(of) == [
        (0, "not in the lake", [(33, 33)], None), (1, "doubled in the lake", [(7, 7)], None),
    ]  # fmt: skip


def test_a_second_leader_of_one_epoch(world):
    with world.state_changes(0).open("a") as log:
        log.write(
            role(2, 1, 0, BEGAN[1, 0] + 30_000, -1)
            .replace("[Broker id=2]", "[Broker id=0]")
            .replace("from offset 0", "from offset 60")
        )
    of, _ = report(world, code=1)
    assert (1, "double-leader", [(60, 60)], 0) in wrong(of)
    assert of[0]["verdicts"] == ["held"]


def test_two_acknowledgements_of_one_offset(world):
    world.acks.append((1, 50, START_MS + 500))
    world.write_acks()
    of, _ = report(world, code=1)
    assert wrong(of) == [(1, "acknowledged twice", [(50, 50)], None)]


def test_what_stands_there_was_written_after_the_acknowledgement(world):
    """Offset 80 is of epoch 3, and was acknowledged while broker 2 led in epoch 1."""
    world.acks[world.acks.index((0, 80, BEGAN[0, 3] + 180))] = (0, 80, BEGAN[0, 1] + 5000)
    world.write_acks()
    of, _ = report(world, code=1)
    assert wrong(of) == [(0, "overwritten", [(80, 80)], None)]


def test_what_was_never_acknowledged_is_said_and_allowed(world):
    world.acks = [a for a in world.acks if a[:2] not in {(0, 10), (0, 11), (1, 99)}]
    world.write_acks()
    of, _ = report(world, code=0)
    assert ("never acknowledged", 2) in notes(of, 0)
    assert ("never acknowledged", 1) in notes(of, 1)


def test_a_producer_killed_while_it_wrote(world):
    world.write_acks(tail="1,4")
    _, whole = report(world, code=0)
    assert whole["result"]["general"]["acknowledgements"]["unreadable_lines"] == 1


def test_retention_is_no_loss(world):
    for broker in range(3):
        world.segments(broker, 1)[0].unlink()
    of, _ = report(world, code=0)
    assert ("removed", 20) in notes(of, 1)


def test_without_acknowledgements_and_lake_nothing_is_said_of_them(world):
    for broker in range(3):
        planted.cut_tail(world.segments(broker, 0)[-1], 2)
        planted.marks(world.log_dir(broker), "replication-offset-checkpoint", {})
    of, whole = report(world, code=0, acks=False, lake=False)
    assert (of[0]["acknowledged"], of[0]["lake"], whole["result"]["acknowledged"]) == (
        None, None, None,
    )  # fmt: skip


def test_a_range_of_time(world):
    """Acknowledgements of the first term alone: the rest is not taken for unacknowledged."""
    until = "2026-09-21 14:13:55"
    of, _ = report(world, "--until", until, code=0)
    acked = [a for a in world.acks if a[2] <= 1_790_000_035_000]
    assert sum(p["acknowledged"]["count"] for p in of.values()) == len(acked)
    assert "never acknowledged" not in dict(notes(of, 0))
    assert [t["leader"] for t in of[0]["leaders"]] == [1, 2]


@pytest.mark.parametrize(
    ("plant", "more", "told"),
    [
        (lambda w: w.write_lake("00000000-0000-0000-0000-000000000001"), [], "belongs to topic id"),
        (lambda w: w.write_acks("a,b,c"), [], "partition and offset"),
        (lambda w: (w.acks.clear(), w.write_acks(tail="x,1,2\n")), [], "nothing can be compared"),
        (lambda w: None, ["--from", "2030-01-01 00:00:00"], "nothing can be compared"),
        (lambda w: (w.folder / "acks.csv").unlink(), [], "acks.csv is no file"),
        (lambda _: None, ["--lake", "/nowhere"], "/nowhere does not exist"),
        (lambda _: None, ["--time-zone", "Mars/Base"], "no time zone Mars/Base"),
        (lambda _: None, ["--reports", "/tmp"], "reports need"),
    ],
)
def test_what_is_wrong_is_one_line(world, capsys, plant, more, told):
    plant(world)
    assert report(world, *more, code=1) == ({}, {})
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error


def test_a_folder_that_is_not_empty_is_left_alone(world, capsys):
    there = world.folder.parent / "there"
    there.mkdir()
    (there / "mine").write_text("x")
    assert drill.main([str(world.folder), "--here", "--output", str(there)]) == 1
    assert [p.name for p in there.iterdir()] == ["mine"]
    assert "not empty" in capsys.readouterr().err


def test_many_partitions_get_a_page_each(world, monkeypatch):
    monkeypatch.setattr("ottla.pipelines.drilling.outputs.TOGETHER", 1)
    output = world.folder.parent / "many"
    assert drill.main([str(world.folder), "--here", "--topic", TOPIC, "--output", str(output)]) == 0
    pages = sorted(p.name for p in (output / "partitions").iterdir())
    assert pages == ["orders-0.html", "orders-1.html"]
    assert 'href="partitions/orders-1.html"' in (output / "index.html").read_text()


def test_what_the_audit_finds_by_reports_counts(world, monkeypatch, capsys):
    """The log is read by Spark for it: here the audit is one that has found a loss."""
    found = Finding("lost", TOPIC, START_MS, 3, "web-1: numbers 4, 5, 6")
    asked = []

    def audited(_spark, settings, since_ms, until_ms):
        asked.append((settings.audit.topics, settings.audit.reports, since_ms, until_ms))
        return audit.Result(buckets=[], findings=[found], unjudged=0, waiting={}, reported=1)

    def joined(_spark, wanted):
        reports, general = here.drill(wanted)
        rows = [
            {"rank": r.rank, "topic": r.topic, "partition": r.partition,
             "body": msgspec.json.encode(r)}
            for r in reports
        ]  # fmt: skip
        return Joined(rows, general)

    class Joined:
        def __init__(self, rows, general):
            self.result, self.general = self, general
            self._rows = rows

        def limit(self, _count):
            return self

        def collect(self):
            return self._rows

        def close(self):
            pass

    monkeypatch.setattr("ottla.pipelines.audit.audited", audited)
    monkeypatch.setattr("ottla.pipelines.drilling.job.drill", joined)
    monkeypatch.setattr("ottla.pipelines.replica_files.cluster.ask", lambda *_: {})
    output = world.folder.parent / "reported"
    options = read(drill.Options,
        [str(world.folder), "--topic", TOPIC, "--reports", "/r", "--bootstrap-server", "h:1",
         "--output", str(output)]
    )  # fmt: skip
    assert drill.run(options, spark=object()) == 1
    assert asked == [([TOPIC], "/r", None, None)]
    assert "producers' reports 1" in capsys.readouterr().out
    assert "web-1: numbers 4, 5, 6" in (output / "index.html").read_text()
