"""What-if on snapshots: leaders, ISRs, harm, losses, bad input, a large cluster."""

import itertools
import time

import msgspec
import pytest

from ottla.explain.whatif import WhatIf
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.placement.snapshot_file import (
    Broker,
    Partition,
    Snapshot,
    Topic,
    parse,
)


def part(replicas, leader=None, isr=None, **more):
    leader = replicas[0] if leader is None else leader
    return Partition(list(replicas), leader, 5, list(replicas if isr is None else isr), **more)


def snapshot(*partitions, brokers=(1, 2, 3), min_isr=1, unclean=False, ottla=True, racks=()):
    racks = dict(racks)
    return Snapshot(
        "cluster", 1, ottla, [Broker(b, racks.get(b)) for b in brokers],
        {"t": Topic(list(partitions), min_isr, unclean)},
    )  # fmt: skip


def report(snap, event, *arguments, **named):
    what = WhatIf(snap)
    getattr(what, event)(*arguments, **named)
    return what.report()


def leaders(found):
    return {str(c): (c.leader_before, c.leader_after) for c in found.changes}


def test_the_next_in_sync_leads_and_nothing_is_harmed():
    found = report(snapshot(part([1, 2, 3])), "kill", [1], in_turn=False)
    assert leaders(found) == {"t-0": (1, 2)}
    assert found.changes[0].isr_after == [2, 3]
    assert not found.harm
    assert (found.before.under_replicated, found.after.under_replicated) == (0, 1)
    assert [b.alive for b in found.after.brokers] == [False, True, True]
    assert [b.leaders for b in found.after.brokers] == [0, 1, 0]


def test_a_partition_of_which_nobody_in_sync_lives_loses_its_leader():
    found = report(snapshot(part([1, 2, 3], isr=[1, 2])), "kill", [1, 2], in_turn=False)
    assert leaders(found) == {"t-0": (1, None)}
    assert found.harm
    assert [*map(str, found.steps[0].without_leader)] == ["t-0"]
    assert found.lost == [], "what is on dead brokers is not lost"


def test_in_turn_the_last_one_stays_in_the_isr():
    at_once = report(snapshot(part([1, 2, 3], isr=[1, 2])), "kill", [2, 1], in_turn=False)
    in_turn = report(snapshot(part([1, 2, 3], isr=[1, 2])), "kill", [2, 1], in_turn=True)
    assert in_turn.changes[0].isr_after == [1]
    assert [s.what for s in in_turn.steps] == ["broker 2 killed", "broker 1 killed"]
    assert [s.what for s in at_once.steps] == ["brokers 2, 1 killed"]


def test_what_was_wrong_before_is_no_harm_of_the_event():
    snap = snapshot(part([1, 2], -1, [2]), part([1, 2, 3]), brokers=(1, 3))
    found = report(snap, "kill", [3], in_turn=False)
    assert (found.before.without_leader, found.after.without_leader) == (1, 1)
    assert not found.harm


def test_below_min_isr_is_harm():
    found = report(snapshot(part([1, 2]), min_isr=2), "shut_down", [2])
    assert found.harm
    assert [*map(str, found.steps[0].under_min_isr)] == ["t-0"]
    assert found.steps[0].without_leader == []


def test_a_rolling_restart_of_three_replicas_does_no_harm_and_of_one_does():
    three = [part(r) for r in ([1, 2, 3], [2, 3, 1], [3, 1, 2])]
    found = report(snapshot(*three, min_isr=2), "rolling_restart", [])
    assert not found.harm
    assert [s.what for s in found.steps] == [f"broker {b} shut down" for b in (1, 2, 3)]
    assert found.after.under_replicated == 0
    found = report(snapshot(part([2])), "rolling_restart", [])
    assert [[*map(str, s.without_leader)] for s in found.steps] == [[], ["t-0"], []]
    assert found.after.without_leader == 0
    assert any("would not hand over before it is gone: 1" in note for note in found.notes)


def test_unclean_elections_name_who_leads_and_what_is_lost():
    ends = {2: (4, 50), 3: (4, 80)}
    p = part([1, 2, 3], -1, [1], ends=ends)
    tp = TopicPartition("t", 0)
    found = report(snapshot(p, brokers=(2, 3)), "elect_unclean", [tp])
    assert leaders(found) == {"t-0": (None, 3)}
    assert [lost.text for lost in found.lost] == ["what broker 1 has from offset 80 on"]
    assert found.harm
    found = report(snapshot(p, brokers=(2, 3), ottla=False), "elect_unclean", [tp])
    assert leaders(found) == {"t-0": (None, 2)}
    assert [lost.text for lost in found.lost] == [
        "what broker 1 has from offset 50 on", "offsets 50 to 79 of broker 3",
    ]  # fmt: skip
    led = report(snapshot(part([1, 2])), "elect_unclean", [tp])
    assert led.changes == []
    assert "no unclean election is held" in led.notes[0]


