"""Where a stream stands, as Spark keeps it in its checkpoint: JSON like the connector's.

Invariants: equal positions give equal text, for Spark compares texts; what the connector writes can
be read. `{"topic": {"0": 17, "1": 4, "id": "text of its UUID"}}`: the id names the topic that was
read, so that a topic deleted and created again is distinguished from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text

ID = "id"


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of each partition, and the ids of topics that have one."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]

    def id_of(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, ZERO_UUID)


def to_json(position: Position) -> dict[str, dict[str, int | str]]:
    """Return it as Spark keeps it: topics and partitions in order."""
    found: dict[str, dict[str, int | str]] = {}
    for tp in sorted(position.offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = position.offsets[tp]
    for topic, inner in found.items():
        if position.id_of(topic) != ZERO_UUID:
            inner[ID] = uuid_to_text(position.id_of(topic))
    return found


def from_json(found: Mapping[str, Any]) -> Position:
    """Read what `to_json` or the connector wrote; ConfigError for anything else."""
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, bytes] = {}
    try:
        for topic, inner in found.items():
            for key, value in inner.items():
                if key == ID:
                    topic_ids[topic] = uuid_from_text(value)
                else:
                    offsets[TopicPartition(topic, int(key))] = int(value)
    except (AttributeError, TypeError, ValueError, OttlaError) as error:
        raise ConfigError(f"the checkpoint's offset is none of this source: {error}") from None
    return Position(offsets, topic_ids)
