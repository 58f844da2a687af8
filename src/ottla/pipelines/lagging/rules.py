"""Rules: how far a group was behind in one partition at which time, and whether it gets on.

Pure. Times are milliseconds since 1970. The rules are those of LinkedIn's Burrow: no thresholds, a
group is compared with its own pace.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ottla.model.printable import plural

OK, BEHIND, STALLED, STOPPED, GONE = "ok", "behind", "stalled", "stopped", "gone"
REWOUND, OVERTAKEN = "rewound", "overtaken"
WRONG = (STALLED, STOPPED, REWOUND, OVERTAKEN)

KINDS = {
    BEHIND: "it commits, and its lag only grows",
    STALLED: "it commits the same offset again and again, with records waiting",
    STOPPED: "it has not committed for longer than is its way, with records waiting",
    REWOUND: "it committed a lower offset than before",
    OVERTAKEN: "the log begins after what it committed: it will miss the records between",
}
RECENT = 10
"""Commits by which a group's own pace is measured."""


class Commit(NamedTuple):
    """A commit as it stands in the log; `offset` is None where it was deleted."""

    at_ms: int
    offset: int | None


class Sample(NamedTuple):
    """Where the log ended at a time, what was committed then, and how much lay between."""

    at_ms: int
    end: int
    committed: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported of a group's partition."""

    state: str
    samples: list[Sample]
    findings: list[tuple[str, int, str]]
    """Kind, time and words."""


def judged(commits: Sequence[Commit], ends: Sequence[tuple[int, int]], start: int) -> Report:
    """Judge a partition by its commits in the log's order.

    `ends`: (time, end of the log then), in order, the last of them now; `start`: the log's first
    offset now.
    """
    commits = _in_order(commits)
    samples = samples_of(commits, ends)
    since, now = samples[0].at_ms, samples[-1]
    findings = list(_rewinds(commits, since))
    if now.committed is None or now.lag is None:
        return Report(GONE, samples, findings)
    if now.committed < start:
        text = f"{now.committed} is committed, the log begins at {start}"
        findings.append((OVERTAKEN, now.at_ms, text))
    state = _state(commits, samples)
    if state in WRONG:
        last = commits[-1]
        text = f"{plural(now.lag, 'record waits', 'records wait')} behind offset {now.committed}"
        findings.append((state, last.at_ms, text))
    return Report(state, samples, findings)


def _in_order(commits: Sequence[Commit]) -> list[Commit]:
    """Return commits with times that do not go back: the log's order counts, not clocks."""
    found: list[Commit] = []
    for one in commits:
        at_ms = max(one.at_ms, found[-1].at_ms) if found else one.at_ms
        found.append(Commit(at_ms, one.offset))
    return found


def samples_of(commits: Sequence[Commit], ends: Sequence[tuple[int, int]]) -> list[Sample]:
    """Return what was committed, and the lag, at each of the times of `ends`.

    At the last of them everything that was read had been committed, whatever a clock says.
    """
    times = [one.at_ms for one in commits]
    samples = []
    for number, (at_ms, end) in enumerate(ends, 1):
        place = len(times) if number == len(ends) else bisect_right(times, at_ms)
        committed = commits[place - 1].offset if place else None
        lag = None if committed is None else max(0, end - committed)
        samples.append(Sample(at_ms, end, committed, lag))
    return samples


def _rewinds(commits: Sequence[Commit], since_ms: int) -> Iterator[tuple[str, int, str]]:
    for before, one in pairwise(commits):
        if before.offset is None or one.offset is None or one.at_ms < since_ms:
            continue
        if one.offset < before.offset:
            yield REWOUND, one.at_ms, f"from offset {before.offset} to {one.offset}"


def _state(commits: Sequence[Commit], samples: Sequence[Sample]) -> str:
    now = samples[-1]
    if not now.lag:
        return OK
    recent = _since_deletion(commits)[-RECENT:]
    last = recent[-1]
    assert last.offset is not None
    # Since when there was something to read beyond what is committed now.
    waiting_ms = next(s.at_ms for s in samples if s.end > last.offset)
    step_ms = max((b.at_ms - a.at_ms for a, b in pairwise(samples)), default=0)
    pace_ms = max(last.at_ms - recent[0].at_ms, step_ms)
    if now.at_ms - max(last.at_ms, waiting_ms) > pace_ms:
        return STOPPED
    same = [one for one in recent if one.offset == last.offset]
    if len(same) >= 3 and same == recent[-len(same) :] and _waited(same[0], samples, waiting_ms):
        return STALLED
    lags = [s.lag for s in samples if s.lag is not None]
    grows = all(b >= a for a, b in pairwise(lags)) and lags[-1] > lags[0] > 0
    return BEHIND if grows and len(lags) >= 3 else OK


def _since_deletion(commits: Sequence[Commit]) -> list[Commit]:
    deleted = max((at for at, one in enumerate(commits) if one.offset is None), default=-1)
    return list(commits[deleted + 1 :])


def _waited(first: Commit, samples: Sequence[Sample], waiting_ms: int) -> bool:
    """Return whether records waited through at least three of the commits of one offset."""
    return waiting_ms <= max(first.at_ms, samples[0].at_ms)
