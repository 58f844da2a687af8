"""Faults of processes that do not go on: paused, stalled, without ZooKeeper (F6 to F9)."""

import time
from typing import Any

from faults.proof import CONTROLLER, FOLLOWERS, LEADER, SESSION_S, Proof, told
from proofs.kill_proof import longest_silence
from support.waiting import until


def f6(proof: Proof, seconds: float) -> dict[str, Any]:
    """ZooKeeper is killed and comes back."""
    epoch = proof.znodes.controller_epoch()
    proof.zookeeper.kill()
    before = time.monotonic()
    time.sleep(seconds)
    acked = proof.acked_between(before, time.monotonic())
    proof.zookeeper.start()
    back = time.monotonic()
    until(lambda: proof.znodes.client.connected, 60, "ZooKeeper is back")
    proof.settle(120)
    settled = time.monotonic()
    until(lambda: proof.acked_between(back, time.monotonic()) > 10, 30, "producing goes on")
    return {
        "away_s": seconds,
        "acked_while_away": acked,
        "longest_silence_s": round(longest_silence(proof.writer.acks, before, settled), 1),
        "elections": proof.znodes.controller_epoch() - epoch,
        "settled_s": round(settled - back, 1),
    }


def f7(proof: Proof) -> dict[str, Any]:
    """A leader is stopped beyond its session and goes on, with produces waiting for it."""
    before = time.monotonic()
    proof.cluster.pause(LEADER)
    try:
        until(lambda: proof.leader() in FOLLOWERS, SESSION_S + 6, "a new leader")
        moved = time.monotonic()
        time.sleep(max(0.0, 2 * SESSION_S - (moved - before)))
    finally:
        codes = proof.produce_while(LEADER, lambda: proof.cluster.resume(LEADER))
    assert 0 not in codes, f"the zombie acknowledged: {codes}"
    resumed = time.monotonic()
    proof.settle()
    return {
        "new_leader_s": round(moved - before, 1),
        "zombie_answers": told(codes),
        "settled_s": round(time.monotonic() - resumed, 1),
    }


def f8(proof: Proof) -> dict[str, Any]:
    """The controller is stopped beyond its session and goes on."""
    epoch = proof.znodes.controller_epoch()
    before = time.monotonic()
    proof.cluster.pause(CONTROLLER)
    try:
        until(lambda: proof.znodes.controller() > CONTROLLER, SESSION_S + 6, "a new controller")
        moved = time.monotonic()
        time.sleep(max(0.0, 2 * SESSION_S - (moved - before)))
        counted = len(proof.znodes.names("/brokers/topics"))
    finally:
        proof.cluster.resume(CONTROLLER)
    resumed = time.monotonic()
    proof.settle()
    assert proof.znodes.controller_epoch() == epoch + 1
    assert len(proof.znodes.names("/brokers/topics")) == counted
    assert proof.acked_between(before, resumed) > 100, "producing never stopped"
    states = proof.znodes.states("faults").values()
    return {
        "new_controller_s": round(moved - before, 1),
        "longest_silence_s": round(longest_silence(proof.writer.acks, before, resumed), 2),
        "controller_epochs": sorted({s.controller_epoch for s in states}),
        "settled_s": round(time.monotonic() - resumed, 1),
    }


def f9(proof: Proof) -> dict[str, Any]:
    """A leader's loop stands still for longer than its session: a C call keeps Python's lock."""
    shim = proof.cluster.shim(LEADER)
    czxid = proof.znodes.client.exists(f"/brokers/ids/{LEADER}").czxid
    before = time.monotonic()
    shim.set(stall_ms=2000 * SESSION_S)
    until(lambda: proof.leader() in FOLLOWERS, SESSION_S + 6, "a new leader")
    moved = time.monotonic()
    assert shim.get("stall_ms"), "it had gone on already"
    # These wait in its sockets; it reads them before it can know that it is fenced.
    codes = proof.produce_while(LEADER, lambda: None)
    assert not shim.get("stall_ms"), "it answered while it stood still"
    assert 0 not in codes, f"the zombie acknowledged: {codes}"
    went_on = time.monotonic()
    proof.settle()
    now = proof.znodes.client.exists(f"/brokers/ids/{LEADER}").czxid
    assert now > czxid, "it has no new registration, so no new broker epoch"
    proof.await_acks(100)
    return {
        "new_leader_s": round(moved - before, 1),
        "zombie_answers": told(codes),
        "settled_s": round(time.monotonic() - went_on, 1),
    }
