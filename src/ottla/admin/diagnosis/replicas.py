"""Rules about partitions: leaders, ISRs, replication factor, racks, moves, deletions, epochs.

A decider. Invariants: facts in, findings out; one finding for each rule, whatever the number of
partitions; equal facts give equal findings.
"""

from collections.abc import Iterator

from ottla.admin.diagnosis.facts import Facts, Found, PartitionFacts, brokers, finding, ids
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

WANTED_REPLICAS = 3
FLAPS = 2
"""So many changes of one ISR while it is watched are flapping: it shrank and grew again."""


def least(facts: Facts, tp: TopicPartition, partition: PartitionFacts) -> int:
    """Return how many members the ISR must have for acks=all."""
    settings = facts.settings.get(tp.topic)
    return min(1 if settings is None else settings.min_isr, len(partition.replicas))


def _without_leader(facts: Facts) -> Iterator[Found]:
    found = {tp: p for tp, p in facts.partitions.items() if p.leader < 0}
    for tp, first in list(found.items())[:1]:
        dead = sorted({b for p in found.values() for b in p.isr if b not in facts.brokers})
        yield finding(
            "no-leader",
            found,
            isr=list(first.isr),
            first=tp,
            alive=sorted(facts.brokers),
            fix=f"start broker {ids(dead)}; if a disk is gone: ottla elect unclean {tp} --dry-run"
            if dead
            else f"ottla why {tp}",
        )


def _under_min_isr(facts: Facts) -> Iterator[Found]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        if p.leader >= 0 and len(p.isr) < least(facts, tp, p)
    ]
    if found:
        yield finding("under-min-isr", found, fix=_bring_back(facts, found))


def _under_replicated(facts: Facts) -> Iterator[Found]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        # Those that are worse off are named by the rules above.
        if p.leader >= 0 and least(facts, tp, p) <= len(p.isr) < len(p.replicas)
    ]
    if found:
        fix = _bring_back(facts, found)
        yield finding("under-replicated", found, behind=_behind(facts, found), fix=fix)


def _flapping(facts: Facts) -> Iterator[Found]:
    found = {tp: n for tp, n in facts.isr_changes.items() if n >= FLAPS}
    if found:
        first, changes = max(found.items(), key=lambda item: item[1])
        yield finding(
            "isr-flapping", found, first=first, changes=changes, watched_s=facts.watched_s
        )


def _stale_epochs(facts: Facts) -> Iterator[Found]:
    newest: dict[TopicPartition, int] = {}
    for view in facts.views.values():
        for tp, (_, epoch) in view.items():
            newest[tp] = max(newest.get(tp, -1), epoch)
    stale = {
        broker: old
        for broker, view in sorted(facts.views.items())
        if (old := [tp for tp, (_, epoch) in view.items() if epoch < newest[tp]])
    }
    for broker, old in list(stale.items())[:1]:
        yield finding(
            "stale-metadata",
            brokers(stale),
            broker=broker,
            epoch=facts.views[broker][old[0]][1],
            first=old[0],
            newest=newest[old[0]],
            partitions=plural(len(old), "partition"),
            brokers=ids(stale),
        )


def _stuck_moves(facts: Facts) -> Iterator[Found]:
    dead = {
        tp: gone
        for tp, adding in facts.moves.items()
        if (gone := [b for b in adding if b not in facts.brokers])
    }
    if dead:
        cancel = ["reassign", "cancel"]
        for tp in dead:
            cancel += ["--partition", str(tp)]
        gone = next(iter(dead.values()))
        yield finding("reassignment-stuck", dead, [cancel], brokers=ids(gone))


def _stuck_deletions(facts: Facts) -> Iterator[Found]:
    waiting = {}
    for topic, replicas in (facts.deleting or {}).items():
        gone = sorted(set(replicas) - facts.brokers.keys())
        if gone:
            waiting[topic] = gone
    if waiting:
        gone = sorted({b for brokers in waiting.values() for b in brokers})
        yield finding("deletion-stuck", waiting, brokers=ids(gone))


