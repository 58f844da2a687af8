"""What things cost: how much of a node's time its callbacks take, by what they do.

Invariants: `FREE` costs nothing, so that time stands still within callbacks (unit tests); a cost is
a number of the table, never a measurement of the run, so that a run stays a function of its seed.
Costs are charged by a node's loop and by the ports of its `World`. Pure work between two calls of a
port (batches, records, codecs) is in `callback_s`.
"""

import math
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a node's time. Callbacks cost `callback_s` and what they do besides."""

    callback_s: float = 0.0
    net_s: float = 0.0
    """reading from a connection or writing to it, once"""
    net_byte_s: float = 0.0
    znode_byte_s: float = 0.0
    """a byte to or from ZooKeeper: requests and responses, one znode each, are made of small
    parts"""
    file_s: float = 0.0
    """an operation on an open file"""
    read_byte_s: float = 0.0
    read_most_s: float = math.inf
    """What the bytes of one read cost at most."""
    write_byte_s: float = 0.0
    folder_s: float = 0.0
    """opening, listing, renaming, removing"""
    unlink_byte_s: float = 0.0
    fsync_s: float = 0.0
    seek_s: float = 0.0
    """reading what is not in memory"""

    def slower(self, factor: float) -> "Costs":
        """Return the same on a machine so much slower."""
        return replace(self, **{name: factor * cost for name, cost in asdict(self).items()})


FREE = Costs()

# By `python benchmarks/simulator_costs.py`, 2026-11-22, Python 3.11.7, one core of two shared with
# other work, a virtual disk. Not from there: `callback_s` is what the callbacks of simulated
# brokers took on that machine beyond the rest of the table (76 us on average with it); `fsync_s`
# and `seek_s` are those of a plain SSD; `unlink_byte_s` is what deleting 20 GiB took (0.3 s per
# GiB); `znode_byte_s` is 30 us for a request or response of 150 bytes.
MEASURED = Costs(
    callback_s=40e-6,
    net_s=10e-6,
    net_byte_s=0.5e-9,
    znode_byte_s=0.2e-6,
    file_s=1.2e-6,
    read_byte_s=0.05e-9,
    write_byte_s=0.1e-9,
    folder_s=10e-6,
    unlink_byte_s=0.3e-9,
    fsync_s=2e-3,
    seek_s=1e-3,
)
