"""Replicas compared by their files: planted faults, and random histories against a plain model."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.admin.replica_files import comparing
from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files.compare import divergences, spans_of
from ottla.admin.replica_files.comparing import Plan, judge_logs, plan
from ottla.admin.replica_files.folders import EVERYTHING, Place, logs_in
from ottla.admin.replica_files.judge import committed_upto
from ottla.admin.replica_files.replica import SegmentFacts, Truth
from ottla.admin.replica_files.small_files import read_cell, replica_of
from ottla.admin.replica_files.summary import summarize
from ottla.log import checkpoints
from ottla.model.ids import TopicPartition
from ottla.wire.records import iter_batches
from support import planted

TP = TopicPartition("t", 0)
RUNS = [(0, 6), (2, 5), (3, 5)]
END = 80


def places(root: Path, brokers=(0, 1, 2)) -> list[Place]:
    return [Place(b, str(root / str(b))) for b in brokers]


def facts_in(root: Path, brokers=(0, 1, 2), tp=TP):
    segments = {}
    for place in places(root, brokers):
        for log in logs_in(place):
            if log.tp == tp:
                segments[log.log_dir] = [
                    SegmentFacts(s.base_offset, s.path, s.size, summarize(s)) for s in log.segments
                ]
    return segments


def judged(root: Path, truth: Truth | None = None, brokers=(0, 1, 2), tp=TP):
    found = plan(places(root, brokers), EVERYTHING, {})
    truths = {} if truth is None else {tp: truth}
    planned = Plan(found.logs, found.segments, truths, found.brokers, found.problems)
    return judge_logs(tp, planned, facts_in(root, brokers, tp))


def wrong(findings):
    return [(f.kind, f.broker, f.offset) for f in findings if f.wrong]


@pytest.fixture
def root(tmp_path):
    """Three replicas of 80 offsets in batches of 5, whose files begin at different offsets."""
    for broker, per_segment in enumerate((4, 4, 7)):
        log_dir = tmp_path / str(broker)
        assert planted.log(log_dir / "t-0", RUNS, per_segment=per_segment) == END
        planted.marks(log_dir, checkpoints.HIGH_WATERMARKS, {"t-0": END})
    return tmp_path


def files(root, broker):
    return planted.segments(root / str(broker) / "t-0")


def test_healthy_replicas_have_no_findings_however_they_are_cut_into_files(root):
    assert judged(root) == []
    assert judged(root, Truth(END, 0, frozenset({0, 1, 2}), frozenset({0, 1, 2}))) == []


@pytest.mark.parametrize("broker", [0, 1, 2])
def test_a_flipped_byte_is_named_by_broker_file_and_position(root, broker):
    path = files(root, broker)[1]
    position = planted.batches(path)[2][0]
    offset = planted.flip(path, 2)
    found = judged(root)
    assert wrong(found) == [(kinds.CHECKSUM, broker, offset), (kinds.DIVERGENT, broker, offset)]
    assert {(f.file, f.position) for f in found} == {(str(path), position)}


def test_a_flipped_length_makes_the_rest_of_the_file_unreadable(root):
    offset = planted.flip(files(root, 1)[1], 2, at=10)
    found = judged(root)
    assert (kinds.UNREADABLE, 1, offset) in wrong(found) or (kinds.CHECKSUM, 1, offset) in wrong(
        found
    )
    assert (kinds.DIVERGENT, 1, offset) in wrong(found)
    assert {f.broker for f in found} == {1}


@pytest.mark.parametrize("inside", [0, 30, 75])
def test_a_cut_tail_is_missing_below_the_high_watermark(root, inside):
    end = planted.cut_tail(files(root, 2)[-1], 1, inside)
    found = wrong(judged(root))
    assert (kinds.MISSING_TAIL, 2, end) in found
    assert {broker for _, broker, _ in found} == {2}


def test_a_lost_batch_is_found_by_the_gap_and_by_the_others(root):
    first, last = planted.lose(files(root, 0)[2], 1)
    found = judged(root)
    assert wrong(found) == [(kinds.DIVERGENT, 0, first), (kinds.LOST, 0, first)]
    assert f"offsets {first} to {last} are in no batch" in " ".join(f.detail for f in found)


def test_a_lost_file_is_found(root):
    path = files(root, 0)[1]
    first = planted.batches(path)[0][1].base_offset
    path.unlink()
    assert wrong(judged(root)) == [(kinds.DIVERGENT, 0, first), (kinds.LOST, 0, first)]


def test_an_offset_twice_is_found(root):
    offset = planted.double(files(root, 1)[0], 2)
    found = wrong(judged(root))
    assert (kinds.DUPLICATE, 1, offset) in found
    assert (kinds.DIVERGENT, 1, offset) in found


def test_files_that_changed_names_are_found(root):
    one, other = files(root, 1)[:2]
    planted.swap(one, other)
    found = wrong(judged(root))
    assert {(k, b) for k, b, _ in found} >= {(kinds.FOREIGN, 1)}
    assert {b for _, b, _ in found} == {1}


def test_another_epoch_is_found_in_the_checkpoint_and_beside_the_others(root):
    offset = planted.other_epoch(files(root, 2)[1], 1, 1)
    found = [f for f in judged(root) if f.wrong]
    assert {(f.kind, f.broker) for f in found} == {(kinds.EPOCH, 2)}
    assert {f.offset for f in found} >= {offset}
    assert any("leader-epoch-checkpoint says 2" in f.detail for f in found)
    assert any("broker 0, broker 1" in f.detail for f in found)


def test_a_checkpoint_that_is_wrong_while_all_batches_agree_is_found(root):
    path = root / "1" / "t-0" / checkpoints.LEADER_EPOCHS
    path.write_bytes(checkpoints.encode_epochs([(0, 0), (3, 55)]))
    assert wrong(judged(root)) == [(kinds.EPOCH, 1, 30)]
    path.write_bytes(checkpoints.encode_epochs([(0, 0), (1, 10), (2, 30), (3, 55)]))
    assert wrong(judged(root)) == [(kinds.EPOCH, 1, 10)]
    path.write_bytes(b"nonsense")
    assert [k for k, _, _ in wrong(judged(root))] == [kinds.CHECKPOINT]
    # What a running broker has not written yet.
    path.write_bytes(checkpoints.encode_epochs([(0, 0), (2, 30)]))
    assert wrong(judged(root)) == []
    assert [(f.kind, f.broker, f.offset) for f in judged(root) if f.kind == kinds.EPOCH] == [
        (kinds.EPOCH, 1, 55)
    ]


def test_a_changed_record_with_a_sound_checksum_is_found_by_the_majority(root):
    offset = planted.other_value(files(root, 0)[0], 1)
    found = judged(root)
    assert wrong(found) == [(kinds.DIVERGENT, 0, offset)]
    # Where two say different things, the leader is right.
    shutil.rmtree(root / "2")
    truth = Truth(END, 0, frozenset({0, 1}), frozenset({0, 1}))
    assert wrong(judged(root, truth, (0, 1))) == [(kinds.DIVERGENT, 1, offset)]


def test_a_folder_of_an_earlier_topic_of_the_name_is_found(root):
    path = root / "0" / "t-0" / checkpoints.PARTITION_METADATA
    path.write_bytes(checkpoints.encode_partition_metadata(b"another topic id"))
    assert wrong(judged(root)) == [(kinds.FOREIGN_FOLDER, 0, -1)]


def test_what_was_not_committed_is_no_fault(root):
    for broker in range(3):
        planted.marks(root / str(broker), checkpoints.HIGH_WATERMARKS, {"t-0": 60})
    planted.cut_tail(files(root, 1)[-1], -1, 20)
    planted.other_value(files(root, 2)[-1], -1)
    found = judged(root)
    assert wrong(found) == []
    assert [f.kind for f in found] == [kinds.TORN_TAIL]


def test_a_former_leaders_tail_is_no_fault_unless_it_was_committed(root):
    # Broker 1 led in epoch 2 and wrote two batches that nobody took; epoch 3 began without them.
    theirs = [(h.base_offset, d) for p in files(root, 0) for _, h, d in planted.batches(p)]
    folder = root / "1" / "t-0"
    shutil.rmtree(folder)
    planted.log(folder, [(0, 6), (2, 7)], salt=b"uncommitted", per_segment=20)
    (whole,) = files(root, 1)
    own = [(h.base_offset, d) for _, h, d in planted.batches(whole)]
    whole.unlink()
    planted.cut(folder, theirs[:11] + own[11:], 5)
    planted.marks(root / "1", checkpoints.HIGH_WATERMARKS, {"t-0": 55})
    found = judged(root)
    assert (kinds.UNCOMMITTED, 1, 55) in [(f.kind, f.broker, f.offset) for f in found]
    assert [k for k, _, _ in wrong(found)] == [kinds.MISSING_TAIL]
    out_of_sync = Truth(END, 0, frozenset({0, 2}), frozenset({0, 1, 2}))
    assert wrong(judged(root, out_of_sync)) == []
    in_sync = Truth(END, 0, frozenset({0, 1, 2}), frozenset({0, 1, 2}))
    assert (kinds.DIVERGENT, 1, 55) in wrong(judged(root, in_sync))
    planted.marks(root / "1", checkpoints.HIGH_WATERMARKS, {"t-0": 60})
    assert (kinds.DIVERGENT, 1, 55) in wrong(judged(root))


def test_retention_is_no_fault(root):
    files(root, 1)[0].unlink()
    planted.marks(root / "2", checkpoints.LOG_STARTS, {"t-0": 23})
    assert judged(root) == []
    # But a log that begins within its first file does not hide what is wrong after that.
    offset = planted.flip(files(root, 2)[0], 5)
    assert offset == 25
    assert {b for _, b, _ in wrong(judged(root))} == {2}


def test_compaction_is_no_fault_and_is_told(root):
    for broker in (0, 1):
        planted.lose(files(root, broker)[0], 1 + broker)
        planted.marks(root / str(broker), checkpoints.CLEANER_OFFSETS, {"t-0": 20})
    found = judged(root)
    assert wrong(found) == []
    assert [(f.kind, f.offset) for f in found] == [(kinds.CLEANED, 0)]
    assert "below 20" in found[0].detail
    # Beyond what the cleaner saw a gap is a loss.
    first, _ = planted.lose(files(root, 2)[1], 1)
    assert first > 20
    assert (kinds.LOST, 2, first) in wrong(judged(root))


def test_a_broker_without_its_replica_is_named(root):
    shutil.rmtree(root / "1" / "t-0")
    truth = Truth(END, 0, frozenset({0, 1, 2}), frozenset({0, 1, 2}))
    assert wrong(judged(root, truth)) == [(kinds.MISSING_REPLICA, 1, -1)]
    truth = Truth(END, 0, frozenset({0, 2}), frozenset({0, 1, 2}))
    assert [(f.kind, f.wrong) for f in judged(root, truth)] == [(kinds.MISSING_REPLICA, False)]


def test_an_emptied_log_misses_everything(root):
    for path in files(root, 1):
        path.unlink()
    assert (kinds.MISSING_TAIL, 1, 0) in wrong(judged(root))


def test_processes_of_their_own_find_the_same(root, monkeypatch):
    offset = planted.flip(files(root, 1)[1], 2)
    here = comparing.compare(places(root))
    monkeypatch.setattr(comparing, "FEW_BYTES", 0)
    assert comparing.compare(places(root)) == here
    assert {(f.kind, f.broker, f.offset) for f in here.findings} == {
        (kinds.CHECKSUM, 1, offset), (kinds.DIVERGENT, 1, offset),
    }  # fmt: skip
    assert (here.partitions, here.replicas, here.files) == (1, 3, 11)
    assert (here.batches, here.records) == (48, 235)


def test_with_a_cluster_only_what_is_found_twice_counts(root):
    """A running broker cut its log between two looks."""
    victim = files(root, 1)[1]
    whole = victim.read_bytes()
    planted.flip(victim, 2)
    truth = Truth(END, 0, frozenset({0, 1, 2}), frozenset({0, 1, 2}))
    looks = []

    def ask(_wanted):
        if looks:
            victim.write_bytes(whole)
        looks.append(1)
        return {TP: truth}

    assert comparing.compare(places(root), EVERYTHING, ask).findings == []
    assert len(looks) == 2
    planted.flip(victim, 2)
    assert not comparing.compare(places(root), EVERYTHING, lambda _wanted: {TP: truth}).held


# -- against a plain model ----------------------------------------------------------------------


def plain(folder: Path) -> list[tuple[int, bytes]]:
    """Return (base offset, bytes) of all batches in the files' order, read by the wire's reader."""
    found = []
    for path in planted.segments(folder):
        data = path.read_bytes()
        found += [
            (h.base_offset, data[at : at + h.size])
            for at, h in iter_batches(memoryview(data), allow_partial=True)
        ]
    return found


def model(root: Path, brokers: range, committed: int) -> tuple[int, set[int]] | None:
    """Return the first offset at which replicas that have it differ, and who differs there."""
    logs = {b: plain(root / str(b) / "t-0") for b in brokers}
    starts = {b: int(files(root, b)[0].stem) for b in brokers}
    ends = {b: max([starts[b], *(at + _count(d) for at, d in logs[b])]) for b in brokers}
    for offset in sorted({at for log in logs.values() for at, _ in log}):
        here = {
            b: b"".join(d for at, d in log if at == offset)
            for b, log in logs.items()
            if starts[b] <= offset < min(ends[b], committed)
        }
        if len(set(here.values())) > 1:
            return offset, set(here)
    return None


def _count(batch: bytes) -> int:
    return int.from_bytes(batch[23:27]) + 1


FAULTS = ["flip", "lose", "double", "epoch", "value", "cut", "nothing"]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), brokers=st.integers(2, 4), fault=st.sampled_from(FAULTS))
def test_the_first_divergent_offset_is_the_models(tmp_path_factory, data, brokers, fault):
    root = tmp_path_factory.mktemp("r")
    draw = data.draw
    runs = [(e * 2, draw(st.integers(1, 12))) for e in range(draw(st.integers(1, 3)))]
    per_batch = draw(st.sampled_from([1, 5, 600]))
    end = 0
    for broker in range(brokers):
        folder = root / str(broker) / "t-0"
        size = draw(st.integers(1, 8))
        end = planted.log(folder, runs, per_segment=size, per_batch=per_batch)
        gone = draw(st.integers(0, 2))
        for path in files(root, broker)[:-1][:gone]:
            path.unlink()
        planted.marks(root / str(broker), checkpoints.HIGH_WATERMARKS, {"t-0": end})
    victim = draw(st.integers(0, brokers - 1))
    path = draw(st.sampled_from(files(root, victim)))
    number = draw(st.integers(0, len(planted.batches(path)) - 1))
    rng = random.Random(draw(st.integers(0, 999)))
    if fault == "flip":
        size = len(planted.batches(path)[number][2])
        planted.flip(path, number, at=rng.randrange(27, size))
    elif fault == "epoch":
        planted.other_epoch(path, number, 1)
    elif fault == "cut":
        path = files(root, victim)[-1]
        planted.cut_tail(path, rng.randrange(len(planted.batches(path))))
    elif fault != "nothing":
        {"lose": planted.lose, "double": planted.double, "value": planted.other_value}[fault](
            path, number
        )
    expected = model(root, range(brokers), end)
    segments = facts_in(root, range(brokers))
    planned = plan(places(root, range(brokers)), EVERYTHING, {})
    replicas = [replica_of(TP, k, segments[k.log_dir]) for k in planned.logs[TP]]
    committed = committed_upto(replicas, None)
    assert committed == end
    found = divergences(replicas, spans_of(replicas, committed, 0), read_cell, None)
    assert min((f.offset for f in found), default=None) == (expected and expected[0])
    told = judge_logs(TP, planned, segments)
    if fault == "nothing":
        assert told == []
    elif expected or fault in ("flip", "epoch", "double", "cut"):
        # A changed value in a batch that nobody else has any more is sound by itself.
        assert [f for f in told if f.wrong], fault
