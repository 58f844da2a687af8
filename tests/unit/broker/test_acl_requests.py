"""DeleteAcls: each of many filters takes what it is the first to select; others run meanwhile."""

import asyncio
import random
import time
from types import SimpleNamespace

import pytest

from ottla.broker.requests.security.acls import delete
from ottla.security.acls import Acl, AclFilter, Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.wire.codec import decode_response
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.messages.security import DeleteAclsRequest

VERSION = 3
LONGEST_TURN_S = 0.05


class Cache:
    """The ACLs of a broker, without ZooKeeper."""

    def __init__(self):
        self.authorizer = AclAuthorizer()

    async def change(self, _store, pattern, new):
        self.authorizer.set(pattern, await new(self.authorizer.entries(pattern)))


def filters_request(filters):
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=f.resource_type,
                resource_name_filter=f.name,
                pattern_type_filter=f.pattern_type,
                principal_filter=f.principal,
                host_filter=f.host,
                operation=f.operation,
                permission_type=f.permission,
            )
            for f in filters
        ]
    )


async def deleted(cache, filters):
    """Return the ACLs that each filter deleted."""
    clock = SimpleNamespace(monotonic=time.monotonic, slice_s=0.008)
    server = SimpleNamespace(
        acl_cache=cache,
        session=SimpleNamespace(store=SimpleNamespace(acls=None)),
        world=SimpleNamespace(clock=clock),
    )
    header = RequestHeader(31, VERSION, 1, "c")
    parts = await delete(server, None, header, filters_request(filters))
    whole = memoryview(b"".join(parts))
    response = decode_response(31, VERSION, whole, decode_response_header(31, VERSION, whole)[1])
    return [
        {
            Acl(
                Pattern(a.resource_type, a.resource_name, a.pattern_type),
                Entry(a.principal, a.host, a.operation, a.permission_type),
            )
            for a in result.matching_acls
        }
        for result in response.filter_results
    ]


@pytest.mark.parametrize("seed", range(20))
def test_each_filter_deletes_what_it_is_the_first_to_select(seed):
    rng = random.Random(seed)
    cache = Cache()
    for _ in range(40):
        pattern = Pattern(rng.choice((2, 3)), rng.choice("abc*"), rng.choice((3, 4)))
        entries = [Entry(f"User:{rng.choice('xyz')}", "*", 3, 3) for _ in range(3)]
        cache.authorizer.set(pattern, entries)
    all_acls = set(cache.authorizer.acls())
    filters = [
        AclFilter(
            rng.choice((1, 2, 3)), rng.choice((None, "a", "b", "*")), rng.choice((1, 2, 3, 4)),
            rng.choice((None, "User:x", "User:y")),
        )
        for _ in range(6)
    ]  # fmt: skip
    wanted = [set() for _ in filters]
    for acl in all_acls:
        first = next((n for n, f in enumerate(filters) if f.matches(acl)), None)
        if first is not None:
            wanted[first].add(acl)
    assert asyncio.run(deleted(cache, filters)) == wanted
    assert set(cache.authorizer.acls()) == all_acls - set().union(*wanted)


def test_many_filters_over_many_acls_let_others_run():
    async def main():
        cache = Cache()
        for n in range(300):
            cache.authorizer.set(Pattern(2, f"t{n}"), [Entry("User:a", "*", 3, 3)])
        filters = [AclFilter(2, None, 1, f"User:u{n}") for n in range(1000)]
        work = asyncio.ensure_future(deleted(cache, filters))
        longest = 0.0
        while not work.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
        assert work.result() == [set()] * len(filters)
        return longest

    assert any(asyncio.run(main()) < LONGEST_TURN_S for _ in range(3))
