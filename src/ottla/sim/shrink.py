"""Shrinking: of a plan that fails, a smaller plan that fails in the same way.

`Shrinker` is pure: running a plan is its caller's (`Attempt`), and so is ending early, by an
exception. `shrink_run` is the command (`python -m ottla.sim --shrink`): each run is a process of
its own with a limit of CPU time, so a run that hangs is a failure like another; the command line
printed at the end was run twice and failed both times in the same way, with the same trace. Lists
(faults, operations) are shrunk by delta debugging (Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002), numbers by trying the least value first and then halving
the way to it. What is kept is always a plan that was seen to fail, and names only what happened in
that run: the same run, by the invariants of `masks`.
"""

import contextlib
import json
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

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
        lower(asdict(self.best)[name], least, lambda value: self._try_with(**{name: value}))

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
    now = asdict(after)
    return [
        f"{name} {_short(was)} -> {_short(now[name])}"
        for name, was in asdict(before).items()
        if was != now[name]
    ]


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return str(len(value)) if value else "none"
    if value is None:
        return "all"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- runs as processes ----------------------------------------------------------------------------

PROGRAM = (sys.executable, "-P", "-m", "ottla.sim")
FIRST_CPU_S = 300.0
"""How much CPU time the run as given may take, of the budget a quarter at most; then it hangs."""
LEAST_CPU_S = 20.0
SLACK = 4.0
"""A smaller run may take so many times the CPU time of the first; its wall time that again."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What all runs of a shrinking together may take."""

    cpu_s: float
    runs: int


class SpentError(Exception):
    """The budget is used up."""


class Ran(NamedTuple):
    """What came of one run. `kinds` is empty where it passed."""

    kinds: tuple[str, ...]
    gravest: str | None
    outcome: Outcome
    digest: str
    anomalies: tuple[str, ...]
    cpu_s: float


def run_in_process(plan: Plan, program: Sequence[str], limit_cpu_s: float) -> Ran:
    """Run a plan as a process; one that takes too long, or dies, has failed, too."""
    words = shlex.split(plan.replayed_by())[3:]
    before_s = _children_cpu_s()
    child = subprocess.Popen(  # noqa: S603 - our own program
        [*program, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    seconds = round(limit_cpu_s) + 1
    try:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_CPU, (seconds, seconds))
        out, err = child.communicate(timeout=limit_cpu_s * SLACK)
    except subprocess.TimeoutExpired:
        out, err = None, ""
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    cpu_s = _children_cpu_s() - before_s
    if out is None or (child.returncode < 0 and cpu_s >= limit_cpu_s * 0.9):
        return _failed(HANG, f"no verdict after {cpu_s:.0f} s of CPU time", cpu_s)
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return _failed(f"died: {name}", f"after {cpu_s:.0f} s of CPU time", cpu_s)
    last = (out.splitlines() or [""])[-1]
    if not last.startswith("{"):
        problem = (err.splitlines() or ["no output"])[-1]
        error = ERROR.search(problem)
        return _failed(f"died: {error.group() if error else child.returncode}", problem, cpu_s)
    facts = json.loads(last)
    anomalies = tuple(facts["anomalies"])
    return Ran(
        tuple(map(kind_of, anomalies)),
        gravest(anomalies),
        Outcome(_names(facts["faults"]), _names(facts["operations"])),
        facts["digest"],
        anomalies,
        cpu_s,
    )


def _failed(kind: str, why: str, cpu_s: float) -> Ran:
    return Ran((kind,), kind, Outcome(), "", (f"{kind}: {why}",), cpu_s)


def _names(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the names of lines such as `12.345 #c7 kill-client m0a`."""
    return tuple(line.split()[1].removeprefix("#") for line in lines)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shrink_run(
    plan: Plan, failure: str | None, budget: Budget, program: Sequence[str] = PROGRAM
) -> int:
    """Print a smaller command with the same failure; 0 if the failure was seen and verified.

    `failure` is the kind to keep; None for the gravest of the first run.
    """
    _say(f"as given: {plan.replayed_by()}")
    first = run_in_process(plan, program, min(FIRST_CPU_S, budget.cpu_s / 4))
    wanted = failure or first.gravest
    if wanted is None or wanted not in first.kinds:
        _say(f"it does not fail so: {wanted or 'it passes'}; kinds of failure: {set(first.kinds)}")
        return 1
    _say(f"fails: {wanted} ({first.cpu_s:.1f} s of CPU time)")
    for line in first.anomalies[:3]:
        _say(f"  {line}")
    limit_s = max(LEAST_CPU_S, first.cpu_s * (0.25 if wanted == HANG else SLACK))
    runs = Runs(wanted, budget, limit_s, program)
    shrinker = Shrinker(plan, first.outcome, runs.attempt, runs.said)
    ended = "nothing more can be taken away"
    try:
        shrinker.run()
    except SpentError:
        ended = "the budget is used up"
    _say(f"{ended}; {runs.count} runs, {runs.cpu_s:.0f} s of CPU time")
    return _verify(plan, shrinker.best, wanted, limit_s, program)


class Runs:
    """Runs plans within a budget, and says how it goes."""

    def __init__(self, wanted: str, budget: Budget, limit_s: float, program: Sequence[str]) -> None:
        self.count = 0
        self.cpu_s = 0.0
        self._wanted = wanted
        self._budget = budget
        self._limit_s = limit_s
        self._program = program

    def attempt(self, plan: Plan) -> Outcome | None:
        """Run a plan; None unless it fails as wanted. SpentError when that is too much."""
        if self.count >= self._budget.runs or self.cpu_s >= self._budget.cpu_s:
            raise SpentError
        ran = run_in_process(plan, self._program, self._limit_s)
        self.count += 1
        self.cpu_s += ran.cpu_s
        return ran.outcome if self._wanted in ran.kinds else None

    def said(self, line: str) -> None:
        _say(f"[{self.count} runs, {self.cpu_s:.0f} s] {line}")


def _verify(plan: Plan, best: Plan, wanted: str, limit_s: float, program: Sequence[str]) -> int:
    """Run the smallest plan twice more, and print it with what it says."""
    twice = [run_in_process(best, program, limit_s) for _ in range(2)]
    for ran in twice:
        if wanted not in ran.kinds:
            _say(f"NOT VERIFIED: {best.replayed_by()} gave {set(ran.kinds) or 'no failure'}")
            return 1
    same = "the same trace" if len({ran.digest for ran in twice}) == 1 else "DIFFERENT TRACES"
    _say(f"verified twice, {same}; taken away: {'; '.join(differences(plan, best)) or 'nothing'}")
    for line in twice[0].anomalies[:3]:
        _say(f"  {line}")
    _say(f"smaller: {best.replayed_by()}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
