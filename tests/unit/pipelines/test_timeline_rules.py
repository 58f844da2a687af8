"""The timeline's rules against a plain model of one partition, which knows who led when."""

from bisect import bisect_left

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.pipelines.timeline import clocks
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import Brokers, Fact
from ottla.pipelines.timeline.findings import Acted, stale_controllers
from ottla.pipelines.timeline.history import history

BROKERS = (0, 1, 2)
CONTROLLER = 9
SESSION_MS = 6000


class Model:
    """A partition with three replicas; writes the lines that brokers would, and knows the truth."""

    def __init__(self):
        self.now, self.epoch, self.leader = 1_000_000, -1, None
        self.alive, self.knows = set(BROKERS), dict.fromkeys(BROKERS, -1)
        self.facts, self.gone = [], {b: [] for b in BROKERS}
        self.terms, self.deaths, self._killed = [], [], None
        self.elect(0, (1, 2, 3))

    def write(self, broker, kind, ms, **more):
        self.facts.append(
            Fact(self.now + ms, broker, kind, file=broker, place=len(self.facts), **more)
        )

    def elect(self, leader, delays):
        self.epoch += 1
        self.write(
            CONTROLLER, e.DECIDED, 0, epoch=1, leader=-1 if leader is None else leader,
            leader_epoch=self.epoch, isr="0",
        )  # fmt: skip
        for broker, ms in zip(BROKERS, delays, strict=True):
            if broker in self.alive:
                self.take(broker, leader, ms)
        if leader is not None and (
            not self.terms or self.terms[-1][0] != leader or self.leader is None
        ):
            self.terms.append((leader, self.epoch, self.now + delays[leader]))
        if self._killed is not None and leader is not None:
            self.deaths.append((*self._killed, self.now + delays[leader]))
            self._killed = None
        self.leader = leader
        self.now += max(delays) + 1

    def take(self, broker, leader, ms):
        kind = e.LED if broker == leader else e.FOLLOWED
        said = None if broker == leader else (-1 if leader is None else leader)
        self.write(
            broker, kind, ms, leader=said, leader_epoch=self.epoch, previous=self.knows[broker]
        )
        self.knows[broker] = self.epoch

    def step(self, what, broker, delays, wait):
        self.now += wait
        if what == "elect" and broker in self.alive and self.leader is not None:
            self.elect(broker, delays)
        elif what == "kill" and broker in self.alive:
            self.alive.discard(broker)
            self.knows[broker] = -1
            killed = self.now
            self.now += SESSION_MS
            self.gone[broker].append(self.now)
            if broker == self.leader:
                self._killed = (broker, killed)
                self.leader = None
                self.elect(min(self.alive, default=None), delays)
        elif what == "start" and broker not in self.alive:
            self.alive.add(broker)
            if self.leader is None:
                self.elect(broker, delays)
            else:
                self.take(broker, self.leader, 5)

    def told(self, *planted):
        facts = [*self.facts, *planted]
        wrote = {b: sorted(f.time_ms for f in facts if f.broker == b) for b in BROKERS}

        def signs(broker, before):
            place = bisect_left(wrote[broker], before)
            return wrote[broker][place - 1] if place else None

        return history(facts, Brokers(signs, self.gone, self.now))


@st.composite
def models(draw):
    model = Model()
    delays = st.tuples(*[st.integers(1, 300)] * 3)
    for _ in range(draw(st.integers(0, 12))):
        what = draw(st.sampled_from(["elect", "elect", "kill", "start"]))
        model.step(what, draw(st.sampled_from(BROKERS)), draw(delays), draw(st.integers(1, 20_000)))
    return model


@settings(max_examples=300, deadline=None)
@given(models())
def test_terms_and_gaps_are_those_of_the_model(model):
    told = model.told()
    assert [f for f in told.findings if f.level == "error"] == []
    assert [(t.leader, t.first_epoch, t.began_ms) for t in told.terms] == model.terms
    for leader, killed, again in model.deaths:
        (gap,) = [g for g in told.gaps if g.end_ms == again and g.how == "died"]
        assert gap.after == leader
        assert gap.start_from_ms <= killed <= gap.start_to_ms
        assert gap.least_ms <= again - killed <= gap.most_ms
    died = [g for g in told.gaps if g.how == "died" and g.end_ms is not None]
    assert len(died) == len(model.deaths)
    assert any(g.end_ms is None for g in told.gaps) == (model.leader is None)


@settings(max_examples=200, deadline=None)
@given(models(), st.data())
def test_a_planted_second_leader_is_found(model, data):
    led = data.draw(st.sampled_from([f for f in model.facts if f.kind == e.LED]))
    other = data.draw(st.sampled_from([b for b in BROKERS if b != led.broker]))
    told = model.told(led._replace(broker=other, file=other, place=10_000, time_ms=led.time_ms + 1))
    found = [f for f in told.findings if f.kind == "double-leader"]
    assert [f.level for f in found] == ["error"]
    assert f"leader epoch {led.leader_epoch}" in found[0].text


