"""`ottla history timeline`: it draws what the history of each partition and the context have."""

import json
import re
from html.parser import HTMLParser

import pytest

from ottla.explain import spans, timeline_command, timeline_html, timeline_text
from ottla.explain.history import PartitionHistory
from ottla.explain.spans import Change, Gap, Leadership, Timeline
from ottla.explain.timeline_command import session_timeouts
from ottla.model.ids import TopicPartition

STORIES = [
    "broker_failure", "controller_failover", "last_replica", "unclean_election", "isr_change",
    "topic_deletion", "reassignment", "controlled_shutdown", "preferred_leader", "all_die",
]  # fmt: skip
T0 = TopicPartition("t", 0)


def drawn_of(journals):
    drawn = Timeline()
    for entry in journals.entries():
        drawn.take(entry)
    return drawn


@pytest.mark.parametrize("name", STORIES)
def test_the_leaders_are_those_of_each_partition_s_history_and_of_the_controller(told, name):
    journals = told(name)
    drawn = drawn_of(journals)
    assert drawn.changes
    assert drawn.left_out == 0
    for tp, changes in drawn.changes.items():
        history = PartitionHistory(tp)
        for entry in journals.entries():
            history.take(entry)
        # Each leader that was ever written, in order; without one in between is drawn besides.
        written = [c.after.leader for c in history.entries if c.after and c.before != c.after]
        led = [c.now.leader for c in changes if c.now is not None and c.now.leader >= 0]
        assert once(led) == once(leader for leader in written if leader >= 0), tp
        for context in journals.contexts[-1:]:
            known = context.leadership.get(tp)
            now = changes[-1].now
            if known is None:
                assert now is None
            elif now.leader >= 0:
                state = known.leader_and_isr
                assert (now.leader, now.epoch, now.isr) == (
                    state.leader, state.leader_epoch, state.isr
                )  # fmt: skip
        times = [change.ts for change in changes]
        assert times == sorted(times)
    for context in journals.contexts[-1:]:
        up = {b for b, changes in drawn.brokers.items() if changes[-1].state != spans.DOWN}
        assert up == set(context.live_or_shutting_down)


def once(items):
    found = []
    for item in items:
        if found[-1:] != [item]:
            found.append(item)
    return found


def test_a_dead_broker_and_a_controller_s_term(told):
    drawn = drawn_of(told("controller_failover"))
    assert [(t.controller, t.epoch) for t in drawn.terms][:2] == [(1, 1), (2, 2)]
    assert all(term.end is not None for term in drawn.terms[:-1])
    assert drawn.terms[-1].end is None
    assert [c.state for c in drawn.brokers[1]][:2] == [spans.UP, spans.DOWN]
    assert "the new controller found broker 1 not registered" in {e.what for e in drawn.events}


def at(ts, leader, isr=(0, 1), session_ended=None):
    now = None if leader is None else Leadership(leader, 0, isr, (0, 1))
    return Change(ts, now, "because", session_ended)


def timeline_with(*changes, end=20_000):
    return Timeline(changes={T0: list(changes)}, start=0, end=end)


def test_gaps_with_the_time_in_which_the_leader_s_process_died():
    drawn = timeline_with(
        at(0, 0), at(10_000, -1, session_ended=0), at(10_005, -1, (0,)), at(10_020, 1)
    )
    dying = Gap(T0, 4000, 10_000, dying=True, why="because")
    without = Gap(T0, 10_000, 10_020, dying=False, why="because")
    assert spans.gaps(drawn, {0: 6000}) == [dying, without]
    assert spans.gaps(drawn, {}) == [without], "without the timeout only what the journal says"
    assert spans.gaps(drawn, {0: 60_000})[0].start == 0, "not before it led"
    assert spans.gaps(timeline_with(at(0, 0), at(5, -1)), {}) == [
        Gap(T0, 5, None, dying=False, why="because")
    ]
    assert spans.gaps(timeline_with(at(0, 0), at(5, None)), {}) == [], "a deleted topic needs none"


def test_a_timeline_from_a_time_on_begins_with_what_was_in_force():
    drawn = timeline_with(at(0, 0), at(10, 1), at(30, 0)).since(20)
    assert [(c.ts, c.now.leader) for c in drawn.changes[T0]] == [(20, 1), (30, 0)]
    assert drawn.start == 20
    assert timeline_with(at(0, 0)).since(99_999).start == 20_000


def test_each_change_has_a_column_and_time_never_goes_back():
    times = [0, 1, 2, 3_600_000, 3_600_010, 90_000_000]
    axis = timeline_text.Axis.over(times, 60)
    columns = [axis.column(ts) for ts in times]
    assert columns == sorted(columns)
    assert len(set(columns)) == len(columns)
    assert (columns[0], columns[-1]) == (0, 59)
    assert axis.column(-5) == 0
    assert axis.column(10**12) == 59
    assert columns[3] < axis.column(3_600_005) + 1 <= columns[4] + 1


