"""Results: how whoever asked a coordinator hears what became of it.

Who may call: the shells of the coordinators; the broker's handlers implement these protocols by the
answers that they keep waiting. Invariants: each request hears of its result once, at once or later.
"""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

ResultT_contra = TypeVar("ResultT_contra", contravariant=True)

PartitionErrors = Mapping[TopicPartition, ErrorCode]


class AwaitsResult(Protocol[ResultT_contra]):
    """A request that waits for its result."""

    def on_result(self, result: ResultT_contra) -> None: ...


class AwaitsVerification(Protocol):
    """A request that waits until its partitions are verified as part of a transaction."""

    def on_verified(self, errors: PartitionErrors) -> None:
        """Go on; `errors` names the partitions that must not be written to."""
        ...