@settings(max_examples=200, deadline=None)
@given(models(), st.data())
def test_a_planted_stale_leader_epoch_is_found(model, data):
    roles = [f for f in model.facts if f.kind in {e.LED, e.FOLLOWED} and f.leader_epoch]
    if not roles:
        return
    newest = max(roles, key=lambda f: f.place)
    epoch = data.draw(st.integers(0, newest.leader_epoch - 1))
    planted = newest._replace(
        kind=e.FOLLOWED, leader=7, leader_epoch=epoch, place=10_000, time_ms=model.now, previous=0
    )
    told = model.told(planted)
    assert [f.broker for f in told.findings if f.kind == "stale-leader-epoch"] == [newest.broker]


def test_a_leader_that_leads_on_beside_the_next_is_found_and_a_short_while_is_none():
    def case(ms):
        return [
            Fact(1000, 0, e.LED, leader_epoch=0, previous=-1, file=0, place=0),
            Fact(5000, 1, e.LED, leader_epoch=1, previous=0, file=1, place=1),
            Fact(5000 + ms, 0, e.FOLLOWED, leader=1, leader_epoch=1, previous=0, file=0, place=2),
        ]

    assert history(case(900), Brokers()).findings == []
    (found,) = history(case(4000), Brokers()).findings
    assert (found.kind, found.level, found.broker) == ("overlapping-terms", "error", 0)


def test_a_controller_that_writes_after_its_successor_is_found():
    facts = [
        Fact(1, 9, e.DECIDED, epoch=4, leader=0, leader_epoch=3),
        Fact(2, 8, e.DECIDED, epoch=5, leader=1, leader_epoch=4),
        Fact(3, 9, e.DECIDED, epoch=4, leader=0, leader_epoch=5),
    ]
    (found,) = [f for f in history(facts, Brokers()).findings if f.level == "error"]
    assert (found.kind, found.broker) == ("stale-controller-epoch", 9)


def test_two_leaders_given_for_one_epoch_are_found():
    facts = [
        Fact(1, 9, e.DECIDED, epoch=4, leader=0, leader_epoch=3),
        Fact(2, 8, e.DECIDED, epoch=5, leader=1, leader_epoch=3),
    ]
    assert [f.kind for f in history(facts, Brokers()).findings] == ["double-leader"]


def test_a_topic_created_again_begins_at_epoch_zero():
    def created(ms):
        return Fact(ms, 9, e.MOVED, before="NonExistentPartition", after="NewPartition")

    facts = [
        created(1000),
        Fact(1010, 0, e.LED, leader_epoch=0, previous=-1, topic_id="a", place=1),
        Fact(1500, 0, e.LED, leader_epoch=3, previous=0, topic_id="a", place=2),
        created(9000),
        # Its clock is behind: before its creation.
        Fact(8990, 1, e.LED, leader_epoch=0, previous=-1, topic_id="b", file=1, place=3),
        Fact(9020, 0, e.FOLLOWED, leader=1, leader_epoch=0, previous=-1, place=4),
    ]
    told = history(facts, Brokers())
    assert told.findings == []
    assert [(t.life, t.leader, t.how) for t in told.terms] == [(0, 0, "deleted"), (1, 1, "leads")]
    assert told.gaps == []


def test_lines_from_before_kafka_2_8_have_their_epochs_from_the_request():
    facts = [
        Fact(1, 0, e.ASKED, leader=0, leader_epoch=0, isr="0,1", place=0),
        Fact(2, 0, e.LED, place=1),
        Fact(50, 0, e.ASKED, leader=1, leader_epoch=1, isr="1", place=2),
        Fact(51, 0, e.FOLLOWED, place=3),
        Fact(50, 1, e.ASKED, leader=1, leader_epoch=1, isr="1", file=1, place=4),
        Fact(52, 1, e.LED, file=1, place=5),
    ]
    told = history(facts, Brokers())
    assert [(t.leader, t.first_epoch, t.began_ms, t.ended_to_ms) for t in told.terms] == [
        (0, 0, 2, 51), (1, 1, 52, None),
    ]  # fmt: skip
    assert [(g.least_ms, g.most_ms) for g in told.gaps] == [(1, 1)]


@given(st.permutations([(0, 1, 340), (1, 2, 200), (0, 2, 100)]))
def test_clocks_are_moved_by_the_least_that_lets_decisions_come_first(leads):
    assert clocks.shifts(clocks.Lead(*lead) for lead in leads) == {1: 340, 2: 540}


