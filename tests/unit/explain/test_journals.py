"""Files of many brokers read as one; damaged lines are named, skipped and counted."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.controller.journal import Journal
from ottla.explain.cluster_state import ClusterState
from ottla.explain.history import PartitionHistory
from ottla.explain.journals import Damage, NoJournalError, find, read
from ottla.explain.procedures import Procedures
from ottla.explain.replay import Replay
from ottla.log.files import OsFiles
from ottla.log.predecessors import Keep
from ottla.log.rolling_file import RollingFile
from ottla.model.journal_schema import JOURNAL_NAME, Elected, partition_of


class Clock:
    def wall_ms(self):
        return 1_700_000_000_000

    def monotonic(self):
        return 0.0


def line(epoch, cause=1, ts=1000, **more):
    head = {"kind": "event", "ts": ts, "controller": 1, "epoch": epoch, "cause": cause}
    return (json.dumps({**head, "event": "Elected", **more}) + "\n").encode()


def brokers(**facts):
    """A snapshot's part about brokers."""
    return line(1, kind="snapshot", part="cluster", facts={"brokers": [], **facts})


def causes(paths):
    damage = Damage()
    return [(e.line.epoch, e.line.cause) for e in read(find(paths), damage)], damage


def test_journals_are_merged_by_epoch_whatever_the_clocks_say(tmp_path):
    for broker, lines in {
        0: [line(1, 1, ts=9000), line(1, 2, ts=9001), line(3, 3, ts=50)],
        1: [line(2, 1, ts=5), line(2, 2, ts=6), line(4, 1, ts=1)],
    }.items():
        folder = tmp_path / f"broker-{broker}" / "data"
        folder.mkdir(parents=True)
        (folder / JOURNAL_NAME).write_bytes(b"".join(lines))
    found, damage = causes([tmp_path])
    assert found == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 1)]
    assert damage.count == 0


def test_the_older_file_comes_first_and_none_is_read_twice(tmp_path):
    (tmp_path / JOURNAL_NAME).write_bytes(line(1, 3) + line(2, 1))
    (tmp_path / f"{JOURNAL_NAME}.1").write_bytes(line(1, 1) + line(1, 2))
    found, _ = causes([tmp_path, tmp_path / JOURNAL_NAME, tmp_path / f"{JOURNAL_NAME}.1"])
    assert found == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_no_journal_is_said_with_the_way_out(tmp_path):
    with pytest.raises(NoJournalError, match=r"no journal in .*--dir"):
        find([tmp_path])
    with pytest.raises(NoJournalError, match="no such file"):
        find([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"{not json}\n", "malformed"),
        (b'{"kind":"event","ts":1}\n', "event"),
        (b'{"kind":"rumour"}\n', "rumour"),
        (b'{"kind":"states","before":1,"after":"x","subjects":[]}\n', "before"),
        (line(1, event="TopicDeleted", inputs={}), "topic"),
        (line(1, event="IsrChangesNotified", inputs={"partitions": ["nonsense"]}), "nonsense"),
        (brokers(reassigning=["nonsense"]), "nonsense"),
        (brokers(offline_dirs={"1": ["t-0", "nonsense"]}), "nonsense"),
        (b"\xff\xfe\x00\n", "malformed"),
        (line(1)[:-20], "cut off"),
    ],
)
def test_a_damaged_line_is_named_skipped_and_counted(tmp_path, bad, problem):
    (tmp_path / JOURNAL_NAME).write_bytes(
        line(1, 1) + bad + (line(1, 2) if bad[-1:] == b"\n" else b"")
    )
    found, damage = causes([tmp_path])
    assert found[0] == (1, 1)
    assert len(found) == (2 if bad.endswith(b"\n") else 1)
    ((file, number, said),) = damage.named
    assert (file, number, damage.count) == (str(tmp_path / JOURNAL_NAME), 2, 1)
    assert problem in said


@pytest.mark.parametrize("text", ["flights", "flights-", "-0", "flights-x", "flights-²", ""])
def test_what_is_no_partition_is_refused(text):
    with pytest.raises(ValueError, match="no TOPIC-PARTITION"):
        partition_of(text)


