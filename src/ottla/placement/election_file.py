"""The partitions of an election, as a file in Kafka's JSON format names them.

Invariants: a bad file is one line with its name, the reason and the way out. Kafka:
`LeaderElectionCommand.parseReplicaElectionData`, and what the documents have in
`/admin/preferred_replica_election`.
"""

from typing import Annotated

from msgspec import Meta, Struct

from ottla.model.ids import TopicPartition, topic_name_problem
from ottla.placement.plans import PlanError, decoded

_FORMAT = 'the format is {"partitions":[{"topic":"orders","partition":0}]}'


class _Partition(Struct):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Partitions(Struct):
    partitions: Annotated[list[_Partition], Meta(min_length=1)]


def parse_partitions(data: bytes, where: str) -> list[TopicPartition]:
    """Return the partitions in a file's order; PlanError names `where` and the place."""
    file = decoded(data, where, _Partitions, _FORMAT, too_large="split the file")
    found: dict[TopicPartition, None] = {}
    for entry in file.partitions:
        problem = topic_name_problem(entry.topic)
        if problem:
            raise PlanError(f"{where}: topic {entry.topic[:80]!r}: {problem}")
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in found:
            raise PlanError(f"{where}: {tp} is listed twice; list it once")
        found[tp] = None
    return list(found)
