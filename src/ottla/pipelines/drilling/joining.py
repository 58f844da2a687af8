"""Joining: what all parts found of one partition, as one report with a verdict.

Invariants: pure; a finding is wrong only where something that must not be was found, and then names
the offsets or the moment; what no one gave (no acknowledgements, no lake, no logs) is None in the
report and gets no verdict. Parts are JSON values of the other jobs: `terms`, `gaps`, `states`,
`findings` of the timeline, `decision` of journals, `replicas`, `cell`, `lake`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ottla.pipelines.drilling import reasons
from ottla.pipelines.drilling.cells import Cell, Known, Offsets, added
from ottla.pipelines.drilling.reasons import Decision

LOST = "lost"
NOT_READABLE = "not readable"
OVERWRITTEN = "overwritten"
TWICE = "acknowledged twice"
NOT_IN_LAKE = "not in the lake"
DOUBLED_IN_LAKE = "doubled in the lake"
NOT_IN_LOG = "in the lake, not in the log"
OTHER_TOPIC = "lake of another topic"
LOSSES = (LOST, NOT_READABLE, OVERWRITTEN, TWICE)
LAKE = (NOT_IN_LAKE, DOUBLED_IN_LAKE, NOT_IN_LOG, OTHER_TOPIC)

HELD = "held"
VERDICTS = ("acknowledged records lost", "lake differs", "replicas differ", "leadership wrong")
"""The worst first."""

SAME_MOMENT_MS = 5000
"""A broker begins to lead so long after the controller decided it, at most, on a busy machine."""


class Finding(msgspec.Struct):
    """Something about a partition. `source`: acknowledgements, lake, replicas or leadership."""

    source: str
    kind: str
    wrong: bool
    text: str
    count: int = 0
    offsets: list[tuple[int, int]] = []
    """Spans [first, last]; the first 100 of them."""
    broker: int | None = None
    time_ms: int | None = None
    file: str | None = None
    position: int | None = None


class Count(msgspec.Struct):
    """Acknowledgements: how many, the lowest and the highest offset."""

    count: int
    first: int | None = None
    last: int | None = None


class Leader(msgspec.Struct):
    """A term. `ended_from_ms` to `ended_to_ms`: when it ended; None: it led to the logs' end."""

    leader: int
    first_epoch: int
    last_epoch: int
    began_ms: int
    ended_from_ms: int | None
    ended_to_ms: int | None
    how: str
    isr: str | None
    reason: str
    offset: int | None
    acknowledged: Count | None = None


class Gap(msgspec.Struct):
    """No one led, for at least and at most so long."""

    after: int
    next: int | None
    start_from_ms: int
    start_to_ms: int
    end_ms: int | None
    least_ms: int
    most_ms: int
    reason: str


class Replica(msgspec.Struct):
    """What one broker's files hold. `checksum`: a digest of all batches, without their files."""

    broker: int | None
    folder: str
    start: int
    end: int
    last_epoch: int | None
    bytes: int
    batches: int
    records: int
    checksum: str
    high_watermark: int | None = None
    in_sync: bool | None = None
    agrees: bool | None = None
    """Whether nothing wrong was found with it; other replicas may end later."""
    lacking: Offsets | None = None
    """Acknowledged records that another replica has and this one not."""


class Lake(msgspec.Struct):
    """What a table holds of the partition; `rows` with dead letters, `first`, `last` offsets."""

    rows: int
    first: int | None
    last: int | None
    landed: list[tuple[int, int]]
    gaps: int
    lost: int
    waiting: Offsets
    unjudged: Offsets


class Report(msgspec.Struct):
    """All of one partition. Times are milliseconds since 1970 UTC."""

    topic: str
    partition: int
    verdicts: list[str]
    findings: list[Finding]
    leaders: list[Leader]
    without_leader: list[Gap]
    isr: list[dict[str, Any]]
    acknowledged: Count | None
    before_the_logs: Count | None
    """Acknowledged before the first term that the logs know, or at a time no one knows."""
    high_watermark: int | None
    replicas: list[Replica]
    lake: Lake | None

    @property
    def held(self) -> bool:
        return not any(f.wrong for f in self.findings)

    @property
    def longest_ms(self) -> tuple[int, int]:
        """The interval without a leader that may have been the longest: at most, at least."""
        return max(((g.most_ms, g.least_ms) for g in self.without_leader), default=(0, 0))

    @property
    def rank(self) -> int:
        """Return the place in an order by verdict: the worst is 0."""
        order = (*VERDICTS, HELD)
        return min((order.index(v) for v in self.verdicts), default=len(order))


Parts = Mapping[str, Sequence[Any]]


