"""`ottla top`: what changed between two looks, and the screen at 80 by 24 and wider."""

import asyncio

import pytest
from rich.text import Text

from ottla.admin.top import partition_text
from ottla.admin.top.changes import Broker, Changes, Group, Look, Partition
from ottla.admin.top.screen import Top, fitted
from ottla.model.ids import TopicPartition
from ottla.placement.copy_estimate import Estimate

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def look(time_s=0.0, brokers=(1, 2, 3), controller=1, problem="", moves=(), **partitions):
    found = {A: Partition(1, 4, (1, 2, 3), (1, 2, 3), 100), B: Partition(2, 4, (2, 3), (2, 3), 7)}
    found.update({TopicPartition(name, 0): p for name, p in partitions.items()})
    return Look(
        time_s, "12:00:00", "c", controller, {b: Broker(f"h:{b}", None) for b in brokers},
        {tp: p for tp, p in found.items() if p is not None}, dict.fromkeys(moves, (9,)),
        groups={"g": Group("Stable", 2, 40)}, problem=problem,
    )  # fmt: skip


def happened(*looks):
    changes = Changes()
    found = [changes.take(each) for each in looks]
    assert found[0] == [], "the first look is no event"
    return [line.removeprefix("12:00:00  ") for line in found[-1]]


def test_nothing_happened():
    assert happened(look(), look(2.0)) == []


def test_leaders_isrs_and_replicas_that_change_are_events():
    moved = Partition(2, 5, (1, 2, 3), (2, 3), 100)
    assert happened(look(), look(2.0, brokers=(2, 3), controller=2, a=moved)) == [
        "broker 1 is gone", "controller 1 → 2", "a-0: leader 1 → 2, in sync 1,2,3 → 2,3",
    ]  # fmt: skip
    lost = Partition(-1, 5, (1, 2, 3), (1,), 100)
    assert happened(look(), look(2.0, a=lost)) == ["a-0: leader 1 → none, in sync 1,2,3 → 1"]
    assert happened(look(brokers=(1,)), look(2.0)) == ["broker 2 is here", "broker 3 is here"]
    order = Partition(1, 4, (1, 2, 3), (3, 2, 1), 100)
    assert happened(look(), look(2.0, a=order)) == [], "the order of an ISR means nothing"


def test_topics_and_reassignments_come_and_go():
    assert happened(look(b=None), look(2.0, a=None)) == ["a-0 is gone", "b-0 was created"]
    assert happened(look(), look(2.0, moves=[A])) == ["a-0 is being reassigned"]
    assert happened(look(moves=[A]), look(2.0)) == ["a-0 is not being reassigned any more"]


def test_rates_are_of_the_time_between_two_looks():
    changes = Changes()
    changes.take(look())
    assert changes.brokers()[0].written is None
    changes.take(look(2.0, a=Partition(1, 4, (1, 2, 3), (1, 2, 3), 160)))
    assert changes.rate(A) == 30.0
    assert [(r.broker, r.leaders, r.replicas, r.written) for r in changes.brokers()] == [
        (1, 1, 1, 30.0), (2, 1, 2, 0.0), (3, 0, 2, 0.0),
    ]  # fmt: skip
    changes.take(look(4.0, a=Partition(1, 4, (1, 2, 3), (1, 2, 3), 3)))
    assert changes.rate(A) == 0.0, "a topic that was created anew"


def test_dead_brokers_and_topics_that_are_wrong_come_into_view():
    changes = Changes()
    changes.take(look(brokers=(1, 3), b=Partition(-1, 5, (2, 3), (2,), None)))
    assert [(r.broker, r.facts is None, r.out_of_sync) for r in changes.brokers()] == [
        (1, False, 0), (2, True, 0), (3, False, 1),
    ]  # fmt: skip
    assert [(r.topic, r.without_leader, r.under_replicated) for r in changes.topics()] == [
        ("b", 1, 1), ("a", 0, 0),
    ]  # fmt: skip


def test_a_look_that_fails_leaves_what_was_known_and_is_said_once():
    changes = Changes()
    changes.take(look())
    failed = Look(2.0, "12:00:02", "", -1, {}, {}, {}, problem="no broker responds")
    assert changes.take(failed) == ["12:00:02  no broker responds"]
    assert changes.take(failed) == []
    assert len(changes.look.partitions) == 2
    assert changes.look.problem == "no broker responds"
    assert changes.take(look(4.0)) == []
    assert changes.look.problem == ""


# --- the screen -----------------------------------------------------------------------------------


def text_of(app):
    return "\n".join(
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    )


async def shows(app, pilot, words):
    """Wait until the screen has these words."""
    for _ in range(400):
        if words in text_of(app):
            return
        await pilot.pause(0.05)
    raise AssertionError(f"{words!r} is not shown:\n{text_of(app)}")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_the_screen_shows_lists_events_and_a_history(size):
    looks = [look(), look(2.0, a=Partition(2, 5, (1, 2, 3), (2, 3), 160))]

    async def ask():
        return looks.pop(0) if len(looks) > 1 else looks[0]

    async def explain(tp):
        return f"history of {tp}\n[b]no markup[/b]"

    async def story():
        app = Top(ask, 0.05, explain)
        async with app.run_test(size=size) as pilot:
            await shows(app, pilot, "a-0: leader 1 → 2")
            await shows(app, pilot, "controller")
            assert "3 brokers" in text_of(app)
            assert "1 under-replicated" in text_of(app)
            await pilot.press("t")
            await shows(app, pilot, "no leader")
            await pilot.press("g")
            await shows(app, pilot, "Stable")
            await pilot.press("t", "enter")
            await shows(app, pilot, "in sync")
            assert "b-0" not in text_of(app), "only the topic's partitions"
            await pilot.press("enter")
            await shows(app, pilot, "history of a-0")
            assert "[b]no markup[/b]" in text_of(app)
            await pilot.press("escape", "escape", "p")
            await shows(app, pilot, "b-0")
            await pilot.press("q")

    asyncio.run(story())


