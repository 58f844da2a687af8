"""Topics and partitions as people name them: TOPIC, TOPIC:0,1, or a pattern."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.model.ids import TopicPartition


def parse_topic(text: str) -> tuple[str, list[int]]:
    """Return the topic and partitions of `TOPIC` or `TOPIC:0,1`; no partitions are all of them."""
    name, colon, indexes = text.partition(":")
    numbers = indexes.split(",") if colon else []
    if not name or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ValueError(f"{text}: write TOPIC or TOPIC:0,1")
    return name, [int(n) for n in dict.fromkeys(numbers)]


async def partitions(
    client: "Client", chosen: Sequence[tuple[str, list[int]]]
) -> "list[TopicPartition]":
    """Return the partitions that were chosen, each once; OttlaError names one that is not there."""
    from ottla.client import topics
    from ottla.model.ids import TopicPartition

    found: dict[TopicPartition, None] = {}
    for name, indexes in chosen:
        facts = await topics.describe_topic(client, name)
        known = [p.partition for p in facts.partitions]
        for index in indexes:
            if index not in known:
                raise OttlaError(
                    f"topic {name} has no partition {index}: it has {len(known)}, from 0 on"
                )
        found |= dict.fromkeys(TopicPartition(name, index) for index in indexes or known)
    return list(found)


def parse_pattern(text: str) -> "re.Pattern[str]":
    """Return a regular expression for whole names; ValueError says what is wrong with it."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text}: {error}") from None


def matching(names: Sequence[str], patterns: Sequence["re.Pattern[str]"]) -> list[str]:
    """Return the names that one of the patterns is of."""
    return [n for n in names if any(p.fullmatch(n) for p in patterns)]


def named_like(topics: Sequence[str], patterns: Sequence["re.Pattern[str]"]) -> list[str]:
    """Return the topics that one of the patterns is of; OttlaError if there is none."""
    found = matching(topics, patterns)
    if not found:
        raise OttlaError(f"no topic has a name like {' or '.join(p.pattern for p in patterns)}")
    return found
