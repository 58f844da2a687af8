"""A partition's report, of parts as the other jobs give them: each fault by itself, and none."""

import copy
import json
from pathlib import Path

import msgspec
import pytest

from ottla.model import journal_schema
from ottla.pipelines.drilling import cells, reasons
from ottla.pipelines.drilling.cells import Acked, Cell, Known, Offsets
from ottla.pipelines.drilling.joining import HELD, VERDICTS, join
from ottla.pipelines.drilling.outputs import Sums

JOURNAL = [
    {"kind": "event", "ts": 1000, "controller": 9, "epoch": 4, "cause": 7, "event": "TopicsChanged",
     "inputs": {}},
    {"kind": "decision", "ts": 1001, "controller": 9, "epoch": 4, "cause": 7, "partition": "t-0",
     "election": "new", "rule": "first live replica", "before": None, "outcome": "written",
     "after": {"leader": 1, "leader_epoch": 0, "isr": [1, 2]}, "replicas": [1, 2]},
    {"kind": "event", "ts": 5000, "controller": 9, "epoch": 4, "cause": 8,
     "event": "BrokersChanged", "inputs": {"dead": [3, 1], "new": [], "bounced": []}},
    {"kind": "decision", "ts": 5001, "controller": 9, "epoch": 4, "cause": 8, "partition": "t-0",
     "election": "offline", "rule": "first live ISR member", "outcome": "written",
     "before": {"leader": 1, "leader_epoch": 0, "isr": [1, 2]},
     "after": {"leader": 2, "leader_epoch": 1, "isr": [2]}, "replicas": [1, 2]},
    {"kind": "event", "ts": 9000, "controller": 9, "epoch": 4, "cause": 9,
     "event": "LeaderBalanceDue", "inputs": {"broker": 1}},
    {"kind": "decision", "ts": 9001, "controller": 9, "epoch": 4, "cause": 9, "partition": "t-0",
     "election": "preferred", "rule": "preferred replica", "outcome": "written",
     "before": {"leader": 2, "leader_epoch": 1, "isr": [2, 1]},
     "after": {"leader": 1, "leader_epoch": 2, "isr": [2, 1]}, "replicas": [1, 2]},
]  # fmt: skip


def decisions(lines=JOURNAL):
    """Return the parts that the journal gives, as the job joins them by epoch and cause."""
    events, found = {}, []
    for line in lines:
        raw = json.dumps(line, separators=(",", ":"))
        parsed = reasons.parse(raw)
        cause = reasons.cause_of(raw)
        if isinstance(parsed, reasons.Event):
            events.setdefault(cause, []).append(parsed)
        elif parsed is not None:
            found.append((cause, parsed[2]))
    return [
        msgspec.to_builtins(msgspec.structs.replace(d, events=events.get(cause, [])))
        for cause, d in found
    ]


def term(leader, epoch, began, ended, how, offset):
    return {
        "life": 0, "leader": leader, "first_epoch": epoch, "last_epoch": epoch, "began_ms": began,
        "ended_from_ms": ended, "ended_to_ms": ended, "how": how, "own_word": False,
        "topic_id": None, "offset": offset,
    }  # fmt: skip


def replica(broker, end=100):
    return {
        "broker": broker, "folder": f"/b{broker}/t-0", "start": 0, "end": end, "last_epoch": 2,
        "bytes": 1000, "batches": 10, "records": end, "checksum": "0a", "high_watermark": end,
        "in_sync": True,
    }  # fmt: skip


TERMS = [(1010, 0), (5010, 1), (9010, 2)]
# fmt: off
CLEAN = {
    "known": [
        msgspec.to_builtins(
            Known(
                starts={1: 0, 2: 0}, high_watermark=100, terms=TERMS, acks=True, lake=True,
            ),
            str_keys=True,
        )
    ],
    "terms": [
        term(2, 1, 5010, 9010, "stepped down", 40),
        term(1, 0, 1010, 3000, "died", 0),
        term(1, 2, 9010, None, "leads", 70),
    ],
    "gaps": [
        {"life": 0, "after": 1, "next": 2, "start_from_ms": 2900, "start_to_ms": 5000,
         "end_ms": 5010, "least_ms": 10, "most_ms": 2110, "how": "died"}
    ],
    "states": [
        {"life": 0, "leader_epoch": 0, "leader": 1, "isr": "1,2", "version": 0, "time_ms": 1001,
         "controller_epoch": 4},
        {"life": 0, "leader_epoch": 1, "leader": 2, "isr": "2", "version": 1, "time_ms": 5001,
         "controller_epoch": 4},
    ],
    "decision": decisions(),
    "replicas": [{"replicas": [replica(2), replica(1)], "findings": []}],
    "cell": [
        msgspec.to_builtins(
            Cell(
                acked=Offsets(99, [(0, 98)]), acked_last=98,
                by_term={0: Acked(40, 0, 39), 1: Acked(30, 40, 69), 2: Acked(29, 70, 98)},
                unacknowledged=Offsets(1, [(99, 99)]), rows=100, row_first=0, row_last=99,
            ),
            str_keys=True,
        )
    ],
    "lake": [{"landed": [[0, 99]], "gaps": 0, "lost": 0}],
}
# fmt: on


