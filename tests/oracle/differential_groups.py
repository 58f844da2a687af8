"""Scenarios of consumer groups: coordinators, offsets, members that are unknown, one that joins."""

# ruff: noqa: E501 - a row of a table is a line

from collections.abc import Iterator
from typing import Any

from differential_tables import Request, Scenario

EMPTY, LONG = "", "g" * 300


def coordinators() -> Iterator[Scenario]:
    for kind in (0, 1, 2, 3, -1):
        yield Scenario(10, f"of kind {kind}", {"key": "a", "key_type": kind}, 1, 3)
        yield Scenario(10, f"of kind {kind}", {"coordinator_keys": ["a", "b"], "key_type": kind}, 4)
    yield Scenario(10, "of the empty name", {"key": EMPTY}, 0, 3)
    yield Scenario(10, "of the empty name", {"coordinator_keys": [EMPTY]}, 4)
    yield Scenario(10, "of nobody", {"coordinator_keys": []}, 4)
    yield Scenario(10, "twice", {"coordinator_keys": ["a", "a"]}, 4)


def commits() -> Iterator[Scenario]:
    def row(
        name: str,
        group: str = "g",
        topic: str = "read",
        low: int = 0,
        *,
        generation: int = -1,
        member: str = "",
        **part: Any,
    ) -> Scenario:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m", **part}
        topics = [{"name": topic, "partitions": [partition]}]
        request = {"group_id": group, "generation_id_or_member_epoch": generation,
                   "member_id": member, "topics": topics}  # fmt: skip
        return Scenario(8, name, request, max(low, 1))

    yield row("simple")
    yield row("empty group", EMPTY)
    yield row("unknown topic", topic="nope")
    yield row("unknown partition", partition_index=9)
    yield row("negative partition", partition_index=-1)
    yield row("negative offset", committed_offset=-5)
    yield row("null metadata", committed_metadata=None)
    yield row("large metadata", committed_metadata="x" * 5000)
    yield row("unknown member", member="stranger", generation=1)
    yield row("unknown member, no generation", member="stranger")
    yield row("a generation without member", generation=3)
    yield row("with an epoch", low=6, committed_leader_epoch=0)
    yield Scenario(8, "no topics", {"group_id": "g"}, 1)
    yield Scenario(8, "unknown instance", {"group_id": "g", "group_instance_id": "i", "member_id": "m",
        "generation_id_or_member_epoch": 1, "topics": [{"name": "read", "partitions": [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]}, 7)  # fmt: skip

    def fetch(name: str, group: str, topics: Any, low: int = 1) -> Iterator[Scenario]:
        named = {"group_id": group, "topics": topics}
        yield Scenario(9, name, named, low, 7)
        yield Scenario(9, name, {"groups": [named]}, 8)

    one = [{"name": "read", "partition_indexes": [0]}]
    yield from fetch("one", "g", one)
    yield from fetch("all", "g", None, 2)
    yield from fetch("none", "g", [])
    yield from fetch("of an unknown group", "nobody", one)
    yield from fetch("of the empty group", EMPTY, one)
    yield from fetch("unknown topic", "g", [{"name": "nope", "partition_indexes": [0, -1]}])
    yield from fetch("all of an unknown group", "nobody", None, 2)
    yield Scenario(9, "two groups", {"groups": [
        {"group_id": "g", "topics": one}, {"group_id": "nobody", "topics": None}]}, 8)  # fmt: skip
    yield Scenario(9, "the same twice", {"groups": [{"group_id": "g", "topics": one}] * 2}, 8)
    yield Scenario(
        9, "stable", {"groups": [{"group_id": "g", "topics": one}], "require_stable": True}, 8
    )


def members() -> Iterator[Scenario]:
    both = {"group_id": "m", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"x"}]}  # fmt: skip

    def join(name: str, low: int = 0, **more: Any) -> Scenario:
        return Scenario(11, name, {**both, **more}, low)

    yield join("empty group", group_id=EMPTY)
    yield join("short session", session_timeout_ms=10)
    yield join("long session", session_timeout_ms=100_000_000)
    yield join("negative session", session_timeout_ms=-1)
    yield join("unknown member", member_id="stranger")
    yield join("no protocols", protocols=[])
    yield join("no protocol type", protocol_type="")
    yield join("unknown member of an instance", 5, member_id="stranger", group_instance_id="i")
    yield join("bad instance", 5, group_instance_id="a/b")
    yield Scenario(11, "empty instance", lambda s: {
        **both, "group_id": f"empty-{s.version}", "group_instance_id": ""}, 5)  # fmt: skip
    for key, extra in ((12, {}), (14, {})):
        for name, request in {
            "unknown group": {"group_id": "nobody", "generation_id": 1, "member_id": "m"},
            "empty group": {"group_id": EMPTY, "generation_id": 1, "member_id": "m"},
            "empty member": {"group_id": "g", "generation_id": -1, "member_id": ""},
            "of simple commits": {"group_id": "g", "generation_id": -1, "member_id": "m"},
        }.items():
            yield Scenario(key, name, {**request, **extra})
        instance = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": "i"}
        yield Scenario(key, "unknown instance", instance, 3)
    for name, group in {"unknown group": "nobody", "empty group": EMPTY, "of commits": "g"}.items():
        yield Scenario(13, name, {"group_id": group, "member_id": "m"}, 0, 2)
        yield Scenario(13, name, {"group_id": group, "members": [{"member_id": "m"}]}, 3)
        static = [{"member_id": "", "group_instance_id": "i"}, {"member_id": "n"}]
        yield Scenario(13, f"{name}, static", {"group_id": group, "members": static}, 3)
        yield Scenario(13, f"{name}, nobody", {"group_id": group}, 3)
    yield from one_member(both)


