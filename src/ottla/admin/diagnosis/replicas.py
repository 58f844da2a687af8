"""Rules about partitions: leaders, ISRs, replication factor, racks, moves, deletions, epochs.

A decider. Invariants: facts in, findings out; one finding for each rule, whatever the number of
partitions; equal facts give equal findings.
"""

from collections.abc import Iterable, Iterator

from ottla.admin.diagnosis.facts import Facts, Finding, PartitionFacts, Severity, some
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

WANTED_REPLICAS = 3
FLAPS = 2
"""So many changes of one ISR while it is watched are flapping: it shrank and grew again."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong or unsafe with partitions."""
    yield from _without_leader(facts)
    yield from _under_min_isr(facts)
    yield from _under_replicated(facts)
    yield from _flapping(facts)
    yield from _stale_epochs(facts)
    yield from _stuck_moves(facts)
    yield from _stuck_deletions(facts)
    yield from _leaders_elsewhere(facts)
    yield from _few_replicas(facts)
    yield from _min_isr_is_all(facts)
    yield from _racks(facts)
    yield from _unclean(facts)


def least(facts: Facts, tp: TopicPartition, partition: PartitionFacts) -> int:
    """Return how many members the ISR must have for acks=all."""
    settings = facts.settings.get(tp.topic)
    return min(1 if settings is None else settings.min_isr, len(partition.replicas))


def _without_leader(facts: Facts) -> Iterator[Finding]:
    found = {tp: p for tp, p in facts.partitions.items() if p.leader < 0}
    if found:
        dead = sorted({b for p in found.values() for b in p.isr if b not in facts.brokers})
        tp, first = next(iter(found.items()))
        yield Finding(
            "no-leader", Severity.error, _names(found),
            f"{some(list(found))}: no leader; in sync were {list(first.isr)} of {tp}, alive are "
            f"{sorted(facts.brokers)}",
            "a partition without a leader takes and gives no records; only a replica in sync has "
            "every acknowledged record",
            f"start broker {_ids(dead)}; if a disk is gone: ottla elect unclean {tp} --dry-run"
            if dead else f"ottla why {tp}",
        )  # fmt: skip


def _under_min_isr(facts: Facts) -> Iterator[Finding]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        if p.leader >= 0 and len(p.isr) < least(facts, tp, p)
    ]
    if found:
        yield Finding(
            "under-min-isr", Severity.error, _names(found),
            f"{some(found)}: the ISR is smaller than min.insync.replicas",
            "produce with acks=all is refused with NOT_ENOUGH_REPLICAS",
            _bring_back(facts, found),
        )  # fmt: skip


def _under_replicated(facts: Facts) -> Iterator[Finding]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        # Those that are worse off are named by the rules above.
        if p.leader >= 0 and least(facts, tp, p) <= len(p.isr) < len(p.replicas)
    ]
    if found:
        yield Finding(
            "under-replicated", Severity.warning, _names(found),
            f"{some(found)}: {_behind(facts, found)}",
            "each replica that is not in sync is one failure less that the partition survives",
            _bring_back(facts, found),
        )  # fmt: skip


def _flapping(facts: Facts) -> Iterator[Finding]:
    found = {tp: n for tp, n in facts.isr_changes.items() if n >= FLAPS}
    if found:
        tp, most = max(found.items(), key=lambda item: item[1])
        yield Finding(
            "isr-flapping", Severity.warning, _names(found),
            f"{some(list(found))}: the ISR of {tp} changed {most} times in "
            f"{facts.watched_s:.0f} s",
            "a follower that falls behind and catches up again and again is slow, paused or far "
            "away; while it is out, the partition survives one failure less",
            "find the replica by `ottla history timeline` or the brokers' logs; look at its disk, "
            "its pauses and replica.lag.time.max.ms",
        )  # fmt: skip