def joined(**changes):
    parts = copy.deepcopy(CLEAN)
    for name, value in changes.items():
        parts[name] = value
    # As the job does: parts come from JSON.
    return join("t", 0, json.loads(msgspec.json.encode(parts)))


def with_cell(**changes):
    return joined(
        cell=[{**CLEAN["cell"][0], **{k: msgspec.to_builtins(v) for k, v in changes.items()}}]
    )


def test_a_clean_partition_holds():
    report = joined()
    assert (report.verdicts, report.held) == ([HELD], True)
    assert [f.kind for f in report.findings] == ["never acknowledged"]
    assert [(t.leader, t.first_epoch, t.isr) for t in report.leaders] == [
        (1, 0, "1,2"), (2, 1, "2"), (1, 2, "2,1"),
    ]  # fmt: skip
    assert [(t.acknowledged.count, t.acknowledged.first, t.acknowledged.last)
            for t in report.leaders] == [(40, 0, 39), (30, 40, 69), (29, 70, 98)]  # fmt: skip
    assert (report.acknowledged.count, report.acknowledged.last) == (99, 98)
    assert [r.broker for r in report.replicas] == [1, 2]
    assert (report.lake.rows, report.lake.first, report.lake.last) == (100, 0, 99)


def test_reasons_are_those_of_the_journal():
    first, second, third = (t.reason for t in joined().leaders)
    assert first.startswith("the topic was created; first leader of a new partition")
    elected = "broker 1 died: its session ended; election because there was no leader"
    assert second.startswith(elected)
    assert third.startswith("leaderships were out of balance; preferred election")
    (gap,) = joined().without_leader
    assert gap.reason == f"broker 1 died; {second}"
    assert joined(decision=[]).leaders[0].reason == "no journal tells why"
    assert joined(decision=[]).without_leader[0].reason == "broker 1 died"


@pytest.mark.parametrize(
    ("name", "kind", "verdict"),
    [
        ("lost", "lost", VERDICTS[0]),
        ("not_readable", "not readable", VERDICTS[0]),
        ("overwritten", "overwritten", VERDICTS[0]),
        ("twice", "acknowledged twice", VERDICTS[0]),
        ("not_in_lake", "not in the lake", VERDICTS[1]),
        ("doubled_in_lake", "doubled in the lake", VERDICTS[1]),
        ("not_in_log", "in the lake, not in the log", VERDICTS[1]),
    ],
)
def test_each_fault_of_offsets_is_named_with_them(name, kind, verdict):
    report = with_cell(**{name: Offsets(3, [(17, 18), (40, 40)])})
    assert (report.verdicts, report.held) == ([verdict], False)
    (found,) = [f for f in report.findings if f.wrong]
    assert (found.kind, found.count, found.offsets) == (kind, 3, [(17, 18), (40, 40)])
    assert report.rank == VERDICTS.index(verdict)


@pytest.mark.parametrize("name", ["removed", "waiting", "unjudged", "unacknowledged"])
def test_what_may_be_is_said_and_not_wrong(name):
    report = with_cell(**{name: Offsets(1, [(5, 5)])})
    assert report.held
    assert [(5, 5)] in [f.offsets for f in report.findings]


def test_what_was_not_given_gets_no_verdict():
    known = {**CLEAN["known"][0], "acks": False, "lake": False}
    report = joined(
        known=[known],
        cell=[msgspec.to_builtins(Cell(lost=Offsets(1, [(1, 1)]), rows=3))],
    )
    assert (report.held, report.acknowledged, report.lake) == (True, None, None)


def test_a_damaged_replica_is_named():
    finding = {
        "topic": "t", "partition": 0, "kind": "bad checksum", "offset": 55, "broker": 2,
        "file": "/b2/t-0/0.log", "position": 812, "detail": "…", "wrong": True, "contents": 0,
    }  # fmt: skip
    report = joined(replicas=[{"replicas": [replica(1), replica(2)], "findings": [finding]}])
    (found,) = [f for f in report.findings if f.wrong]
    assert (found.kind, found.broker, found.offsets, found.position) == (
        "bad checksum", 2, [(55, 55)], 812,
    )  # fmt: skip
    assert [(r.broker, r.agrees) for r in report.replicas] == [(1, True), (2, False)]
    assert report.verdicts == ["replicas differ"]