def picture(drawn, timeouts=None, width=80):
    return list(timeline_text.lines(drawn, timeouts or {}, width, colour=False))


def test_a_moment_without_a_leader_among_hours_is_seen():
    hours = 12 * 3_600_000
    drawn = timeline_with(at(0, 0), at(hours, -1), at(hours + 2, 1), end=2 * hours)
    (leader,) = [line for line in picture(drawn) if line.startswith("t-0 leader")]
    assert re.fullmatch(r"t-0 leader +0─+x+1─+", leader)
    assert len(leader) <= 80


def test_where_the_leader_s_process_may_have_been_dead():
    drawn = timeline_with(at(0, 0), at(10_000, 1, (1,), session_ended=0))
    text = picture(drawn, {0: 6000})
    assert any(re.fullmatch(r"t-0 leader +0─+\?+1─+", line) for line in text)
    assert any(re.fullmatch(r"t-0 ISR +0,1─+1─+", line) for line in text)


def test_many_partitions_are_counted_where_they_do_not_fit():
    many = {TopicPartition("t", n): [at(0, 0)] for n in range(100)}
    many[TopicPartition("t", 77)].append(at(5, 1))
    drawn = Timeline(changes=many, start=0, end=10)
    text = picture(drawn)
    assert sum(" leader " in line for line in text) == timeline_text.MOST_PARTITIONS
    assert any(line.startswith("t-77 leader") for line in text), "what changed comes first"
    assert any("60 partitions" in line for line in text)


class Reader(HTMLParser):
    """Which elements a page has, and what it would fetch."""

    def __init__(self):
        super().__init__()
        self.tags, self.fetched, self.titles = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data):
        if self.tags[-1:] == ["title"]:
            self.titles.append(data)


def test_the_page_fetches_nothing_and_text_stays_text():
    change = Change(5, Leadership(1, 1, (1,), (0, 1)), "<script>alert(1)</script>&")
    drawn = Timeline(
        changes={T0: [at(0, 0), change]}, start=0, end=10, events=[spans.Event(5, "<b>x</b>")]
    )
    text = "".join(timeline_html.page(drawn, {}, "a <title>"))
    page = Reader()
    page.feed(text)
    assert page.fetched == []
    assert "//" not in text
    assert "b" not in page.tags
    assert page.tags.count("script") == 1
    assert page.tags.count("rect") == 3, "two leaders, and the one replica that lacks in sync"
    assert any("<script>alert(1)</script>&" in title for title in page.titles)
    assert "default-src 'none'" in text


def test_the_bounds_say_what_they_left_out(told, monkeypatch):
    monkeypatch.setattr(spans, "MOST_CHANGES", 2)
    drawn = drawn_of(told("broker_failure"))
    assert drawn.left_out > 0
    assert f"{drawn.left_out} changes left out" in "\n".join(picture(drawn))


def test_as_typed(told, ottla, tmp_path):
    folder = told("broker_failure").folder
    code, out, err = ottla("history", "timeline", "t-1", "--dir", folder)
    assert (code, err) == (0, "")
    assert "t-1 leader" in out
    assert "t-0 leader" not in out
    assert "the session of broker 2 ended" in out
    page = tmp_path / "page.html"
    code, out, err = ottla("history", "timeline", "--dir", folder, "--html", page)
    assert (code, out, err) == (0, "", f"ottla: wrote {page}\n")
    assert page.read_text().startswith("<!doctype html>")
    assert [p.name for p in tmp_path.glob("page*")] == ["page.html"]
    code, out, err = ottla("history", "timeline", "nope", "--dir", folder)
    assert (code, out) == (1, "")
    assert err.endswith("no journal knows a leader of nope; the topics are: t\n")
    code, out, err = ottla("history", "timeline", "t", "--dir", folder, "--output", "json")
    told_ = json.loads(out)
    assert {p["topic"] for p in told_["partitions"]} == {"t"}


def test_timeouts_of_another_cluster_are_not_used(told, ottla, tmp_path, monkeypatch):
    named, other = told("broker_failure").folder, tmp_path / "other"
    asked = []
    monkeypatch.setenv("OTTLA_DIR", str(other))
    monkeypatch.setattr(timeline_command, "session_timeouts", lambda f: asked.append(f) or {})
    assert ottla("history", "timeline", "t-1", named)[0] == 0
    assert asked == [], "journals that are named may be of any cluster"
    assert ottla("history", "timeline", "t-1", named, "--dir", other)[0] == 0
    assert asked == [other]


def test_session_timeouts_are_those_of_the_brokers_files(tmp_path):
    for broker, text in {0: "zookeeper.session.timeout.ms=4000\n", 1: "broker.id=1\n"}.items():
        folder = tmp_path / f"broker-{broker}"
        folder.mkdir()
        (folder / "server.properties").write_text(text)
    assert session_timeouts(tmp_path) == {0: 4000, 1: 18_000}
    assert session_timeouts(tmp_path / "none") == {}
