"""What a broker does, word for word, and that the words change when a rule does."""

import difflib
from pathlib import Path

import pytest
from story_broker_script import BrokerStory, is_broker_story

from ottla.broker import broker
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.replication import control, fetcher
from ottla.replication import isr as isr_rules
from ottla.replication.fetching import FetchPath
from ottla.replication.replica_manager import FetcherManager, ReplicaManager
from ottla.replication.truncation import Truncation

HERE = Path(__file__).parent
STORIES = [path for path in sorted(HERE.glob("*.txt")) if is_broker_story(path)]


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_broker_story(path, request):
    written = path.read_text()
    happened = BrokerStory(path).run()
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
        return
    diff = difflib.unified_diff(
        written.splitlines(), happened.splitlines(), "written", "happened", lineterm=""
    )
    assert written == happened, "\n".join(["the story went differently", *diff])


def test_every_procedure_of_a_broker_has_its_story():
    assert {path.stem for path in STORIES} >= {
        "broker_leader_and_isr",
        "broker_stop_replica",
        "broker_follower_fetch",
        "broker_truncation",
        "broker_requests",
        "broker_life",
    }


async def _asks_nobody(_server):
    return True


MUTANTS = [
    ("broker_leader_and_isr", control, "_same_epoch", lambda *_: ErrorCode.NONE),
    ("broker_leader_and_isr", FetcherManager, "close_idle", lambda _: None),
    ("broker_leader_and_isr", ReplicaManager, "begin_checkpoints", lambda _: None),
    ("broker_leader_and_isr", BrokerServices, "is_stale", lambda *_: False),
    ("broker_leader_and_isr", BrokerServices, "accept_controller_epoch", lambda *_: True),
    ("broker_stop_replica", control, "EPOCH_DURING_DELETE", -3),
    ("broker_stop_replica", FetcherManager, "remove", lambda *_: None),
    ("broker_follower_fetch", isr_rules, "high_watermark", lambda end, *_: end),
    ("broker_follower_fetch", isr_rules, "may_join", lambda *_: False),
    ("broker_follower_fetch", FetchPath, "_diverging", staticmethod(lambda *_: None)),
    ("broker_truncation", fetcher, "truncation_point", lambda *a: Truncation(a[2], True)),
    ("broker_requests", Connection, "_may_dispatch", lambda *_: True),
    ("broker_life", broker, "shut_down_controlled", _asks_nobody),
    ("broker_life", ReplicaManager, "fence", lambda _: None),
]


@pytest.mark.parametrize(
    ("story", "owner", "name", "mutant"), MUTANTS, ids=[m[2].strip("_") for m in MUTANTS]
)
def test_a_mutated_rule_fails_its_story(story, owner, name, mutant, monkeypatch):
    monkeypatch.setattr(owner, name, mutant)
    path = HERE / f"{story}.txt"
    try:
        happened = BrokerStory(path).run()
    except AssertionError:
        return  # the mutant did not even let the story end
    assert happened != path.read_text()