def test_topics_may_hold_dashes():
    assert partition_of("my-own-flights-12") == ("my-own-flights", 12)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_is_damaged_the_rest_is_told(told, data):
    """Bytes are overwritten, lines torn, doubled and lost: nothing fails, all is accounted for."""
    journal = told("broker_failure")
    ((file,),) = [files for files in journal.files if files[0].stat().st_size > 2000][:1]
    raw = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw) - 2))
        kind = data.draw(st.sampled_from(["byte", "cut", "hole", "twice", "zeros"]))
        length = data.draw(st.integers(1, 400))
        if kind == "byte":
            raw[at] = data.draw(st.integers(0, 255))
        elif kind == "cut" and at > 100:
            del raw[at:]
        elif kind == "hole":
            del raw[at : at + length]
        elif kind == "twice":
            raw[at:at] = raw[at : at + length]
        else:
            raw[at : at + length] = bytes(len(raw[at : at + length]))
        if len(raw) < 3:
            return
    file.write_bytes(raw)
    damage = Damage()
    takers = (ClusterState(), PartitionHistory(partition_of("t-1")), Replay())
    count = 0
    for entry in read(journal.files, damage):
        count += 1
        for taker in takers:
            taker.take(entry)
    with file.open("rb") as opened:
        lines = sum(1 for one in opened if one != b"\n")
    assert count + damage.count == lines
    assert len(damage.named) == damage.count


def test_a_torn_line_spoils_no_other(tmp_path):
    """A broker was killed while it wrote; its next life begins a line of its own."""
    path = tmp_path / JOURNAL_NAME
    path.write_bytes(line(1, 1) + line(1, 2)[:30])

    async def write():
        file = RollingFile(OsFiles(), str(path), Clock().wall_ms)
        file.write(line(2, 1))
        file.close()

    asyncio.run(write())
    found, damage = causes([tmp_path])
    assert found == [(1, 1), (2, 1)]
    assert damage.count == 1


def test_lines_the_disk_was_too_slow_for_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.log.rolling_file.MAX_QUEUED_LINES", 3)
    path = tmp_path / JOURNAL_NAME

    async def write():
        file = RollingFile(OsFiles(), str(path), Clock().wall_ms)
        journal = Journal(file.write, Clock(), 1, 7)
        for cause in range(8):
            journal.cause = cause
            journal.event(Elected())
        file.close()
        journal.cause = 8
        journal.event(Elected())
        file.close()

    asyncio.run(write())
    found, damage = causes([tmp_path])
    assert [cause for _, cause in found] == [0, 1, 2, 0, 8]
    assert damage.missing == 5


def test_a_rotated_journal_is_whole_again(tmp_path, told):
    """A small file is put aside again and again; what is left still leads to all that is known."""
    harness = told.modules[0]

    async def scene():
        cluster = await harness.Cluster.create()
        try:
            for broker in (1, 2, 3):
                await cluster.start(broker)
            await cluster.settle()
            controller = cluster.active
            file = RollingFile(
                OsFiles(),
                str(tmp_path / JOURNAL_NAME),
                Clock().wall_ms,
                Keep(file_bytes=10000, total_bytes=20000, compress=False),
                rotated=controller._journal_rotated,
            )
            controller._term.journal._write = file.write
            controller._journal_file = file
            await cluster.create_topic("t", {0: (1, 2, 3), 1: (2, 3, 1)}, {})
            await cluster.settle()
            rounds = 0
            # Until it was cut several times, and more stands in the newest file than its start.
            while rounds < 12 or (tmp_path / JOURNAL_NAME).stat().st_size < 6000:
                rounds += 1
                assert rounds < 30
                await cluster.kill(3)
                await cluster.settle()
                file._slice()
                await cluster.settle()
                await cluster._join(cluster.brokers[3])
                await cluster.settle()
                while file._lines:
                    file._slice()
                    await cluster.settle()
            # Its last word, when it resigns, may be one line too many for the file: then the
            # newest file has that line alone, and nobody is left to say more.
            controller._term.journal._write = lambda _line: None
            context = controller.context
            known = {tp: known.leader_and_isr for tp, known in context.leadership.items()}
            return known, list(context.leadership), dict(context.replica_states.items())
        finally:
            controller._journal_file = None
            await cluster.close()

    known, order, replica_states = asyncio.run(scene())
    files = find([tmp_path])
    assert len(files[0]) == 2
    assert files[0][1].name == JOURNAL_NAME
    assert files[0][0].name.startswith(f"{JOURNAL_NAME}.2")
    assert all(f.stat().st_size < 20_000 for f in files[0])
    newest = [files[0][1:]]
    for chosen in (files, newest):
        picture, again, procedures = ClusterState(), Replay(), Procedures()
        reasons = []
        for entry in read(chosen, Damage()):
            picture.take(entry)
            again.take(entry)
            procedures.take(entry)
            reasons.append(getattr(entry.facts, "reason", ""))
        assert "the journal goes on from here" in reasons
        assert again.differences == []
        found = {tp: picture.part(tp).leadership for tp in known}
        assert found == known
        procedures.finish()
        assert procedures.differences == []
        assert procedures.checked > 1
        context = procedures._followed.context
        assert list(context.leadership) == order
        assert {tp: k.leader_and_isr for tp, k in context.leadership.items()} == known
        assert dict(context.replica_states.items()) == replica_states
