"""A group under any order of requests, losses of time and failures of the log.

Laws: one leader per generation, and it is a member that joined it; an assignment reaches only
members of the generation it was made for, and only after it was stored; every JoinGroup and
SyncGroup is answered once, at the latest when the coordinator goes; the moves of states are those
of the table (the decider raises otherwise); whoever stays silent is gone in the end.
"""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.group import GroupState
from ottla.coordinators.groups import Groups, GroupSettings
from ottla.coordinators.requests import Join, JoinResult, LeavingMember, Sync, SyncResult
from ottla.coordinators.timers import Now, Timers
from ottla.model.errors import ErrorCode

GROUP = "g"
SESSIONS = st.sampled_from([6_000, 10_000, 400_000])
REBALANCES = st.sampled_from([0, 5_000, 60_000])
PROTOCOLS = st.sampled_from(
    [(("range", b"a"),), (("range", b"b"), ("sticky", b"c")), (("sticky", b"d"), ("range", b"e"))]
)
INSTANCES = st.sampled_from([None, None, "i", "j"])


class Request:
    def __init__(self, machine):
        self.machine = machine
        self.answers = []

    def on_result(self, result):
        self.machine.answered(self, result)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.settings = GroupSettings(initial_rebalance_delay_ms=3_000, max_size=4)
        self.groups = Groups(self.settings, self)
        self.timers = Timers()
        self.set_timer, self.cancel_timer = self.timers.set, self.timers.cancel
        self.now = Now(0.0, 1_700_000_000_000)
        self.requests = []
        self.held = []
        self.stored = {}
        self.made_for = {}
        self.leaders = {}
        self.fresh = 0
        self.ids = ["nobody"]
        self.life = 0

    # --- the port -----------------------------------------------------------------------------

    def store(self, pending):
        self.held.append((self.life, pending))

    def ask(self):
        self.requests.append(Request(self))
        return self.requests[-1]

    def answered(self, request, result):
        request.answers.append(result)
        assert len(request.answers) == 1, "answered twice"
        if not isinstance(result, JoinResult | SyncResult) or result.error is not ErrorCode.NONE:
            return
        group = self.groups.groups[GROUP]
        if isinstance(result, JoinResult):
            assert result.member_id in group.members
            assert result.generation == group.generation
            if result.members and not result.skip_assignment:
                first = self.leaders.setdefault((self.life, result.generation), result.member_id)
                assert first == result.member_id, "two leaders in one generation"
                assert {m for m, _, _ in result.members} == set(group.members)
        else:
            stored = self.stored.get((self.life, group.generation))
            assert stored is not None, "an assignment that is not in the log"
            assert result.assignment in stored, "an assignment of another generation"

    def known(self):
        group = self.groups.groups.get(GROUP)
        return None if group is None else group

    # --- requests ---------------------------------------------------------------------------

    def join(self, member_id, instance, session_ms, rebalance_ms, protocols, id_required):
        self.fresh += 1
        join = Join(
            GROUP, member_id, instance, "c", "/h", session_ms, rebalance_ms, "consumer", protocols,
            str(self.fresh), id_required, bool(self.fresh % 2),
        )  # fmt: skip
        self.groups.join(join, self.ask(), self.now)
        self.ids.append(f"{instance or 'c'}-{self.fresh}")

    def who(self, data):
        """Draw a member, mostly one that is in the group."""
        group = self.known()
        inside = [] if group is None else [*group.members, *group.pending_members]
        return data.draw(st.sampled_from(inside * 3 + self.ids[-3:]))

    def instance_of(self, member):
        group = self.known()
        found = None if group is None else group.members.get(member)
        return None if found is None else found.instance_id

    @rule(
        instance=INSTANCES, session_ms=SESSIONS, rebalance_ms=REBALANCES,
        protocols=PROTOCOLS, id_required=st.booleans(),
    )  # fmt: skip
    def join_new(self, instance, session_ms, rebalance_ms, protocols, id_required):
        self.join("", instance, session_ms, rebalance_ms, protocols, id_required)

    @rule(
        data=st.data(), session_ms=SESSIONS, rebalance_ms=REBALANCES, protocols=PROTOCOLS
    )  # fmt: skip
    def join_again(self, data, session_ms, rebalance_ms, protocols):
        member = self.who(data)
        instance = self.instance_of(member)
        self.join(member, instance, session_ms, rebalance_ms, protocols, True)

    def generation(self, offset):
        group = self.known()
        return offset + (group.generation if group else 0)

    @rule(data=st.data(), offset=st.sampled_from([0, 0, 0, -1]))
    def member_syncs(self, data, offset):
        self.sync(self.who(data), offset)

    def sync(self, member, offset=0):
        group = self.known()
        assignment = {}
        if group is not None and group.leader == member:
            mark = f"{self.life}/{group.generation}/{len(self.requests)}".encode()
            assignment = {m: mark + m.encode() for m in group.members}
        sync = Sync(GROUP, self.generation(offset), member, None, None, None, assignment)
        self.groups.sync(sync, self.ask(), self.now)

    @initialize(count=st.integers(0, 3), instance=INSTANCES)
    def some_come(self, count, instance):
        """Begin with a group of some, most of the time."""
        for n in range(count):
            self.join("", None if n else instance, 10_000, 60_000, (("range", b"a"),), False)
        self.time_passes(3_000)
        self.time_passes(57_000)

    @precondition(lambda self: self.known() is not None and self.known().members)
    @rule(written=st.booleans())
    def well_behaved(self, written):
        """What clients do, so that groups come to be stable now and then."""
        for member in list(self.known().members):
            if self.known() and member in self.known().members:
                instance = self.instance_of(member)
                self.join(member, instance, 10_000, 60_000, (("range", b"a"),), True)
        group = self.known()
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            for member in sorted(group.members, key=lambda m: m == group.leader):
                self.sync(member)
            if written:
                self.write_all()

    @rule(data=st.data(), offset=st.sampled_from([0, 0, -1]))
    def heartbeat(self, data, offset):
        member = self.who(data)
        generation = self.generation(offset)
        code = self.groups.heartbeat(GROUP, generation, member, None, self.now)
        if code is ErrorCode.NONE:
            assert member in self.known().members

    @rule(data=st.data(), instance=INSTANCES)
    def leave(self, data, instance):
        member = self.who(data)
        leaving = (LeavingMember(member, instance, None),)
        result = self.groups.leave(GROUP, leaving, self.now)
        if result.members == (ErrorCode.NONE,):
            assert member not in self.known().members
            assert member not in self.known().pending_members

    @rule(data=st.data())
    def commit(self, data):
        member = self.who(data)
        generation = self.generation(0)
        code = self.groups.check_commit(GROUP, generation, member, None, self.now)
        if code is ErrorCode.NONE:
            assert self.known() is not None
            assert member in self.known().members

    # --- the world --------------------------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def write_one(self, error):
        self.write(error)

    def write(self, error=ErrorCode.NONE):
        life, pending = self.held.pop(0)
        if error is ErrorCode.NONE and life == self.life:
            values = self.stored.setdefault((life, pending.generation), set())
            values.update(pending.assignment.values())
        self.groups.stored(pending, error, self.now)

    def write_all(self):
        while self.held:
            self.write()

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 7_000, 60_000, 300_000]))
    def time_passes(self, ms):
        end = self.now.mono_ms + ms
        expired = 0
        while (due := self.timers.next_ms) is not None and due <= end:
            self._go_to(max(due, self.now.mono_ms))
            while (key := self.timers.pop(self.now.mono_ms)) is not None:
                expired += 1
                assert expired < 10_000, "timers expire without end"
                self.groups.expire(key, self.now)
        self._go_to(end)

    def _go_to(self, mono_ms):
        self.now = Now(mono_ms, 1_700_000_000_000 + int(mono_ms))

    @precondition(lambda self: self.known() is not None)
    @rule()
    def leadership_is_lost(self):
        self.groups.unload(self.known(), self.now)
        self.life += 1
        assert all(r.answers for r in self.requests), "somebody still waits for the old coordinator"

    # --- laws -------------------------------------------------------------------------------

    @invariant()
    def facts_agree(self):
        group = self.known()
        if group is None:
            assert not [r for r in self.requests if not r.answers]
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        assert set(group.static_members.values()) <= set(group.members)
        assert group.awaiting_join == sum(
            m.join_request is not None for m in group.members.values()
        )
        # KIP-389 counts who waits: while a rebalance is prepared, a group may also have members
        # that have not rejoined. Those go when it is completed, but for static ones.
        assert group.awaiting_join <= self.settings.max_size
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            dynamic = set(group.members) - set(group.static_members.values())
            assert len(dynamic) <= self.settings.max_size
        waiting = {r for r in self.requests if not r.answers}
        members = group.members.values()
        slots = {r for m in members for r in (m.join_request, m.sync_request) if r is not None}
        assert waiting == slots, "somebody waits whom nobody remembers"
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.members
        if group.state is GroupState.STABLE:
            assert not [m for m in group.members.values() if m.sync_request is not None]

    def teardown(self):
        """In silence all members go, and nobody is left waiting."""
        for _ in range(40):
            self.write_all()
            self.time_passes(400_000)
        self.write_all()
        group = self.known()
        assert group is None or not group.members
        assert all(len(r.answers) == 1 for r in self.requests)
        assert not self.held


TestGroups = GroupMachine.TestCase
