"""Scenarios of transactions at their edges: ids nobody has, producers nobody knows, wrong epochs."""

# ruff: noqa: E501 - a row of a table is a line

from collections.abc import Iterator
from typing import Any

from differential_tables import Scenario

PRODUCER = "producer_id: each cluster hands out its own"
WHO = {
    "unknown id": {"transactional_id": "nobody", "producer_id": 5, "producer_epoch": 0},
    "empty id": {"transactional_id": "", "producer_id": 5, "producer_epoch": 0},
    "negative producer": {"transactional_id": "nobody", "producer_id": -1, "producer_epoch": -1},
    "another producer": {"transactional_id": "t", "producer_id": 987_654_321, "producer_epoch": 0},
}


def transactions() -> Iterator[Scenario]:
    def init(name: str, **more: Any) -> Scenario:
        request = {"transactional_id": "t", "transaction_timeout_ms": 60_000, **more}
        return Scenario(22, f"transactional, {name}", request, masks=(PRODUCER,))

    yield init("new")
    yield init("without a timeout", transaction_timeout_ms=0)
    yield init("with too long a timeout", transaction_timeout_ms=2**31 - 1)
    topics = [{"name": "read", "partitions": [0]}]
    for name, who in WHO.items():
        old = {f"v3_and_below_{k}": v for k, v in who.items()}
        yield Scenario(24, name, {**old, "v3_and_below_topics": topics}, 0, 3)
        yield Scenario(25, name, {**who, "group_id": "g"})
        yield Scenario(26, f"{name}, commit", {**who, "committed": True})
        yield Scenario(26, f"{name}, abort", {**who, "committed": False})
        offsets = [
            {
                "name": "read",
                "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                ],
            }
        ]
        yield Scenario(28, name, {**who, "group_id": "txn-group", "topics": offsets})
        yield Scenario(28, f"{name}, empty group", {**who, "group_id": "", "topics": offsets})
    for state in (["Empty"], ["Ongoing"], ["Nonsense"]):
        yield Scenario(66, f"in state {state}", {"state_filters": state})
    yield Scenario(65, "unknown", {"transactional_ids": ["nobody"]})
    yield Scenario(65, "empty", {"transactional_ids": [""]})
    for topic, indexes in {"three": [0], "nope": [0], "read": [9, -1]}.items():
        yield Scenario(
            61, f"{topic} {indexes}", {"topics": [{"name": topic, "partition_indexes": indexes}]}
        )
