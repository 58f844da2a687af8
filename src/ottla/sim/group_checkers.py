"""Checkers of consumer groups: one owner at a time, offsets that stay, nothing left out.

Who may call: `cluster` at the end of a run, tests. Plain code over values, as `checkers`.
"""

from collections.abc import Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord, few
from ottla.sim.history import Commit, History


def check_groups(
    history: History, source: Mapping[TopicPartition, Sequence[LogRecord]], *, complete: bool
) -> list[str]:
    """Run every checker. `complete`: the groups were to have consumed all there is."""
    return [
        *check_one_owner(history),
        *check_generations(history),
        *check_offsets_stay(history),
        *check_offsets_are_somebodys(history),
        *(check_all_consumed(history, source) if complete else ()),
    ]


def check_one_owner(history: History) -> list[str]:
    """Within a generation no partition belongs to two members."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    found = []
    for given in history.assigned:
        for tp in given.partitions:
            owner = owners.setdefault((given.group, given.generation, tp), given.owner)
            if owner != given.owner:
                found.append(
                    f"{given.group} generation {given.generation}: {tp} is {owner}'s and, at "
                    f"{given.at_s:.3f} s, {given.owner}'s"
                )
    return few("two owners", found)


def _by_partition(history: History) -> dict[tuple[str, TopicPartition], list[Commit]]:
    found: dict[tuple[str, TopicPartition], list[Commit]] = {}
    for commit in history.commits:
        found.setdefault((commit.group, commit.tp), []).append(commit)
    return found


def check_generations(history: History) -> list[str]:
    """No commit is accepted of a generation after which another was begun before it was sent."""
    began: dict[str, list[tuple[float, int]]] = {}
    for given in history.assigned:
        began.setdefault(given.group, []).append((given.at_s, given.generation))
    found = []
    for commit in history.commits:
        if commit.completed_s is None:
            continue
        newest = max((g for at, g in began.get(commit.group, ()) if at < commit.invoked_s),
                     default=-1)  # fmt: skip
        if newest > commit.generation:
            found.append(
                f"{commit.group} {commit.tp}: {commit.offset} of generation {commit.generation} "
                f"was accepted at {commit.completed_s:.3f} s, in generation {newest}"
            )
    return few("commit of an old generation", found)


def check_offsets_stay(history: History) -> list[str]:
    """Nobody is told less than what was acknowledged as committed before it asked.

    Every position goes on from a committed one, so offsets only rise; nobody resets them here.
    """
    commits = _by_partition(history)
    found = []
    for fetched in history.fetched:
        done = [
            c
            for c in commits.get((fetched.group, fetched.tp), ())
            if c.completed_s is not None and c.completed_s <= fetched.invoked_s
        ]
        best = max(done, key=lambda c: c.offset, default=None)
        if best is not None and fetched.offset < best.offset:
            found.append(
                f"{fetched.group} {fetched.tp}: {fetched.process} was told {fetched.offset} by "
                f"broker {fetched.broker} at {fetched.invoked_s:.3f} s, but {best.offset} was "
                f"committed at {best.completed_s:.3f} s in generation {best.generation}"
            )
    return few("committed offset went back", found)


def check_offsets_are_somebodys(history: History) -> list[str]:
    """Check that what is told as committed was committed by somebody, at least tried."""
    commits = _by_partition(history)
    found = []
    for fetched in history.fetched:
        tried = {
            c.offset
            for c in commits.get((fetched.group, fetched.tp), ())
            if c.completed_s is None or c.invoked_s <= fetched.invoked_s
        }
        if fetched.offset >= 0 and fetched.offset not in tried:
            found.append(
                f"{fetched.group} {fetched.tp}: {fetched.offset} was never committed, "
                f"{fetched.process} was told so"
            )
    return few("offset of nobody", found)


def check_all_consumed(
    history: History, source: Mapping[TopicPartition, Sequence[LogRecord]]
) -> list[str]:
    """Every record was given to some member of each reading group."""
    found = []
    for group, consumed in sorted(history.consumed.items()):
        there = {(tp, r.offset) for tp, records in source.items() for r in records}
        left_out = sorted(there - consumed)
        if left_out:
            tp, offset = left_out[0]
            found.append(f"{group}: {len(left_out)} records, the first {tp}@{offset}")
    return few("never consumed", found)
