"""The command that shrinks a failing run: `python -m ottla.sim --shrink`.

Invariants: every run is a process of its own with a bound of CPU time, so that one that hangs is a
failure like another; the command line printed at the end was run twice and failed both times in the
same way, with the same trace.
"""

import contextlib
import json
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.sim.plans import Plan
from ottla.sim.shrink import ERROR, HANG, Outcome, Shrinker, differences, gravest, kind_of

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