def _stale_epochs(facts: Facts) -> Iterator[Finding]:
    newest: dict[TopicPartition, int] = {}
    for view in facts.views.values():
        for tp, (_, epoch) in view.items():
            newest[tp] = max(newest.get(tp, -1), epoch)
    stale = {
        broker: old
        for broker, view in sorted(facts.views.items())
        if (old := [tp for tp, (_, epoch) in view.items() if epoch < newest[tp]])
    }
    if stale:
        broker, old = next(iter(stale.items()))
        yield Finding(
            "stale-metadata", Severity.warning, [f"broker {b}" for b in stale],
            f"broker {broker} has leader epoch {facts.views[broker][old[0]][1]} of {old[0]}, "
            f"another broker has {newest[old[0]]}; the same for {plural(len(old), 'partition')}",
            "clients that ask this broker are sent to former leaders",
            f"restart broker {_ids(list(stale))}: the controller sends it everything anew",
        )  # fmt: skip


def _stuck_moves(facts: Facts) -> Iterator[Finding]:
    dead = {
        tp: gone
        for tp, adding in facts.moves.items()
        if (gone := [b for b in adding if b not in facts.brokers])
    }
    if dead:
        gone = next(iter(dead.values()))
        yield Finding(
            "reassignment-stuck", Severity.warning, _names(dead),
            f"{some(list(dead))}: a reassignment waits for broker {_ids(gone)}, which is not alive",
            "a reassignment ends when all new replicas are in sync; until then old ones stay",
            f"start broker {_ids(gone)}, or cancel: "
            f"{' '.join(['ottla', *_cancel(list(dead))])}",
            [_cancel(list(dead))],
        )  # fmt: skip


def _cancel(partitions: list[TopicPartition]) -> list[str]:
    words = ["reassign", "cancel"]
    for tp in partitions:
        words += ["--partition", str(tp)]
    return words


def _stuck_deletions(facts: Facts) -> Iterator[Finding]:
    waiting = {}
    for topic, replicas in (facts.deleting or {}).items():
        gone = sorted(set(replicas) - facts.brokers.keys())
        if gone:
            waiting[topic] = gone
    if waiting:
        gone = sorted({b for brokers in waiting.values() for b in brokers})
        yield Finding(
            "deletion-stuck", Severity.warning, list(waiting),
            f"topic {some(list(waiting))} is to be deleted, but has replicas on broker "
            f"{_ids(gone)}, which is not alive",
            "a topic is gone when every replica is; the deletion goes on when the broker is back",
            f"start broker {_ids(gone)}",
        )  # fmt: skip


def _leaders_elsewhere(facts: Facts) -> Iterator[Finding]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        if p.leader >= 0 and p.leader != p.replicas[0] and p.replicas[0] in p.isr
        and p.replicas[0] in facts.brokers and tp not in facts.moves
    ]  # fmt: skip
    if found:
        yield Finding(
            "leaders-elsewhere", Severity.risk, _names(found),
            f"{some(found)}: {len(found):,} of "
            f"{plural(len(facts.partitions), 'partition')} not led by "
            "their preferred replica, though it is in sync",
            "the assignment spreads preferred leaders over the brokers; leaders elsewhere load "
            "some brokers more",
            "ottla elect preferred --all",
            [["elect", "preferred", "--all"]],
        )  # fmt: skip


def _few_replicas(facts: Facts) -> Iterator[Finding]:
    found: dict[str, int] = {}
    for tp, p in facts.partitions.items():
        if len(p.replicas) < WANTED_REPLICAS:
            found[tp.topic] = min(len(p.replicas), found.get(tp.topic, WANTED_REPLICAS))
    if found:
        enough = len(facts.brokers) >= WANTED_REPLICAS
        topic, count = next(iter(found.items()))
        yield Finding(
            "few-replicas", Severity.risk, list(found),
            f"topic {some(list(found))}: fewer than {WANTED_REPLICAS} replicas ({topic} has "
            f"{count}); the cluster has {plural(len(facts.brokers), 'broker')}",
            "with one replica a lost disk loses the records; with two, nothing is left to fail "
            "while one broker is restarted",
            f"ottla reassign plan --topics {','.join(found)} --replication-factor "
            f"{WANTED_REPLICAS} > plan.json; ottla reassign execute --file plan.json"
            if enough else f"add brokers, until there are {WANTED_REPLICAS}",
        )  # fmt: skip


