"""Shrinking: of a plan that fails, a smaller plan that fails in the same way.

Pure: running a plan is the caller's (`Attempt`), and so is ending early, by an exception. Lists
(faults, operations) are shrunk by delta debugging (Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002), numbers by trying the least value first and then halving
the way to it. What is kept is always a plan that was seen to fail, and names only what happened in
that run: the same run, by the invariants of `masks`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from ottla.sim.plans import OPTIONS, Plan

T = TypeVar("T")

HANG = "hang"
"""The kind of a run that came to no verdict in its time."""
SYMPTOMS = ("not healed", "stuck", "broker", "controller")
"""Kinds that often follow from another: where a run has another as well, that one is kept."""
CODE = re.compile(r"\b[A-Z][A-Z_]{3,}\b")
ERROR = re.compile(r"\b([A-Za-z_]*(?:Error|Exception|Exit|Interrupt))\b")
PLACE = re.compile(r"([\w.]+\.py:\d+)")


def kind_of(anomaly: str) -> str:
    """Return what kind of failure a line tells of, without names, numbers and offsets."""
    head, _, rest = anomaly.partition(": ")
    if head == "not healed":
        stage = rest.partition(" not: ")[2].partition(";")[0]
        return f"{head}: {stage}"
    if head in ("logged", "uncaught"):
        error, place = ERROR.search(rest), PLACE.search(rest)
        return " ".join([f"{head}:", *(m.group(1) for m in (error, place) if m)])
    if head == "client":
        code = CODE.search(rest)
        return f"{head}: {code.group() if code else _plain(rest)}"
    if head == "stuck":
        return f"{head}: {_plain(rest.partition(';')[0])}"
    return _plain(head)


def _plain(text: str) -> str:
    """Replace words with a digit, a quote or a bracket in them; several in a row by one star."""
    words = ("*" if re.search(r"[\d'\"()\[\]]", word) else word for word in text.split())
    return re.sub(r"\*( \*)+", "*", " ".join(words))


def gravest(anomalies: Sequence[str]) -> str | None:
    """Return the kind to keep, the first that is no symptom of another; None without any.

    What a checker, a traceback or a client says goes before what does not agree at rest.
    """

    def rank(kind: str) -> int:
        return 2 if kind.startswith(SYMPTOMS) else int("*" in kind)

    return min(map(kind_of, anomalies), key=rank, default=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a failing run did: the names of the faults and operations that happened."""

    faults: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()


Attempt = Callable[[Plan], Outcome | None]
"""Runs a plan; None unless it failed in the way that is looked for."""

LEAST = {
    "members": 0,
    "copiers": 0,
    "administrators": 0,
    "consumers": 0,
    "no_retry_producers": 0,
    "producers": 0,
    "unclean_partitions": 0,
    "partitions": 1,
    "log_dirs": 1,
    "slowness": 0,
    "evicted": 0,
}
"""Numbers of a plan that may fall by themselves, down to these."""
SWITCHES = tuple(option.field for option in OPTIONS if isinstance(option.default, bool))
SHORTEST_S = 1.0
SHORTEST_STEP_S = 0.5


class Shrinker:
    """One plan on its way down. `best` is the smallest that was seen to fail.

    `attempt` may raise to end it all; `best` stays good. `said` gets a line of each step.
    """

    def __init__(
        self, plan: Plan, outcome: Outcome, attempt: Attempt, said: Callable[[str], object]
    ) -> None:
        self.best = _named(plan, outcome)
        self._outcome = outcome
        self._attempt = attempt
        self._said = said
        self._other: set[str] = set()
        """plans that were seen not to fail like this"""

    def run(self) -> Plan:
        """Shrink until a whole round takes nothing away; return the smallest."""
        while True:
            before = self.best
            self._shorten()
            for name in SWITCHES:
                self._try_with(**{name: False})
            for name, least in LEAST.items():
                self._lower(name, least)
            self._drop("only_faults", self._outcome.faults)
            self._drop("only_operations", self._outcome.operations)
            self._lower_cluster()
            if self.best == before:
                return self.best

    def _try(self, plan: Plan) -> bool:
        """Whether a plan fails in the same way; then it is the best so far."""
        if plan == self.best:
            return True
        if repr(plan) in self._other:
            return False
        outcome = self._attempt(plan)
        if outcome is None:
            self._other.add(repr(plan))
            return False
        before, self.best, self._outcome = self.best, _named(plan, outcome), outcome
        self._said(", ".join(differences(before, self.best)))
        return True

    def _try_with(self, **changes: Any) -> bool:
        return self._try(replace(self.best, **changes))

    def _shorten(self) -> None:
        """Look for the least seconds of faults, to half a second."""
        good, bad = self.best.seconds, 0.0
        tried = SHORTEST_S
        while good - bad > SHORTEST_STEP_S and tried < good:
            if self._try_with(seconds=tried):
                good = tried
            else:
                bad = tried
            tried = round((good + bad) / 2 / SHORTEST_STEP_S) * SHORTEST_STEP_S
            if tried in (good, bad):
                break

    def _lower(self, name: str, least: int) -> None:
        """Find the least value of one number of the plan."""
        lower(
            getattr(self.best, name),
            least,
            lambda value: self._try_with(**{name: value}),
        )

    def _lower_cluster(self) -> None:
        """Take brokers away, and replicas with them where there are more of these; then those."""
        plan = self.best

        def with_brokers(brokers: int) -> bool:
            replicas = min(plan.replicas, brokers)
            return self._try_with(
                brokers=brokers, replicas=replicas, min_isr=min(plan.min_isr, replicas)
            )

        lower(plan.brokers, 1, with_brokers)
        self._lower("min_isr", 1)
        self._lower("replicas", self.best.min_isr)

    def _drop(self, name: str, happened: Sequence[str]) -> None:
        """Leave out what a list need not name."""
        ddmin(happened, lambda chosen: self._try_with(**{name: tuple(chosen)}))


def _named(plan: Plan, outcome: Outcome) -> Plan:
    return replace(
        plan,
        only_faults=outcome.faults,
        only_operations=outcome.operations,
        skip_faults=(),
        skip_operations=(),
    )


def lower(value: int, least: int, fails: Callable[[int], bool]) -> int:
    """Return a value not above `value` that fails: the least at once, else by halving."""
    if value <= least or fails(least):
        return min(value, least)
    good, bad = value, least
    while good - bad > 1:
        middle = (good + bad) // 2
        if fails(middle):
            good = middle
        else:
            bad = middle
    return good


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Return a part of `items`, in their order, that fails, with no item that can be left out.

    `items` as a whole fails. Left out are all of them, then halves, then ever smaller parts.
    """
    have, size = list(items), len(items)
    while size:
        before, at = len(have), 0
        while at < len(have):
            fewer = have[:at] + have[at + size :]
            if fails(fewer):
                have = fewer
            else:
                at += size
        # Single items again, if any went: another may have become unnecessary.
        size = size // 2 or int(len(have) < before)
    return have


def differences(before: Plan, after: Plan) -> list[str]:
    """Say what of a plan became what."""
    found = []
    for field in fields(Plan):
        was, is_now = getattr(before, field.name), getattr(after, field.name)
        if was != is_now:
            found.append(f"{field.name} {_short(was)} -> {_short(is_now)}")
    return found


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return str(len(value)) if value else "none"
    if value is None:
        return "all"
    return f"{value:g}" if isinstance(value, float) else str(value)
