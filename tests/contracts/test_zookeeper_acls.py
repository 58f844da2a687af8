"""ACLs in ZooKeeper and on brokers: compare-and-set, notifications, what cannot be read."""

import asyncio
import json
import logging

import pytest

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.tasks import Tasks
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net import runtime
from ottla.security.acls import ALLOW, DENY, LITERAL, PREFIXED, READ, TOPIC, WRITE, Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.store import UNKNOWN_VERSION, Store

ALICE = Principal("User", "alice")
ORDERS = Pattern(TOPIC, "orders")
PREFIX = Pattern(TOPIC, "ord", PREFIXED)
MAY_READ = Entry("User:alice", "*", READ, ALLOW)
MAY_NOT = Entry("User:alice", "10.0.0.9", READ, DENY)


def becomes(new):
    """Return a change of entries as the cache takes it: one that may let others run."""

    async def change(known):
        return new(known)

    return change


class Side:
    """One broker's cache with a session of its own."""

    def __init__(self):
        self.tasks = Tasks()
        self.authorizer = AclAuthorizer()
        self.cache = AclCache(runtime.real_world(OsFiles()), self.tasks, self.authorizer)

    async def start(self, z):
        self.store = Store(await z.session())
        await self.cache.load(self.store.acls)
        return self

    def may_read(self, host="10.0.0.1"):
        return self.authorizer.allows(ALICE, host, READ, TOPIC, "orders")

    async def until(self, expected, host="10.0.0.1"):
        async with asyncio.timeout(20):
            while self.may_read(host) is not expected:
                await asyncio.sleep(0.01)


def test_a_change_at_one_broker_is_obeyed_by_all_and_read_by_those_that_come(play):
    async def scenario(z):
        one, other = await Side().start(z), await Side().start(z)
        await one.cache.change(one.store.acls, ORDERS, becomes(lambda known: known | {MAY_READ}))
        assert one.may_read(), "the broker that changed it obeys at once"
        await other.until(True)
        await other.cache.change(other.store.acls, ORDERS, becomes(lambda known: known | {MAY_NOT}))
        await one.until(False, "10.0.0.9")
        assert one.may_read()
        await one.cache.change(one.store.acls, PREFIX, becomes(lambda known: known | {MAY_READ}))
        await one.cache.change(one.store.acls, ORDERS, becomes(lambda known: frozenset()))
        await other.until(True, "10.0.0.9")
        assert (await one.store.acls.get(ORDERS)).version == UNKNOWN_VERSION, (
            "the znode of none is gone"
        )
        late = await Side().start(z)
        assert sorted(late.authorizer.acls()) == sorted(one.authorizer.acls())
        assert late.may_read("10.0.0.9")
        raw = await one.store.zk.get_data_and_stat("/kafka-acl-extended/prefixed/Topic/ord")
        assert json.loads(raw[0]) == {
            "version": 1,
            "acls": [
                {
                    "principal": "User:alice",
                    "permissionType": "Allow",
                    "operation": "Read",
                    "host": "*",
                }
            ],
        }
        for side in (one, other, late):
            side.cache.stop()
            await side.tasks.close()

    play(scenario)


def test_two_brokers_that_change_the_same_lose_neither_change(play):
    async def scenario(z):
        sides = [await Side().start(z) for _ in range(3)]

        async def add(side, number):
            entry = Entry(f"User:u{number}", "*", WRITE, ALLOW)
            await side.cache.change(side.store.acls, ORDERS, becomes(lambda known: known | {entry}))

        await asyncio.gather(*(add(side, n) for n, side in enumerate(sides)))
        found = await sides[0].store.acls.get(ORDERS)
        assert {e.principal for e in found.entries} == {"User:u0", "User:u1", "User:u2"}
        for side in sides:
            await side.tasks.close()

    play(scenario)


def test_a_write_at_another_version_changes_nothing(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.acls.create_paths()
        assert await store.acls.set(ORDERS, {MAY_READ}, UNKNOWN_VERSION)
        assert not await store.acls.set(ORDERS, {MAY_NOT}, UNKNOWN_VERSION), "it is there already"
        assert not await store.acls.set(ORDERS, {MAY_NOT}, 7)
        assert not await store.acls.set(ORDERS, (), 7)
        assert (await store.acls.get(ORDERS)) == (frozenset({MAY_READ}), 0)
        assert await store.acls.set(ORDERS, {MAY_NOT}, 0)
        assert await store.acls.set(ORDERS, (), 1)
        assert await store.acls.set(ORDERS, (), UNKNOWN_VERSION), "nothing is left to delete"

    play(scenario)


def test_what_cannot_be_read_ends_a_start_and_changes_nothing_later(play, caplog):
    """It might deny something: passing over it would open what was closed."""

    async def scenario(z):
        side = await Side().start(z)
        await side.cache.change(side.store.acls, ORDERS, becomes(lambda known: known | {MAY_READ}))
        await side.store.zk.write(Set("/kafka-acl/Topic/orders", b'{"version":1,"acls":'))
        with caplog.at_level(logging.ERROR):
            await side.store.acls.notify(ORDERS)
            async with asyncio.timeout(20):
                while "malformed acls" not in caplog.text:
                    await asyncio.sleep(0.01)
        assert side.may_read(), "the former ones stay in force"
        with pytest.raises(MalformedZnodeError):
            await Side().start(z)
        with pytest.raises(OttlaError):
            await side.cache.change(side.store.acls, ORDERS, becomes(lambda known: known))
        # A notification that says nothing hides none that follow.
        await side.store.zk.write(Create("/kafka-acl-changes/acl_changes_0000000998", b"nonsense"))
        await side.store.zk.write(Set("/kafka-acl/Topic/orders", b'{"version":1,"acls":[]}'))
        await side.store.zk.write(
            Create("/kafka-acl-changes/acl_changes_0000000999", b"TOPIC:orders")
        )
        await side.until(False)
        await side.tasks.close()

    play(scenario)


def test_the_patterns_of_both_kinds_are_told_apart(play):
    async def scenario(z):
        store = Store(await z.session())
        await store.acls.create_paths()
        same_name = Pattern(TOPIC, "ord", LITERAL)
        assert await store.acls.set(PREFIX, {MAY_READ}, UNKNOWN_VERSION)
        assert await store.acls.set(same_name, {MAY_NOT}, UNKNOWN_VERSION)
        found = await store.acls.get_all()
        assert found == {PREFIX: {MAY_READ}, same_name: {MAY_NOT}}

    play(scenario)
