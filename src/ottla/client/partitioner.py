"""Which partition a record goes to: by its key, or, without one, as Kafka's producer does it.

Pure but for the random numbers it is given. Kafka: `BuiltInPartitioner`.
"""

import random
from collections.abc import Sequence

from ottla.model.partitioning import partition_of

STICKY_BYTES = 16_384
"""Records without a key stay in one partition for so many bytes: Kafka's default of batch.size."""


class Partitioner:
    """Keyed records by Kafka's hash; others at random, a run of them (sticky) or each for itself.

    `available`: the partitions with a leader; records without a key go only there.
    """

    def __init__(
        self, partitions: int, available: Sequence[int], chance: random.Random, *, sticky: bool
    ) -> None:
        self._partitions = partitions
        self._available = list(available) or list(range(partitions))
        self._chance = chance
        self._sticky = sticky
        self._current = -1
        self._written = STICKY_BYTES

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""
        if key is not None:
            return partition_of(key, self._partitions)
        if self._written >= STICKY_BYTES or not self._sticky:
            self._current = self._chance.choice(self._available)
            self._written = 0
        self._written += size
        return self._current
