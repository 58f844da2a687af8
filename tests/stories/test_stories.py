"""Every story reads as written: procedures of the seed documents, line by line."""

import asyncio
import difflib
from pathlib import Path

import pytest
from msgspec.structs import replace
from story_broker_script import is_broker_story
from story_script import Story

from ottla.controller import elections, loop
from ottla.model.rules import Rule

STORIES = [p for p in sorted(Path(__file__).parent.glob("*.txt")) if not is_broker_story(p)]


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_story(path, request, monkeypatch):
    monkeypatch.setattr(loop, "LOG_ENDS_WITHIN_S", 0.3)  # for a broker that never answers
    written = path.read_text()
    happened = asyncio.run(Story(path).run())
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
        return
    diff = difflib.unified_diff(
        written.splitlines(), happened.splitlines(), "written", "happened", lineterm=""
    )
    assert written == happened, "\n".join(["the story went differently", *diff])


def test_there_are_stories():
    assert len(STORIES) >= 6


def _ignores_isr(assignment, state, online, *, unclean):
    live = tuple(r for r in assignment.replicas if online(r))
    leader = live[0] if live else None
    new = None if leader is None else state.with_leader(leader, live)
    return elections.Election(new, Rule.FIRST_LIVE_REPLICA, (), live)


def _keeps_dead_isr(assignment, state, online, *, unclean):
    right = OFFLINE(assignment, state, online, unclean=unclean)
    if right.state is None:
        return right
    return replace(right, state=replace(right.state, isr=state.isr))


def _keeps_epoch(assignment, state, online, *, unclean):
    right = OFFLINE(assignment, state, online, unclean=unclean)
    if right.state is None:
        return right
    return replace(right, state=replace(right.state, leader_epoch=state.leader_epoch))


def _always_unclean(assignment, state, online, *, unclean):
    return OFFLINE(assignment, state, online, unclean=True)


def _last_of_isr(assignment, state, online, *, unclean):
    right = OFFLINE(assignment, state, online, unclean=unclean)
    if right.state is None:
        return right
    return replace(right, state=replace(right.state, leader=right.state.isr[-1]))


OFFLINE = elections._offline
MUTANTS = [_ignores_isr, _keeps_dead_isr, _keeps_epoch, _always_unclean, _last_of_isr]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__.strip("_"))
def test_a_mutated_election_rule_fails_stories(mutant, monkeypatch):
    monkeypatch.setattr(elections, "_offline", mutant)
    different = []
    for path in STORIES:
        if asyncio.run(Story(path).run()) != path.read_text():
            different.append(path.stem)
        if len(different) == 2:
            return
    raise AssertionError(f"only these stories noticed: {different}")


def test_shutting_down_brokers_that_may_lead_fail_the_shutdown_story(monkeypatch):
    right = elections._controlled_shutdown

    def mutant(assignment, state, online, shutting_down):
        return right(assignment, state, online, lambda _broker: False)

    monkeypatch.setattr(elections, "_controlled_shutdown", mutant)
    path = next(p for p in STORIES if p.stem == "controlled_shutdown")
    assert asyncio.run(Story(path).run()) != path.read_text()
