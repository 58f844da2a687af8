"""What members and ids of members leave in memory is bounded, whatever their names are."""

from types import SimpleNamespace

import pytest

from ottla.coordinators import group_memory
from ottla.coordinators.groups import Groups, GroupSettings
from ottla.coordinators.offsets import AppendedCommit, Commit
from ottla.coordinators.requests import Join
from ottla.coordinators.timers import Now
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

NOW = Now(0.0, 0)
LONG = "\U0001f600" + "x" * 32_700


@pytest.fixture
def served():
    port = SimpleNamespace(set_timer=lambda *_: None, cancel_timer=lambda *_: None)
    return Groups(GroupSettings(6000, 1_800_000, 3000), port)


def join(
    served,
    group="g",
    *,
    member="",
    client="c",
    protocols=(("p", b""),),
    known_id=True,
    n=0,
    owner="",
):
    request = Join(
        group, member, None, client, "/h", 1_800_000, 1_800_000, "x", tuple(protocols),
        member_id_suffix=f"s{n}", requires_known_member_id=known_id, owner=owner,
    )  # fmt: skip
    results = []
    served.join(request, SimpleNamespace(on_result=results.append), NOW)
    return results[0] if results else None


def test_ids_that_nobody_uses_are_forgotten_the_oldest_first(served):
    for n in range(1000):
        assert join(served, f"g{n}", client=LONG, n=n).error is ErrorCode.MEMBER_ID_REQUIRED
    given = [(g.group_id, m) for g in served.groups.values() for m in g.pending_members]
    assert 4 * sum(len(g) + len(m) for g, m in given) <= group_memory.MOST_PENDING_BYTES
    assert len(served.groups) == len(given), "a group that was nothing but such an id is gone, too"
    assert "g999" in served.groups
    assert "g0" not in served.groups
    assert served.memory.pending_bytes <= group_memory.MOST_PENDING_BYTES


def test_an_id_that_is_used_counts_no_more(served):
    member = join(served).member_id
    assert served.memory.pending_bytes > 0
    assert join(served, member=member, n=1) is None, "it waits for the others"
    assert served.memory.pending_bytes == 0
    assert not served.memory._given


def test_a_member_offers_a_hundred_protocols_at_most(served):
    many = [(str(i), b"") for i in range(19_000)]
    assert join(served, protocols=many, known_id=False).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert served.memory.bytes == 0


def test_members_of_a_group_and_of_all_are_bounded_in_bytes(served):
    megabytes = [("p", bytes(1 << 20))]
    errors = [join(served, protocols=megabytes, known_id=False, n=n) for n in range(80)]
    refused = [n for n, result in enumerate(errors) if result is not None]
    assert 60 <= refused[0] < 64
    assert errors[refused[0]].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    for n in range(100, 300):
        join(served, f"h{n}", protocols=megabytes, known_id=False, n=n)
    assert served.memory.bytes <= group_memory.MOST_BYTES
    assert join(served, "i", known_id=False, n=999) is None, "there is room for a usual member"


def test_what_leaves_is_given_back(served):
    member = join(served, known_id=False, protocols=[("p", bytes(5000))])
    assert member is None
    (group,) = served.groups.values()
    assert served.memory.bytes == group.bytes > 5000
    group.remove(next(iter(group.members)))
    assert served.memory.bytes == group.bytes == 0


def test_one_client_leaves_room_for_the_others(served):
    def ask(owner, n):
        return join(
            served, f"{owner}{n}", protocols=[("p", bytes(1 << 20))], known_id=False, n=n,
            owner=owner,
        )  # fmt: skip

    greedy = [ask("User:greedy", n) for n in range(100)]
    refused = [n for n, result in enumerate(greedy) if result is not None]
    assert 60 <= refused[0] < 64
    assert greedy[refused[0]].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [ask("User:other", n) for n in range(50)] == [None] * 50


def test_ids_are_forgotten_of_whom_has_most_of_them(served):
    for n in range(10):
        join(served, f"small{n}", n=n, owner="User:small")
    for n in range(1000):
        join(served, f"g{n}", client=LONG, n=n, owner="User:greedy")
    assert {f"small{n}" for n in range(10)} <= served.groups.keys()


def test_what_the_leader_assigns_counts_and_is_bounded(served):
    join(served, known_id=False)
    (group,) = served.groups.values()
    (member,) = group.members
    before = group.bytes
    group.assign(group.members[member], bytes(5000))
    assert served.memory.bytes == group.bytes == before + 5000
    assert group.has_room_for("", {member: bytes(1 << 20)})
    assert not group.has_room_for("", {member: bytes(65 << 20)})


def test_names_of_groups_and_metadata_of_offsets_are_bounded(served):
    tp = TopicPartition("t", 0)

    def commit(group_id):
        return served.check_commit(group_id, -1, "", None, NOW)

    results = [commit(f"{n:05}" + LONG) for n in range(3000)]
    assert ErrorCode.GROUP_MAX_SIZE_REACHED in results
    assert served.memory.texts <= group_memory.MOST_TEXT_BYTES
    assert not served.memory.has_room_for_texts(1 << 20)
    group = next(iter(served.groups.values()))
    before = served.memory.texts
    group.offsets.keep(tp, AppendedCommit(Commit(1, 0, "m" * 1000, 0), 1))
    group.offsets.keep(tp, AppendedCommit(Commit(2, 0, "m" * 500, 0), 2))
    assert served.memory.texts == before + 2000
    group.offsets.remove([tp])
    assert served.memory.texts == before
    group.count_in(None)
    assert served.memory.texts == before - 4 * len(group.group_id)
