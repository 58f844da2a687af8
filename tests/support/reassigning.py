"""AlterPartitionReassignments as tests send it: one partition, to the controller."""

import asyncio
from collections.abc import Sequence

from ottla.admin.session import world
from ottla.net.client import CONTROLLER, Client
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest


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
