"""The decider of groups with a clock that the test moves, and a port that stores at once."""

import itertools

import pytest

from ottla.coordinators.groups import Groups, GroupSettings
from ottla.coordinators.requests import Join, LeavingMember, Sync
from ottla.coordinators.timers import Now, Timers
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import ConsumerProtocolSubscription

GROUP = "g"
START_MS = 1_000_000.0
START_WALL_MS = 1_700_000_000_000


def subscription(*topics):
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


RANGE = (("range", subscription("t")),)


class Request:
    """A request that waits for its response. It may be answered once."""

    def __init__(self):
        self.answers = []

    def on_result(self, result):
        self.answers.append(result)

    @property
    def waiting(self):
        return not self.answers

    @property
    def result(self):
        (answer,) = self.answers
        return answer

    @property
    def error(self):
        return self.result.error


class Desk:
    """The decider with a clock, and its port; records are stored at once unless `holding`."""

    def __init__(self, **settings):
        defaults = {"initial_rebalance_delay_ms": 3000}
        self.groups = Groups(GroupSettings(**(defaults | settings)), self)
        self.timers = Timers()
        self.set_timer, self.cancel_timer = self.timers.set, self.timers.cancel
        self.now = Now(START_MS, START_WALL_MS)
        self.holding = False
        self.store_error = ErrorCode.NONE
        self.stores = []
        self.stored = []
        self._suffixes = itertools.count(1)

    def group(self, name=GROUP):
        return self.groups.groups[name]

    def state(self, name=GROUP):
        return self.group(name).state.value

    # --- records and time -------------------------------------------------------------------

    def store(self, pending):
        self.stores.append(pending)
        if not self.holding:
            self.release(self.store_error)

    def release(self, error=ErrorCode.NONE):
        """Let one record that was held be written, or not."""
        pending = self.stores.pop(0)
        self.stored.append((pending.reason.name, pending.generation, error))
        self.groups.stored(pending, error, self.now)

    def unload(self, name=GROUP):
        self.groups.unload(self.group(name), self.now)

    def run(self, ms):
        """Let time pass, and every timer expire that is due meanwhile; return how many did."""
        end, expired = self.now.mono_ms + ms, 0
        while True:
            due = self.timers.next_ms
            if due is None or due > end:
                break
            self._go_to(max(due, self.now.mono_ms))
            while (key := self.timers.pop(self.now.mono_ms)) is not None:
                expired += 1
                assert expired < 1_000, "timers expire without end"
                self.groups.expire(key, self.now)
        self._go_to(end)
        return expired

    def _go_to(self, mono_ms):
        self.now = Now(mono_ms, START_WALL_MS + int(mono_ms - START_MS))

    # --- requests ---------------------------------------------------------------------------

    def join(
        self, member_id="", *, group=GROUP, instance=None, protocols=RANGE, session_ms=10_000,
        rebalance_ms=60_000, protocol_type="consumer", id_required=False, may_skip=False,
    ):  # fmt: skip
        join = Join(
            group, member_id, instance, "client", "/127.0.0.1", session_ms, rebalance_ms,
            protocol_type, tuple(protocols), str(next(self._suffixes)), id_required, may_skip,
        )  # fmt: skip
        request = Request()
        self.groups.join(join, request, self.now)
        return request

    def sync(
        self, member_id, generation=None, assignment=None, *, group=GROUP, instance=None,
        protocol_type=None, protocol=None,
    ):  # fmt: skip
        if generation is None:
            generation = self.group(group).generation
        sync = Sync(
            group, generation, member_id, instance, protocol_type, protocol, assignment or {}
        )
        request = Request()
        self.groups.sync(sync, request, self.now)
        return request

    def heartbeat(self, member_id, generation=None, *, group=GROUP, instance=None):
        if generation is None:
            generation = self.group(group).generation
        return self.groups.heartbeat(group, generation, member_id, instance, self.now)

    def leave(self, *members, group=GROUP):
        """Leave: a member id, or (member id, instance id)."""
        named = [m if isinstance(m, tuple) else (m, None) for m in members]
        leaving = tuple(LeavingMember(*m, "test") for m in named)
        code, codes = self.groups.leave(group, leaving, self.now)
        return code if code is not ErrorCode.NONE else list(codes)

    def commit(self, generation=-1, member_id="", instance=None, *, transactional=False):
        return self.groups.check_commit(
            GROUP, generation, member_id, instance, self.now, transactional=transactional
        )

    # --- shorthands -------------------------------------------------------------------------

    def run_until_answered(self, requests):
        """Let no more time pass than it takes."""
        while any(t.waiting for t in requests):
            self.run(max(0, self.timers.next_ms - self.now.mono_ms))

    def stable(self, count=1, **join):
        """Make a stable group; return the member ids, the leader first."""
        requests = [self.join(**join) for _ in range(count)]
        self.run_until_answered(requests)
        assert all(t.error is ErrorCode.NONE for t in requests), [t.answers for t in requests]
        ids = [t.result.member_id for t in requests]
        leader = requests[0].result.leader
        ids.sort(key=lambda m: m != leader)
        group = join.get("group", GROUP)
        followers = [self.sync(m, group=group) for m in ids[1:]]
        first = self.sync(leader, assignment={m: m.encode() for m in ids}, group=group)
        assert all(t.error is ErrorCode.NONE for t in [first, *followers])
        assert self.state(group) == "Stable"
        return ids

    def static_pair(self, **join):
        """Make a stable group of the static members L, who leads, and F; return their ids."""
        requests = [self.join(instance=name, **join) for name in ("L", "F")]
        self.run_until_answered(requests)
        leader, follower = (t.result.member_id for t in requests)
        assert requests[0].result.leader == leader
        waiting = self.sync(follower, instance="F")
        self.sync(leader, assignment={leader: b"l", follower: b"f"}, instance="L")
        assert waiting.result.assignment == b"f"
        return leader, follower


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def quick():
    return Desk(initial_rebalance_delay_ms=0)
