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

from ottla.sim.cluster import run
from ottla.sim.faults import ALL_NAMES, NAMES, OF_STATEMENTS
from ottla.sim.plans import MASKS, SIZES, Plan, drawn
from ottla.sim.shrink_runs import Budget, shrink_run
from ottla.sim.verdict import Verdict


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.sim",
        description="Run whole clusters on simulated time, network and disks, and break them.",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="run so many seeds, from --seed on")
    parser.add_argument(
        "--drawn", action="store_true", help="draw sizes and settings by the seed, too"
    )
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--min-isr", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of faults")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--unclean-partitions", type=int, default=0, help="partitions with unclean elections"
    )
    parser.add_argument("--administrators", type=int, default=0, help="people at work at once")
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--no-retry-producers", type=int, default=1, help="acks=1, no second try")
    parser.add_argument("--consumers", type=int, default=2)
    parser.add_argument("--members", type=int, default=0, help="processes in a consumer group")
    parser.add_argument(
        "--copiers", type=int, default=0, help="transactional ids that copy what is written"
    )
    parser.add_argument(
        "--coordinated", action="store_true", help="with --drawn: draw members and copiers, too"
    )
    parser.add_argument("--gap", type=float, default=4.0, help="mean seconds between faults")
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between writes")
    _add_choices(parser)
    parser.add_argument("--json", action="store_true", help="print each verdict as JSON")
    parser.add_argument(
        "--shrink", action="store_true", help="find a smaller run with the same failure"
    )
    parser.add_argument("--shrink-seconds", type=float, default=900.0, help="CPU time for that")
    parser.add_argument("--shrink-runs", type=int, default=400, help="runs for that")
    parser.add_argument(
        "--failure", help="the kind of failure to keep; by default the run's gravest one"
    )
    parser.add_argument("--until", type=float, help="stop at this virtual second, unjudged")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--log-level", default="critical", help="what the product logs, to stderr")
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        parser.error(f"--seeds: {arguments.seeds} runs show nothing")
    chosen = tuple(f for f in arguments.faults.split(",") if f and f != "none")
    unknown = sorted(set(chosen) - set(ALL_NAMES))
    if unknown:
        parser.error(f"--faults: unknown {', '.join(unknown)}")
    arguments.faults = chosen
    return arguments


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Add what a plan has, or has not, and which faults."""
    parser.add_argument("--slowness", type=float, default=1.0, help="of brokers; 0: no time passes")
    parser.add_argument("--no-interleave", action="store_true", help="workers' calls are atomic")
    parser.add_argument("--evicted", type=float, default=0.0, help="how often reads are cold")
    parser.add_argument("--small-fetches", action="store_true", help="followers fetch little")
    parser.add_argument("--compacted", action="store_true", help="the topic is compacted")
    parser.add_argument("--in-order", action="store_true", help="power losses keep a prefix")
    parser.add_argument(
        "--faults", default=",".join(NAMES), help=f"'none' or any of {','.join(ALL_NAMES)}"
    )
    parser.add_argument(
        "--statements",
        type=_names,
        default=OF_STATEMENTS,
        metavar="NAMES",
        help=f"with --drawn: draw only these of {','.join(OF_STATEMENTS)}; or 'none'",
    )
    for name in MASKS:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_names,
            default=getattr(Plan(0), name),
            metavar="NAMES",
            help="by their names after '#' in a failure's report, such as 3,c2 or a0.7; or 'none'",
        )
    parser.add_argument("--log-dirs", type=int, default=2, choices=(1, 2, 3))
    parser.add_argument(
        "--short-turns", action="store_true", help="give way after each item, not after 8 ms"
    )
    parser.add_argument(
        "--crash-detection", action="store_true", help="a refused connection ends a registration"
    )
    parser.add_argument(
        "--durable-zookeeper", action="store_true", help="its server has files, and dies"
    )
    parser.add_argument("--cooperative", action="store_true", help="members of KIP-429")
    parser.add_argument("--no-operators", action="store_true", help="topics do not come and go")
    parser.add_argument(
        "--hard", action="store_true", help="break as much as is promised after a power loss"
    )
    parser.add_argument(
        "--careless", action="store_true", help="break more than is promised after a power loss"
    )


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(filter(None, text.split(",")))


def plan_of(arguments: argparse.Namespace, seed: int) -> Plan:
    """Return the plan of one seed: the drawn one, or the one the arguments spell out."""
    masks = {name: getattr(arguments, name) for name in MASKS}
    if arguments.drawn:
        plan = drawn(seed, coordinated=arguments.coordinated)
        left_out = set(OF_STATEMENTS) - set(arguments.statements)
        faults = tuple(name for name in plan.faults if name not in left_out)
        return replace(plan, faults=faults, **masks)
    return Plan(
        seed,
        **{name: getattr(arguments, name) for name in SIZES},
        **masks,
        faults=arguments.faults,
        mean_gap_s=arguments.gap,
        pause_s=arguments.pause,
        operators=not arguments.no_operators,
        cooperative=arguments.cooperative,
        slowness=arguments.slowness,
        interleave=not arguments.no_interleave,
        short_turns=arguments.short_turns,
        crash_detection=arguments.crash_detection,
        durable_zookeeper=arguments.durable_zookeeper,
        evicted=arguments.evicted,
        small_fetches=arguments.small_fetches,
        compacted=arguments.compacted,
        in_order=arguments.in_order,
        hard=arguments.hard,
        careless=arguments.careless,
    )


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
