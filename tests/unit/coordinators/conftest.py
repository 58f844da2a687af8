"""A desk at which members of groups are served, with a clock that stands until it is moved."""

import itertools

import pytest

from ottla.coordinators.group_values import Answer, GroupSettings, Join
from ottla.coordinators.groups import Groups
from ottla.coordinators.timers import Now
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

GROUP = "g"
START_MS = 1_000_000.0
START_WALL_MS = 1_700_000_000_000


def subscription(*topics):
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


RANGE = (("range", subscription("t")),)


class Ticket:
    """Whoever waits for an answer. It may come once."""

    def __init__(self):
        self.answers = []

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
    """The decider with a clock; records are stored at once unless `holding`."""

    def __init__(self, **settings):
        defaults = {"initial_rebalance_delay_ms": 3000}
        self.groups = Groups(GroupSettings(**(defaults | settings)))
        self.now = Now(START_MS, START_WALL_MS)
        self.holding = False
        self.store_error = ErrorCode.NONE
        self.stores = []
        self.stored = []
        self._fresh = itertools.count(1)

    def group(self, name=GROUP):
        return self.groups.groups[name]

    def state(self, name=GROUP):
        return self.group(name).state.value

    # --- time and effects -------------------------------------------------------------------

    def settle(self):
        while effects := self.groups.take_effects():
            for effect in effects:
                if isinstance(effect, Answer):
                    effect.ticket.answers.append(effect.result)
                elif self.holding:
                    self.stores.append(effect)
                else:
                    self._store(effect, self.store_error)

    def _store(self, store, error):
        self.stored.append((store.reason.name, store.generation, error))
        self.groups.stored(store, error, self.now)

    def release(self, error=ErrorCode.NONE):
        """Let one record that was held be written, or not."""
        self._store(self.stores.pop(0), error)
        self.settle()

    def run(self, ms):
        """Let time pass, and everything happen that is due meanwhile."""
        end = self.now.mono_ms + ms
        while True:
            due = self.groups.timers.next_ms
            if due is None or due > end:
                break
            self._go_to(max(due, self.now.mono_ms))
            while self.groups.ring(self.now):
                self.settle()
        self._go_to(end)

    def _go_to(self, mono_ms):
        self.now = Now(mono_ms, START_WALL_MS + int(mono_ms - START_MS))

    # --- requests ---------------------------------------------------------------------------

    def join(
        self, member_id="", *, group=GROUP, instance=None, protocols=RANGE, session_ms=10_000,
        rebalance_ms=60_000, protocol_type="consumer", id_required=False, may_skip=False,
    ):  # fmt: skip
        ticket = Ticket()
        request = Join(
            group, member_id, instance, "client", "/127.0.0.1", session_ms, rebalance_ms,
            protocol_type, tuple(protocols), str(next(self._fresh)), id_required, may_skip,
        )  # fmt: skip
        self.groups.join(request, ticket, self.now)
        self.settle()
        return ticket

    def sync(
        self, member_id, generation=None, assignment=None, *, group=GROUP, instance=None,
        protocol_type=None, protocol=None,
    ):  # fmt: skip
        ticket = Ticket()
        if generation is None:
            generation = self.group(group).generation
        self.groups.sync(
            group, generation, member_id, instance, protocol_type, protocol,
            assignment or {}, ticket, self.now,
        )  # fmt: skip
        self.settle()
        return ticket

    def heartbeat(self, member_id, generation=None, *, group=GROUP, instance=None):
        if generation is None:
            generation = self.group(group).generation
        code = self.groups.heartbeat(group, generation, member_id, instance, self.now)
        self.settle()
        return code

    def leave(self, *members, group=GROUP):
        """Leave: a member id, or (member id, instance id)."""
        named = [m if isinstance(m, tuple) else (m, None) for m in members]
        code, codes = self.groups.leave(group, [(*m, "test") for m in named], self.now)
        self.settle()
        return code if code is not ErrorCode.NONE else codes

    def check_commit(self, generation=-1, member_id="", instance=None, **more):
        return self.groups.check_commit(GROUP, generation, member_id, instance, self.now, **more)[0]

    # --- shorthands -------------------------------------------------------------------------

    def run_until_answered(self, tickets):
        """Let no more time pass than it takes."""
        while any(t.waiting for t in tickets):
            self.run(max(0, self.groups.timers.next_ms - self.now.mono_ms))

    def stable(self, count=1, **join):
        """Make a stable group; return the member ids, the leader first."""
        tickets = [self.join(**join) for _ in range(count)]
        self.run_until_answered(tickets)
        assert all(t.error is ErrorCode.NONE for t in tickets), [t.answers for t in tickets]
        ids = [t.result.member_id for t in tickets]
        leader = tickets[0].result.leader
        ids.sort(key=lambda m: m != leader)
        group = join.get("group", GROUP)
        followers = [self.sync(m, group=group) for m in ids[1:]]
        first = self.sync(leader, assignment={m: m.encode() for m in ids}, group=group)
        assert all(t.error is ErrorCode.NONE for t in [first, *followers])
        assert self.state(group) == "Stable"
        return ids

    def static_pair(self, **join):
        """Make a stable group of the static members L, who leads, and F; return their ids."""
        tickets = [self.join(instance=name, **join) for name in ("L", "F")]
        self.run_until_answered(tickets)
        leader, follower = (t.result.member_id for t in tickets)
        assert tickets[0].result.leader == leader
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
