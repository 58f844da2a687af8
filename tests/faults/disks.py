"""Faults of disks: power lost, exchanged, full, broken, torn, slow (F5, F11, F17 to F19, F22)."""

import errno
import random
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from faults.machines import DIRS
from faults.proof import FOLLOWERS, LEADER, TOPIC, Proof
from ottla.log.boot_ids import BOOT_ID_FILE
from proofs.kill_proof import Writer, longest_silence, read_back
from support.clients import create_topics, fresh
from support.waiting import until

FLUSH_S = 2.0
"""`log.flush.interval.ms` of these brokers."""

SLOW_MS = 2_000
SLOW_FOR_S = 30
CUTS = 12


# --- power ----------------------------------------------------------------------------------------


def f5(proof: Proof) -> dict[str, Any]:
    """Two of three replicas lose power at the same moment; the third keeps what it has."""
    times = 3
    healed = []
    for number in range(times):
        victims = [b for b in (LEADER, *FOLLOWERS) if b != (LEADER, *FOLLOWERS)[number]]
        proof.cluster.lose_power(*victims)
        for broker in victims:
            proof.cluster.start_broker(broker, wait=False)
        back = time.monotonic()
        for broker in victims:
            proof.cluster.wait(broker)
        proof.settle(90)
        healed.append(round(time.monotonic() - back, 1))
        proof.await_acks(100)
    return {"power_losses": times, "brokers_each": 2, "healed_s": healed}


