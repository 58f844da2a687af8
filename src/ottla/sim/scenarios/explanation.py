"""A counterexample in plain words: what happened, when, and why that broke the promise.

Plain code over a run's values. Times are simulated seconds since the clients were at work.
"""

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from ottla.model.ids import NO_LEADER
from ottla.sim.scenarios.fault_schedule import AWAY, LOSSY, Fault
from ottla.sim.scenarios.promises import Broken
from ottla.sim.scenarios.scenario import (
    BATCH,
    DISK,
    GAP,
    KEPT,
    ONCE,
    ORDER,
    POWER,
    PRODUCER,
    PROMISES,
    READS,
    Scenario,
)
from ottla.sim.scenarios.scenario_run import Run, StateChange

BEGINS = {
    "crash": "broker {0} is killed",
    POWER: "the machine of broker {0} loses power, and with it what was not on disk yet",
    DISK: "broker {0} is killed, and its disks are lost",
    "shutdown": "broker {0} is shut down",
    "pause": "broker {0} stands still",
    "isolation": "broker {0} is cut off from the other brokers and from ZooKeeper",
    "cut-from-brokers": "broker {0} is cut off from the other brokers",
    "cut-from-zookeeper": "broker {0} is cut off from ZooKeeper",
    "slow-network": "the network between broker {0} and the others becomes slow",
    "slow-disk": "the disk of broker {0} becomes slow",
    "session-expiry": "ZooKeeper ends the session of broker {0}",
    "zookeeper-outage": "ZooKeeper stops responding",
}
ENDS = {
    "crash": "broker {0} starts again",
    POWER: "broker {0} starts again",
    DISK: "broker {0} starts again, with empty disks",
    "pause": "broker {0} goes on",
    "isolation": "broker {0} is connected again",
    "cut-from-brokers": "broker {0} is connected again",
    "cut-from-zookeeper": "broker {0} is connected again",
    "slow-network": "the network of broker {0} is as before",
    "slow-disk": "the disk of broker {0} is as before",
    "zookeeper-outage": "ZooKeeper responds again",
}


class Event(msgspec.Struct, frozen=True):
    """Something that happened, for people to read. `kind`: fault, partition, broker or record."""

    at_s: float
    kind: str
    text: str


class Explanation(msgspec.Struct):
    """A promise that was broken, with what happened and why."""

    promise: str
    meaning: str
    seed: int
    after_hours: float
    records: int
    faults: list[int]
    seconds: float
    what: str
    why: list[str]
    events: list[Event]


def explain(scenario: Scenario, run: Run, broken: Broken, after_s: float) -> Explanation:
    """Return a counterexample in words."""
    states = [s for s in run.states if s.partition == broken.partition]
    return Explanation(
        promise=broken.promise,
        meaning=PROMISES[broken.promise],
        seed=run.seed,
        after_hours=round(after_s / 3600, 2),
        records=broken.count,
        faults=sorted(fault.number for fault in run.faults),
        seconds=round(run.seconds, 1),
        what=_what(scenario, run, broken),
        why=list(_why(scenario, run, broken, states)),
        events=sorted(_events(scenario, run, broken, states), key=lambda event: event.at_s),
    )


def settings_text(scenario: Scenario) -> str:
    """Return the settings that count, in a line."""
    producer = scenario.producer_settings()
    config = scenario.server_config().topic_config(scenario.topic)
    facts = [
        f"min.insync.replicas={config.min_insync_replicas}",
        f"unclean.leader.election.enable={str(config.unclean_leader_election_enable).lower()}",
        f"acks={'all' if producer.acks == -1 else producer.acks}",
        f"enable.idempotence={str(producer.idempotent).lower()}",
    ]
    named = {**scenario.server, **scenario.topic, **scenario.producer}
    shown = {fact.partition("=")[0] for fact in facts}
    facts += [f"{k}={v}" for k, v in named.items() if k not in shown and v != PRODUCER.get(k)]
    return ", ".join(facts)