def _leaders_elsewhere(facts: Facts) -> Iterator[Found]:
    found = [
        tp
        for tp, p in facts.partitions.items()
        if p.leader >= 0
        and p.leader != p.replicas[0]
        and p.replicas[0] in p.isr
        and p.replicas[0] in facts.brokers
        and tp not in facts.moves
    ]
    if found:
        yield finding(
            "leaders-elsewhere",
            found,
            [["elect", "preferred", "--all"]],
            count=len(found),
            partitions=plural(len(facts.partitions), "partition"),
        )


def _few_replicas(facts: Facts) -> Iterator[Found]:
    found: dict[str, int] = {}
    for tp, p in facts.partitions.items():
        if len(p.replicas) < WANTED_REPLICAS:
            found[tp.topic] = min(len(p.replicas), found.get(tp.topic, WANTED_REPLICAS))
    for topic, count in list(found.items())[:1]:
        enough = len(facts.brokers) >= WANTED_REPLICAS
        yield finding(
            "few-replicas",
            found,
            wanted=WANTED_REPLICAS,
            topic=topic,
            count=count,
            topics=",".join(found),
            brokers=plural(len(facts.brokers), "broker"),
            fix="" if enough else f"add brokers, until there are {WANTED_REPLICAS}",
        )


def _min_isr_is_all(facts: Facts) -> Iterator[Found]:
    found: dict[str, tuple[int, int]] = {}
    for tp, p in facts.partitions.items():
        settings = facts.settings.get(tp.topic)
        if settings and len(p.replicas) > 1 and settings.min_isr >= len(p.replicas):
            found[tp.topic] = (settings.min_isr, len(p.replicas))
    for topic, (min_isr, replicas) in list(found.items())[:1]:
        commands = [
            _set(name, f"min.insync.replicas={count - 1}")
            for name, (_, count) in found.items()
            if count >= WANTED_REPLICAS
        ]
        more = "give the topic more replicas: ottla reassign plan --replication-factor 3"
        yield finding(
            "min-isr-is-all",
            found,
            commands,
            topic=topic,
            min_isr=min_isr,
            replicas=plural(replicas, "replica"),
            fix="" if commands else more,
        )


def _racks(facts: Facts) -> Iterator[Found]:
    without = [b for b, rack in facts.brokers.items() if rack is None]
    if 0 < len(without) < len(facts.brokers):
        yield finding("some-without-rack", brokers(without), brokers=ids(without))
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
        yield finding("racks-violated", found, racks=len(racks), topics=topics)


def _unclean(facts: Facts) -> Iterator[Found]:
    found = [name for name, settings in facts.settings.items() if settings.unclean]
    if found:
        off = [_set(name, "unclean.leader.election.enable=false") for name in found]
        yield finding("unclean-allowed", found, off)


def _set(topic: str, setting: str) -> list[str]:
    return ["configs", "alter", "--topic", topic, "--set", setting]


def _behind(facts: Facts, partitions: list[TopicPartition]) -> str:
    out = _missing(facts, partitions)
    dead, alive = sorted(out - facts.brokers.keys()), sorted(out & facts.brokers.keys())
    parts = [f"broker {ids(dead)} is not alive"] if dead else []
    parts += [f"broker {ids(alive)} is alive but behind"] if alive else []
    return "; ".join(parts)


def _bring_back(facts: Facts, partitions: list[TopicPartition]) -> str:
    dead = sorted(_missing(facts, partitions) - facts.brokers.keys())
    if dead:
        return f"start broker {ids(dead)}"
    return "wait until followers have caught up; if they do not, look at their logs and throttles"


def _missing(facts: Facts, partitions: list[TopicPartition]) -> set[int]:
    """Return the brokers whose replicas are out of sync."""
    found = (facts.partitions[tp] for tp in partitions)
    return {broker for p in found for broker in p.replicas if broker not in p.isr}


RULES = (
    _without_leader,
    _under_min_isr,
    _under_replicated,
    _flapping,
    _stale_epochs,
    _stuck_moves,
    _stuck_deletions,
    _leaders_elsewhere,
    _few_replicas,
    _min_isr_is_all,
    _racks,
    _unclean,
)