def join(topic: str, partition: int, parts: Parts) -> Report:
    """Return the report of one partition."""
    found: list[Finding] = []
    known = _one(parts, "known", Known) or Known()
    cell = _cells(parts)
    decisions = [msgspec.convert(one, Decision) for one in parts.get("decision", ())]
    leaders = _leaders(parts, decisions)
    gaps = _gaps(parts, decisions)
    if known.acks:
        _add_acknowledged(found, cell, known)
        for place, acked in cell.by_term.items():
            term = _term_at(leaders, known, place)
            if term is not None:
                before = term.acknowledged or Count(0, acked.first, acked.last)
                term.acknowledged = Count(
                    before.count + acked.count,
                    min(x for x in (before.first, acked.first) if x is not None),
                    max(x for x in (before.last, acked.last) if x is not None),
                )
    lake = _lake(parts, cell, known, found)
    replicas = _replicas(parts, cell, known, found)
    _add_leadership(found, parts, leaders)
    _add_gaps(found, gaps)
    found.sort(key=_order)
    early = cell.by_term.get(-1)
    return Report(
        topic=topic,
        partition=partition,
        verdicts=_verdicts(found),
        findings=found,
        leaders=leaders,
        without_leader=gaps,
        isr=[
            {k: one[k] for k in ("time_ms", "leader_epoch", "leader", "isr")}
            for one in sorted(parts.get("states", ()), key=lambda s: s["time_ms"])
        ],
        acknowledged=Count(cell.acked.count, cell.acked.first, _last(cell)) if known.acks else None,
        before_the_logs=None if early is None else Count(early.count, early.first, early.last),
        high_watermark=known.high_watermark,
        replicas=replicas,
        lake=lake,
    )


def _order(finding: Finding) -> tuple[Any, ...]:
    first = finding.offsets[0][0] if finding.offsets else -1
    places = ("acknowledgements", "lake", "replicas", "leadership")
    return (
        not finding.wrong, places.index(finding.source), finding.time_ms or 0, first,
        -1 if finding.broker is None else finding.broker, finding.kind,
    )  # fmt: skip


def _verdicts(found: Sequence[Finding]) -> list[str]:
    sources = {f.source for f in found if f.wrong}
    names = dict(zip(("acknowledgements", "lake", "replicas", "leadership"), VERDICTS, strict=True))
    return [name for source, name in names.items() if source in sources] or [HELD]


def _one(parts: Parts, name: str, kind: Any) -> Any:
    values = parts.get(name, ())
    return msgspec.convert(values[0], kind, str_keys=True) if values else None


def _cells(parts: Parts) -> Cell:
    cells = [msgspec.convert(one, Cell, str_keys=True) for one in parts.get("cell", ())]
    cells.sort(key=lambda c: min(_firsts(c), default=0))
    return added(cells)


def _firsts(cell: Cell) -> list[int]:
    found = [
        value.first
        for name in cell.__struct_fields__
        if isinstance(value := getattr(cell, name), Offsets) and value.first is not None
    ]
    return [*found, *([cell.row_first] if cell.rows else [])]


def _last(cell: Cell) -> int | None:
    return cell.acked_last if cell.acked.count else None


# -- leadership ------------------------------------------------------------------------------------


def _leaders(parts: Parts, decisions: Sequence[Decision]) -> list[Leader]:
    terms = sorted(parts.get("terms", ()), key=lambda t: (t["began_ms"], t["first_epoch"]))
    states = sorted(parts.get("states", ()), key=lambda s: s["time_ms"])
    found = []
    for term in terms:
        isr = next(
            (
                s["isr"]
                for s in states
                if (s["life"], s["leader_epoch"]) == (term["life"], term["first_epoch"])
            ),
            None,
        )
        decision = _decision_of(decisions, term)
        if decision is None:
            reason = "no journal tells why"
        else:
            reason = reasons.why(decision)
            isr = isr or ",".join(map(str, decision.isr))
        found.append(
            Leader(
                term["leader"], term["first_epoch"], term["last_epoch"], term["began_ms"],
                term["ended_from_ms"], term["ended_to_ms"], term["how"], isr, reason,
                term["offset"],
            )
        )  # fmt: skip
    return found


def _decision_of(decisions: Sequence[Decision], term: Mapping[str, Any]) -> Decision | None:
    """Return the decision by which a term began; a recreated topic has the same epochs again."""
    those = [
        d for d in decisions if d.leader == term["leader"] and d.leader_epoch == term["first_epoch"]
    ]
    return min(those, key=lambda d: abs(d.ts - term["began_ms"]), default=None)


def _term_at(leaders: Sequence[Leader], known: Known, place: int) -> Leader | None:
    """Return the term that `Known.terms` has at a place."""
    if not 0 <= place < len(known.terms):
        return None
    began, epoch = known.terms[place]
    return next((t for t in leaders if (t.began_ms, t.last_epoch) == (began, epoch)), None)


def _gaps(parts: Parts, decisions: Sequence[Decision]) -> list[Gap]:
    found = []
    for gap in sorted(parts.get("gaps", ()), key=lambda g: g["start_from_ms"]):
        until = gap["end_ms"]
        reason = f"broker {gap['after']} {gap['how']}"
        inside = [
            d
            for d in decisions
            if d.ts >= gap["start_from_ms"]
            and (until is None or d.ts <= until + SAME_MOMENT_MS)
            and (d.leader == gap["next"] if gap["next"] is not None else d.leader < 0)
        ]
        if inside:
            reason += f"; {reasons.why(min(inside, key=lambda d: d.ts))}"
        found.append(
            Gap(
                gap["after"], gap["next"], gap["start_from_ms"], gap["start_to_ms"], until,
                gap["least_ms"], gap["most_ms"], reason,
            )
        )  # fmt: skip
    return found


