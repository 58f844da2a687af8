"""Topic settings: loaded, changed by notification, survivors of bad values and lost sessions."""

import asyncio
import random
from types import SimpleNamespace

from ottla.broker.configs.topic_configs import TopicConfigs
from ottla.broker.notifications import PURGE_AFTER_MS
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig
from ottla.zookeeper.errors import SessionExpiredError
from ottla.zookeeper.notifications import Notification

NOW_MS = 10_000_000


class FakeStore:
    """Settings and notifications as ZooKeeper would keep them, with the one-shot watch."""

    def __init__(self, **topics):
        self.topics = {k: dict(v) for k, v in topics.items()}
        self.pending = {}
        self.configs = self.changes = self
        self.parent = "/config/changes"
        self.watch = None
        self.next = 0
        self.dead = False
        self.deleted = []
        self.names_read = []

    def notify(self, path, ctime_ms=NOW_MS):
        self.pending[f"config_change_{self.next:010d}"] = (path, ctime_ms)
        self.next += 1
        watch, self.watch = self.watch, None
        if watch is not None:
            watch(None)

    async def get_names(self, kind):
        assert kind == "topics"
        return sorted(self.topics)

    async def get_many(self, kind, names):
        return {n: await self.get(kind, n) for n in names}

    async def get(self, kind, name):
        if self.dead:
            raise SessionExpiredError
        return dict(self.topics.get(name, {}))

    async def names(self, watch):
        self.watch = watch
        return sorted(self.pending)

    async def read(self, names):
        self.names_read += names
        return [Notification(n, *self.pending[n]) for n in names if n in self.pending]

    async def delete(self, names):
        self.deleted += names
        for name in names:
            self.pending.pop(name, None)


def scene():
    config = BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1"})
    clock = SimpleNamespace(wall_ms=lambda: NOW_MS, monotonic=lambda: 0.0, slice_s=0.008)
    world = SimpleNamespace(clock=clock, random=random.Random(1))
    told = []
    configs = TopicConfigs(
        world, config, Tasks(), lambda topic, config: told.append((topic, dict(config.overrides)))
    )
    return configs, told


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def test_loaded_and_defaulted():
    async def go():
        configs, told = scene()
        await configs.load(FakeStore(a={"retention.ms": "5"}, b={}))
        assert configs.get("a").retention_ms == 5
        assert configs.get("b") is configs.get("never heard of")
        assert told == [("a", {"retention.ms": "5"})]

    asyncio.run(go())


def test_a_notification_makes_the_topic_read_again():
    async def go():
        configs, told = scene()
        store = FakeStore(a={})
        await configs.load(store)
        await configs.watch()
        store.topics["a"] = {"segment.bytes": "1000"}
        store.notify("topics/a")
        await settle()
        store.topics["a"] = {}
        store.notify("topics/a")
        await settle()
        assert told == [("a", {"segment.bytes": "1000"}), ("a", {})]
        assert configs.get("a").segment_bytes == 1073741824

    asyncio.run(go())


def test_two_changes_at_once_are_not_missed():
    async def go():
        configs, told = scene()
        store = FakeStore(a={}, b={})
        await configs.load(store)
        await configs.watch()
        store.topics["a"] = {"retention.ms": "1"}
        store.notify("topics/a")
        store.topics["b"] = {"retention.ms": "2"}
        store.notify("topics/b")
        await settle()
        assert told == [("a", {"retention.ms": "1"}), ("b", {"retention.ms": "2"})]

    asyncio.run(go())


def test_old_notifications_are_cleared_away_and_others_entities_left_alone():
    async def go():
        configs, _ = scene()
        store = FakeStore()
        store.notify("clients/c", NOW_MS - PURGE_AFTER_MS - 1)
        store.notify("users/u")
        await configs.load(store)
        await configs.watch()
        assert store.deleted == ["config_change_0000000000"]
        assert list(store.pending) == ["config_change_0000000001"]

    asyncio.run(go())


def test_a_notification_that_cannot_be_read_is_read_once_and_cleared_away_with_the_others():
    async def go():
        configs, told = scene()
        store = FakeStore(a={})
        store.notify(None)
        await configs.load(store)
        await configs.watch()
        store.topics["a"] = {"segment.bytes": "1000"}
        store.notify("topics/a")
        await settle()
        assert told == [("a", {"segment.bytes": "1000"})]
        assert store.names_read == ["config_change_0000000000", "config_change_0000000001"]
        store.pending["config_change_0000000000"] = (None, NOW_MS - PURGE_AFTER_MS - 1)
        await configs.load(store)
        await configs.watch()
        assert store.deleted == ["config_change_0000000000"]

    asyncio.run(go())


def test_each_notification_is_read_once_however_many_there_are():
    async def go():
        configs, told = scene()
        store, read = FakeStore(a={}), []
        changes = store.read

        async def counted(names):
            read.append(len(names))
            return await changes(names)

        store.read = counted
        await configs.load(store)
        await configs.watch()
        for number in range(20):
            store.topics["a"] = {"retention.ms": str(number)}
            store.notify("topics/a")
            await settle()
        assert len(told) == 20
        assert sum(read) == 20, "or each change costs as much as there were changes before"

    asyncio.run(go())


def test_a_bad_value_costs_only_itself(caplog):
    async def go():
        configs, _ = scene()
        await configs.load(FakeStore(a={"retention.ms": "soon", "segment.bytes": "1000", "x": "1"}))
        assert configs.get("a").segment_bytes == 1000
        assert configs.get("a").retention_ms == 604800000

    asyncio.run(go())
    assert "retention.ms" in caplog.text


def test_a_new_session_forgets_topics_that_are_gone():
    async def go():
        configs, told = scene()
        await configs.load(FakeStore(a={"retention.ms": "1"}, b={"retention.ms": "2"}))
        configs.stop()
        await configs.load(FakeStore(b={"retention.ms": "3"}))
        assert configs.get("a").retention_ms == 604800000
        assert told[-2:] == [("b", {"retention.ms": "3"}), ("a", {})]

    asyncio.run(go())


def test_a_session_that_ends_meanwhile_is_no_error(caplog):
    async def go():
        configs, told = scene()
        store = FakeStore(a={})
        await configs.load(store)
        await configs.watch()
        store.dead = True
        store.notify("topics/a")
        await settle()
        assert told == []
        old_watch = store.watch
        configs.stop()
        if old_watch is not None:
            old_watch(None)
        await settle()

    asyncio.run(go())
    assert "failed" not in caplog.text


def test_a_topic_made_anew_is_read_anew_without_a_notification():
    async def go():
        configs, told = scene()
        store = FakeStore(a={"min.insync.replicas": "2"})
        await configs.load(store)
        store.topics = {"a": {}, "b": {"min.insync.replicas": "3"}}
        await configs.refresh(["a", "b"])
        assert configs.get("a").min_insync_replicas == 1
        assert configs.get("b").min_insync_replicas == 3
        store.dead = True
        await configs.refresh(["b"])
        configs.stop()
        await configs.refresh(["b"])
        assert configs.get("b").min_insync_replicas == 3
        assert told[-1] == ("b", {"min.insync.replicas": "3"})

    asyncio.run(go())
