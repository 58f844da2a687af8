"""The election of the controller.

Invariants: the election raises the epoch in the multi that creates /controller; an ephemeral znode
is only believed to be ours if its owner is our session (R16). Kafka: the `registerController…` and
`CheckedEphemeral` of `KafkaZkClient`.
"""

import contextlib
import logging

from ottla.model.errors import ControllerMovedError
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part
from ottla.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    MalformedZnodeError,
    MultiError,
    NoNodeError,
)
from ottla.zookeeper.operations import Create, Delete, Op, Set
from ottla.zookeeper.watches import WatchCallback

log = logging.getLogger(__name__)

HIGHEST_EPOCH = 2**30
"""A controller epoch above it was written by hand, and would leave none above itself."""


class Election(Part):
    """/controller and /controller_epoch."""

    async def get_registration(
        self, watch: WatchCallback | None = None
    ) -> znodes.ControllerRegistration | None:
        """Return who is the controller and the znode's version; None also if it is malformed."""
        found = await self._zk.get_data_and_stat(znodes.CONTROLLER, watch)
        return found and self._zk.decoded(znodes.decode_controller, found[0], found[1].version)

    async def get_controller_id(self) -> int | None:
        found = await self.get_registration()
        return None if found is None else found.broker_id

    async def get_epoch(self) -> tuple[int, int] | None:
        """Return (controller epoch, version of its znode)."""
        found = await self._zk.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if found is None:
            return None
        return znodes.decode_controller_epoch(found[0]), found[1].version

    async def elect(self, broker_id: int, at_least: int = 0) -> tuple[int, int]:
        """Become the controller: return (its epoch, version of the epoch's znode).

        `at_least` is the highest epoch heard of: the new one is above it whatever the znode says,
        or brokers would refuse it (R10). ControllerMovedError if another broker is it.
        """
        current = await self._last_controller_epoch()
        if current is None:
            data = znodes.encode_controller_epoch(0)
            await self._zk.create_recursive(znodes.CONTROLLER_EPOCH, data, fail_if_exists=False)
            current = await self._last_controller_epoch()
            if current is None:
                raise NoNodeError(path=znodes.CONTROLLER_EPOCH)
        epoch, version = max(current[0], at_least) + 1, current[1]
        timestamp_ms = self._zk.session.world.clock.wall_ms()
        ops: list[Op] = [
            Create(
                znodes.CONTROLLER, znodes.encode_controller(broker_id, timestamp_ms), ephemeral=True
            ),
            Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
        ]
        while True:
            try:
                results = await self._zk.session.multi(ops)
                return epoch, results[1].version
            except ConnectionLossError:
                await self._zk.session.wait_connected()
            except MultiError as error:
                if error.error.zk_code not in (-110, -103):
                    raise error.error from None
                return await self._check_election(broker_id, epoch)

    async def _last_controller_epoch(self) -> tuple[int, int] | None:
        """Return what `get_controller_epoch` does, 0 for an epoch that cannot be read (F41)."""
        found = await self._zk.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if found is None:
            return None
        try:
            epoch = znodes.decode_controller_epoch(found[0])
            if epoch > HIGHEST_EPOCH:
                raise MalformedZnodeError(znodes.CONTROLLER_EPOCH, f"no elections led to {epoch}")
        except MalformedZnodeError as error:
            self._zk.ignore(error)
            epoch = 0
        return epoch, found[1].version

    async def remove_tampered(self, broker_id: int) -> bool:
        """Delete /controller if it cannot be read, or is ours and names another (F41).

        No broker could be elected until its session ends. Return whether it was deleted.
        """
        found = await self._zk.get_data_and_stat(znodes.CONTROLLER)
        if found is None:
            return False
        data, stat = found
        named = self._zk.decoded(znodes.decode_controller, data)
        is_ours = stat.ephemeral_owner == self._zk.session.session_id
        if named is not None and (named.broker_id == broker_id or not is_ours):
            return False
        log.error("deleting a znode path=%s reason=another client wrote it", znodes.CONTROLLER)
        with contextlib.suppress(NoNodeError, BadVersionError):
            await self._zk.write(Delete(znodes.CONTROLLER, stat.version))
        return True

    async def delete_if_overwritten(self, fence: int) -> bool:
        """Delete a /controller of ours where /controller_epoch has another version than `fence`.

        No other broker was elected then: a person or a tool wrote the epoch, and nothing this
        controller writes would stand. Return whether it was deleted.
        """
        controller = await self._zk.get_data_and_stat(znodes.CONTROLLER)
        epoch = await self._zk.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if controller is None or controller[1].ephemeral_owner != self._zk.session.session_id:
            return False
        if epoch is not None and epoch[1].version == fence:
            return False
        log.error("electing again path=%s reason=another client wrote it", znodes.CONTROLLER_EPOCH)
        with contextlib.suppress(NoNodeError, BadVersionError):
            await self._zk.write(Delete(znodes.CONTROLLER, controller[1].version))
        return True

    async def _check_election(self, broker_id: int, epoch: int) -> tuple[int, int]:
        """Tell our own election, whose reply was lost, from another's."""
        found = await self._zk.get_data_and_stat(znodes.CONTROLLER)
        if found is not None and found[1].ephemeral_owner == self._zk.session.session_id:
            current = await self.get_epoch()
            if current is not None and current[0] == epoch:
                return current
        who = "no broker" if found is None else f"{found[0][:80]!r}"
        raise ControllerMovedError(f"broker {broker_id} lost the election; controller: {who}")

    async def resign(self) -> None:
        """Delete /controller, so that another broker is elected."""
        with contextlib.suppress(NoNodeError):
            await self._zk.write(Delete(znodes.CONTROLLER))
