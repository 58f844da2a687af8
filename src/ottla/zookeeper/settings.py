"""Settings of entities, notifications, features and producer ids.

Invariants: a setting is only written while the same controller stands (check on /controller, so
that no migration is under way); notifications carry no facts, only where to read; the producer id
block and the features are written by compare-and-swap. Kafka: the config, notification and feature
parts of `KafkaZkClient`.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.model.errors import ControllerMovedError
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION
from ottla.zookeeper.errors import (
    MalformedZnodeError,
    MultiError,
    NodeExistsError,
    NoNodeError,
)
from ottla.zookeeper.operations import Check, Op, Set
from ottla.zookeeper.topics import Topics
from ottla.zookeeper.watches import WatchCallback
from ottla.zookeeper.znodes import Features, ProducerIdBlock


class Settings(Topics):
    """See the module."""

    # --- entities ---------------------------------------------------------------------------

    async def get_entity_configs(self, entity_type: str, name: str) -> dict[str, str]:
        """Return an entity's settings; `name` is sanitized, or `user/clients/client`."""
        return (await self.get_entities_configs(entity_type, [name]))[name]

    async def get_entities_configs(
        self, entity_type: str, names: Sequence[str]
    ) -> dict[str, dict[str, str]]:
        """Return each entity's settings: none where it is absent or malformed (reported)."""
        paths = [znodes.config_path(entity_type, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for name, path, reply in zip(names, paths, await self.get_many(paths), strict=True):
            found[name] = {}
            try:
                if reply is not None:
                    found[name] = znodes.decode_config(path, reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
        return found

    async def get_all_entities_with_config(self, entity_type: str) -> list[str]:
        return await self.get_children(f"{znodes.CONFIG}/{entity_type}")

    async def set_or_create_entity_configs(
        self, entity_type: str, name: str, config: Mapping[str, str]
    ) -> None:
        """Replace an entity's settings; ControllerMovedError without a (same) controller."""
        controller = await self.get_data_and_stat(znodes.CONTROLLER)
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
                await self.create_recursive(path, data)
            except NodeExistsError:
                await self._set_under(registration.zk_version, path, data)

    async def set_or_create_first_entity_configs(
        self, entity_type: str, name: str, config: Mapping[str, str]
    ) -> None:
        """Do so, also while there is no controller: before the brokers of a cluster start."""
        if await self.path_exists(znodes.CONTROLLER):
            await self.set_or_create_entity_configs(entity_type, name, config)
            return
        path, data = znodes.config_path(entity_type, name), znodes.encode_config(config)
        if not await self.create_recursive(path, data, fail_if_exists=False):
            await self.write(Set(path, data))

    async def drop_entity_configs(self, entity_type: str, name: str) -> bool:
        """Delete an entity without settings, and its parents if nothing else is in them.

        False if others live below it: then it stays. Kafka: `AdminZkClient.tryCleanQuotaNodes`.
        """
        path = znodes.config_path(entity_type, name)
        if await self.get_children(path):
            return False
        user, _, client = name.partition("/clients/")
        if client:
            clients = znodes.config_path(entity_type, f"{user}/clients")
            if await self.get_children(clients) == [client]:
                await self.delete_paths([path])
                path = clients
                owner = znodes.config_path(entity_type, user)
                alone = await self.get_children(owner) == ["clients"]
                if alone and not await self.get_entity_configs(entity_type, user):
                    await self.delete_paths([path])
                    path = owner
        await self.delete_paths([path])
        return True

    async def _set_under(self, controller_zk_version: int, path: str, data: bytes) -> None:
        ops: list[Op] = [Check(znodes.CONTROLLER, controller_zk_version), Set(path, data)]
        try:
            await self.read(lambda: self.session.multi(ops))
        except MultiError as error:
            if error.index == 0:
                raise ControllerMovedError("the controller changed during the write") from None
            raise error.error from None

    async def create_config_change_notification(self, entity_path: str) -> str:
        """Tell every broker that `topics/T`, `brokers/1`, ... has new settings."""
        data = znodes.encode_config_change(entity_path)
        return await self._notify(znodes.CONFIG_CHANGES, znodes.CONFIG_CHANGE_PREFIX, data)

    async def get_all_config_change_notifications(
        self, watch: WatchCallback | None = None
    ) -> list[str]:
        """Return the notifications' names in order. `watch`: on the list."""
        return await self.get_children(znodes.CONFIG_CHANGES, watch)

    async def get_config_changes(self, names: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return (name, entity path, ctime in ms) of those that can be read, in order."""
        replies = await self.get_many([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])
        found = []
        for name, reply in zip(names, replies, strict=True):
            if reply is None:
                continue
            try:
                path = znodes.decode_config_change(name, reply[0])
                found.append((name, path, reply[1].ctime))
            except MalformedZnodeError as error:
                self.ignore(error)
        return found

    async def delete_config_change_notifications(self, names: Iterable[str]) -> None:
        await self.delete_paths([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])

    async def _notify(self, parent: str, prefix: str, data: bytes) -> str:
        try:
            return await self.create_sequential(f"{parent}/{prefix}", data)
        except NoNodeError:
            await self.create_recursive(parent, None, fail_if_exists=False)
            return await self.create_sequential(f"{parent}/{prefix}", data)

    # --- notifications to the controller ----------------------------------------------------

    async def propagate_isr_changes(self, partitions: Iterable[TopicPartition]) -> str:
        data = znodes.encode_isr_change(partitions)
        return await self._notify(znodes.ISR_CHANGES, znodes.ISR_CHANGE_PREFIX, data)

    async def get_all_isr_change_notifications(
        self, watch: WatchCallback | None = None
    ) -> list[str]:
        """Return the notifications' names in order. `watch`: on the list."""
        return await self.get_children(znodes.ISR_CHANGES, watch)

    async def get_partitions_from_isr_change_notifications(
        self, names: Sequence[str]
    ) -> list[TopicPartition]:
        replies = await self.get_many([f"{znodes.ISR_CHANGES}/{name}" for name in names])
        found: list[TopicPartition] = []
        for name, reply in zip(names, replies, strict=True):
            try:
                found += znodes.decode_isr_change(name, reply[0]) if reply else []
            except MalformedZnodeError as error:
                self.ignore(error)
        return list(dict.fromkeys(found))

    async def delete_isr_change_notifications(
        self, expected_controller_epoch_zk_version: int, names: Sequence[str] | None = None
    ) -> None:
        """Delete these notifications, or all."""
        if names is None:
            names = await self.get_children(znodes.ISR_CHANGES)
        paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)

    async def propagate_log_dir_event(self, broker_id: int) -> str:
        data = znodes.encode_log_dir_event(broker_id)
        return await self._notify(znodes.LOG_DIR_EVENTS, znodes.LOG_DIR_EVENT_PREFIX, data)

    async def get_all_log_dir_event_notifications(
        self, watch: WatchCallback | None = None
    ) -> list[str]:
        """Return the notifications' names in order. `watch`: on the list."""
        return await self.get_children(znodes.LOG_DIR_EVENTS, watch)

    async def get_broker_ids_from_log_dir_events(self, names: Sequence[str]) -> list[int]:
        replies = await self.get_many([f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names])
        found: list[int] = []
        for name, reply in zip(names, replies, strict=True):
            try:
                if reply:
                    found.append(znodes.decode_log_dir_event(name, reply[0]))
            except MalformedZnodeError as error:
                self.ignore(error)
        return sorted(set(found))

    async def delete_log_dir_event_notifications(
        self, expected_controller_epoch_zk_version: int, names: Sequence[str] | None = None
    ) -> None:
        """Delete these notifications, or all."""
        if names is None:
            names = await self.get_children(znodes.LOG_DIR_EVENTS)
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)

    # --- features and producer ids ----------------------------------------------------------

    async def get_feature(self, watch: WatchCallback | None = None) -> tuple[Features, int] | None:
        """Return (features, version of the znode). `watch`: on creation, data and deletion."""
        if watch is not None:
            await self.path_exists(znodes.FEATURE, watch)
        found = await self.get_data_and_stat(znodes.FEATURE)
        return None if found is None else (znodes.decode_features(found[0]), found[1].version)

    async def get_or_create_feature(self, initial: Features) -> tuple[Features, int]:
        """Return what /feature holds, creating it with `initial` if there is none."""
        while (found := await self.get_feature()) is None:
            data = znodes.encode_features(initial)
            await self.create_recursive(znodes.FEATURE, data, fail_if_exists=False)
        return found

    async def update_feature(self, features: Features, expected_version: int = ANY_VERSION) -> int:
        """Replace /feature and return its new version; BadVersionError."""
        op = Set(znodes.FEATURE, znodes.encode_features(features), expected_version)
        stat = await self.write(op)
        version: int = stat.version
        return version

    async def allocate_producer_ids(self, broker_id: int, size: int = 1000) -> ProducerIdBlock:
        """Take the next block of producer ids for a broker; safe against a lost reply."""
        while True:
            data, version = await self.get_data_and_version(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_id_block(data).last + 1 if data else 0
            block = ProducerIdBlock(broker_id, first, first + size - 1)
            new = znodes.encode_producer_id_block(block)
            if data is None:
                await self.create_recursive(znodes.PRODUCER_ID_BLOCK, None, fail_if_exists=False)
            elif (await self.conditional_update(znodes.PRODUCER_ID_BLOCK, new, version))[0]:
                return block

    # --- offsets of the time before groups ----------------------------------------------------

    async def get_consumer_offset(self, group: str, tp: TopicPartition) -> int | None:
        """Return what OffsetCommit 0 wrote; None if there is nothing, or nothing readable."""
        path = znodes.consumer_offset_path(group, tp)
        found = await self.get_data_and_stat(path)
        if found is None:
            return None
        try:
            return int(found[0])
        except ValueError:
            self.ignore(MalformedZnodeError(path, "no number"))
            return None

    async def set_or_create_consumer_offset(
        self, group: str, tp: TopicPartition, offset: int
    ) -> None:
        """Write an offset as OffsetCommit 0 wants it; the last writer wins."""
        path = znodes.consumer_offset_path(group, tp)
        data = str(offset).encode()
        try:
            await self.write(Set(path, data))
        except NoNodeError:
            if not await self.create_recursive(path, data, fail_if_exists=False):
                await self.write(Set(path, data))