def one_member(both: dict[str, Any]) -> Iterator[Scenario]:
    """Yield a member's life, in each version of JoinGroup a group of its own."""

    def name(side: Any) -> str:
        return f"member-{side.version}"

    def learn(side: Any, answer: Any) -> None:
        side.member = answer["member_id"]

    def step(key: int, title: str, request: Request, low: int = 0, **more: Any) -> Scenario:
        return Scenario(key, title, request, low, **more)

    first = {**both, "reason": "r"}
    yield step(11, "a member comes", lambda s: {**first, "group_id": name(s)}, learn=learn)
    yield step(
        11, "and comes back", lambda s: {**first, "group_id": name(s), "member_id": s.member}, 4
    )
    yield step(
        11, "with another type", lambda s: {**first, "group_id": name(s), "protocol_type": "x"}
    )
    yield step(11, "with another protocol", lambda s: {**first, "group_id": name(s), "protocols": [
        {"name": "other", "metadata": b""}]})  # fmt: skip
    yield step(14, "its assignment", lambda s: {"group_id": "member-9", "generation_id": 1,
        "member_id": s.member, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": s.member, "assignment": b"a"}]})  # fmt: skip
    yield step(14, "its assignment, wrong protocol", lambda s: {"group_id": "member-9",
        "generation_id": 1, "member_id": s.member, "protocol_type": "x", "protocol_name": "y"}, 5)  # fmt: skip
    for title, generation in {"in time": 1, "in a later generation": 2, "in none": -1}.items():
        yield step(
            12,
            title,
            lambda s, g=generation: {
                "group_id": "member-9",
                "generation_id": g,
                "member_id": s.member,
            },
        )
    yield step(15, "described", {"groups": ["member-9"]})
    yield step(
        15,
        "described, with operations",
        {"groups": ["member-9", "g"], "include_authorized_operations": True},
        3,
    )
    yield step(42, "deleted with a member", {"groups_names": ["member-9"]})


def administration() -> Iterator[Scenario]:
    for name, groups in {"unknown": ["nobody"], "empty name": [EMPTY], "of commits": ["g"],
                         "none": [], "twice": ["g", "g"]}.items():  # fmt: skip
        yield Scenario(15, name, {"groups": groups})
    yield Scenario(16, "all", {})
    for states in (["Empty"], ["empty"], ["Stable"], ["Nonsense"], ["Dead", "Empty"]):
        yield Scenario(16, f"in state {states}", {"states_filter": states}, 4)
    for kinds in (["classic"], ["Consumer"], ["nonsense"]):
        yield Scenario(16, f"of type {kinds}", {"types_filter": kinds}, 5)

    def delete(name: str, group: str = "g", topic: str = "read", index: int = 0) -> Scenario:
        topics = [{"name": topic, "partitions": [{"partition_index": index}]}]
        return Scenario(47, name, {"group_id": group, "topics": topics})

    yield delete("unknown group", "nobody")
    yield delete("empty group", EMPTY)
    yield delete("unknown topic", topic="nope")
    yield delete("unknown partition", index=9)
    yield delete("one")
    yield delete("one again")
    yield Scenario(47, "no topics", {"group_id": "g"})
    for name, groups in {"unknown": ["nobody"], "empty name": [EMPTY], "none": []}.items():
        yield Scenario(42, name, {"groups_names": groups})
    yield Scenario(42, "of commits", {"groups_names": ["g", "nobody"]}, 2)


def groups() -> list[Scenario]:
    return [*coordinators(), *commits(), *members(), *administration()]