def _what(scenario: Scenario, run: Run, broken: Broken) -> str:
    place = f"{broken.partition}, offset {broken.offset:,}"
    at = _clock(run, broken.acknowledged_s)
    found = "no record" if broken.found is None else f"another record ({broken.found})"
    if broken.promise == KEPT and broken.offset < 0:
        return (
            f"Record {broken.value} was sent to {broken.partition} at {at}, and {broken.client} "
            "was not notified of a failure. At the end the partition does not have it."
        )
    if broken.promise == KEPT:
        return (
            f"Record {broken.value} was acknowledged to {broken.client} at {at}, as {place}. At "
            f"the end there is {found} at that offset."
        )
    if broken.promise == ONCE:
        return (
            f"Record {broken.value} is in {broken.partition} twice: at offsets "
            f"{broken.offset:,} and {broken.other_offset:,}."
        )
    if broken.promise == ORDER:
        return (
            f"{broken.client} sent {broken.value} before {broken.other_value}, but in "
            f"{broken.partition} it comes later: offset {broken.offset:,}, not before "
            f"{broken.other_offset:,}."
        )
    if broken.promise == READS:
        return (
            f"{broken.client} read record {broken.value} at {at}, as {place}. At the end there is "
            f"{found} at that offset."
        )
    return (
        f"From {_clock(run, broken.sent_s)} to {at} no write to {broken.partition} was "
        f"acknowledged: {broken.acknowledged_s - broken.sent_s:.1f} s, allowed are "
        f"{scenario.longest_gap_seconds:g} s."
    )


def _why(scenario: Scenario, run: Run, broken: Broken, states: list[StateChange]) -> Iterator[str]:
    settings = scenario.producer_settings()
    if broken.promise == ONCE:
        yield (
            "The producer sent a batch again because it had no response to the first try "
            "(enable.idempotence=false): the broker cannot know that it has it already."
        )
        return
    if broken.promise == ORDER:
        yield (
            f"Without idempotence, {BATCH}={settings.in_flight} lets a batch that has to be sent "
            "again come after a later one."
            if settings.in_flight > 1 and not settings.idempotent
            else "A batch that was sent again came after a later one."
        )
        return
    if broken.promise == GAP:
        yield from _why_no_writes(scenario, run, broken, states)
        return
    since_s = broken.acknowledged_s
    isr = _isr_at(states, since_s)
    in_sync = _brokers(isr)
    if broken.promise == READS:
        yield f"When it was read, in sync: {in_sync}."
    elif settings.acks == -1:
        yield (
            f"When it was acknowledged, in sync: {in_sync}. acks=all waits for those that are "
            f"in sync, and min.insync.replicas={scenario.min_isr} is content with "
            f"{_count(scenario.min_isr)}."
        )
    elif settings.acks == 1:
        yield (
            f"acks=1: the leader alone had to have it when it was acknowledged; it was broker "
            f"{_leader_at(states, since_s)}."
        )
    else:
        yield "acks=0: the producer waited for no broker to have it."
    lost_s = since_s
    for fault in run.faults:
        if fault.kind in LOSSY and fault.at_s >= since_s and fault.broker in isr:
            lost_s = fault.at_s
            loses = "its disks" if fault.kind == DISK else "what was not on disk yet"
            yield f"At {_clock(run, fault.at_s)} broker {fault.broker} lost {loses}."
    if lost_s > since_s and len(isr) == 1:
        yield "No other broker in sync had it."
    elected = [
        (before, after)
        for before, after in pairwise(states)
        if after.leader not in (before.leader, NO_LEADER) and after.at_s >= lost_s
    ]
    unclean = [(b, a) for b, a in elected if a.leader not in b.isr]
    for before, after in (unclean or elected)[:1]:
        text = f"At {_clock(run, after.at_s)} broker {after.leader} became leader"
        if unclean:
            text += (
                f" though it was not in sync (in sync: {_brokers(before.isr)}): "
                "unclean.leader.election.enable=true allows that"
                if _is_unclean(scenario)
                else f", elected by the end of its log; in sync: {_brokers(before.isr)}"
            )
        yield f"{text}."


def _is_unclean(scenario: Scenario) -> bool:
    config = scenario.server_config().topic_config(scenario.topic)
    return config.unclean_leader_election_enable


