"""What-if decides partitions that are alike once: each one alone must come to the same."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.explain.whatif import WhatIf
from ottla.placement.snapshot_file import UNCLEAN, Broker, Partition, Snapshot, Topic

BROKERS = range(4)
some_brokers = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)


@st.composite
def partitions(draw):
    replicas = draw(st.sampled_from([[0, 1, 2], [1, 2, 0], [2, 3], [3]]))
    isr = [b for b in replicas if draw(st.booleans())] or replicas
    dead = draw(st.sampled_from([False, False, True]))
    ends = {}
    if dead or len(isr) < len(replicas):
        ends = {b: (3, draw(st.sampled_from([7, 9]))) for b in replicas if draw(st.booleans())}
    leader = -1 if dead else isr[0]
    return Partition(replicas, leader, draw(st.sampled_from([4, 5])), isr, ends=ends)


topics = st.builds(
    Topic, st.lists(partitions(), min_size=1, max_size=12), st.integers(1, 3), st.booleans()
)


@st.composite
def snapshots(draw):
    brokers = [Broker(b) for b in BROKERS]
    return Snapshot("c", 0, draw(st.booleans()), brokers, {t: draw(topics) for t in "ab"})


def hold(event, what, there):
    """Let an event happen, as far as it concerns the partitions that are there."""
    name, argument = event
    if name in ("shut_down", "rolling_restart"):
        getattr(what, name)(argument)
    elif name.startswith("kill"):
        what.kill(argument, in_turn=name == "kill in turn")
    elif name == "elect_unclean":
        what.elect_unclean([tp for tp in argument if tp in there])
    elif name == "reassign":
        what.reassign({tp: new for tp, new in argument.items() if tp in there}, "plan")
    else:
        what.configure(UNCLEAN, name, argument)


@st.composite
def events(draw, every):
    name = draw(
        st.sampled_from(
            ["kill", "kill in turn", "shut_down", "rolling_restart", "elect_unclean", "reassign",
             "true", "false"]
        )
    )  # fmt: skip
    some = st.lists(st.sampled_from(every), min_size=1, max_size=5, unique=True)
    if name in ("true", "false"):
        return name, draw(st.sampled_from(["a", "b", "ab"]))
    if name == "elect_unclean":
        return name, draw(some)
    if name == "reassign":
        return name, {tp: tuple(draw(some_brokers)) for tp in draw(some)}
    return name, draw(some_brokers)


def outcomes(snapshot, event):
    """Return what comes of an event for each partition: change, steps that harm, losses."""
    what = WhatIf(snapshot)
    there = dict(snapshot.partitions())
    hold(event, what, there)
    found = what.report()
    return {
        tp: (
            [c for c in found.changes if c.partition == str(tp)],
            [
                (str(tp) in s.without_leader, str(tp) in s.under_min_isr)
                for s in found.steps
                if str(tp) in s.without_leader + s.under_min_isr
            ],
            [lost for lost in found.lost if lost.partition == str(tp)],
        )
        for tp in there
    }


def alone(snapshot, tp):
    """Return a snapshot where no other is like `tp`: the others lie on brokers that are gone."""
    topic = snapshot.topics[tp.topic]
    others = [Partition([90 + n], -1, 0, [90 + n]) for n in range(tp.partition)]
    only = Topic([*others, topic.partitions[tp.partition]], topic.min_isr, topic.unclean)
    gone = {t: Topic([Partition([99], -1, 0, [99])]) for t in snapshot.topics}
    return Snapshot("c", 0, snapshot.ottla, snapshot.brokers, gone | {tp.topic: only})


@given(st.data())
def test_each_partition_comes_to_what_it_would_alone(data):
    snapshot = data.draw(snapshots())
    every = [tp for tp, _ in snapshot.partitions()]
    event = data.draw(events(every))
    found = outcomes(snapshot, event)
    for tp in every:
        mine = event
        if event[0] == "elect_unclean":
            mine = event[0], [p for p in event[1] if p == tp]
        elif event[0] == "reassign":
            mine = event[0], {p: new for p, new in event[1].items() if p == tp}
        assert found[tp] == outcomes(alone(snapshot, tp), mine)[tp]
