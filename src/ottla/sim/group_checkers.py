"""Checkers of consumer groups: one owner at a time, offsets that stay, nothing left out.

Plain code over values, as `checkers`.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord, check
from ottla.sim.history import Assigned, Claimed, Commit, History


def check_groups(
    history: History, source: Mapping[TopicPartition, Sequence[LogRecord]], *, complete: bool
) -> list[str]:
    """Run every checker. `complete`: the groups were to have consumed all there is."""
    return [
        *check_one_owner(history),
        *check_kept(history),
        *check_given_up(history),
        *check_generations(history),
        *check_offsets_stay(history),
        *check_offsets_are_somebodys(history),
        *(check_all_consumed(history, source) if complete else ()),
    ]


@check("two owners")
def check_one_owner(history: History) -> Iterator[str]:
    """Within a generation no partition belongs to two members."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    for given in history.assigned:
        for tp in given.partitions:
            owner = owners.setdefault((given.group, given.generation, tp), given.owner)
            if owner != given.owner:
                yield (
                    f"{given.group} generation {given.generation}: {tp} is {owner}'s and, at "
                    f"{given.at_s:.3f} s, {given.owner}'s"
                )


@check("given before it was given up")
def check_kept(history: History) -> Iterator[str]:
    """No one is given what another member said it owned when it joined the generation (KIP-429).

    Unless it owned that itself, since a later generation: a static member that was away for a
    generation is not asked for what it owns, and comes back with what has become another's
    (KIP-345). Then the later claim counts, as in Kafka's `AbstractStickyAssignor` (KIP-792).
    A process that takes the place of a static member is the same member. A generation that was not
    stored may begin again with the same number, and the same leader: what a member said last counts
    (simulator's seed 22000694: in between they had heard that their places were lost).
    """
    given: dict[tuple[str, str, TopicPartition], list[int]] = {}
    for share in history.assigned:
        for tp in share.partitions:
            given.setdefault((share.group, share.process, tp), []).append(share.generation)
    claims: dict[tuple[str, int, str], list[Claimed]] = {}
    for claim in sorted(history.claimed, key=lambda claim: claim.at_s):
        claims.setdefault((claim.group, claim.generation, claim.leader), []).append(claim)
    for share in history.assigned:
        generation = share.group, share.generation, share.leader
        newest = {c.owner: c for c in claims.get(generation, ()) if c.at_s <= share.at_s}
        for tp in share.partitions:
            owners: dict[str, int] = {}
            for claim in newest.values():
                if tp in claim.partitions:
                    generations = given.get((claim.group, claim.process, tp), ())
                    last = max((g for g in generations if g < claim.generation), default=-1)
                    owners[claim.owner] = last
            own = owners.get(share.owner, -2)
            yield from (
                f"{share.group} generation {share.generation}: {tp} was given to {share.process} "
                f"at {share.at_s:.3f} s, while {other} owned it"
                for other, last in sorted(owners.items())
                if other != share.owner and last >= own
            )


@check("consumed what was given up")
def check_given_up(history: History) -> Iterator[str]:
    """No one consumes what it was not given, or gave up, in the generation it takes part in.

    In a generation in which another member has a partition, a process that has its share of that
    generation, too, must not consume it any more from the moment the other was given it: before it
    joined it has to have given the partition up. (A process that was put out of the group may
    still consume until it hears of it: the new generation has no share for it.)
    """
    shares: dict[tuple[str, str, int], set[TopicPartition]] = {}
    given: dict[tuple[str, TopicPartition], list[Assigned]] = {}
    for share in history.assigned:
        key = (share.group, share.process, share.generation)
        shares.setdefault(key, set()).update(share.partitions)
        for tp in share.partitions:
            given.setdefault((share.group, tp), []).append(share)
    for taken in history.taken:
        what = f"{taken.group} {taken.tp}@{taken.offset} was taken by {taken.process} "
        if taken.tp not in shares.get((taken.group, taken.process, taken.generation), ()):
            yield (what + f"at {taken.at_s:.3f} s, not its own in {taken.generation}")
        for share in given.get((taken.group, taken.tp), ()):
            later = share.generation > taken.generation and share.at_s < taken.at_s
            both = (taken.group, taken.process, share.generation) in shares
            if later and both and share.process != taken.process:
                yield (
                    what + f"of generation {taken.generation} at {taken.at_s:.3f} s, but is "
                    f"{share.process}'s since {share.at_s:.3f} s, generation {share.generation}"
                )


def _by_partition(history: History) -> dict[tuple[str, TopicPartition], list[Commit]]:
    found: dict[tuple[str, TopicPartition], list[Commit]] = {}
    for commit in history.commits:
        found.setdefault((commit.group, commit.tp), []).append(commit)
    return found


@check("commit of an old generation")
def check_generations(history: History) -> Iterator[str]:
    """No commit is accepted of a generation after which another was begun before it was sent."""
    began: dict[str, list[tuple[float, int]]] = {}
    for given in history.assigned:
        began.setdefault(given.group, []).append((given.at_s, given.generation))
    for commit in history.commits:
        if commit.completed_s is None:
            continue
        newest = max(
            (g for at, g in began.get(commit.group, ()) if at < commit.invoked_s), default=-1
        )
        if newest > commit.generation:
            yield (
                f"{commit.group} {commit.tp}: {commit.offset} of generation {commit.generation} "
                f"was accepted at {commit.completed_s:.3f} s, in generation {newest}"
            )


@check("committed offset went back")
def check_offsets_stay(history: History) -> Iterator[str]:
    """No member receives less than what was acknowledged as committed before it asked.

    Every position goes on from a committed one, so offsets only rise; no one resets them here.
    """
    commits = _by_partition(history)
    for fetched in history.fetched:
        done = [
            c
            for c in commits.get((fetched.group, fetched.tp), ())
            if c.completed_s is not None and c.completed_s <= fetched.invoked_s
        ]
        best = max(done, key=lambda c: c.offset, default=None)
        if best is not None and fetched.offset < best.offset:
            yield (
                f"{fetched.group} {fetched.tp}: {fetched.process} received {fetched.offset} from "
                f"broker {fetched.broker} at {fetched.invoked_s:.3f} s, but {best.offset} was "
                f"committed at {best.completed_s:.3f} s in generation {best.generation}"
            )


@check("offset that was never committed")
def check_offsets_are_somebodys(history: History) -> Iterator[str]:
    """Check that what is returned as committed was committed by someone, at least tried."""
    commits = _by_partition(history)
    for fetched in history.fetched:
        tried = {
            c.offset
            for c in commits.get((fetched.group, fetched.tp), ())
            if c.completed_s is None or c.invoked_s <= fetched.answered_s
        }
        if fetched.offset >= 0 and fetched.offset not in tried:
            yield (
                f"{fetched.group} {fetched.tp}: {fetched.offset} was never committed, "
                f"{fetched.process} received it"
            )


@check("never consumed")
def check_all_consumed(
    history: History, source: Mapping[TopicPartition, Sequence[LogRecord]]
) -> Iterator[str]:
    """Every record was given to some member of each reading group."""
    for group, consumed in sorted(history.consumed.items()):
        there = {(tp, r.offset) for tp, records in source.items() for r in records}
        left_out = sorted(there - consumed)
        if left_out:
            tp, offset = left_out[0]
            yield (f"{group}: {len(left_out)} records, the first {tp}@{offset}")
