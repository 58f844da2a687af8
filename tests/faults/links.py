"""Faults of the network: links that are cut, slow or lossy (F13 to F16, F44)."""

import contextlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from confluent_kafka.admin import NewTopic

from faults.network import ZOOKEEPER, host
from faults.proof import CONTROLLER, FOLLOWERS, LAG_S, LEADER, SESSION_S, TOPIC, Proof, told
from faults.shim import CannotBeTriedError
from proofs.kill_proof import longest_silence
from support.clients import create_topics, fresh
from support.waiting import until

SPOILT_S = 30
OTHERS = [ZOOKEEPER, *(host(broker) for broker in (CONTROLLER, *FOLLOWERS))]
"""All hosts but the leader's."""


@contextlib.contextmanager
def cut(proof: Proof, links: list[tuple[int, int]]) -> Iterator[None]:
    """Let what goes over these links vanish."""
    for link in links:
        proof.network.cut(*link)
    try:
        yield
    finally:
        for link in links:
            proof.network.heal(*link)


@contextlib.contextmanager
def silent(proof: Proof, links: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Let what goes over these links vanish; yield what is found, and add how it settles.

    Silence is no proof that a process is gone: nobody is taken for dead before its session ends.
    """
    removals = proof.removals()
    found: dict[str, Any] = {}
    with cut(proof, links):
        yield found
    healed = time.monotonic()
    proof.settle()
    assert proof.removals() == removals, "a broker that was not heard was taken for dead"
    found["settled_s"] = round(time.monotonic() - healed, 1)


def session_ends(proof: Proof, before: float) -> float:
    """Wait until another one leads, not before the leader's session can have ended; return when."""
    until(lambda: proof.leader() in FOLLOWERS, SESSION_S + 6, "a new leader")
    moved = time.monotonic()
    assert moved - before > SESSION_S / 2, "its session had not ended"
    return moved


def f13(proof: Proof) -> dict[str, Any]:
    """A leader's packets to its followers vanish; ZooKeeper and controller hear it."""
    before = time.monotonic()
    with silent(proof, [(host(LEADER), host(follower)) for follower in FOLLOWERS]) as found:
        until(lambda: proof.isr() == {LEADER}, 3 * LAG_S, lambda: f"ISR shrinks: {proof.isr()}")
        shrunk = time.monotonic()
        assert shrunk - before < 2 * LAG_S + 1
        # ZooKeeper has the smaller ISR a moment before the leader is told: the first may still be
        # appended (NOT_ENOUGH_REPLICAS_AFTER_APPEND, or a timeout), none is acknowledged.
        first, *later = (proof.produce_at(LEADER, timeout_s=10) for _ in range(5))
        assert first in (7, 19, 20), f"acknowledged below min.insync.replicas: {first}"
        codes = Counter([first, *later])
        assert set(later) <= {19, 20}, f"NOT_ENOUGH_REPLICAS below min.insync.replicas: {codes}"
        found |= {"isr_shrunk_s": round(shrunk - before, 1), "refused": told(codes)}
    return found


def f14(proof: Proof) -> dict[str, Any]:
    """A leader and ZooKeeper do not hear each other; its followers hear it."""
    before = time.monotonic()
    with silent(proof, both_ways([ZOOKEEPER])) as found:
        moved = session_ends(proof, before)
        codes = Counter(proof.produce_at(LEADER, timeout_s=10) for _ in range(5))
        assert 0 not in codes, "the old leader acknowledged"
        until(lambda: proof.first_ack(moved), 20, "the new leader serves")
        found |= {
            "new_leader_s": round(moved - before, 1),
            "acked_again_s": round(proof.first_ack(moved) - before, 1),
            "old_leader_answers": told(codes),
        }
    return found


def f44(proof: Proof) -> dict[str, Any]:
    """A leader's host is silent for all others: no proof; its session has to end (R17)."""
    before = time.monotonic()
    with silent(proof, both_ways(OTHERS)) as found:
        moved = session_ends(proof, before)
        # Asked itself: the writer still hears the silent broker, which knows of no new leader.
        until(
            lambda: proof.produce_at(proof.leader(), timeout_s=5) == 0, 20, "the new leader serves"
        )
        found |= {
            "new_leader_s": round(moved - before, 1),
            "served_again_s": round(time.monotonic() - before, 1),
        }
    return found


def f44_rejected(proof: Proof) -> dict[str, Any]:
    """A packet filter refuses the other brokers' packets to a leader that lives (R17).

    The controller's connection ends when it next sends something: a topic is created. The leader is
    removed once and registers anew. Refused as before, it is not removed again: from then on
    only its session counts (docs/adr/0018). A restarted process can be removed again.
    """
    if shutil.which("iptables") is None:
        raise CannotBeTriedError("needs iptables")
    registered, removals = proof.registration(LEADER), proof.removals()
    before = time.monotonic()
    rules = proof.network.reject(host(LEADER), proof.cluster.ports[LEADER])
    name = fresh("rejected")
    try:
        create_topics(proof.admin, NewTopic(name, 1, replica_assignment=[list(FOLLOWERS)]))
        until(lambda: proof.leader() in FOLLOWERS, SESSION_S, "a new leader")
        moved = time.monotonic()
        assert moved - before < SESSION_S / 2, "it waited for the session"
        until(
            lambda: proof.registration(LEADER) not in (None, registered),
            SESSION_S,
            "it registers anew",
        )
        anew, registered = time.monotonic(), proof.registration(LEADER)
        assert proof.removals() == removals + 1
        time.sleep(2 * SESSION_S)
        assert proof.registration(LEADER) == registered, "its session did not last"
        assert proof.removals() == removals + 1, "removed again"
    finally:
        proof.network.accept(host(LEADER), rules)
    proof.settle()
    assert proof.cluster.terminate(LEADER) == 0
    proof.cluster.start_broker(LEADER)
    proof.settle()
    return {"new_leader_s": round(moved - before, 2), "registered_anew_s": round(anew - before, 2)}


def f44_rebooted(proof: Proof) -> dict[str, Any]:
    """A leader's host loses power and is back without a broker (R17).

    The host is silent first: nobody heard the end of its connections. When it is back, it answers
    the controller's next request (a topic is created) by a reset and refuses connections.
    """
    removals = proof.removals()
    before = time.monotonic()
    with cut(proof, both_ways(OTHERS)):
        proof.cluster.kill(LEADER)
        time.sleep(1.0)
        assert proof.removals() == removals, "silence was taken for a proof"
    back = time.monotonic()
    new = NewTopic(fresh("rebooted"), 1, replica_assignment=[list(FOLLOWERS)])
    create_topics(proof.admin, new)
    until(lambda: proof.leader() in FOLLOWERS, SESSION_S, "a new leader")
    moved = time.monotonic()
    assert moved - before < SESSION_S / 2, "it waited for the session"
    assert proof.removals() == removals + 1, "led by another one before it was removed"
    proof.cluster.start_broker(LEADER)
    proof.settle()
    return {"new_leader_s": round(moved - back, 2), "after_power_loss_s": round(moved - before, 2)}


def both_ways(others: list[int]) -> list[tuple[int, int]]:
    """Return the leader's links with other hosts."""
    return [pair for o in others for pair in ((host(LEADER), o), (o, host(LEADER)))]


def f15(proof: Proof) -> dict[str, Any]:
    """The controller's packets to one broker vanish while that broker is elected."""
    # Another leads partition 0 first, so that electing broker 1 must be told to it.
    assert proof.cluster.terminate(LEADER) == 0
    proof.cluster.start_broker(LEADER)
    until(lambda: proof.znodes.full(TOPIC), 30, "every ISR is full")
    assert proof.leader() != LEADER
    proof.network.cut(host(CONTROLLER), host(LEADER))
    try:
        wanted = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0}]}
        proof.znodes.client.create("/admin/preferred_replica_election", json.dumps(wanted).encode())
        until(lambda: proof.leader() == LEADER, 20, "the election is written")
        time.sleep(10)
        assert proof.znodes.controller() == CONTROLLER
        assert proof.produce_at(LEADER, timeout_s=10) != 0, "it cannot know yet"
    finally:
        proof.network.heal(host(CONTROLLER), host(LEADER))
    healed = time.monotonic()
    proof.settle()
    settled = time.monotonic()
    assert settled - healed < 30, "a partition was stuck after the link was healed"
    return {"settled_s": round(settled - healed, 1)}


def f16(proof: Proof) -> dict[str, Any]:
    """What each broker with replicas sends and receives is late and partly lost, half a minute."""
    before = time.monotonic()
    brokers = (LEADER, *FOLLOWERS)
    how = {proof.network.spoil(host(broker)) for broker in brokers}
    try:
        time.sleep(SPOILT_S)
    finally:
        lost = sum(proof.network.mend(host(broker)) for broker in brokers)
    healed = time.monotonic()
    acked = sum(before < a.at <= healed for a in proof.writer.acks)
    assert lost > 20, f"the links were not lossy: {lost} packets"
    assert acked > 100, f"no progress: {acked} acknowledged"
    proof.settle()
    return {
        "links": ", ".join(how),
        "packets_lost": lost,
        "acked_meanwhile": acked,
        "longest_silence_s": round(longest_silence(proof.writer.acks, before, healed), 1),
        "settled_s": round(time.monotonic() - healed, 1),
    }
