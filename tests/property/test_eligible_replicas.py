"""R13: whoever is elected as eligible has every record that was acknowledged (KIP-966, adr/0007).

The truth is a model that knows nothing of records in ZooKeeper or broker epochs: three logs as
numbers, what each loses in a crash, and the offset below which all is acknowledged. The deciders
see what a controller sees. Controllers come and go; in between one is active that knows nothing
of eligible replicas, and does not notice who dies.
"""

import random

import pytest
from msgspec.structs import replace

from ottla.controller import eligible
from ottla.controller.broker_epochs import restarted_unseen
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind, elect
from ottla.controller.leadership import plan_isr_removal
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.zookeeper.eligible import MinIsr

TP = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
MIN_ISR = 2
CONFIG = MinIsr(MIN_ISR, 1, 0, 0)


class Replica:
    """A broker's process and disk."""

    def __init__(self, epoch):
        self.end = 0
        self.synced = 0  # below this nothing is lost in a crash
        self.up = True
        self.epoch = epoch
        self.marked = True  # R18: may have lost its tail, until it was in sync again
        self.clean = False  # the last stop was; a first start has no stop before it


class World:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.zxid = 10
        self.acknowledged = 0
        self.elections = 0
        self.replicas = {b: Replica(self.tick()) for b in BROKERS}
        for replica in self.replicas.values():
            replica.marked = False
        self.state = LeaderAndIsr(1, 0, BROKERS, 0)
        self.written_at = self.tick()
        self.leading_life = self.replicas[1].epoch
        self.whole = set()
        self.record = None
        self.context = None
        self.lead()
        self.note(None)

    def tick(self):
        self.zxid += 1
        return self.zxid

    # --- a controller -----------------------------------------------------------------------

    def lead(self):
        """A new controller reads everything."""
        c = self.context = Context(1)
        c.add_topic(TopicInfo("t", b"i" * 16, {0: ReplicaAssignment(BROKERS)}))
        c.set_brokers(BrokerInfo(b, (), epoch=r.epoch) for b, r in self.replicas.items() if r.up)
        c.clean_brokers = {b for b in self.whole if self.replicas[b].up}
        c.leadership[TP] = LeaderIsrAndControllerEpoch(self.state, 1)
        if self.record is not None:
            c.eligible[TP] = self.record
        unseen = [r.broker for r in restarted_unseen(c, {TP: self.written_at})]
        for broker in unseen:
            c.offline_dirs[broker] = {TP}
        for broker in BROKERS:
            if broker not in c.brokers or broker in unseen:
                self.gone(broker)
        c.offline_dirs.clear()
        self.elect()
        leader = self.replicas.get(self.state.leader)
        if leader is not None and leader.up and leader.epoch != self.leading_life:
            # It restarted, and nobody is known to have more: it is told to lead on.
            self.leading_life = leader.epoch
            self.acknowledged = min(self.acknowledged, leader.end)

    def write(self, state):
        before = self.state
        self.state = replace(state, partition_epoch=before.partition_epoch + 1)
        self.written_at = self.tick()
        if self.context is not None:
            self.context.leadership[TP] = LeaderIsrAndControllerEpoch(self.state, 1)
            self.note(before)

    def note(self, before):
        c = self.context
        found = None
        if before is not None:
            found = eligible.next_eligible(c, TP, before, self.state, MIN_ISR, CONFIG)
        eligible.note_isr(c, TP, () if before is None else before.isr, self.state.isr)
        if found is not None and self.chance.random() < 0.9:  # else it dies before it is written
            found = replace(found, zxid=self.tick(), written_ms=0)
            c.eligible[TP] = self.record = found
        elif found is None:
            self.record = None
            c.eligible.pop(TP, None)

    def gone(self, broker):
        if not self.replicas[broker].up:
            self.context.remove_broker(broker)
        self.context.leadership[TP] = LeaderIsrAndControllerEpoch(self.state, 1)
        self.elect()
        if self.state.leader != broker and broker not in self.state.isr:
            return
        read = {TP: LeaderIsrAndControllerEpoch(self.state, 1)}
        plan = plan_isr_removal(self.context, broker, [TP], read)
        if TP in plan.writes:
            self.write(plan.writes[TP])

    def elect(self):
        c, state = self.context, self.state
        if c.is_online(state.leader, TP):
            return
        crashed = eligible.crashed(c, TP, state)
        others = eligible.eligible_for(c, TP, state)
        if others and not eligible.stands(c.eligible[TP], MIN_ISR, CONFIG):
            others = ()
        outcome = elect(
            ElectionKind.OFFLINE,
            c.assignment(TP),
            state,
            lambda b: c.is_online(b, TP),
            eligible=others,
            crashed=crashed,
        )
        if outcome.state is None:
            return
        winner = outcome.state.leader
        end = self.replicas[winner].end
        if winner in others:
            self.elections += 1
            assert end >= self.acknowledged, f"{winner} is eligible and ends at {end}"
        elif winner in crashed or self.replicas[winner].marked:
            self.acknowledged = min(self.acknowledged, end)  # nobody else was known to have more
        assert end >= self.acknowledged
        self.leading_life = self.replicas[winner].epoch
        self.write(outcome.state)

    # --- what happens -----------------------------------------------------------------------

    def step(self):
        getattr(self, self.chance.choice(STEPS))(self.chance.choice(BROKERS))

    def leader(self):
        replica = self.replicas.get(self.state.leader)
        if replica is not None and replica.up and replica.epoch == self.leading_life:
            return replica
        return None  # a broker that restarted leads once a controller says so

    def append(self, _broker):
        if (leader := self.leader()) is not None:
            leader.end += self.chance.randrange(3)
            self.raise_watermark()

    def fetch(self, broker):
        leader, replica = self.leader(), self.replicas[broker]
        if leader is not None and replica.up and broker != self.state.leader:
            replica.end = min(leader.end, replica.end + self.chance.randrange(4))
            self.raise_watermark()

    def raise_watermark(self):
        isr = self.state.isr
        if len(isr) >= MIN_ISR:
            lowest = min(self.replicas[b].end for b in isr)
            self.acknowledged = max(self.acknowledged, lowest)

    def sync(self, broker):
        self.replicas[broker].synced = self.replicas[broker].end

    def lag(self, broker):
        """A controller writes what the leader asks for; without a context it is a JVM's."""
        if self.leader() and broker in self.state.isr and broker != self.state.leader:
            isr = tuple(b for b in self.state.isr if b != broker)
            self.write(replace(self.state, isr=isr))

    def join(self, broker):
        leader, replica = self.leader(), self.replicas[broker]
        if leader and replica.up and broker not in self.state.isr:
            replica.end = leader.end
            replica.marked = False
            self.write(replace(self.state, isr=(*self.state.isr, broker)))
            self.raise_watermark()

    def crash(self, broker):
        replica = self.replicas[broker]
        if replica.up:
            kept = self.chance.randint(min(replica.synced, replica.end), replica.end)
            replica.end, replica.synced = kept, kept
            replica.up, replica.marked, replica.clean = False, True, False
            self.seen_gone(broker)

    def stop(self, broker):
        replica = self.replicas[broker]
        if replica.up:
            replica.synced = replica.end
            replica.up, replica.clean = False, True
            self.seen_gone(broker)

    def seen_gone(self, broker):
        if self.context is not None:
            self.gone(broker)

    def start(self, broker):
        replica = self.replicas[broker]
        if replica.up:
            return
        replica.up, replica.epoch = True, self.tick()
        self.whole.discard(broker)
        if replica.clean and not replica.marked:
            self.whole.add(broker)
        replica.clean = False
        c = self.context
        if c is not None:
            c.add_broker(BrokerInfo(broker, (), epoch=replica.epoch))
            c.clean_brokers |= self.whole & {broker}
            self.elect()

    def resign(self, _broker):
        self.context = None

    def succeed(self, _broker):
        if self.context is None:
            self.lead()
            self.elect()


STEPS = (
    "append", "append", "fetch", "fetch", "fetch", "sync", "lag", "lag", "join", "crash", "stop",
    "start", "start", "start", "resign", "succeed", "succeed",
)  # fmt: skip


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_r13_an_eligible_leader_has_all_that_was_acknowledged(start):
    elections = 0
    for seed in range(start, start + 50):
        world = World(seed)
        for _ in range(400):
            world.step()
        elections += world.elections
    assert elections > 20, "the property was hardly put to the test"


def test_r13_enough_in_sync_make_nobody_else_eligible():
    world = World(1)
    world.write(replace(world.state, isr=(1, 2)))
    assert world.record is None
    assert world.state.leader != NO_LEADER
