"""History: all rules for one partition, in one call.

Invariants: pure.
"""

from collections.abc import Sequence

import msgspec

from ottla.pipelines.timeline import findings, terms
from ottla.pipelines.timeline.facts import Brokers, Fact, in_lives, own_lines
from ottla.pipelines.timeline.findings import Finding
from ottla.pipelines.timeline.terms import Gap, State, Term


class History(msgspec.Struct, frozen=True):
    """What became of one partition."""

    states: list[State]
    terms: list[Term]
    gaps: list[Gap]
    findings: list[Finding]


def history(facts: Sequence[Fact], brokers: Brokers, tolerance_ms: int = 1000) -> History:
    """Return a partition's ISRs, leaders, gaps and findings.

    `tolerance_ms`: two brokers hear of a new leader one after the other; terms that overlap by no
    more than this are none worth telling.
    """
    lived, own, marks = in_lives(facts, own_lines(facts))
    spoken = terms.states(lived, own)
    found = terms.terms(lived, own, spoken, marks, brokers)
    without = terms.gaps(found, brokers)
    decided = findings.decided_states(lived)
    wrong = [
        *findings.double_leaders(own, decided),
        *findings.overlaps(found, tolerance_ms),
        *findings.stale_leader_epochs(own),
        *findings.stale_decisions(decided),
        *findings.leaderless(without),
    ]
    return History(terms.isr_history(spoken), found, without, wrong)
