"""A simulated process that reads as a cooperative member of a consumer group (KIP-429).

Invariants: while the member joins, the process goes on reading what is the member's; what it has to
give up it commits first, then joins again; what it lost with its place in the group it neither
commits nor reads; after a generation that it did not join it goes on from what is committed; a new
process of a static member joins twice. Kafka: the cooperative half of `ConsumerCoordinator`, which
goes on from where it was.
"""

import asyncio
from collections.abc import Sequence

from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.history import History
from ottla.sim.members import COMMIT_BYTES, GroupReader


class CooperativeReader(GroupReader):
    """A process that reads as a member, also during a rebalance."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        group: str,
        tps: Sequence[TopicPartition],
        history: History,
        instance_id: str | None,
    ) -> None:
        super().__init__(world, bootstrap, name, group, tps, history, instance_id)
        self.member.cooperative = True
        self._positions: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._settled = instance_id is None

    async def _generation(self) -> None:
        member = self.member
        joining = asyncio.ensure_future(member.join())
        try:
            while not joining.done():
                await self._read()
            joining.result()
        finally:
            joining.cancel()
        if member.fenced:
            return
        await self._give_up()
        if member.added:
            begin = await member.committed(member.added)
            self._positions.update(begin)
            self._sent.update(begin)
        if member.revoked:
            # The others wait for these: join again at once, without them.
            member.due = True
            return
        if not self._settled:
            # Its former process may have died between the two joins of a rebalance. A static member
            # gets its place back without another one, and what that process was to give up would be
            # no one's. (Kafka's consumer does not do this: there it stays so until the next one.)
            self._settled = member.due = True
            return
        pause_s = self.world.random.uniform(0.5, 2.0)
        loop = asyncio.get_running_loop()
        while not self.stopping and not member.due:
            until_s = loop.time() + pause_s
            while loop.time() < until_s and not member.due:
                await self._read()
            await self._commit(self._mine(), self._sent)

    async def _give_up(self) -> None:
        """Commit what moves to others; forget it, and what was lost.

        After a generation without us another may have read on and committed: our positions are of
        no use. (Kafka's consumer cannot tell. A listener of its that commits what is revoked sets
        the group back then, so that records are read twice.)
        """
        member = self.member
        if not member.away:
            revoked = {tp: self._positions[tp] for tp in member.revoked if tp in self._positions}
            await self._commit(revoked, self._sent)
        kept = set(member.partitions) - set(member.added)
        for positions in (self._positions, self._sent):
            for tp in set(positions) - kept:
                del positions[tp]

    def _mine(self) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in self._positions.items() if tp in self.member.partitions}

    async def _read(self) -> None:
        """Read once of each partition that is ours at this moment."""
        member = self.member
        for tp, offset in self._mine().items():
            records, reached = await member.poll(
                tp, offset, committed_only=False, max_bytes=COMMIT_BYTES
            )
            # The group may have moved it on while the response was on its way.
            if tp in member.partitions:
                self._positions[tp] = reached
                self._consume(tp, records)
        await asyncio.sleep(0.1)
