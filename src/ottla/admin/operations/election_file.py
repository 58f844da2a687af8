"""The partitions of an election, as a file in Kafka's JSON format names them.

Who may call: the command of elections and tests. Invariants: a bad file is one line with its name,
the reason and the way out. Kafka: `LeaderElectionCommand.parseReplicaElectionData`, and what the
documents have in `/admin/preferred_replica_election`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ottla.admin.operations.plans import MAX_PLAN_BYTES, PlanError
from ottla.model.ids import TopicPartition, topic_name_problem

_FORMAT = 'the format is {"partitions":[{"topic":"orders","partition":0}]}'


class _Partition(Struct):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Partitions(Struct):
    partitions: Annotated[list[_Partition], Meta(min_length=1)]


def parse_partitions(data: bytes, where: str) -> list[TopicPartition]:
    """Return the partitions in a file's order; PlanError names `where` and the place."""
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(
            f"{where}: larger than {MAX_PLAN_BYTES // 1024 // 1024} MiB; split the file"
        )
    try:
        listed = msgspec.json.decode(data, type=_Partitions).partitions
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        raise PlanError(f"{where}: {text[:1].lower() + text[1:]}; {_FORMAT}") from None
    except RecursionError:
        raise PlanError(f"{where}: nested too deeply; {_FORMAT}") from None
    found: dict[TopicPartition, None] = {}
    for entry in listed:
        problem = topic_name_problem(entry.topic)
        if problem:
            raise PlanError(f"{where}: topic {entry.topic[:80]!r}: {problem}")
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in found:
            raise PlanError(f"{where}: {tp} is listed twice; list it once")
        found[tp] = None
    return list(found)
