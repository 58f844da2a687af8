"""Registration: the cluster's id, brokers and the controller's election.

Invariants: a broker's epoch is the czxid of its znode; an ephemeral znode is only believed to be
ours if its owner is our session, and only deleted if its owner is a former session of ours (R16);
the election raises the epoch in the multi that creates /controller. Kafka: the `registerBroker`,
`CheckedEphemeral` and `registerController…` of `KafkaZkClient`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ControllerMovedError
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Access
from ottla.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    MalformedZnodeError,
    MultiError,
    NodeExistsError,
    NoNodeError,
)
from ottla.zookeeper.operations import Create, Delete, Op, Set
from ottla.zookeeper.session import Session
from ottla.zookeeper.statements import (
    Standing,
    Statement,
    decode_statement,
    encode_statement,
    statement_path,
)
from ottla.zookeeper.watches import WatchCallback

log = logging.getLogger(__name__)

HIGHEST_EPOCH = 2**30
"""A controller epoch above it was written by hand, and would leave none above itself."""


class Registration(Access):
    """See the module; `previous_session_id` is the session this broker had before, if any."""

    def __init__(
        self,
        session: Session,
        *,
        previous_session_id: int = 0,
        on_malformed: Callable[[MalformedZnodeError], None] | None = None,
    ) -> None:
        super().__init__(session, on_malformed=on_malformed)
        self._previous_session_id = previous_session_id

    # --- the cluster ------------------------------------------------------------------------

    async def create_top_level_paths(self) -> None:
        """Create what every broker creates at its start, in one round trip."""
        await self.create_missing(znodes.with_parents(znodes.PERSISTENT_PATHS))

    async def get_cluster_id(self) -> str | None:
        found = await self.get_data_and_stat(znodes.CLUSTER_ID)
        return None if found is None else znodes.decode_cluster_id(found[0])

    async def create_or_get_cluster_id(self, proposed: str) -> str:
        """Return the cluster's id: the proposed one if there was none."""
        data = znodes.encode_cluster_id(proposed)
        await self.create_recursive(znodes.CLUSTER_ID, data, fail_if_exists=False)
        cluster_id = await self.get_cluster_id()
        if cluster_id is None:
            raise NoNodeError(path=znodes.CLUSTER_ID)
        return cluster_id

    async def generate_broker_sequence_id(self) -> int:
        """Return a number no other broker was given; add reserved.broker.max.id to it."""
        while True:
            try:
                return (
                    await self.read(lambda: self.session.set(znodes.BROKER_SEQUENCE, b""))
                ).version
            except NoNodeError:
                await self.create_recursive(znodes.BROKER_SEQUENCE, b"", fail_if_exists=False)

    # --- brokers ----------------------------------------------------------------------------

    async def register_broker(
        self,
        info: BrokerInfo,
        *,
        wait_ms: int | None = None,
        logs_whole: bool | None = None,
        removable: bool = False,
        life: str = "",
        zookeeper_went_back: str = "",
        statement_version: int = ANY_VERSION,
    ) -> int:
        """Register and return the broker epoch.

        `logs_whole`, if given, is stated with the registration, at the same zxid (adr/0007), with
        `removable` (adr/0018), `life` and `zookeeper_went_back` (adr/0025), over the version that
        was read: BadVersionError if another process wrote a statement since.
        Another owner's znode is waited for up to `wait_ms` (a bit more than the session timeout):
        usually it is what a killed process left. NodeExistsError after that.
        """
        path = znodes.broker_path(info.id)
        data = znodes.encode_broker(info, self.session.world.clock.wall_ms())
        stated: list[Op] = []
        if logs_whole is not None:
            await self.create_recursive(statement_path(info.id), b"", fail_if_exists=False)
            said = Statement(
                logs_whole=logs_whole,
                removable=removable,
                voids_eligible=True,
                life=life,
                zookeeper_went_back=zookeeper_went_back,
            )
            stated = [Set(statement_path(info.id), encode_statement(said), statement_version)]
        clock = self.session.world.clock
        patience_s = (self.session.timeout_ms * 1.25 + 1000 if wait_ms is None else wait_ms) / 1000
        give_up_s = clock.monotonic() + patience_s
        while True:
            try:
                results = await self.session.multi(
                    [Create(path, None, ephemeral=True), Set(path, data, 0), *stated]
                )
                return self._registered(info, results[1].czxid)
            except ConnectionLossError:
                await self.session.wait_connected()
                continue
            except MultiError as error:
                if not isinstance(error.error, NodeExistsError):
                    raise error.error from None
            found = await self.get_data_and_stat(path)
            if found is None:
                continue
            owner = found[1].ephemeral_owner
            if owner == self.session.session_id:
                if found[0] != data:
                    await self.update_broker_info(info)
                return self._registered(info, found[1].czxid)
            if owner and owner == self._previous_session_id:
                log.info(
                    "deleting a znode path=%s session=%#x reason=of our former session", path, owner
                )
                await self._delete_if_there(path)
                continue
            left_s = give_up_s - clock.monotonic()
            if left_s <= 0:
                raise NodeExistsError(
                    f"broker id {info.id} is registered by session {owner:#x}: another broker "
                    "uses this id, or its session has not expired yet",
                    path=path,
                )
            log.info("waiting for a znode path=%s session=%#x left_s=%.1f", path, owner, left_s)
            await self._wait_until_gone(path, left_s)
            data = znodes.encode_broker(info, clock.wall_ms())

    async def get_standing(self, broker_id: int) -> Standing:
        """Return what ZooKeeper has of a broker id; its statement's znode is created if need be.

        The view is not older than this call, whichever server answers.
        """
        path = statement_path(broker_id)
        await self.create_recursive(path, b"", fail_if_exists=False)
        await self.catch_up()
        stated, epoch = await self.get_many([path, znodes.CONTROLLER_EPOCH])
        if stated is None:
            raise NoNodeError(path=path)
        try:
            statement = decode_statement(broker_id, stated[0])
        except MalformedZnodeError as error:
            self.ignore(error)
            statement = Statement()
        controller_epoch = None
        if epoch is not None:
            with contextlib.suppress(MalformedZnodeError):
                controller_epoch = znodes.decode_controller_epoch(epoch[0])
        stat = stated[1]
        return Standing(
            statement,
            stat.mzxid if stated[0] else 0,
            stat.version,
            self.session.last_zxid,
            controller_epoch,
        )

    def _registered(self, info: BrokerInfo, czxid: int) -> int:
        endpoints = ",".join(map(str, info.endpoints))
        log.info(
            "broker registered broker=%d broker_epoch=%d endpoints=%s", info.id, czxid, endpoints
        )
        return czxid

    async def _delete_if_there(self, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            await self.write(Delete(path))

    async def _wait_until_gone(self, path: str, timeout_s: float) -> None:
        gone = asyncio.Event()
        if not await self.path_exists(path, lambda _event: gone.set()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await gone.wait()

    async def update_broker_info(self, info: BrokerInfo) -> None:
        data = znodes.encode_broker(info, self.session.world.clock.wall_ms())
        await self.write(Set(znodes.broker_path(info.id), data))
        log.info(
            "registration updated broker=%d endpoints=%s",
            info.id,
            ",".join(map(str, info.endpoints)),
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Delete our registration before the session ends (controlled shutdown)."""
        found = await self.get_data_and_stat(znodes.broker_path(broker_id))
        if found is not None and found[1].ephemeral_owner == self.session.session_id:
            await self._delete_if_there(znodes.broker_path(broker_id))

    async def get_sorted_broker_list(self, watch: WatchCallback | None = None) -> list[int]:
        ids = []
        for name in await self.get_children(znodes.BROKER_IDS, watch):
            if name.isascii() and name.isdigit() and int(name) < 2**31:
                ids.append(int(name))
            else:
                path = f"{znodes.BROKER_IDS}/{name}"
                self.ignore(MalformedZnodeError(path, "its name is no broker id"))
        return sorted(ids)

    async def get_all_brokers_in_cluster(
        self, watch: WatchCallback | None = None
    ) -> list[BrokerInfo]:
        """Return all live brokers with their epochs, by id. `watch`: on the list of ids."""
        ids = await self.get_sorted_broker_list(watch)
        return [b for b in await self.get_brokers(ids) if b is not None]

    async def get_brokers(self, broker_ids: list[int]) -> list[BrokerInfo | None]:
        """Return these brokers; None where one is gone or its znode is malformed."""
        replies = await self.get_many([znodes.broker_path(i) for i in broker_ids])
        found: list[BrokerInfo | None] = []
        for broker_id, reply in zip(broker_ids, replies, strict=True):
            try:
                found.append(reply and znodes.decode_broker(broker_id, reply[0], reply[1].czxid))
            except MalformedZnodeError as error:
                self.ignore(error)
                found.append(None)
        return found

    async def get_broker(
        self, broker_id: int, watch: WatchCallback | None = None
    ) -> BrokerInfo | None:
        found = await self.get_data_and_stat(znodes.broker_path(broker_id), watch)
        try:
            return found and znodes.decode_broker(broker_id, found[0], found[1].czxid)
        except MalformedZnodeError as error:
            self.ignore(error)
            return None

    # --- the controller ---------------------------------------------------------------------

    async def get_controller_registration(
        self, watch: WatchCallback | None = None
    ) -> znodes.ControllerRegistration | None:
        """Return who is the controller and the znode's version; None also if it is malformed."""
        found = await self.get_data_and_stat(znodes.CONTROLLER, watch)
        if found is None:
            return None
        try:
            return znodes.decode_controller(found[0], found[1].version)
        except MalformedZnodeError as error:
            self.ignore(error)
            return None

    async def get_controller_id(self) -> int | None:
        found = await self.get_controller_registration()
        return None if found is None else found.broker_id

    async def get_controller_epoch(self) -> tuple[int, int] | None:
        """Return (controller epoch, version of its znode)."""
        found = await self.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if found is None:
            return None
        return znodes.decode_controller_epoch(found[0]), found[1].version

    async def register_controller_and_increment_controller_epoch(
        self, broker_id: int, at_least: int = 0
    ) -> tuple[int, int]:
        """Become the controller: return (its epoch, version of the epoch's znode).

        `at_least` is the highest epoch heard of: the new one is above it whatever the znode says,
        or brokers would refuse it (R10). ControllerMovedError if another broker is it.
        """
        current = await self._last_controller_epoch()
        if current is None:
            data = znodes.encode_controller_epoch(0)
            await self.create_recursive(znodes.CONTROLLER_EPOCH, data, fail_if_exists=False)
            current = await self._last_controller_epoch()
            if current is None:
                raise NoNodeError(path=znodes.CONTROLLER_EPOCH)
        epoch, version = max(current[0], at_least) + 1, current[1]
        timestamp_ms = self.session.world.clock.wall_ms()
        ops: list[Op] = [
            Create(
                znodes.CONTROLLER, znodes.encode_controller(broker_id, timestamp_ms), ephemeral=True
            ),
            Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
        ]
        while True:
            try:
                results = await self.session.multi(ops)
                return epoch, results[1].version
            except ConnectionLossError:
                await self.session.wait_connected()
            except MultiError as error:
                if error.error.zk_code not in (-110, -103):
                    raise error.error from None
                return await self._check_election(broker_id, epoch)

    async def _last_controller_epoch(self) -> tuple[int, int] | None:
        """Return what `get_controller_epoch` does, 0 for an epoch that cannot be read (F41)."""
        found = await self.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if found is None:
            return None
        try:
            epoch = znodes.decode_controller_epoch(found[0])
            if epoch > HIGHEST_EPOCH:
                raise MalformedZnodeError(znodes.CONTROLLER_EPOCH, f"no elections led to {epoch}")
        except MalformedZnodeError as error:
            self.ignore(error)
            epoch = 0
        return epoch, found[1].version

    async def remove_tampered_controller(self, broker_id: int) -> bool:
        """Delete /controller if it cannot be read, or is ours and names another (F41).

        No broker could be elected until its session ends. Return whether it was deleted.
        """
        found = await self.get_data_and_stat(znodes.CONTROLLER)
        if found is None:
            return False
        data, stat = found
        try:
            named = znodes.decode_controller(data).broker_id
        except MalformedZnodeError as error:
            self.ignore(error)
        else:
            if named == broker_id or stat.ephemeral_owner != self.session.session_id:
                return False
        log.error("deleting a znode path=%s reason=another client wrote it", znodes.CONTROLLER)
        with contextlib.suppress(NoNodeError, BadVersionError):
            await self.write(Delete(znodes.CONTROLLER, stat.version))
        return True

    async def delete_controller_if_fenced(self, fence: int) -> bool:
        """Delete a /controller of ours where /controller_epoch has another version than `fence`.

        No other broker was elected then: a person or a tool wrote the epoch, and nothing this
        controller writes would stand. Return whether it was deleted.
        """
        controller = await self.get_data_and_stat(znodes.CONTROLLER)
        epoch = await self.get_data_and_stat(znodes.CONTROLLER_EPOCH)
        if controller is None or controller[1].ephemeral_owner != self.session.session_id:
            return False
        if epoch is not None and epoch[1].version == fence:
            return False
        log.error("electing again path=%s reason=another client wrote it", znodes.CONTROLLER_EPOCH)
        with contextlib.suppress(NoNodeError, BadVersionError):
            await self.write(Delete(znodes.CONTROLLER, controller[1].version))
        return True

    async def _check_election(self, broker_id: int, epoch: int) -> tuple[int, int]:
        """Tell our own election, whose reply was lost, from another's."""
        found = await self.get_data_and_stat(znodes.CONTROLLER)
        if found is not None and found[1].ephemeral_owner == self.session.session_id:
            current = await self.get_controller_epoch()
            if current is not None and current[0] == epoch:
                return current
        who = "no broker" if found is None else f"{found[0][:80]!r}"
        raise ControllerMovedError(f"broker {broker_id} lost the election; controller: {who}")

    async def delete_controller(
        self, expected_controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete /controller, so that another broker is elected."""
        with contextlib.suppress(NoNodeError):
            await self.write(Delete(znodes.CONTROLLER), expected_controller_epoch_zk_version)
