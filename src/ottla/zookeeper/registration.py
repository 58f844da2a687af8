"""Registration: brokers, and what each of them states beside its registration.

Invariants: a broker's epoch is the czxid of its znode; an ephemeral znode is only believed to be
ours if its owner is our session, and only deleted if its owner is a former session of ours (R16).
Kafka: the `registerBroker` and `CheckedEphemeral` of `KafkaZkClient`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from ottla.model.cluster import BrokerInfo
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Access, Part
from ottla.zookeeper.errors import (
    ConnectionLossError,
    MalformedZnodeError,
    MultiError,
    NodeExistsError,
    NoNodeError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Create, Delete, Op, Set
from ottla.zookeeper.statements import (
    Standing,
    Statement,
    decode_statement,
    encode_statement,
    statement_path,
    states_of,
)
from ottla.zookeeper.watches import WatchCallback

log = logging.getLogger(__name__)


class Brokers(Part):
    """/brokers/ids; `previous_session_id` is the session this broker had before, if any."""

    def __init__(self, zk: Access, previous_session_id: int = 0) -> None:
        super().__init__(zk)
        self._previous_session_id = previous_session_id

    async def register(
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
        data = znodes.encode_broker(info, self._zk.session.world.clock.wall_ms())
        stated: list[Op] = []
        if logs_whole is not None:
            await self._zk.create_recursive(statement_path(info.id), b"", fail_if_exists=False)
            said = Statement(
                logs_whole=logs_whole,
                removable=removable,
                voids_eligible=True,
                life=life,
                zookeeper_went_back=zookeeper_went_back,
            )
            stated = [Set(statement_path(info.id), encode_statement(said), statement_version)]
        session, clock = self._zk.session, self._zk.session.world.clock
        patience_ms = session.timeout_ms * 1.25 + 1000 if wait_ms is None else wait_ms
        give_up_s = clock.monotonic() + patience_ms / 1000
        while True:
            try:
                results = await self._zk.session.multi(
                    [Create(path, None, ephemeral=True), Set(path, data, 0), *stated]
                )
                return self._registered(info, results[1].czxid)
            except ConnectionLossError:
                await self._zk.session.wait_connected()
                continue
            except MultiError as error:
                if not isinstance(error.error, NodeExistsError):
                    raise error.error from None
            found = await self._zk.get_data_and_stat(path)
            if found is None:
                continue
            owner = found[1].ephemeral_owner
            if owner == self._zk.session.session_id:
                if found[0] != data:
                    await self.update(info)
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
        await self._zk.create_recursive(path, b"", fail_if_exists=False)
        await self._zk.catch_up()
        stated, epoch = await self._zk.get_many([path, znodes.CONTROLLER_EPOCH])
        if stated is None:
            raise NoNodeError(path=path)
        statement = self._zk.decoded(decode_statement, broker_id, stated[0]) or Statement()
        controller_epoch = None
        if epoch is not None:
            with contextlib.suppress(MalformedZnodeError):
                controller_epoch = znodes.decode_controller_epoch(epoch[0])
        stat = stated[1]
        return Standing(
            statement,
            stat.mzxid if stated[0] else 0,
            stat.version,
            self._zk.session.last_zxid,
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
            await self._zk.write(Delete(path))

    async def _wait_until_gone(self, path: str, timeout_s: float) -> None:
        gone = asyncio.Event()
        if not await self._zk.path_exists(path, lambda _event: gone.set()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await gone.wait()

    async def update(self, info: BrokerInfo) -> None:
        data = znodes.encode_broker(info, self._zk.session.world.clock.wall_ms())
        await self._zk.write(Set(znodes.broker_path(info.id), data))
        log.info(
            "registration updated broker=%d endpoints=%s",
            info.id,
            ",".join(map(str, info.endpoints)),
        )

    async def get_ids(self, watch: WatchCallback | None = None) -> list[int]:
        ids = []
        for name in await self._zk.get_children(znodes.BROKER_IDS, watch):
            if name.isascii() and name.isdigit() and int(name) < 2**31:
                ids.append(int(name))
            else:
                path = f"{znodes.BROKER_IDS}/{name}"
                self._zk.ignore(MalformedZnodeError(path, "its name is no broker id"))
        return sorted(ids)

    async def get_all(self, watch: WatchCallback | None = None) -> list[BrokerInfo]:
        """Return all live brokers with their epochs, by id. `watch`: on the list of ids."""
        ids = await self.get_ids(watch)
        return [b for b in await self.get_many(ids) if b is not None]

    async def get_many(self, broker_ids: list[int]) -> list[BrokerInfo | None]:
        """Return these brokers; None where one is gone or its znode is malformed."""
        replies = await self._zk.get_many([znodes.broker_path(i) for i in broker_ids])
        return [self._broker(*found) for found in zip(broker_ids, replies, strict=True)]

    async def get(self, broker_id: int, watch: WatchCallback | None = None) -> BrokerInfo | None:
        found = await self._zk.get_data_and_stat(znodes.broker_path(broker_id), watch)
        return self._broker(broker_id, found)

    def _broker(self, broker_id: int, found: tuple[bytes, Stat] | None) -> BrokerInfo | None:
        return found and self._zk.decoded(znodes.decode_broker, broker_id, found[0], found[1].czxid)

    async def get_stated(self, brokers: Iterable[BrokerInfo]) -> tuple[set[int], set[int]]:
        """Return the brokers whose current registration states that they kept all logs.

        Then those that void records of eligible replicas before they acknowledge without them.
        """
        listed = list(brokers)
        replies = await self._zk.get_many([statement_path(b.id) for b in listed])
        clean, voiding = set(), set()
        for broker, reply in zip(listed, replies, strict=True):
            if reply is None or not states_of(reply, broker.epoch):
                continue
            said = self._zk.decoded(decode_statement, broker.id, reply[0])
            if said is not None and said.logs_whole:
                clean.add(broker.id)
            if said is not None and said.voids_eligible:
                voiding.add(broker.id)
        return clean, voiding

    async def is_stated(self, broker: BrokerInfo) -> bool:
        """Return whether a broker's registration has or had a statement: then it is one of ours.

        One that ends has withdrawn it (`withdraw_statement`), later than it registered.
        """
        found = await self._zk.get_data_and_stat(statement_path(broker.id))
        return found is not None and found[1].mzxid >= broker.epoch
