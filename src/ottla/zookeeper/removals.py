"""Removals: the registration of a broker whose process is gone, deleted before its session ends.

Invariants: one multi checks the version of /controller_epoch, replaces the broker's statement at
the version that was read with the reason, and deletes the registration (and /controller, where the
controller itself is gone); every registration of a broker of ours sets its statement, so one that
was made meanwhile fails the multi. A JVM broker has no statement: of its registration only epoch
and version, read just before, are checked. It may change its listeners while it runs, in the same
znode: the endpoints there must be those that were probed. Kafka has no counterpart (adr/0018).
"""

from typing import NamedTuple

from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ControllerMovedError
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part
from ottla.zookeeper.errors import (
    ConnectionLossError,
    MultiError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Delete, Op, Set
from ottla.zookeeper.statements import (
    BROKERS,
    MAX_EVIDENCE,
    Removal,
    Statement,
    decode_statement,
    encode_statement,
    statement_path,
    states_of,
)

DONE = ""
OTHER_REGISTRATION = "it is registered anew or gone"
OTHER_ENDPOINTS = "it is registered with other endpoints than those that were probed"
OTHER_CONTROLLER = "another broker is the controller, or none"
NOT_REMOVABLE = "it has not said in /ottla/brokers that it may be removed"


class _Found(NamedTuple):
    """What a removal is decided from, all read in one turn."""

    epoch: tuple[bytes, Stat] | None
    registration: tuple[bytes, Stat] | None
    statement: tuple[bytes, Stat] | None
    controller: tuple[bytes, Stat] | None


class Removals(Part):
    """Removes registrations, and says which were removed and why."""

    async def remove_registration(
        self, broker: BrokerInfo, evidence: str, by: int, *, any_broker: bool = False
    ) -> str | None:
        """As the controller: delete this registration. Return why not, None if it was deleted.

        `any_broker`: also one without a statement. ControllerMovedError if the epoch moved.
        """
        removal = Removal(broker.epoch, by, evidence[:MAX_EVIDENCE])
        while True:
            found = await self._read(broker.id)
            ops = self._removal_of(broker, removal, found, any_broker=any_broker)
            if isinstance(ops, str):
                return ops or None
            try:
                await self._zk.session.multi([Check(znodes.CONTROLLER_EPOCH, self._zk.fence), *ops])
            except ConnectionLossError:
                await self._zk.session.wait_connected()
            except MultiError as error:
                if error.index == 0:
                    raise ControllerMovedError(
                        f"/controller_epoch no longer has version {self._zk.fence}"
                    ) from None
                return OTHER_REGISTRATION
            else:
                return None

    async def remove_controller(
        self, broker: BrokerInfo, evidence: str, by: int, *, any_broker: bool = False
    ) -> str | None:
        """As any broker: delete /controller and the registration of the broker that holds it.

        Return why not, None if both were deleted. Both must be of one session.
        """
        removal = Removal(broker.epoch, by, evidence[:MAX_EVIDENCE])
        while True:
            found = await self._read(broker.id)
            ops = self._removal_of(broker, removal, found, any_broker=any_broker)
            if isinstance(ops, str):
                return ops or None
            controller, epoch = found.controller, found.epoch
            assert found.registration is not None
            if (
                controller is None
                or epoch is None
                or controller[1].ephemeral_owner != found.registration[1].ephemeral_owner
            ):
                return OTHER_CONTROLLER
            check = Check(znodes.CONTROLLER_EPOCH, epoch[1].version)
            delete = Delete(znodes.CONTROLLER, controller[1].version)
            try:
                await self._zk.session.multi([check, *ops, delete])
            except ConnectionLossError:
                await self._zk.session.wait_connected()
            except MultiError:
                return OTHER_CONTROLLER
            else:
                return None

    async def get_all(self) -> dict[int, Removal]:
        """Return the last removals of brokers that have not registered since, by broker."""
        ids = [name for name in await self._zk.get_children(BROKERS) if name.isdigit()]
        brokers = [int(name) for name in ids if len(name) < 10]
        found = {}
        replies = await self._zk.get_many([statement_path(b) for b in brokers])
        for broker, reply in zip(brokers, replies, strict=True):
            said = None if reply is None else self._statement(broker, reply[0])
            if said is not None and said.removal is not None:
                found[broker] = said.removal
        return found

    async def get(self, broker_id: int) -> Removal | None:
        """Return why a broker's registration was removed, None if it was not."""
        found = await self._zk.get_data_and_stat(statement_path(broker_id))
        said = None if found is None else self._statement(broker_id, found[0])
        return None if said is None else said.removal

    async def withdraw_statement(self, broker_id: int, life: str = "") -> int:
        """State nothing but the life any more: this broker ends, its listeners are about to close.

        Only if this session registered it: another process may have the id. Return the zxid, 0 if
        nothing was written.
        """
        found = await self._zk.get_data_and_stat(znodes.broker_path(broker_id))
        if found is None or found[1].ephemeral_owner != self._zk.session.session_id:
            return 0
        data = encode_statement(Statement(life=life)) if life else b""
        written: Stat = await self._zk.write(Set(statement_path(broker_id), data))
        return written.mzxid

    async def _read(self, broker_id: int) -> _Found:
        paths = [
            znodes.CONTROLLER_EPOCH,
            znodes.broker_path(broker_id),
            statement_path(broker_id),
            znodes.CONTROLLER,
        ]
        return _Found(*await self._zk.get_many(paths))

    def _removal_of(
        self, broker: BrokerInfo, removal: Removal, found: _Found, *, any_broker: bool
    ) -> list[Op] | str:
        """Return what removes a registration, or why it stays."""
        registration, statement = found.registration, found.statement
        said = None if statement is None else self._statement(broker.id, statement[0])
        if said is not None and said.removal == removal:
            return DONE  # the reply was lost, the removal was not
        if registration is None or registration[1].czxid != broker.epoch:
            return OTHER_REGISTRATION
        if not self._is_probed(broker, registration[0]):
            return OTHER_ENDPOINTS
        delete = Delete(znodes.broker_path(broker.id), registration[1].version)
        if statement is not None and states_of(statement, broker.epoch):
            if said is None or not said.removable:
                return NOT_REMOVABLE
            reason = encode_statement(Statement(removal=removal, life=said.life))
            return [Set(statement_path(broker.id), reason, statement[1].version), delete]
        if not any_broker or (statement is not None and statement[1].mzxid > broker.epoch):
            return NOT_REMOVABLE  # the latter: one of ours that ends, see `withdraw_statement`
        return [delete]

    def _is_probed(self, broker: BrokerInfo, data: bytes) -> bool:
        """Return whether a registration has the endpoints that refused connections."""
        found = self._zk.decoded(znodes.decode_broker, broker.id, data)
        return found is not None and found.endpoints == broker.endpoints

    def _statement(self, broker_id: int, data: bytes) -> Statement | None:
        return self._zk.decoded(decode_statement, broker_id, data)
