"""`python -m ottla.sim`: run a simulated cluster by seed; a failure prints how to replay it.

Exit code 0 when every checker is content, 1 otherwise.
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from ottla.sim.cluster import run
from ottla.sim.drawn_plans import drawn
from ottla.sim.faults import ALL_NAMES, DRAWN, Drawn
from ottla.sim.plans import ALWAYS, MASKS, OPTIONS, Plan
from ottla.sim.shrink import Budget, shrink_run
from ottla.sim.verdict import Verdict


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.sim",
        description="Run whole clusters on simulated time, network and disks, and break them.",
    )
    add = parser.add_argument
    add("--seed", type=int, default=0)
    add("--seeds", type=int, default=1, help="run so many seeds, from --seed on")
    add("--drawn", action="store_true", help="draw sizes and settings by the seed, too")
    add("--coordinated", action="store_true", help="with --drawn: draw members and copiers, too")
    add(
        "--statements",
        type=_names,
        default=DRAWN[Drawn.AS_STATEMENT],
        metavar="NAMES",
        help=f"with --drawn: draw only these of {','.join(DRAWN[Drawn.AS_STATEMENT])}; or 'none'",
    )
    add(
        "--faults",
        type=_names,
        default=(ALWAYS,),
        metavar="NAMES",
        help=f"'none' or any of {ALWAYS},{','.join(ALL_NAMES)}",
    )
    for option in OPTIONS:
        default = option.default
        how: dict[str, Any] = {"dest": option.field, "help": option.help, "default": default}
        if isinstance(default, bool):
            how["action"] = "store_false" if default else "store_true"
        elif isinstance(default, int | float):
            how |= {"type": type(default), "metavar": "N"}
        else:
            how |= {"type": _names, "metavar": "NAMES"}
        add(option.flag, **how)
    add("--json", action="store_true", help="print each verdict as JSON")
    add("--shrink", action="store_true", help="find a smaller run with the same failure")
    add("--shrink-seconds", type=float, default=900.0, help="CPU time for that")
    add("--shrink-runs", type=int, default=400, help="runs for that")
    add("--failure", help="the kind of failure to keep; by default the run's gravest one")
    add("--until", type=float, help="stop at this virtual second, unjudged")
    add("--trace", action="store_true", help="print every event")
    add("--log-level", default="critical", help="what the product logs, to stderr")
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        parser.error(f"--seeds: {arguments.seeds} runs show nothing")
    if find_spec("greenlet") is None and (arguments.drawn or arguments.interleave):
        parser.error("the package greenlet is missing: pip install greenlet, or --no-interleave")
    if arguments.log_dirs not in (1, 2, 3):
        parser.error(f"--log-dirs {arguments.log_dirs}: a broker has one, two or three")
    unknown = sorted(set(arguments.faults) - {ALWAYS, *ALL_NAMES})
    if unknown:
        parser.error(f"--faults: unknown {', '.join(unknown)}")
    return arguments


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(filter(None, text.split(",")))


def plan_of(arguments: argparse.Namespace, seed: int) -> Plan:
    """Return the plan of one seed: the drawn one, or the one the arguments spell out."""
    if arguments.drawn:
        plan = drawn(seed, coordinated=arguments.coordinated)
        left_out = set(DRAWN[Drawn.AS_STATEMENT]) - set(arguments.statements)
        faults = tuple(name for name in plan.faults if name not in left_out)
        masks = {name: vars(arguments)[name] for name in MASKS}
        return replace(plan, faults=faults, **masks)
    chosen = {option.field: vars(arguments)[option.field] for option in OPTIONS}
    return Plan(seed, faults=arguments.faults, **chosen)


def report(verdict: Verdict, wall_s: float) -> str:
    """Return what a person wants to know of a run."""
    outcome = "passed" if verdict.passed else "FAILED"
    counts = " ".join(f"{k}={v}" for k, v in verdict.statistics.items())
    head = (
        f"seed {verdict.plan.seed} {outcome} trace={verdict.digest} steps={verdict.steps} "
        f"virtual_s={verdict.virtual_s:.0f} wall_s={wall_s:.1f} faults={len(verdict.faults)} "
        f"gaps={len(verdict.gaps_s)} gap_p50_s={verdict.gap_s(0.5):.1f} "
        f"gap_p99_s={verdict.gap_s(0.99):.1f} {counts} "
        f"callback_p999_ms={verdict.stalls.p999_s * 1e3:.0f} "
        f"callback_max_ms={verdict.stalls.longest_s * 1e3:.0f} ({verdict.stalls.longest})"
    )
    lines = [head]
    if not verdict.passed:
        lines += [f"  {line}" for line in verdict.anomalies]
        lines += [f"  fault {line}" for line in verdict.faults]
        lines += [f"  operation {line}" for line in verdict.operations]
        lines.append(f"replay: {verdict.plan.replayed_by()}")
    return "\n".join(lines)


def table_of(strikes: Mapping[str, Sequence[int]]) -> str:
    """Return how often each fault was done, and in how many of the seeds.

    `strikes` has of each fault its number in each run that had any.
    """
    lines = [f"{'fault':36}{'done':>8}{'seeds':>8}"]
    lines += [f"{n:36}{sum(c):8}{len(c):8}" for n, c in sorted(strikes.items())]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run the seeds asked for; return the exit code."""
    arguments = parse_arguments(argv)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(levelname)s %(name)s %(message)s"
    )
    if arguments.shrink:
        budget = Budget(arguments.shrink_seconds, arguments.shrink_runs)
        return shrink_run(plan_of(arguments, arguments.seed), arguments.failure, budget)
    failed = 0
    strikes: dict[str, list[int]] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        plan = plan_of(arguments, seed)
        sink = _print_line if arguments.trace else None
        began = time.monotonic()
        verdict = run(plan, sink=sink, until_s=arguments.until)
        if arguments.json:
            _print_line(json.dumps(_facts(verdict)))
        else:
            _print_line(report(verdict, time.monotonic() - began))
        failed += not verdict.passed
        for name, count in Counter(line.split()[2] for line in verdict.faults).items():
            strikes.setdefault(name, []).append(count)
    if arguments.seeds > 1 and not arguments.json:
        _print_line(table_of(strikes))
        _print_line(f"{arguments.seeds} seeds, {failed} failed")
    return 1 if failed else 0


def _facts(verdict: Verdict) -> dict[str, object]:
    return {
        "anomalies": verdict.anomalies,
        "faults": verdict.faults,
        "operations": verdict.operations,
        "digest": verdict.digest,
        "virtual_s": verdict.virtual_s,
    }


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