def test_a_double_leader_is_named_with_the_offset_it_led_from():
    finding = {"kind": "double-leader", "level": "error", "time_ms": 9010, "broker": 1, "text": "…"}
    warning = {"kind": "no-leader", "level": "warning", "time_ms": 1, "broker": 1, "text": "…"}
    report = joined(findings=[finding, warning])
    (found,) = [f for f in report.findings if f.wrong]
    assert (found.kind, found.broker, found.offsets, found.time_ms) == (
        "double-leader", 1, [(70, 70)], 9010,
    )  # fmt: skip
    assert report.verdicts == ["leadership wrong"]


def test_several_verdicts_the_worst_first():
    finding = {"kind": "double-leader", "level": "error", "time_ms": 1, "broker": 1, "text": "…"}
    cell = {**CLEAN["cell"][0], "lost": msgspec.to_builtins(Offsets(1, [(3, 3)]))}
    report = joined(findings=[finding], cell=[cell])
    assert report.verdicts == [VERDICTS[0], VERDICTS[3]]
    assert report.findings[0].kind == "lost"


def test_cells_are_added_in_the_order_of_offsets():
    one = Cell(acked=Offsets(10, [(0, 9)]), acked_last=9)
    other = Cell(acked=Offsets(10, [(10, 19)]), acked_last=19)
    report = joined(cell=[msgspec.to_builtins(c, str_keys=True) for c in (other, one)])
    assert (report.acknowledged.count, report.acknowledged.first, report.acknowledged.last) == (
        20, 0, 19,
    )  # fmt: skip


def test_a_recreated_topics_terms_have_their_own_reasons():
    """Epoch 0 of broker 1 comes twice: each term takes the decision nearest to it."""
    again = [dict(JOURNAL[0], ts=20_000, cause=20),
             dict(JOURNAL[1], ts=20_001, cause=20, rule="unclean: longest log")]  # fmt: skip
    report = joined(
        terms=[term(1, 0, 1010, 3000, "deleted", 0), term(1, 0, 20_010, None, "leads", 0)],
        decision=decisions([*JOURNAL, *again]),
        gaps=[],
    )
    assert "first live replica" in report.leaders[0].reason
    assert "unclean: longest log" in report.leaders[1].reason


@pytest.mark.parametrize(
    "raw",
    ["", "{", '{"kind":"decision"}', '{"kind":"decision","partition":"x","after":3}',
     '{"kind":"event","event":"E","inputs":["a"]}'],
)  # fmt: skip
def test_lines_that_are_none_are_left_out(raw):
    assert reasons.parse(raw) is None


def test_a_refused_or_repeated_decision_is_no_reason():
    refused = dict(JOURNAL[3], outcome="refused: INVALID_UPDATE_VERSION")
    same = dict(JOURNAL[3], after={"leader": 1, "leader_epoch": 0, "isr": [1]})
    for line in (refused, same):
        assert reasons.parse(json.dumps(line, separators=(",", ":"))) is None


def test_nobody_could_be_elected():
    line = dict(JOURNAL[3], after=None, rule="no live ISR member", outcome="failed: no live ISR")
    _, _, decision = reasons.parse(json.dumps(line, separators=(",", ":")))
    assert (decision.leader, decision.before) == (-1, 1)
    assert "no live ISR member" in reasons.why(decision)


def test_words_for_offsets():
    assert cells.in_words(Offsets(3, [(1, 2), (9, 9)])) == "1-2, 9"


def test_the_line_has_both_bounds_of_the_longest_interval_without_a_leader():
    """Of a leader that died only its last line is known: the most alone would be an accusation."""
    sums = Sums()
    sums.add(joined())
    assert "1 interval without a leader, the longest for 0.010 to 2.110 s" in sums.line(Path("i"))
    sums.add(joined(gaps=[dict(CLEAN["gaps"][0], least_ms=3000, most_ms=3000)]))
    assert "2 intervals without a leader, the longest for 3.000 s" in sums.line(Path("i"))
    assert "without a leader" in Sums().line(Path("i"))


NAMES = {kind.__name__ for kind in journal_schema.Event.__subclasses__()}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_event_is_a_step_or_a_reason_in_words(name):
    raw = json.dumps({"kind": "event", "ts": 1, "controller": 1, "epoch": 3, "cause": 7,
                      "event": name, "inputs": {"broker": 1}})  # fmt: skip
    event = reasons.parse(raw)
    assert (event is None) == (name in journal_schema.STEPS)
    if event is not None:
        decision = reasons.parse(json.dumps(JOURNAL[1]))[2]
        why = reasons.why(msgspec.structs.replace(decision, events=[event]))
        assert "first live replica" in why
        assert name not in why