def test_clocks_that_contradict_each_other_are_moved_so_often_and_no_more():
    assert clocks.shifts([clocks.Lead(0, 1, 500), clocks.Lead(1, 0, 500)])
    assert clocks.shifts([clocks.Lead(0, 1, clocks.NOTABLE_MS - 1)]) == {}


def test_a_broker_that_acts_on_an_older_controller_is_found_by_its_files_order():
    first = Acted(1, 0, 4, (0, 0), 100, (0, 5), 150)
    assert stale_controllers([first, Acted(1, 0, 5, (0, 6), 160, (0, 9), 190)]) == []
    (found,) = stale_controllers([first, Acted(1, 0, 5, (0, 3), 120, (0, 9), 190)])
    assert (found.kind, found.broker) == ("stale-controller-epoch", 1)
    # A clock that was set back is no reason.
    assert stale_controllers([first, Acted(1, 0, 5, (0, 6), 90, (0, 9), 190)]) == []


def test_a_leader_that_begins_before_its_controller_has_written_that_nobody_led():
    """Both are one process: the journal's lines about the election come a moment later."""

    def fact(ms, broker, kind, place, **more):
        return Fact(1000 + ms, broker, kind, file=broker, place=place, **more)

    facts = [
        fact(0, 1, e.LED, 0, leader_epoch=0, previous=-1),
        fact(5000, 0, e.LED, 1, leader_epoch=1, previous=0),
        fact(-1, 9, e.DECIDED, 2, level="JOURNAL", leader=1, leader_epoch=0, isr="1,0"),
        # Written at 5000 and at 5002, of an election at which broker 0 led from 5000 on.
        fact(5000, 9, e.MOVED, 3, level="JOURNAL", before="OnlinePartition",
             after="OfflinePartition"),
        fact(5001, 9, e.DECIDED, 4, level="JOURNAL", leader=0, leader_epoch=1, isr="0"),
        fact(5002, 9, e.MOVED, 5, level="JOURNAL", before="OfflinePartition",
             after="OnlinePartition"),
    ]  # fmt: skip
    brokers = Brokers(gone={1: [5990]}, last_ms=20_000)
    found = history(facts, brokers)
    assert [(t.leader, t.first_epoch, t.how, t.ended_to_ms) for t in found.terms] == [
        (1, 0, "died", 5990), (0, 1, "leads", None),
    ]  # fmt: skip
    # It does end, where nobody was elected after it.
    later = fact(9000, 9, e.MOVED, 6, level="JOURNAL", before="OnlinePartition",
                 after="OfflinePartition")  # fmt: skip
    ended = history([*facts, later], brokers).terms[-1]
    assert (ended.leader, ended.how, ended.ended_to_ms) == (0, "died", 10_000)


def test_a_new_leader_whose_line_comes_before_that_of_its_controller():
    """A new controller calls it offline 19 ms after the new leader began; it was on one CPU."""

    def fact(ms, broker, kind, place, **more):
        return Fact(1000 + ms, broker, kind, file=broker, place=place, **more)

    def decided(place, leader, epoch, isr):
        return fact(2855, 0, e.DECIDED, place, level="JOURNAL", leader=leader, leader_epoch=epoch,
                    isr=isr)  # fmt: skip

    facts = [
        fact(0, 1, e.LED, 0, leader_epoch=0, previous=-1),
        fact(2836, 2, e.LED, 0, leader_epoch=3, previous=0),
        # The lines of one step in the journal: states come before decisions.
        fact(2855, 0, e.MOVED, 0, level="JOURNAL", before="OfflinePartition",
             after="OnlinePartition"),
        decided(1, -1, 2, "2,0"),
        decided(2, 2, 3, "2,0"),
        fact(4701, 1, e.FOLLOWED, 1, leader_epoch=3, leader=2, previous=-1),
    ]  # fmt: skip
    brokers = Brokers(lambda _broker, _before: 3700, last_ms=20_000)
    found = history(facts, brokers)
    assert [(t.leader, t.how, t.ended_from_ms, t.ended_to_ms) for t in found.terms] == [
        (1, "died", 3700, 3836), (2, "leads", None, None),
    ]  # fmt: skip
    assert [(g.after, g.next, g.end_ms, g.most_ms) for g in found.gaps] == [(1, 2, 3836, 136)]
    # A controller of the JVM writes no leader of -1, and one line for both.
    jvm = [
        *facts[:2], facts[-1],
        fact(2855, 0, e.DECIDED, 0, leader=2, leader_epoch=1, isr="2,0", before="OfflinePartition"),
    ]  # fmt: skip
    jvm[1] = jvm[1]._replace(leader_epoch=1)
    assert history(jvm, brokers).terms == [
        t if t.leader == 1 else replace(t, first_epoch=1, last_epoch=1) for t in found.terms
    ]
