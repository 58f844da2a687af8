"""How far a plan is, where the broker that is asked hears of the end of a move later."""

import asyncio

import pytest

from ottla.client import reassignments
from ottla.client.reassignments import State
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ([(1, 2, 3), (1, 2, 3), (2, 3)], State.DONE),
        ([(1, 2, 3)], State.ELSEWHERE),
        ([()], State.ELSEWHERE),
    ],
)
def test_a_broker_that_hears_of_the_end_later_is_asked_again(monkeypatch, known, state):
    async def in_progress(_client):
        return {}

    async def replicas_of(_client, _topics):
        return {TP: known.pop(0) if len(known) > 1 else known[0]}

    monkeypatch.setattr(reassignments, "in_progress", in_progress)
    monkeypatch.setattr(reassignments, "replicas_of", replicas_of)
    (found,) = asyncio.run(reassignments.progress(None, {TP: (2, 3)}))
    assert found.state is state
