"""Settings of entities: topics, brokers, users, clients and addresses.

Invariant: a setting is only written while the same controller stands (check on /controller, so that
no migration is under way). Kafka: the config part of `KafkaZkClient`.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from ottla.model.errors import ControllerMovedError
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Access, Part
from ottla.zookeeper.errors import (
    MalformedZnodeError,
    MultiError,
    NodeExistsError,
    NoNodeError,
)
from ottla.zookeeper.notifications import Notifications
from ottla.zookeeper.operations import Check, Op, Set


class Configs(Part):
    """/config, by kind and name of an entity; names are sanitized."""

    def __init__(self, zk: Access) -> None:
        super().__init__(zk)
        self.changes = Notifications(
            zk,
            znodes.CONFIG_CHANGES,
            znodes.CONFIG_CHANGE_PREFIX,
            znodes.encode_config_change,
            znodes.decode_config_change,
        )
        """Each names an entity, such as `topics/T` or `brokers/1`, that has new settings."""

    async def get(self, entity_type: str, name: str) -> dict[str, str]:
        """Return an entity's settings; `name` is sanitized, or `user/clients/client`."""
        return (await self.get_many(entity_type, [name]))[name]

    async def get_many(self, entity_type: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return each entity's settings: none where it is absent or malformed (reported)."""
        paths = [znodes.config_path(entity_type, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for name, path, reply in zip(names, paths, await self._zk.get_many(paths), strict=True):
            config = reply and self._zk.decoded(znodes.decode_config, path, reply[0])
            found[name] = config or {}
        return found

    async def get_names(self, entity_type: str) -> list[str]:
        return await self._zk.get_children(f"{znodes.CONFIG}/{entity_type}")

    async def set(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Replace an entity's settings; ControllerMovedError without a (same) controller."""
        controller = await self._zk.get_data_and_stat(znodes.CONTROLLER)
        if controller is None:
            raise ControllerMovedError(f"cannot set {entity_type} {name}: there is no controller")
        registration = znodes.decode_controller(controller[0], controller[1].version)
        if registration.kraft_epoch > 0:
            raise ControllerMovedError(f"cannot set {entity_type} {name}: KRaft is in control")
        path = znodes.config_path(entity_type, name)
        data = znodes.encode_config(config)
        try:
            await self._set_under(registration.zk_version, path, data)
        except NoNodeError:
            try:
                await self._zk.create_recursive(path, data)
            except NodeExistsError:
                await self._set_under(registration.zk_version, path, data)

    async def set_first(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        """Do so, also while there is no controller: before the brokers of a cluster start."""
        if await self._zk.path_exists(znodes.CONTROLLER):
            await self.set(entity_type, name, config)
            return
        path, data = znodes.config_path(entity_type, name), znodes.encode_config(config)
        await self._zk.set_or_create(path, data)

    async def drop(self, entity_type: str, name: str) -> bool:
        """Delete an entity without settings, and its parents if nothing else is in them.

        False if others live below it: then it stays. Kafka: `AdminZkClient.tryCleanQuotaNodes`.
        """
        path = znodes.config_path(entity_type, name)
        if await self._zk.get_children(path):
            return False
        user, _, client = name.partition("/clients/")
        if client:
            clients = znodes.config_path(entity_type, f"{user}/clients")
            if await self._zk.get_children(clients) == [client]:
                await self._zk.delete_paths([path])
                path = clients
                owner = znodes.config_path(entity_type, user)
                alone = await self._zk.get_children(owner) == ["clients"]
                if alone and not await self.get(entity_type, user):
                    await self._zk.delete_paths([path])
                    path = owner
        await self._zk.delete_paths([path])
        return True

    async def _set_under(self, controller_zk_version: int, path: str, data: bytes) -> None:
        ops: list[Op] = [Check(znodes.CONTROLLER, controller_zk_version), Set(path, data)]
        try:
            await self._zk.read(lambda: self._zk.session.multi(ops))
        except MultiError as error:
            if error.index == 0:
                raise ControllerMovedError("the controller changed during the write") from None
            raise error.error from None

    async def get_min_isr(self, topics: Sequence[str], default: int) -> dict[str, int]:
        """Return min.insync.replicas of each topic: its own, where it has a valid one."""
        paths = [znodes.config_path("topics", topic) for topic in topics]
        found = dict.fromkeys(topics, default)
        for topic, path, reply in zip(topics, paths, await self._zk.get_many(paths), strict=True):
            with contextlib.suppress(MalformedZnodeError, ValueError):
                if reply is not None:
                    text = znodes.decode_config(path, reply[0]).get("min.insync.replicas", "")
                    found[topic] = int(text or default)
        return found

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete the settings of topics; those that are gone already are fine."""
        await self._zk.delete_paths([znodes.config_path("topics", topic) for topic in topics])
