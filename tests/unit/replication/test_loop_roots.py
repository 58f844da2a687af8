"""Loops that must not die: what goes wrong in one round is logged, and the next one goes on."""

import logging

import pytest

from ottla.model.errors import ErrorCode
from ottla.replication.fetcher import LeaderFetcher
from ottla.replication.leader_session import LeaderSession


def failing(monkeypatch, owner, name, times=1):
    """Let a method fail a few times before it works again; return the list of failures."""
    work = getattr(owner, name)
    failures = []

    def step(*args):
        if len(failures) < times:
            failures.append(name)
            raise ZeroDivisionError(name)
        return work(*args)

    monkeypatch.setattr(owner, name, step)
    return failures


@pytest.mark.parametrize(
    ("owner", "name"),
    [(LeaderSession, "build"), (LeaderFetcher, "_resume_due"), (LeaderSession, "accept")],
)
def test_a_fetcher_goes_on(wired, monkeypatch, caplog, owner, name):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        failures = failing(monkeypatch, owner, name)
        await c.produce(1, "b", acks=1)
        await c.until(lambda: failures)
        await c.until(lambda: c[2].log().log_end_offset == 2)

    with caplog.at_level(logging.ERROR):
        wired(scenario, brokers=2)
    assert "fetcher failed" in caplog.text


def test_a_leader_that_refuses_everything_is_fetched_from_with_pauses(wired, monkeypatch):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        accept = LeaderSession.accept
        monkeypatch.setattr(
            LeaderSession,
            "accept",
            lambda self, session, _: accept(self, session, ErrorCode.UNKNOWN_SERVER_ERROR),
        )
        fetcher = next(iter(c[2].replicas.fetchers._fetchers.values()))
        before = fetcher.fetches_total
        await c.settle(2)
        assert fetcher.fetches_total - before < 100
        monkeypatch.undo()
        await c.produce(1, "b", acks=1)
        await c.until(lambda: c[2].log().log_end_offset == 2)

    wired(scenario, brokers=2)


def test_isr_expiration_goes_on(wired, monkeypatch, caplog):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        failures = failing(monkeypatch, type(c[1].partition()), "maybe_shrink_isr")
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        await c.until(lambda: failures)
        await c.until(lambda: c[1].partition().state.isr.committed == (1,))

    with caplog.at_level(logging.ERROR):
        wired(scenario, brokers=2)
    assert "isr expiration failed" in caplog.text
