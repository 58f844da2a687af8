"""What an operator asks of ACLs: created, described by each kind of filter, deleted; and mistakes.

In this order, version by version: what a row creates others find.
"""

from collections.abc import Iterator
from typing import Any

ANY, ALL, READ, WRITE, DESCRIBE = 1, 2, 3, 4, 8
TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3

Row = tuple[int, str, dict[str, Any]]
"""api key, name, request"""


def acl(version: int, name: str = "acl-a", **more: Any) -> dict[str, Any]:
    found = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:x",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **more,
    }
    if version == 0:
        del found["resource_pattern_type"]
    return found


def selecting(version: int, **more: Any) -> dict[str, Any]:
    found = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "acl-a",
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **more,
    }
    if version == 0:
        del found["pattern_type_filter"]
    return found


def rows(version: int) -> Iterator[Row]:
    def create(name: str, *acls: dict[str, Any]) -> Row:
        return 30, name, {"creations": list(acls)}

    def describe(name: str, **more: Any) -> Row:
        return 29, name, selecting(version, **more)

    def delete(name: str, *filters: dict[str, Any]) -> Row:
        return 31, name, {"filters": list(filters)}

    yield create("none")
    yield create("one", acl(version))
    yield create("the same again, twice", acl(version), acl(version))
    denied = acl(version, principal="User:y", permission_type=DENY)
    at_one_host = acl(version, host="10.0.0.1")
    yield create("several of one name", acl(version, operation=WRITE), at_one_host, denied)
    if version:
        yield create("by prefix", acl(version, "acl-", resource_pattern_type=PREFIXED),
                     acl(version, "acl-ab", resource_pattern_type=PREFIXED))  # fmt: skip
    yield create("of a group and of a user", acl(version, "acl-g", resource_type=GROUP),
                 acl(version, "User:z", resource_type=USER, operation=13))  # fmt: skip
    yield create("of the cluster", acl(version, "kafka-cluster", resource_type=CLUSTER))
    yield create("of another cluster", acl(version, "mine", resource_type=CLUSTER))
    yield create("without a name", acl(version, ""))
    yield create("with a slash", acl(version, "a/b"), acl(version, "acl-beside"))
    yield create("an operation that its type does not know", acl(version, operation=9))
    yield create("of no principal", acl(version, "acl-no", principal="x"))
    yield create("of no principal, and another of the name", acl(version, "acl-no", principal="x"),
                 acl(version, "acl-no"), acl(version, "acl-yes"))  # fmt: skip
    yield create("of a principal without a name", acl(version, principal="User:"))
    yield create("of a strange principal", acl(version, principal="Group:a:b"))
    yield create("of an empty host", acl(version, host=""))
    for field in ("resource_type", "operation", "permission_type"):
        for number in (ANY, 0, 99, -1):
            yield create(f"{field} {number}", acl(version, **{field: number}))
    if version:
        for number in (0, 1, 2, 9):
            yield create(f"pattern {number}", acl(version, resource_pattern_type=number))
    yield describe("one name")
    yield describe("another name", resource_name_filter="acl-none")
    yield describe("every name", resource_name_filter=None, principal_filter="User:x")
    yield describe("of a principal", principal_filter="User:y")
    yield describe("of a host", host_filter="10.0.0.1")
    yield describe("of a host *", host_filter="*")
    yield describe("of an operation", operation=WRITE)
    yield describe("of all operations", operation=ALL)
    yield describe("of a permission", permission_type=DENY)
    yield describe("of every type", resource_type_filter=ANY)
    yield describe("of everything of a principal", resource_type_filter=ANY,
                   resource_name_filter=None, principal_filter="User:x")  # fmt: skip
    if version:
        for number in (ANY, MATCH, LITERAL, PREFIXED, 0, 9):
            yield describe(f"pattern {number}", pattern_type_filter=number)
            yield describe(f"pattern {number}, every name", pattern_type_filter=number,
                           resource_name_filter=None, principal_filter="User:x")  # fmt: skip
        yield describe("what covers a name", pattern_type_filter=MATCH,
                       resource_name_filter="acl-abc", principal_filter="User:x")  # fmt: skip
    for field in ("resource_type_filter", "operation", "permission_type"):
        for number in (0, 99, -1):
            yield describe(f"{field} {number}", **{field: number})
    yield delete("none")
    yield delete("nothing there", selecting(version, resource_name_filter="acl-none"))
    for number in (0, 99):
        yield delete(f"operation {number}", selecting(version, operation=number))
        yield delete(f"type {number}", selecting(version, resource_type_filter=number))
    if version:
        yield delete("pattern 9", selecting(version, pattern_type_filter=9))
    yield delete("two filters for one", selecting(version, host_filter="10.0.0.1"),
                 selecting(version, operation=READ, principal_filter="User:x"))  # fmt: skip
    if version:
        covering = {"pattern_type_filter": MATCH, "resource_name_filter": "acl-abc"}
        yield delete("by match", selecting(version, principal_filter="User:x", **covering))
        yield delete("of any pattern", selecting(version, pattern_type_filter=ANY))
    yield describe("what is left", resource_name_filter=None, principal_filter="User:x")
    every = selecting(version, resource_type_filter=ANY, resource_name_filter=None,
                      **({"pattern_type_filter": ANY} if version else {}))  # fmt: skip
    for who in ("User:x", "User:y", "User:", "Group:a:b"):
        yield delete(f"everything of {who}", every | {"principal_filter": who})
    yield describe("nothing is left", resource_name_filter=None, principal_filter="User:x")
