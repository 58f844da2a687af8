"""The topics that a plan is to be made for, as a file in Kafka's JSON format names them.

Invariants: a bad file is one line with its name, the reason and the way out. Kafka:
`ReassignPartitionsCommand.parseTopicsData`.
"""

from typing import Annotated

from msgspec import Meta, Struct

from ottla.model.ids import topic_name_problem
from ottla.placement.plans import PLAN_VERSION, PlanError, decoded

_FORMAT = 'the format is {"version":1,"topics":[{"topic":"orders"}]}'


class _Topic(Struct):
    topic: str


class _Topics(Struct):
    topics: Annotated[list[_Topic], Meta(min_length=1)]
    version: int = PLAN_VERSION


def parse_topics(data: bytes, where: str) -> list[str]:
    """Return the names in a file's order; PlanError names `where` and the place."""
    found = decoded(data, where, _Topics, _FORMAT, too_large="name fewer")
    if found.version != PLAN_VERSION:
        raise PlanError(f"{where}: version {found.version} is not known; write version 1")
    names = [entry.topic for entry in found.topics]
    seen = set()
    for name in names:
        problem = topic_name_problem(name)
        if problem:
            raise PlanError(f"{where}: topic {name[:80]!r}: {problem}")
        if name in seen:
            raise PlanError(f"{where}: topic {name} is listed twice; list it once")
        seen.add(name)
    return names