def test_names_are_no_markup_and_no_control_characters_reach_the_terminal():
    evil = Partition(1, 1, (1,), (1,), 1)

    async def ask():
        found = look()
        return found._replace(
            cluster="[red]\x1b[2J", partitions={TopicPartition("[b]x\x1b", 0): evil}
        )

    async def explain(_):
        return ""

    async def story():
        app = Top(ask, 0.05, explain)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("t")
            await shows(app, pilot, "[b]x")
            assert "\x1b" not in text_of(app)

    asyncio.run(story())


def test_quitting_while_the_cluster_is_asked_touches_no_widget_any_more():
    async def ask():
        await asyncio.sleep(0)
        return look()

    async def explain(_):
        return ""

    async def story():
        app = Top(ask, 0.0, explain)
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(app, pilot, "controller")

    for _ in range(3):
        asyncio.run(story())


def test_what_does_not_fit_is_shortened_or_left_out_and_never_cut():
    rows = [("k", [Text("a" * 30 + "-12"), Text("7", justify="right"), Text("x" * 10)])]
    assert fitted(("name", "n", "more"), rows, 60) == (("name", "n", "more"), rows)
    heads, found = fitted(("name", "n", "more"), rows, 40)
    assert heads == ("name", "n", "more")
    assert found[0][1][0].plain == "a" * 11 + "…" + "a" * 8 + "-12"
    heads, found = fitted(("name", "n", "more"), rows, 25)
    assert heads == ("name", "n")
    assert found[0][1][0].plain == "aaaaaaaa…aaaa-12"
    assert found[0][0] == "k", "the key is whole"


# --- a partition's history ------------------------------------------------------------------------


def entry(what, before, after, **more):
    states = [
        None if s is None else {"leader": s[0], "leader_epoch": s[1], "isr": s[2]}
        for s in (before, after)
    ]
    return {
        "time_ms": 1000, "controller": 3, "controller_epoch": 7, "what": what,
        "before": states[0], "after": states[1], "because": "", "how": "", "rejected": [], **more,
    }  # fmt: skip


def test_a_history_has_the_newest_first_and_says_why():
    document = {
        "topic": "a", "partition": 0,
        "now": {"leadership": {"leader": 2, "leader_epoch": 5, "isr": [2, 3]},
                "replicas": [1, 2, 3]},
        "entries": [
            entry("created", None, None, how="topic a was created"),
            entry("offline", (1, 4, [1, 2, 3]), (1, 4, [1, 2, 3]), how="left out"),
            entry("leader", (1, 4, [1, 2, 3]), (2, 5, [2, 3]), because="broker 1 is gone",
                  how="2 is the first", rejected=[{"replica": 1, "reason": "offline"}]),
        ],
    }  # fmt: skip
    when = "1970-01-01T00:00:01.000Z"
    assert partition_text.history(document).split("\n") == [
        "a-0: leader 2, epoch 5, in sync 2,3, replicas 1,2,3",
        "the newest first:",
        "",
        f"{when}  leader 1 → 2, in sync 1,2,3 → 2,3, epoch 4 → 5  (controller 3, epoch 7)",
        "  broker 1 is gone; 2 is the first; rejected: 1 (offline)",
        "",
        f"{when}  created  (controller 3, epoch 7)",
        "  topic a was created",
    ]
    assert partition_text.history({**document, "now": None}).startswith(
        "a-0 does not exist any more\n"
    )


def test_without_journals_it_is_told_what_was_seen_here():
    changes = Changes()
    changes.take(look())
    changes.take(look(2.0, a=Partition(-1, 5, (1, 2, 3), (1,), 100)))
    changes.take(look(4.0, a=Partition(2, 6, (1, 2, 3), (2, 3), 100), moves=[A]))
    told = partition_text.seen(A, changes.look.partitions[A], changes.seen(A)).split("\n")
    assert told[0] == "a-0: leader 2, epoch 6, in sync 2,3, replicas 1,2,3"
    assert told[-4:] == [
        "seen here, the newest first:",
        "12:00:00  a-0 is being reassigned",
        "12:00:00  a-0: leader none → 2, in sync 1 → 2,3",
        "12:00:00  a-0: leader 1 → none, in sync 1,2,3 → 1",
    ]
    assert partition_text.seen(B, changes.look.partitions[B], changes.seen(B)).endswith(
        "nothing yet"
    )
    assert partition_text.seen(A, None, []).startswith("a-0 does not exist any more\n")


def test_reassignments_show_how_far_they_are_on_a_narrow_terminal():
    found = look(moves=[A])._replace(
        estimate=Estimate(1_000_000_000, 4_000_000_000, 20e6, 150.0), cluster="gwnGNxUnSFyB04HoC"
    )

    async def ask():
        return found

    async def explain(_):
        return None

    async def story():
        app = Top(ask, 0.05, explain)
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(app, pilot, "1 moving: 1.0 of 4.0 GB, 20.0 MB/s, 2:30 left")
            for head in ("broker", "state", "leads", "rec/s", "req/s", "p99 ms", "idle"):
                assert head in text_of(app)
            await pilot.press("p", "enter")
            await shows(app, pilot, "seen here, the newest first:")

    asyncio.run(story())