def _add_leadership(found: list[Finding], parts: Parts, leaders: Sequence[Leader]) -> None:
    for one in parts.get("findings", ()):
        if one["kind"] == "no-leader":
            continue  # reported with the gaps
        began = [t for t in leaders if t.leader == one["broker"] and t.began_ms == one["time_ms"]]
        offsets = [(t.offset, t.offset) for t in began if t.offset is not None]
        found.append(
            Finding(
                "leadership", one["kind"], one["level"] == "error", one["text"], len(offsets),
                offsets, one["broker"], one["time_ms"],
            )
        )  # fmt: skip


def _add_gaps(found: list[Finding], gaps: Sequence[Gap]) -> None:
    for gap in gaps:
        if gap.end_ms is None:
            text = f"no leader at the end of the logs, after broker {gap.after}"
            found.append(Finding("leadership", "no leader", False, text, time_ms=gap.start_to_ms))


# -- acknowledgements ------------------------------------------------------------------------------


def _add_acknowledged(found: list[Finding], cell: Cell, known: Known) -> None:
    mark = known.high_watermark
    for kind, what, text in (
        (LOST, cell.lost, "acknowledged, and no replica has it"),
        (
            NOT_READABLE, cell.not_readable,
            f"acknowledged, and at or above the high watermark {mark}: no consumer can read it",
        ),
        (
            OVERWRITTEN, cell.overwritten,
            "acknowledged before the leader epoch began that wrote what stands there now",
        ),
        (TWICE, cell.twice, "two records were acknowledged at one offset: one of them is lost"),
    ):  # fmt: skip
        if what.count:
            found.append(_offsets("acknowledgements", kind, text, what))
    for kind, what, text in (
        (
            "never acknowledged", cell.unacknowledged,
            (
                "in the log, and no producer received the acknowledgement: allowed, it may get "
                "lost, or another producer does not report"
            ),
        ),
        (
            "removed", cell.removed,
            "acknowledged, and below the log's start or what was compacted: not judged",
        ),
    ):  # fmt: skip
        if what.count:
            found.append(_offsets("acknowledgements", kind, text, what, wrong=False))


def _offsets(source: str, kind: str, text: str, what: Offsets, *, wrong: bool = True) -> Finding:
    return Finding(source, kind, wrong, text, what.count, what.spans)


# -- replicas and the lake -------------------------------------------------------------------------


def _replicas(parts: Parts, cell: Cell, known: Known, found: list[Finding]) -> list[Replica]:
    made: list[Replica] = []
    for body in parts.get("replicas", ()):
        wrong_at = set()
        for one in body["findings"]:
            offset = one["offset"]
            found.append(
                Finding(
                    "replicas", one["kind"], one["wrong"], one["detail"],
                    int(offset >= 0), [(offset, offset)] if offset >= 0 else [],
                    None if one["broker"] < 0 else one["broker"], None, one["file"] or None,
                    None if one["position"] < 0 else one["position"],
                )
            )  # fmt: skip
            if one["wrong"]:
                wrong_at.add(one["broker"])
        for one in body["replicas"]:
            replica = msgspec.convert(one, Replica)
            replica.agrees = (-1 if replica.broker is None else replica.broker) not in wrong_at
            if known.acks and replica.broker is not None:
                replica.lacking = cell.lacking.get(replica.broker, Offsets())
            made.append(replica)
    return sorted(made, key=lambda r: (-1 if r.broker is None else r.broker, r.folder))


def _lake(parts: Parts, cell: Cell, known: Known, found: list[Finding]) -> Lake | None:
    if not known.lake:
        return None
    said: Mapping[str, Any] = next(iter(parts.get("lake", ())), {})
    for kind, what, text in (
        (NOT_IN_LAKE, cell.not_in_lake, "in the log, landed by the lake's word, and it has no row"),
        (DOUBLED_IN_LAKE, cell.doubled_in_lake, "more than one row of one offset"),
        (NOT_IN_LOG, cell.not_in_log, "the lake has a row, and no replica has the record"),
    ):
        if what.count:
            found.append(_offsets("lake", kind, text, what))
    for kind, what, text in (
        ("not landed yet", cell.waiting, "in the log, and the lake does not say that it has it"),
        (
            "not judged", cell.unjudged,
            "landed without a row: the record may have been aborted, or compacted",
        ),
    ):  # fmt: skip
        if what.count:
            found.append(_offsets("lake", kind, text, what, wrong=False))
    return Lake(
        cell.rows,
        cell.row_first if cell.rows else None,
        cell.row_last if cell.rows else None,
        [(a, b) for a, b in said.get("landed", ())],
        said.get("gaps", 0),
        said.get("lost", 0),
        cell.waiting,
        cell.unjudged,
    )
