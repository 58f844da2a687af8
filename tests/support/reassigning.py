"""Reassignments in tests: one partition asked for by request; brokers whose leases end sooner."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.admin.session import world
from ottla.client.client import CONTROLLER, Client
from ottla.wire.messages.topics import AlterPartitionReassignmentsRequest
from support.cluster import OttlaCluster

# The durations themselves are checked on simulated time: tests/unit/broker/test_throttle_lease.py.
LEASES_END_SOONER = """
import sys
from ottla.broker.configs import throttle_lease
throttle_lease.GRACE_S, throttle_lease.LOOK_EVERY_S = 10.0, 1.0
from ottla.__main__ import main
sys.exit(main())
"""


class ShortLeases(OttlaCluster):
    """Brokers that remove a reassignment's throttles 10 s after its end, not 30 s."""

    def command(self, broker: int, config: Path) -> list[str]:
        return [sys.executable, "-c", LEASES_END_SOONER, "broker", "--config", str(config)]


def reassigned(bootstrap: str, topic: str, target: Sequence[int] | None) -> int:
    """Ask for partition 0 to be moved, or cancel its move (None); return the error code."""
    r = AlterPartitionReassignmentsRequest
    replicas = None if target is None else list(target)
    wanted = r.ReassignablePartition(partition_index=0, replicas=replicas)

    async def ask() -> int:
        client = Client(world(), bootstrap, "test", timeout_s=20)
        try:
            request = r(topics=[r.ReassignableTopic(name=topic, partitions=[wanted])])
            response = await client.call(request, CONTROLLER)
            return int(response.error_code or response.responses[0].partitions[0].error_code)
        finally:
            await client.close()

    return asyncio.run(ask())