def _why_no_writes(
    scenario: Scenario, run: Run, broken: Broken, states: list[StateChange]
) -> Iterator[str]:
    inside = [s for s in states if broken.sent_s <= s.at_s <= broken.acknowledged_s]
    if any(s.leader == NO_LEADER for s in inside):
        yield "Meanwhile the partition had no leader."
    if any(len(s.isr) < scenario.min_isr for s in inside):
        yield (
            f"Meanwhile fewer replicas were in sync than min.insync.replicas={scenario.min_isr}: "
            "the leader refuses acks=all then."
        )
    for fault in run.faults:
        if fault.at_s < broken.acknowledged_s and fault.at_s + fault.lasts_s > broken.sent_s:
            yield f"At {_clock(run, fault.at_s)} {_begin(fault)}, for {fault.lasts_s:.0f} s."


def _events(
    scenario: Scenario, run: Run, broken: Broken, states: list[StateChange]
) -> Iterator[Event]:
    zero = run.began_s
    for fault in run.faults:
        text = _begin(fault)
        if fault.after_an_acknowledgement:
            text += ", right after a record was acknowledged"
        yield Event(round(fault.at_s - zero, 1), "fault", text)
        end = ENDS.get(fault.kind)
        if end is not None:
            text = end.format(fault.broker)
            if fault.kind in AWAY and scenario.catch_up_seconds:
                text += f"; it is slow for {scenario.catch_up_seconds:g} s, as it has to catch up"
            yield Event(round(fault.at_s + fault.lasts_s - zero, 1), "fault", text)
    last: StateChange | None = None
    for state in states:
        if state.at_s < zero:
            last = state
            continue
        if last is not None and last.at_s < zero:
            yield Event(0.0, "partition", _state_text(None, last))
        yield Event(round(state.at_s - zero, 1), "partition", _state_text(last, state))
        last = state
    registered: dict[int, bool] = {}
    for registration in run.registrations:
        new = registered.get(registration.broker) != registration.up
        registered[registration.broker] = registration.up
        if registration.at_s >= zero and new:
            yield Event(
                round(registration.at_s - zero, 1),
                "broker",
                f"broker {registration.broker} is registered in ZooKeeper"
                if registration.up
                else f"the registration of broker {registration.broker} is gone",
            )
    if broken.acknowledged_s >= 0:
        text = {
            KEPT: f"record {broken.value} is acknowledged",
            READS: f"record {broken.value} is read",
            GAP: "a write is acknowledged again",
        }[broken.promise]
        yield Event(round(broken.acknowledged_s - zero, 1), "record", text)
        if broken.promise == GAP:
            yield Event(round(broken.sent_s - zero, 1), "record", "the last write before the gap")


def _begin(fault: Fault) -> str:
    return BEGINS[fault.kind].format(fault.broker)


def _state_text(before: StateChange | None, now: StateChange) -> str:
    in_sync = ",".join(map(str, now.isr)) or "none"
    leader = "no leader" if now.leader == NO_LEADER else f"leader {now.leader}"
    if before is not None and before.leader == now.leader:
        return f"{now.partition}: in sync {in_sync} ({leader})"
    return f"{now.partition}: {leader}, in sync {in_sync}"


def _isr_at(states: list[StateChange], at_s: float) -> tuple[int, ...]:
    found: tuple[int, ...] = ()
    for state in states:
        if state.at_s > at_s:
            break
        found = state.isr
    return found


def _leader_at(states: list[StateChange], at_s: float) -> int:
    found = NO_LEADER
    for state in states:
        if state.at_s > at_s:
            break
        found = state.leader
    return found


def _brokers(isr: tuple[int, ...]) -> str:
    if not isr:
        return "no brokers"
    if len(isr) == 1:
        return f"broker {isr[0]} alone"
    return f"brokers {', '.join(map(str, isr[:-1]))} and {isr[-1]}"


def _count(replicas: int) -> str:
    return "one replica" if replicas == 1 else f"{replicas} replicas"


def _clock(run: Run, at_s: float) -> str:
    return f"{at_s - run.began_s:.1f} s"
