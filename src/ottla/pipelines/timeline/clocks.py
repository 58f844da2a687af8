"""Clocks: by how much brokers' clocks disagree, as far as their logs prove it.

Invariants: pure; what a controller decided was decided before a broker acts on it; a clock that
says otherwise is moved by the least that restores this, none the other way. So a clock that is
ahead is not seen by this unless its broker was controller.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NOTABLE_MS = 100
"""Less may be the time between deciding and writing a line about it, on a busy machine."""


class Lead(NamedTuple):
    """A broker acted, by its own clock, so much before the controller decided, by that one's."""

    controller: int
    broker: int
    ms: int


def shifts(leads: Iterable[Lead]) -> dict[int, int]:
    """Return what to add to each broker's times, in milliseconds; a broker left out is right.

    The longest paths in the graph of leads. Clocks that were set while the logs were written can
    contradict each other; then each broker is moved as often as there are brokers at most.
    """
    positive = [lead for lead in leads if lead.ms >= NOTABLE_MS and lead.controller != lead.broker]
    brokers = {lead.controller for lead in positive} | {lead.broker for lead in positive}
    found: dict[int, int] = {}
    for _ in brokers:
        moved = False
        for lead in positive:
            wanted = found.get(lead.controller, 0) + lead.ms
            if wanted > found.get(lead.broker, 0):
                found[lead.broker] = wanted
                moved = True
        if not moved:
            break
    return found


def tell(moved: Mapping[int, int]) -> list[str]:
    """Return a sentence for each clock that was moved."""
    return [
        f"broker {broker}'s clock is at least {ms} ms behind: its lines are placed so much later"
        for broker, ms in sorted(moved.items())
    ]
