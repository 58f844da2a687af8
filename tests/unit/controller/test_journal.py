"""Lines on disk: complete, bounded, and replayable by themselves."""

import asyncio
import json

import pytest

from ottla.controller.elections import ElectionKind, elect
from ottla.controller.journal import Journal
from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica
from ottla.log.files import OsFiles
from ottla.log.predecessors import Keep
from ottla.log.rolling_file import RollingFile
from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import Resigned

TP = TopicPartition("t", 0)


class Noon:
    def wall_ms(self):
        return 1_700_000_000_000

    def monotonic(self):
        return 0.0


NOON = Noon()


def journal_into(lines):
    return Journal(lambda line: lines.append(json.loads(line)), Noon(), 1, 3)


def test_a_decision_can_be_made_again_from_its_line_alone():
    lines = []
    journal = journal_into(lines)
    assignment = ReplicaAssignment((1, 2, 3))
    before = LeaderAndIsr(1, 4, (1, 3), 8)
    outcome = elect(ElectionKind.OFFLINE, assignment, before, {2, 3}.__contains__)
    decision = Decision(
        TP,
        "offline",
        outcome.rule,
        before,
        outcome.state,
        assignment.replicas,
        outcome.rejected,
        online=(2, 3),
    )
    journal.cause = 17
    journal.decision(decision, "written")
    (line,) = lines
    assert (line["cause"], line["epoch"], line["partition"]) == (17, 3, "t-0")
    again = elect(
        ElectionKind(line["election"]),
        ReplicaAssignment(tuple(line["replicas"]), tuple(line["adding"]), tuple(line["removing"])),
        LeaderAndIsr(
            line["before"]["leader"],
            line["before"]["leader_epoch"],
            tuple(line["before"]["isr"]),
            line["before"]["partition_epoch"],
            line["before"]["recovery_state"],
        ),
        set(line["online"]).__contains__,
        shutting_down=set(line["shutting_down"]).__contains__,
    )
    assert again == outcome
    assert line["after"]["leader"] == 3
    assert [2, "not in the ISR"] in line["rejected"]


def test_moves_are_grouped_by_step():
    lines = []
    journal = journal_into(lines)
    journal.state_changes(
        [(TP, "a", "b"), (PartitionReplica(TP, 2), "c", "d"), (TP._replace(partition=1), "a", "b")],
    )
    assert [(line["before"], line["subjects"]) for line in lines] == [
        ("a", ["t-0", "t-1"]),
        ("c", ["t-0 on 2"]),
    ]


def test_without_a_sink_nothing_is_kept():
    Journal(None, Noon(), 1, 3).state_changes([(TP, "a", "b")])
    Journal(None, Noon(), 1, 3).event(Resigned(reason="x"))


async def written(file, lines):
    for line in lines:
        file.write(line)
    file.close()


def test_the_file_is_rotated_and_goes_on_after_a_restart(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    line = b"x" * 99 + b"\n"
    keep = Keep(file_bytes=1000, total_bytes=5000, compress=False)
    asyncio.run(written(RollingFile(OsFiles(), path, NOON.wall_ms, keep), [line] * 4))
    asyncio.run(written(RollingFile(OsFiles(), path, NOON.wall_ms, keep), [line] * 4))
    assert (tmp_path / "journal.jsonl").stat().st_size == 800

    async def more():
        file = RollingFile(OsFiles(), path, NOON.wall_ms, keep)
        for _ in range(5):
            await written(file, [line])

    asyncio.run(more())
    assert (tmp_path / "journal.jsonl.20231114221320000").stat().st_size == 1000
    assert (tmp_path / "journal.jsonl").stat().st_size == 300


def test_a_broken_disk_ends_the_journal_and_nothing_else(tmp_path, caplog):
    path = str(tmp_path / "no-such-folder" / "journal.jsonl")
    file = RollingFile(OsFiles(), path, NOON.wall_ms)
    asyncio.run(written(file, [b"a\n", b"b\n"]))
    asyncio.run(written(file, [b"c\n"]))
    assert len([r for r in caplog.records if "no more lines" in r.message]) == 1


@pytest.mark.parametrize("count", [10])
def test_memory_is_bounded_by_dropping_lines(tmp_path, monkeypatch, count):
    monkeypatch.setattr("ottla.log.rolling_file.MAX_QUEUED_LINES", count)

    async def story():
        file = RollingFile(OsFiles(), str(tmp_path / "j"), NOON.wall_ms)
        for _ in range(count + 5):
            file.write(b"x\n")
        dropped = file.dropped
        file.close()
        return dropped

    assert asyncio.run(story()) == 5
