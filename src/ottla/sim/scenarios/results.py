"""What `ottla sim check` prints as JSON."""

from typing import Self

from msgspec import Struct

from ottla.sim.scenarios import report
from ottla.sim.scenarios.explanation import Explanation
from ottla.sim.scenarios.report import Findings
from ottla.sim.scenarios.scenario import Scenario
from ottla.sim.scenarios.search import Remedy


class PromiseResult(Struct):
    promise: str
    meaning: str
    broken: bool
    counterexample: Explanation | None


class KnownLoss(Struct):
    """A loss that Kafka has too; `chance`: how likely so many hours find it."""

    settings: str
    hours: float
    chance: float


class RemedyResult(Struct):
    """Changed settings, and what the same hours came to with them."""

    changes: dict[str, str]
    helps: bool
    broken: list[str]
    simulated_hours: float
    longest_gap_seconds: float

    @classmethod
    def of(cls, remedy: Remedy) -> Self:
        hours = remedy.hours
        return cls(
            remedy.changes, remedy.helps, list(hours.first), round(hours.seconds / 3600, 3),
            round(hours.longest_gap_s, 1),
        )  # fmt: skip


class NotRecovered(Struct):
    seed: int
    what: str


class Checked(Struct, kw_only=True):
    """What a search found. The scenario is as its file has it."""

    scenario: Scenario
    broken: list[str]
    promises: list[PromiseResult]
    runs: int
    simulated_hours: float
    faults: int
    acknowledged: int
    longest_gap_seconds: float
    known_losses: list[KnownLoss]
    remedy: RemedyResult | None
    not_recovered: NotRecovered | None
    defects: list[str]
    interrupted: bool

    @classmethod
    def of(cls, findings: Findings) -> Self:
        hours, remedy, unhealed = findings.hours, findings.remedy, findings.hours.unhealed
        examples = {p: e.explanation for p, e in findings.counterexamples.items()}
        results = zip(findings.scenario.promises, report.results(findings), strict=True)
        return cls(
            scenario=findings.scenario,
            broken=list(hours.first),
            promises=[
                PromiseResult(promise, meaning, promise in hours.first, examples.get(promise))
                for promise, (meaning, _) in results
            ],
            runs=hours.runs,
            simulated_hours=round(hours.seconds / 3600, 3),
            faults=hours.faults,
            acknowledged=hours.acknowledged,
            longest_gap_seconds=round(hours.longest_gap_s, 1),
            known_losses=[
                KnownLoss(k.settings, k.hours, round(report.chance(k, hours.seconds), 3))
                for k in report.KNOWN_LOSSES
            ],
            remedy=None if remedy is None else RemedyResult.of(remedy),
            not_recovered=None
            if unhealed is None
            else NotRecovered(unhealed.seed, unhealed.unhealed),
            defects=hours.defects,
            interrupted=hours.interrupted,
        )