def test_a_setting_elects_or_harms():
    p = part([1, 2], -1, [1], ends={2: (4, 50)})
    found = report(
        snapshot(p, brokers=(2,)), "configure", "unclean.leader.election.enable", "true", []
    )
    assert leaders(found) == {"t-0": (None, 2)}
    assert found.lost
    found = report(snapshot(part([1, 2], isr=[1])), "configure", "min.insync.replicas", "2", ["t"])
    assert [*map(str, found.steps[0].under_min_isr)] == ["t-0"]
    with pytest.raises(OttlaError, match="write true or false"):
        WhatIf(snapshot(p)).configure("unclean.leader.election.enable", "yes", [])
    with pytest.raises(OttlaError, match="changes neither leaders nor ISRs"):
        WhatIf(snapshot(p)).configure("retention.ms", "1", [])
    with pytest.raises(OttlaError, match="no topic u"):
        WhatIf(snapshot(p)).configure("min.insync.replicas", "1", ["u"])


def test_a_drain_leaves_nothing_on_the_broker_and_moves_nothing_else():
    parts = [part(r) for r in ([1, 2], [2, 3], [3, 4], [4, 1])]
    found = report(snapshot(*parts, brokers=(1, 2, 3, 4)), "drain", 3)
    assert [b.replicas for b in found.after.brokers if b.broker == 3] == [0]
    assert {str(c) for c in found.changes} == {"t-1", "t-2"}
    assert all(3 not in c.isr_after for c in found.changes)
    assert not found.harm, "a move is no unclean election"
    with pytest.raises(OttlaError, match="only 1 other broker is alive"):
        WhatIf(snapshot(part([1, 2]), brokers=(1, 2))).drain(1)


def test_more_brokers_get_their_share():
    parts = [part([1, 2], sizes={1: 10, 2: 10}) for _ in range(8)]
    found = report(snapshot(*parts, brokers=(1, 2)), "add_brokers", [Broker(3), Broker(4)])
    assert [b.replicas for b in found.after.brokers] == [4, 4, 4, 4]
    assert "replicas to copy: 8, bytes: 80" in found.notes
    with pytest.raises(OttlaError, match="broker 2 already"):
        WhatIf(snapshot(*parts)).add_brokers([Broker(2)])
    racks = {1: "a", 2: "b"}
    with pytest.raises(OttlaError, match="has no rack"):
        WhatIf(snapshot(*parts, brokers=(1, 2), racks=racks.items())).add_brokers([Broker(5)])


def test_a_plan_is_checked_and_followed():
    tp = TopicPartition("t", 0)
    found = report(snapshot(part([1, 2])), "reassign", {tp: (3, 2)}, "p.json")
    assert leaders(found) == {"t-0": (1, 3)}
    assert sorted(found.changes[0].isr_after) == [2, 3]
    with pytest.raises(OttlaError, match="no partition u-0"):
        WhatIf(snapshot(part([1, 2]))).reassign({TopicPartition("u", 0): (1,)}, "p.json")
    with pytest.raises(OttlaError, match="which is not alive"):
        WhatIf(snapshot(part([1, 2]))).reassign({tp: (9, 2)}, "p.json")
    stuck = report(
        snapshot(part([1, 2], 1, [1]), brokers=(1, 3)), "reassign", {tp: (3, 2)}, "p.json"
    )
    assert any("reassignments that could not end: 1" in note for note in stuck.notes)


def test_brokers_that_are_not_there_are_refused():
    with pytest.raises(OttlaError, match="broker 9 is not alive; alive are 1 2 3"):
        WhatIf(snapshot(part([1]))).kill([9], in_turn=False)
    with pytest.raises(OttlaError, match="named twice"):
        WhatIf(snapshot(part([1]))).shut_down([1, 1])


def test_a_file_gives_the_snapshot_back_and_a_bad_one_is_one_line():
    snap = snapshot(part([1, 2], ends={2: (1, 5)}, sizes={1: 7}), racks={1: "r"}.items())
    assert parse(msgspec.json.encode(snap), "f") == snap
    for data in (
        b"", b"{}", b"[" * 100_000,
        msgspec.json.encode(msgspec.structs.replace(snap, version=9)),
        msgspec.json.encode(snapshot(part([1, 1]))),
        msgspec.json.encode(snapshot(part([1, 2], isr=[3]))),
        msgspec.json.encode(snapshot(part([1]), brokers=(1, 1))),
    ):  # fmt: skip
        with pytest.raises(OttlaError, match=r"^f") as problem:
            parse(data, "f")
        assert "\n" not in str(problem.value)


def test_five_thousand_partitions_take_seconds_not_minutes():
    brokers = range(1, 11)
    triples = itertools.cycle([[a, a % 10 + 1, (a + 1) % 10 + 1] for a in brokers])
    parts = [part(next(triples)) for _ in range(5000)]
    began = time.process_time()
    found = report(snapshot(*parts, brokers=brokers, min_isr=2), "rolling_restart", [])
    assert time.process_time() - began < 30
    assert not found.harm
    assert len(found.steps) == 10
