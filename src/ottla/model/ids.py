"""Identifiers: topic partitions, topic ids and what makes a topic name legal.

Kafka: `TopicPartition`, `Uuid` and `Topic` classes.
"""

import base64
import re
from collections.abc import Iterable
from typing import NamedTuple, Self

from msgspec import Struct

ZERO_UUID = bytes(16)
"""The topic id that means "none" (Kafka's `Uuid.ZERO_UUID`)."""

ONE_UUID = bytes(15) + b"\x01"
"""Reserved by Kafka for the KRaft metadata topic; never given to a topic."""

NO_LEADER = -1
NO_EPOCH = -1
MAX_TOPIC_NAME_LENGTH = 249

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
"""Topics that only brokers write to: the logs of the group and transaction coordinators."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as `topic-0`, the name of its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Partition(Struct, frozen=True, order=True):
    """A partition as JSON names it."""

    topic: str
    partition: int

    @classmethod
    def all(cls, partitions: Iterable[TopicPartition]) -> list[Self]:
        """Return one for each."""
        return [cls(*tp) for tp in partitions]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of some partitions by topic, in their order."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def uuid_to_text(raw: bytes) -> str:
    """Return the 22-character URL-safe base64 text of a 16-byte id, as znodes and files keep it."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of a 22-character id; raise ValueError for anything else."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a 22-character id: {text!r}")
    return raw


def is_usable_uuid(raw: bytes) -> bool:
    """Return whether 16 random bytes may name a topic: not reserved, text not starting with '-'."""
    return raw not in (ZERO_UUID, ONE_UUID) and not uuid_to_text(raw).startswith("-")


def topic_name_problem(name: str) -> str | None:
    """Return why `name` is no legal topic name (Kafka's `Topic.validate`), or None if it is one."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"the length of {name!r} is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL_TOPIC.fullmatch(name):
        return (
            f"{name!r} contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def topics_collide(a: str, b: str) -> bool:
    """Return whether two names differ only in '.' and '_', which metrics cannot tell apart."""
    return a.replace(".", "_") == b.replace(".", "_")