def f5_everywhere(proof: Proof) -> dict[str, Any]:
    """All replicas lose power at the same moment: only what nobody had synced may be gone.

    A topic and a writer of its own, since some of what was acknowledged must be expected to go.
    """
    topic = fresh("dark")
    brokers = (LEADER, *FOLLOWERS)
    new = NewTopic(topic, 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    create_topics(proof.admin, new)
    with Writer(proof.cluster.bootstrap, 300, Counter(), topic) as writer:
        until(lambda: len(writer.acks) > 300 * 3 * FLUSH_S, 60, "there is something to lose")
        proof.cluster.lose_power(*brokers)
        dark = time.monotonic()
        acks = [a for a in writer.acks if a.at < dark]
        writer.producer.purge()
    for broker in brokers:
        proof.cluster.start_broker(broker, wait=False)
    for broker in brokers:
        proof.cluster.wait(broker)
    until(
        lambda: all(s.leader >= 0 for s in proof.znodes.states(topic).values()),
        90,
        lambda: f"all partitions have leaders: {proof.znodes.states(topic)}",
    )
    until(
        lambda: all(len(s.isr) == 3 for s in proof.znodes.states(topic).values()),
        90,
        lambda: f"every ISR is full: {proof.znodes.states(topic)}",
    )
    found = read_back(proof.cluster.bootstrap, topic=topic, count=3)
    ends = {p: max((o for q, o in found if q == p), default=-1) for p in range(3)}
    acks = [a for a in acks if a.offset is not None]
    lost = [a for a in acks if found.get((a.partition, a.offset)) != (a.key, a.number)]
    amid = [a for a in lost if a.offset <= ends[a.partition]]
    assert not amid, f"other records stand where acknowledged ones did: {amid[:3]}"
    oldest_s = max((dark - a.at for a in lost), default=0.0)
    # Due each FLUSH_S, done within a moment of that, on at least one of the three.
    assert oldest_s < 2 * FLUSH_S, f"lost though acknowledged {oldest_s:.1f} s before"
    return {
        "acked": len(acks),
        "lost": len(lost),
        "oldest_lost_s": round(oldest_s, 2),
        "synced_each_s": FLUSH_S,
    }


# --- exchanged ------------------------------------------------------------------------------------


def f11(proof: Proof) -> dict[str, Any]:
    """A leader bounces within its session; with an empty disk; a foreign one is refused."""
    cluster = proof.cluster
    bounced = []
    for _ in range(3):
        cluster.kill(LEADER)
        cluster.start_broker(LEADER)
        back = time.monotonic()
        proof.settle()
        bounced.append(round(time.monotonic() - back, 1))
        proof.elect_preferred()
        proof.await_acks(50)
    until(lambda: proof.leader() == LEADER, 30, "it leads again")
    cluster.kill(LEADER)
    for one in DIRS:
        for path in cluster.dir(LEADER, one).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start_broker(LEADER)
    back = time.monotonic()
    proof.settle()
    emptied_s = round(time.monotonic() - back, 1)
    refused = _swapped(proof, *FOLLOWERS)
    proof.settle()
    return {"healed_s": bounced, "emptied_healed_s": emptied_s, "foreign_disk": refused}


def _swapped(proof: Proof, one: int, other: int) -> str:
    """Give a broker another's folders: it must not start with them."""
    cluster = proof.cluster
    for broker in (one, other):
        cluster.kill(broker)
    try:
        _exchange(proof, one, other)
        try:
            cluster.start_broker(one)
        except RuntimeError as refused:
            said = str(refused)
        else:
            raise AssertionError("a broker took another's disk for its own")
    finally:
        _exchange(proof, one, other)
        for broker in (one, other):
            if not cluster.running(broker):
                cluster.start_broker(broker)
    assert "broker.id" in said, said[-300:]
    return "refused"


def _exchange(proof: Proof, one: int, other: int) -> None:
    """Exchange what lies in two brokers' folders; they may be mount points."""
    for name in DIRS:
        a, b = proof.cluster.dir(one, name), proof.cluster.dir(other, name)
        aside = proof.cluster.folder / "aside"
        for source, target in ((a, aside), (b, a), (aside, b)):
            target.mkdir(exist_ok=True)
            for path in source.iterdir():
                shutil.move(path, target / path.name)
        aside.rmdir()


# --- full and broken ------------------------------------------------------------------------------


def f17(proof: Proof) -> dict[str, Any]:
    """One of a leader's disks is full."""
    disk = proof.cluster.disk(LEADER, _home(proof, LEADER))
    return _dir_fails(proof, LEADER, disk.fill, disk.empty)


def f18(proof: Proof) -> dict[str, Any]:
    """One of a leader's disks fails to write; later one of a follower's fails to sync."""
    facts = {}
    for broker, field in ((LEADER, "write_errno"), (FOLLOWERS[0], "sync_errno")):
        shim = proof.cluster.shim(broker)
        where = proof.cluster.dir(broker, _home(proof, broker))

        def fail(where: Path = where, field: str = field, shim: Any = shim) -> None:
            shim.set(where, **{field: errno.EIO})

        facts[field.removesuffix("_errno")] = _dir_fails(proof, broker, fail, shim.heal)
    return facts


def _home(proof: Proof, broker: int) -> str:
    """Return in which of its log dirs a broker has partition 0."""
    return proof.cluster.replica(broker, f"{TOPIC}-0").parent.name


def _dir_fails(proof: Proof, broker: int, fail: Any, heal: Any) -> dict[str, Any]:
    """Let the log dir with partition 0 fail: the broker goes on without it."""
    before = time.monotonic()
    fail()
    try:
        until(
            lambda: broker not in proof.isr() and proof.leader() != broker,
            30,
            lambda: f"broker {broker} gives partition 0 up: {proof.znodes.states(TOPIC)[0]}",
        )
        moved = time.monotonic()
        proof.await_acks(100)
        assert proof.cluster.running(broker), "it ended, though it has another log dir"
        assert proof.cluster.known_to(broker), "it does not respond any more"
        assert broker in proof.znodes.brokers(), "it is not registered any more"
    finally:
        heal()
    # As with Kafka's, an offline dir is looked at again when the broker starts.
    assert proof.cluster.terminate(broker) == 0
    proof.cluster.start_broker(broker)
    back = time.monotonic()
    proof.settle()
    return {
        "given_up_s": round(moved - before, 1),
        "settled_s": round(time.monotonic() - back, 1),
        "longest_silence_s": round(longest_silence(proof.writer.acks, before, back), 1),
    }


# --- torn -----------------------------------------------------------------------------------------


def f19(proof: Proof) -> dict[str, Any]:
    """A broker dies while it writes: of its last write only a part is in the file."""
    chance = random.Random(19)
    broker = FOLLOWERS[1]
    cut = []
    for _ in range(1 if proof.quick else CUTS // proof.partitions):
        proof.cluster.kill(broker)
        for p in range(proof.partitions):
            last = max(proof.cluster.replica(broker, f"{TOPIC}-{p}").glob("*.log"))
            size = last.stat().st_size
            # Within the last batches; after that nothing, zeros, or what lay there before.
            torn = chance.choice((1, 17, 60, 61, 62, *(chance.randrange(1, 600) for _ in "12345")))
            at = max(0, size - torn)
            after = chance.choice((b"", bytes(chance.randrange(1, 5000)), chance.randbytes(900)))
            with last.open("r+b") as file:
                file.truncate(at)
                file.seek(at)
                file.write(after)
            cut.append(size - at)
            # Only a crash of the machine tears writes; the note says that just the process died.
            (last.parents[1] / BOOT_ID_FILE).unlink(missing_ok=True)
        proof.cluster.start_broker(broker)
        proof.settle()
        proof.await_acks(50)
    return {"files_cut": len(cut), "bytes_cut": [min(cut), max(cut)]}


# --- slow -----------------------------------------------------------------------------------------


def f22(proof: Proof) -> dict[str, Any]:
    """Each write and each sync of a follower takes two seconds, for half a minute."""
    broker = FOLLOWERS[0]
    shim = proof.cluster.shim(broker)
    states = [proof.znodes.states(TOPIC)]
    before = time.monotonic()
    shim.set(proof.cluster.data(broker), write_ms=SLOW_MS, sync_ms=SLOW_MS)
    try:
        while time.monotonic() < before + SLOW_FOR_S:
            if (now := proof.znodes.states(TOPIC)) != states[-1]:
                states.append(now)
            time.sleep(0.1)
        slowed = shim.get("hits")
    finally:
        shim.heal()
    healed = time.monotonic()
    acked = sum(before < a.at <= healed for a in proof.writer.acks)
    proof.settle()
    assert slowed > 3, f"hardly a call was slow: {slowed}"
    changes = max(
        sum(a[p].isr != b[p].isr for a, b in pairwise(states)) for p in range(proof.partitions)
    )
    assert changes <= 2, f"the ISR flaps: {changes} changes of one partition's"
    assert acked > 100, f"no progress: {acked} acknowledged"
    assert proof.cluster.processes[broker].poll() is None
    return {
        "calls_slowed": slowed,
        "isr_changes": changes,
        "acked_meanwhile": acked,
        "longest_silence_s": round(longest_silence(proof.writer.acks, before, healed), 1),
        "settled_s": round(time.monotonic() - healed, 1),
    }
