"""Plans of rebalancing beside plain models: every stage replayed, tiny clusters by brute force."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing import byte_goal, hard_goals, outputs
from ottla.pipelines.rebalancing.deciding import decide
from ottla.pipelines.rebalancing.placement import Placement
from ottla.pipelines.rebalancing.problem import (
    Broker,
    Goals,
    Partition,
    Problem,
    UnmetGoalError,
    shares,
)
from ottla.pipelines.rebalancing.seen import (
    Rebalance,
    Seen,
    SeenBroker,
    SeenPartition,
    parse_size,
    problem_of,
    rate_between,
)
from ottla.pipelines.rebalancing.staging import Bounds, Change, busiest

PLENTY = 10**12


def tp(name, number=0):
    return TopicPartition(name, number)


def brokers(count, racks=0, capacity=PLENTY, **of_all):
    return [
        Broker(b, f"r{b % racks}" if racks else None, capacity, 100, **of_all) for b in range(count)
    ]


def part(topic, number, replicas, size, **more):
    return Partition(tp(topic, number), tuple(replicas), size, leader=replicas[0], **more)


# --- the plain model --------------------------------------------------------------------------


def racks_of(problem, replicas):
    racks = {b.id: b.rack for b in problem.brokers}
    return len({racks[b] for b in replicas})


def racks_wanted(problem, replicas):
    """Over how many racks so many replicas have to be spread, from the words of the goal."""
    kept = [b for b in problem.brokers if not b.leaves]
    if not problem.goals.racks or any(b.rack is None for b in kept):
        return 0
    return min(len(replicas), len({b.rack for b in kept}))


def loads(problem, placement):
    """Bytes, bytes/s and replicas by broker."""
    found = {b.id: [b.fixed, 0, 0] for b in problem.brokers}
    for p in problem.partitions:
        for b in placement[p.tp]:
            for place, one in enumerate((p.size, p.rate, 1)):
                found[b][place] += one
    return found


def too_full(problem, broker, load):
    b = next(one for one in problem.brokers if one.id == broker)
    return (
        load[0] > b.capacity
        or (b.rate_capacity is not None and load[1] > b.rate_capacity)
        or (problem.goals.max_replicas is not None and load[2] > problem.goals.max_replicas)
    )


def replayed(problem, stages, bounds):
    """Do the stages one after the other, in a plain dict; every rule is looked at in between."""
    known = {b.id: b for b in problem.brokers}
    sizes = {p.tp: p for p in problem.partitions}
    now = {p.tp: p.replicas for p in problem.partitions}
    for stage in stages:
        both, copied, coming = dict(now), 0, Counter()
        assert 0 < len(stage) <= bounds.partitions
        for change in stage:
            one = sizes[change.tp]
            assert one.movable
            assert now[change.tp] == change.before, "a partition is in two stages"
            assert change.before != change.after
            assert len(set(change.after)) == len(change.after) == len(one.replicas)
            new = set(change.after) - set(change.before)
            assert all(known[b].receives and not known[b].leaves for b in new)
            assert not new & one.offline
            kept_racks = racks_of(problem, change.after)
            assert kept_racks >= racks_wanted(problem, change.after)
            both[change.tp] = (*change.before, *sorted(new))
            copied += one.size * len(new)
            coming.update(new)
        assert copied <= bounds.max_bytes or len(stage) == 1
        assert all(count <= bounds.moves_per_broker for count in coming.values())
        peak = loads(problem, both)
        for b in coming:
            assert not too_full(problem, b, peak[b]), f"broker {b} is too full in a stage"
        now |= {change.tp: change.after for change in stage}
    return now


def holds(problem, placement):
    """Whether all hard goals hold."""
    known = {b.id: b for b in problem.brokers}
    for p in problem.partitions:
        there = placement[p.tp]
        if not p.movable:
            continue
        if any(known[b].leaves or b in p.offline for b in there):
            return False
        if racks_of(problem, there) < racks_wanted(problem, there):
            return False
    load = loads(problem, placement)
    return not any(too_full(problem, b.id, load[b.id]) for b in problem.brokers if not b.leaves)


def check(problem, bounds=None):
    """Decide, and hold all that is said of the plan against the plain model."""
    bounds = bounds or Bounds(max_bytes=PLENTY)
    made = decide(problem, bounds)
    end = replayed(problem, made.stages, bounds)
    assert holds(problem, end)
    assert made.after.hard == 0
    load = loads(problem, end)
    for b in made.after.brokers:
        assert [b.bytes, b.rate, b.replicas] == load[b.broker]
    copied = sum(p.size * len(set(end[p.tp]) - set(p.replicas)) for p in problem.partitions)
    assert made.bytes_to_move == copied == sum(made.copied.values())
    wanted = {p.tp: end[p.tp][0] for p in problem.partitions if p.movable}
    leads = {p.tp: p.leader for p in problem.partitions}
    assert set(made.elect) == {t for t, b in wanted.items() if leads[t] not in (b, -1)}
    if made.after.outside == 0:
        assert made.bytes_to_move >= made.least
    return made, end


def attempt(problem, bounds=None):
    """Return (decision, None), or (None, why not)."""
    try:
        return check(problem, bounds)[0], None
    except UnmetGoalError as error:
        return None, str(error)


# --- drawn at random --------------------------------------------------------------------------


@st.composite
def problems(draw):
    count = draw(st.integers(2, 6))
    racks = draw(st.sampled_from([0, 0, 2, 3]))
    leaving = draw(st.sets(st.integers(0, count - 1), max_size=max(0, count - 3)))
    dead = draw(st.sampled_from(sorted(leaving))) if leaving and draw(st.booleans()) else None
    partitions = []
    for number in range(draw(st.integers(1, 24))):
        replicas = draw(
            st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=min(3, count))
        )
        live = [b for b in replicas if b != dead]
        movable = draw(st.integers(0, 9)) > 0
        offline = frozenset(draw(st.sets(st.sampled_from(live), max_size=1)) if live else ())
        partitions.append(
            Partition(
                tp("abc"[number % 3], number // 3),
                tuple(replicas),
                draw(st.sampled_from([0, 1, 2, 5, 10, 20, 50, 100])),
                draw(st.integers(0, 5)),
                leader=draw(st.sampled_from(live)) if live else -1,
                offline=offline if draw(st.integers(0, 9)) == 0 else frozenset(),
                movable=movable,
            )
        )
    total = sum(p.size * len(p.replicas) for p in partitions)
    tight = draw(st.sampled_from([1.0, 1.3, 2.0, 10.0]))
    found = []
    for b in range(count):
        capacity = int(total * tight / count * draw(st.sampled_from([1, 1, 2]))) + 1
        found.append(
            Broker(
                b, f"r{b % racks}" if racks else None, capacity, capacity,
                rate_capacity=draw(st.sampled_from([None, None, None, 40])),
                fixed=draw(st.sampled_from([0, 0, 7])),
                receives=b not in leaving and draw(st.integers(0, 6)) > 0,
                leaves=b in leaving, alive=b != dead,
            )
        )  # fmt: skip
    goals = Goals(
        band=draw(st.sampled_from([0.0, 0.05, 0.3])),
        topic_band=draw(st.sampled_from([0.0, 0.5])),
        max_replicas=draw(st.sampled_from([None, None, 12])),
        max_bytes=draw(st.sampled_from([None, None, 0, 100])),
        racks=draw(st.booleans()),
    )
    return Problem(found, partitions, goals)


BOUNDS = st.sampled_from(
    [
        Bounds(max_bytes=PLENTY),
        Bounds(max_bytes=50, partitions=3, moves_per_broker=2),
        Bounds(max_bytes=1, partitions=1, moves_per_broker=1),
    ]
)


@settings(max_examples=200, deadline=None)
@given(problems(), BOUNDS, st.randoms(use_true_random=False))
def test_every_stage_keeps_the_hard_goals_and_the_same_problem_has_the_same_plan(
    problem, bounds, chance
):
    made, problem_line = attempt(problem, bounds)
    if made is None:
        assert "\n" not in problem_line
        return
    mixed = Problem(
        chance.sample(problem.brokers, len(problem.brokers)),
        chance.sample(problem.partitions, len(problem.partitions)),
        problem.goals,
    )
    assert decide(mixed, bounds).stages == made.stages
    if problem.goals.max_bytes == 0:  # soft goals copy nothing beyond what hard goals need
        forced = hard_goals.met(problem).assignment()
        assert made.bytes_to_move <= sum(
            p.size * len(set(forced[p.tp]) - set(p.replicas)) for p in problem.partitions
        )


def test_the_model_sees_what_is_wrong():
    """Each check of the replay fails on a plan that breaks its rule."""
    problem = Problem(
        [*brokers(3, racks=2, capacity=25), Broker(3, "r1", 25, 100, receives=False)],
        [part("a", 0, (0, 1), 10), part("a", 1, (0, 1), 10)],
    )
    bounds = Bounds(max_bytes=10, partitions=1, moves_per_broker=1)

    def change(number, after, before=(0, 1)):
        return Change(tp("a", number), before, after, 10, 0, forced=False)

    right = [[change(0, (2, 1))], [change(1, (2, 1))]]
    assert holds(problem, replayed(problem, right, bounds))
    wrong = [
        [[change(0, (2, 1)), change(1, (2, 1))]],  # two partitions in a stage
        [[change(0, (3, 0))]],  # to who receives nothing
        [[change(0, (0, 2))]],  # one rack
        [[change(0, (2, 1))], [change(0, (2, 1))]],  # from where it is not any more
        [[change(0, (2,))]],
    ]
    for stages in wrong:
        with pytest.raises(AssertionError):
            replayed(problem, stages, bounds)
    full = Problem([*brokers(2), Broker(2, None, 5, 5)], problem.partitions)
    with pytest.raises(AssertionError, match="too full"):
        replayed(full, [[change(0, (2, 1))]], bounds)


# --- tiny clusters, all placements tried -------------------------------------------------------


def tiny(chance):
    count = chance.randint(2, 4)
    racks = chance.choice([0, 0, 2, 3])
    partitions = [
        part("tu"[n % 2], n // 2, chance.sample(range(count), chance.randint(1, min(3, count))),
             chance.choice([1, 2, 3, 5, 8, 13, 20]))
        for n in range(chance.randint(1, 4))
    ]  # fmt: skip
    drained = chance.randrange(count) if chance.random() < 0.3 else None
    total = sum(p.size * len(p.replicas) for p in partitions)
    found = []
    for b in range(count):
        capacity = chance.randint(total // count, total) if chance.random() < 0.7 else 2 * total
        found.append(
            Broker(b, f"r{b % racks}" if racks else None, capacity, 10, receives=b != drained,
                   leaves=b == drained)
        )  # fmt: skip
    return Problem(found, partitions, Goals(band=chance.choice([0.05, 0.2, 0.4])))


def all_placements(problem):
    """Yield each placement with which all hard goals hold: bytes out of the bands, and copied."""
    ids = [b.id for b in problem.brokers]
    wanted = shares(problem)
    for chosen in itertools.product(
        *(itertools.combinations(ids, len(p.replicas)) for p in problem.partitions)
    ):
        placement = {p.tp: c for p, c in zip(problem.partitions, chosen, strict=True)}
        if holds(problem, placement):
            load = loads(problem, placement)
            outside = sum(
                max(0, load[b.id][0] - wanted.upper[b.id], wanted.lower[b.id] - load[b.id][0])
                for b in problem.brokers
                if not b.leaves
            )
            copied = sum(
                p.size * len(set(placement[p.tp]) - set(p.replicas)) for p in problem.partitions
            )
            yield outside, copied


def test_tiny_clusters_beside_all_placements():
    """The least is never more than what is needed; plans are the best ones but for a few."""
    told = Counter()
    for seed in range(500):
        problem = tiny(random.Random(seed))
        every = list(all_placements(problem))
        made, line = attempt(problem)
        if made is None:  # greedy: it may miss a placement, or the way there
            assert not every or line.startswith("capacity"), (seed, line)
            told["missed" if every else "impossible"] += 1
            continue
        assert every, f"seed {seed}: a plan where there is none"
        in_band = [copied for outside, copied in every if outside == 0]
        if in_band:
            assert made.least <= min(in_band), seed
            best = made.after.outside == 0 and made.bytes_to_move == min(in_band)
            told["best" if best else "worse"] += 1
        else:
            assert made.after.outside >= min(every)[0]
            told["nearest" if made.after.outside == min(every)[0] else "not nearest"] += 1
    assert told["missed"] <= 5, told
    assert told["worse"] <= 0.08 * told["best"], told
    assert told["not nearest"] <= 0.1 * told["nearest"], told
    assert min(told["best"], told["nearest"], told["impossible"]) > 30, told


def best_leaders(partitions, count):
    """The smallest difference of leaders by broker that any order of replicas has."""
    return min(
        max(found.values()) - min(found.values())
        for chosen in itertools.product(*(p.replicas for p in partitions))
        for found in [{b: chosen.count(b) for b in range(count)}]
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 3), unique=True, min_size=1, max_size=3), min_size=4, max_size=8
    )
)
def test_leaders_are_as_even_as_any_order_makes_them(replicas):
    partitions = [part("t", n, there, 0) for n, there in enumerate(replicas)]
    goals = Goals(topic_band=100.0)
    made, end = check(Problem(brokers(4), partitions, goals))
    assert made.bytes_to_move == 0
    assert {t: set(there) for t, there in end.items()} == {
        p.tp: set(p.replicas) for p in partitions
    }
    assert made.after.leaders_off == best_leaders(partitions, 4)


# --- planted ----------------------------------------------------------------------------------


def test_a_rack_violation_is_mended_by_one_copy():
    partitions = [
        part("t", n, there, 10)
        for n, there in enumerate([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])  # the last: rack r0
    ]
    made, end = check(Problem(brokers(4, racks=2), partitions, Goals(band=0.9)))
    assert (made.before.racks, made.after.racks) == (1, 0)
    assert made.bytes_to_move == made.least == made.copied["racks"] == 10
    assert len(set(end[tp("t", 4)]) - {0, 2}) == 1


def test_a_broker_over_its_capacity_is_relieved():
    partitions = [part("t", n, (0,), 10) for n in range(10)]
    found = [Broker(0, None, 75, 100), *brokers(3)[1:]]
    made, end = check(Problem(found, partitions, Goals(band=0.99, max_bytes=0)))
    assert (made.before.over_capacity, made.after.over_capacity) == (1, 0)
    assert made.copied["capacity"] == 30
    assert sum(there == (0,) for there in end.values()) == 7


def test_a_drained_broker_has_nothing_left_and_each_replica_is_copied_once():
    partitions = [part("t", n, (n % 4, (n + 1) % 4), 10) for n in range(24)]
    found = [b._replace(leaves=b.id == 3, receives=b.id != 3) for b in brokers(4)]
    made, end = check(Problem(found, partitions))
    assert not any(3 in there for there in end.values())
    assert made.bytes_to_move == made.least == made.copied["drain"] == 120
    assert made.after.bytes_off <= 0.07
    assert made.after.leaders_off == 0


def test_an_added_broker_gets_its_share_of_bytes_replicas_and_leaders_at_the_least_cost():
    chance = random.Random(7)
    partitions = [
        part(f"t{n % 20}", n // 20, chance.sample(range(5), 3), chance.randint(1, 10_000))
        for n in range(1000)
    ]
    made, _ = check(Problem(brokers(6), partitions))
    assert made.bytes_to_move <= 1.01 * made.least
    of_new = made.after.brokers[5]
    assert of_new.off >= -0.0501
    assert 450 <= of_new.replicas <= 520
    assert made.after.leaders_off <= 1
    assert made.after.topics_off == 0


def test_rates_and_replica_counts_are_kept_to_while_bytes_are_evened_out():
    found = [Broker(b, None, PLENTY, 1, rate_capacity=4 if b == 1 else None) for b in range(3)]
    partitions = [part("t", n, (0,), 10, rate=2) for n in range(12)]
    made, _ = check(Problem(found, partitions))
    assert [b.rate for b in made.after.brokers if b.broker == 1] == [4]
    partitions = [part("t", 0, (0,), 120), *(part("u", n, (1,), 10) for n in range(12))]
    made, _ = check(Problem(brokers(3), partitions, Goals(max_replicas=5)))
    assert [b.replicas for b in made.after.brokers] == [3, 5, 5]


def test_a_broker_that_too_much_is_written_to_is_relieved():
    found = [Broker(b, None, PLENTY, 1, rate_capacity=4) for b in range(3)]
    partitions = [part("t", n, (0,), 0, rate=2) for n in range(6)]
    made, _ = check(Problem(found, partitions))
    assert [b.rate for b in made.after.brokers] == [4, 4, 4]


def test_what_a_broker_has_no_room_for_does_not_fit_and_needless_moves_are_undone():
    partitions = [part("t", n, (n,), 10) for n in range(2)]
    at = Placement(
        Problem([*brokers(2), Broker(2, None, 9, 1), Broker(3, None, 10, 1)], partitions)
    )
    assert [at.fits(0, d) for d in range(4)] == [False, True, False, True]
    at = Placement(Problem(brokers(3), partitions, Goals(band=0.99, topic_band=9)))
    at.move(0, 0, 2, "bytes")
    assert at.moved_bytes == 10
    byte_goal.undo(at)
    assert (at.replicas, at.moved_bytes, at.why) == ([[0], [1]], 0, {})


def test_a_replica_does_not_come_back_to_the_broker_whose_log_dir_failed():
    partitions = [part("t", 0, (0, 1), 10, offline=frozenset({0}))._replace(leader=1)]
    _, end = check(Problem(brokers(3), partitions))
    assert set(end[tp("t")]) == {1, 2}
    with pytest.raises(UnmetGoalError, match="replica count: no broker"):
        check(Problem(brokers(2), partitions))
    both = [part("t", 0, (2, 0, 1), 10, offline=frozenset({0}))]
    drained = [b._replace(leaves=b.id == 1, receives=b.id != 1) for b in brokers(4)]
    with pytest.raises(UnmetGoalError, match="replica count: no broker"):
        check(Problem(drained, both))


def test_topics_are_not_spread_where_bytes_would_leave_their_bands():
    partitions = [*(part("hot", n, (0,), 10) for n in range(4)), part("cold", 0, (1,), 40)]
    made, _ = check(Problem(brokers(2), partitions))
    assert (made.stages, made.before.topics_off, made.after.topics_off) == ([], 1, 1)


def test_a_topic_that_one_broker_has_too_much_of_is_spread():
    one = [part("hot", n, (0, 1), 10) for n in range(12)]
    rest = [part("cold", n, (2, 3), 10) for n in range(12)]
    made, end = check(Problem(brokers(4), one + rest))
    assert made.before.bytes_off == 0
    assert (made.before.topics_off, made.after.topics_off) == (4, 0)
    assert made.copied["bytes"] == 0
    of_hot = Counter(b for t, there in end.items() if t.topic == "hot" for b in there)
    assert max(of_hot.values()) <= 9


def test_leaders_go_back_to_who_is_preferred_without_a_stage():
    partitions = [part("t", n, (n % 2, 1 - n % 2), 5)._replace(leader=0) for n in range(4)]
    made, _ = check(Problem(brokers(2), partitions))
    assert made.stages == []
    assert made.elect == [tp("t", 1), tp("t", 3)]
    assert (made.before.leaders_off, made.after.leaders_off) == (4, 0)


def test_shares_follow_racks_and_weights():
    partitions = [part("t", n, (0, 2), 10) for n in range(6)]
    found = [Broker(0, "a", PLENTY, 1), Broker(1, "a", PLENTY, 2), Broker(2, "b", PLENTY, 1)]
    share = shares(Problem(found, partitions)).share
    assert [round(share[b]) for b in range(3)] == [20, 40, 60]
    without = shares(Problem(found, partitions, Goals(racks=False))).share
    assert [round(without[b]) for b in range(3)] == [30, 60, 30]


UNMET = {
    "replica count": (brokers(2), [part("t", 0, (0, 1), 1)], 1, "replica count: t-0 has 2"),
    "capacity": (brokers(2, capacity=15), [part("t", n, (0,), 10) for n in range(3)], None,
                 "capacity: no placement was found in which broker"),
    "no leader": (brokers(3), [part("t", 0, (0,), 1)._replace(leader=-1)], 0,
                  "drain: t-0 has no leader"),
    "excluded": (brokers(3), [part("t", 0, (0,), 1, movable=False)], 0,
                 "drain: t-0 is on broker 0 and its topic is excluded"),
    "no room in between": (
        brokers(2, capacity=20),
        [part("t", 0, (0,), 12), part("t", 1, (0,), 10), part("t", 2, (1,), 8),
         part("t", 3, (1,), 9)], None, "capacity: there is no room for a copy of t-",
    ),
    "rate": ([Broker(b, None, PLENTY, 1, rate_capacity=5) for b in range(2)],
             [part("t", n, (0,), 1, rate=4) for n in range(3)], None, "rate capacity: "),
    "replicas": (brokers(2), [part("t", n, (0,), 1) for n in range(5)], "two", "max_replicas: "),
}  # fmt: skip


@pytest.mark.parametrize("case", UNMET)
def test_what_cannot_be_met_is_said_in_one_line(case):
    found, partitions, drained, says = UNMET[case]
    goals = Goals(max_replicas=2) if drained == "two" else Goals()
    found = [b._replace(leaves=b.id == drained, receives=b.id != drained) for b in found]
    with pytest.raises(UnmetGoalError) as told:
        decide(Problem(found, partitions, goals))
    assert str(told.value).startswith(says)
    assert "\n" not in str(told.value)


def test_a_stage_takes_as_long_as_its_busiest_broker():
    stage = [
        Change(tp("t", 0), (0, 1), (2, 3), 10, 0, forced=False),
        Change(tp("t", 1), (1, 0), (2, 0), 7, 0, forced=False),
    ]
    assert busiest(stage, {tp("t", 0): 0, tp("t", 1): 1}) == 20
    assert busiest(stage, {tp("t", 0): 0, tp("t", 1): 0}) == 27


# --- from what is seen ------------------------------------------------------------------------


def seen(**more):
    values = {
        "brokers": [SeenBroker(b, None, 100, 0, 1000, 400) for b in range(3)],
        "partitions": [
            SeenPartition(tp("t"), "id", (0, 1), (40, 50), 0, (), moving=False, start=10, end=110)
        ],
        **more,
    }
    return Seen(1_000_000, "c", **values)


def test_capacity_is_what_is_given_or_what_volumes_have():
    problem = problem_of(seen(), Rebalance())
    # 100 of logs and 400 free, of 1,000 of which 200 stay free.
    assert {(b.capacity, b.weight) for b in problem.brokers} == {(300, 1000)}
    assert problem.partitions[0].size == 50
    given = problem_of(seen(), Rebalance(capacity="1 KiB", capacities={"2": 100}, max_use=0.5))
    assert [b.capacity for b in given.brokers] == [512, 512, 50]


def test_a_dead_broker_is_left():
    gone = seen(
        brokers=[SeenBroker(b, None, 100, 0, 1000, 900) for b in (1, 2)],
        partitions=[SeenPartition(tp("t"), "id", (0, 1), (-1, 50), 1, (0,), moving=False)],
    )
    made, end = check(problem_of(gone, Rebalance()))
    assert set(end[tp("t")]) == {1, 2}
    assert made.bytes_to_move == 50
    with pytest.raises(ConfigError, match="broker 0 is down"):
        problem_of(gone, Rebalance(dead="refuse"))


WRONG = {
    "drain": ({"drain": [9]}, "drain names broker 9, which is not there; alive are 0, 1, 2"),
    "added": ({"added": [9]}, "added names broker 9"),
    "both": ({"drain": [1], "added": [1]}, "broker 1 is in drain and in added"),
    "topic": ({"exclude_topics": ["u*"]}, "exclude_topics names u\\*, and there is no such topic"),
    "capacity": ({"capacities": {"0": 10, "1": 10}}, "says nothing of broker 2"),
    "unknown": ({"capacities": {"7": 10}, "capacity": 1}, "capacities names broker 7"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_one_line(case):
    given_, says = WRONG[case]
    with pytest.raises(ConfigError, match=says):
        problem_of(seen(), Rebalance(**given_))


def test_what_the_cluster_lacks_is_one_line():
    one = seen().partitions[0]
    with pytest.raises(ConfigError, match="t-0 is being reassigned"):
        problem_of(seen(partitions=[one._replace(moving=True)]), Rebalance())
    untold = [SeenBroker(b, None, 100, 0, -1, -1) for b in range(2)]
    with pytest.raises(ConfigError, match="broker 0 does not tell how large"):
        problem_of(seen(brokers=untold), Rebalance())
    mixed = [SeenBroker(b, "r" if b else None, 1, 0, 10, 10) for b in range(2)]
    with pytest.raises(ConfigError, match="broker 0 has no rack"):
        problem_of(seen(brokers=mixed), Rebalance())
    assert not problem_of(seen(brokers=mixed), Rebalance(racks=False)).rack_aware


def test_rates_come_from_offsets_whatever_retention_took():
    one = seen().partitions[0]
    later = one._replace(start=60, end=160, sizes=(50, 50))
    second = Seen(1_010_000, "c", [], [later])
    assert rate_between(seen(), second) == {tp("t"): 50 * 0.5 / 10}
    new_topic = Seen(1_010_000, "c", [], [later._replace(topic_id="other")])
    assert rate_between(seen(), new_topic) == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [(5, 5), ("7", 7), ("1 KiB", 1024), ("1.5MB", 1_500_000), ("2 TiB", 2 << 40), ("3b", 3)],
)
def test_sizes(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1 kg", "1e3", -4])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_a_folder_is_written_whole_and_nothing_is_overwritten(tmp_path):
    partitions = [part("t", n, (0,), 10) for n in range(4)]
    problem = Problem(brokers(2), partitions)
    made = decide(problem, Bounds(partitions=1))
    folder = tmp_path / "plan"
    told = outputs.Report(problem, made, 10, str(folder))
    outputs.write(told)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "elections.json", "rollback-01.json", "rollback-02.json", "stage-01.json", "stage-02.json",
        "summary.json",
    ]  # fmt: skip
    assert [stage["seconds"] for stage in told.as_json()["stages"]] == [1.0, 1.0]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="is there already and not empty"):
        outputs.write(told)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
