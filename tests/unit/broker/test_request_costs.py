"""Every API has its worst cost measured, and none is above its limit."""

import time

import pytest
from msgspec import structs

from ottla.broker.requests.routes import ROUTES
from ottla.wire.apis import APIS
from support import request_costs
from support.request_costs import (
    EMPTY,
    LONGEST_TURN_MS,
    MOST_MIB,
    PAGE,
    SMALL,
    Rig,
    collecting_as_brokers_do,
    costs_of,
    order,
    rows_of,
)

TRIES = 4
"""Another process can make a turn longer, never shorter."""


def turns(rig, key):
    """Return the longest turn of each request of an API, in ms; the least of some tries."""
    found = {cost.what: cost.turn_ms for cost in costs_of(rig, key, memory=False)}
    for _ in range(TRIES - 1):
        if max(found.values(), default=0) <= LONGEST_TURN_MS:
            break
        for cost in costs_of(rig, key, memory=False):
            found[cost.what] = min(found[cost.what], cost.turn_ms)
    return found


def test_no_request_keeps_the_event_loop_for_long():
    with Rig(SMALL) as rig, collecting_as_brokers_do():
        found = {APIS[key].name: turns(rig, key) for key in order(ROUTES)}
    assert [name for name, costs in found.items() if not costs] == [], "nothing is tried of these"
    slow = {
        (name, what): turn
        for name, costs in found.items()
        for what, turn in costs.items()
        if turn > LONGEST_TURN_MS
    }
    assert slow == {}


def test_a_handler_that_takes_long_is_noticed(monkeypatch):
    def slow(*args):
        until = time.thread_time() + 1.5 * LONGEST_TURN_MS / 1000
        while time.thread_time() < until:
            pass
        return ROUTES[18].handle(*args)

    monkeypatch.setitem(ROUTES, 60, structs.replace(ROUTES[60], handle=slow))
    monkeypatch.setattr(request_costs, "fill_broker", lambda rig: None)
    with Rig(EMPTY) as rig:
        assert min(cost.turn_ms for cost in costs_of(rig, 60, memory=False)) > LONGEST_TURN_MS


def test_the_table_has_each_api_and_none_above_its_limit():
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert rows.keys() == {APIS[key].name for key in ROUTES}
    assert [n for n, (turn, mib) in rows.items() if turn > LONGEST_TURN_MS or mib > MOST_MIB] == []


@pytest.mark.parametrize("gone", ["Metadata", "ListGroups"])
def test_an_api_without_a_row_is_noticed(gone):
    page = PAGE.read_text(encoding="utf-8")
    less = "\n".join(line for line in page.splitlines() if not line.startswith(f"| {gone} |"))
    assert gone not in rows_of(less)