def _min_isr_is_all(facts: Facts) -> Iterator[Finding]:
    found: dict[str, tuple[int, int]] = {}
    for tp, p in facts.partitions.items():
        settings = facts.settings.get(tp.topic)
        if settings and len(p.replicas) > 1 and settings.min_isr >= len(p.replicas):
            found[tp.topic] = (settings.min_isr, len(p.replicas))
    if found:
        topic, (min_isr, replicas) = next(iter(found.items()))
        lower = [name for name, (_, count) in found.items() if count >= WANTED_REPLICAS]
        commands = [
            [
                "configs",
                "alter",
                "--topic",
                name,
                "--set",
                f"min.insync.replicas={found[name][1] - 1}",
            ]
            for name in lower
        ]
        yield Finding(
            "min-isr-is-all", Severity.risk, list(found),
            f"topic {some(list(found))}: min.insync.replicas is {min_isr} of "
            f"{plural(replicas, 'replica')} "
            f"({topic})",
            "each broker that is down or restarts makes produce with acks=all fail",
            " ".join(["ottla", *commands[0]]) if commands
            else "give the topic more replicas: ottla reassign plan --replication-factor 3",
            commands,
        )  # fmt: skip


def _racks(facts: Facts) -> Iterator[Finding]:
    without = [b for b, rack in facts.brokers.items() if rack is None]
    if 0 < len(without) < len(facts.brokers):
        yield Finding(
            "some-without-rack", Severity.risk, [f"broker {b}" for b in without],
            f"broker {_ids(without)} has no broker.rack, the others have one",
            "new topics are refused, or spread without regard to racks",
            "set broker.rack in its settings and restart it",
        )  # fmt: skip
        return
    racks = set(facts.brokers.values())
    if without or len(racks) < 2:
        return
    found = [
        tp
        for tp, p in facts.partitions.items()
        if len({facts.brokers.get(b, f"of {b}") for b in p.replicas})
        < min(len(p.replicas), len(racks))
    ]
    if found:
        topics = ",".join(dict.fromkeys(tp.topic for tp in found))
        yield Finding(
            "racks-violated", Severity.risk, _names(found),
            f"{some(found)}: two replicas share a rack, though the brokers are in {len(racks)} "
            "racks",
            "a rack that fails takes more replicas than it must",
            f"ottla reassign plan --topics {topics} > plan.json; ottla reassign execute --file "
            "plan.json",
        )  # fmt: skip


def _unclean(facts: Facts) -> Iterator[Finding]:
    found = [name for name, settings in facts.settings.items() if settings.unclean]
    if found:
        commands = [
            ["configs", "alter", "--topic", name, "--set", "unclean.leader.election.enable=false"]
            for name in found
        ]
        yield Finding(
            "unclean-allowed", Severity.risk, found,
            f"topic {some(found)}: unclean.leader.election.enable=true",
            "when no replica in sync is alive, another one leads and acknowledged records are lost",
            " ".join(["ottla", *commands[0]]),
            commands,
        )  # fmt: skip


def _behind(facts: Facts, partitions: list[TopicPartition]) -> str:
    out = {b for tp in partitions for b in _missing(facts.partitions[tp])}
    dead, alive = sorted(out - facts.brokers.keys()), sorted(out & facts.brokers.keys())
    parts = [f"broker {_ids(dead)} is not alive"] if dead else []
    parts += [f"broker {_ids(alive)} is alive but behind"] if alive else []
    return "; ".join(parts)


def _bring_back(facts: Facts, partitions: list[TopicPartition]) -> str:
    dead = sorted(
        {b for tp in partitions for b in _missing(facts.partitions[tp])} - facts.brokers.keys()
    )
    if dead:
        return f"start broker {_ids(dead)}"
    return "wait until followers have caught up; if they do not, look at their logs and throttles"


def _missing(partition: PartitionFacts) -> set[int]:
    return set(partition.replicas) - set(partition.isr)


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(tp) for tp in partitions]


def _ids(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))
