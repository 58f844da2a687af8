"""`ottla pipeline NAME …`: the Spark jobs by name, and what each is for.

Invariants: listing the jobs imports none of them and no Spark.

To add a job:
1. Write `ottla/pipelines/NAME.py` with `main(arguments: Sequence[str] | None = None) -> int`, which
   returns the exit code (0: it held, 1: it failed or found something, 2: typed wrong), and
   `if __name__ == "__main__": sys.exit(main())`, so that `python -m ottla.pipelines.NAME` and
   `spark-submit …/NAME.py` run it, too.
2. Let `main` use `job.parser` (--config, --set, --master, --conf), `config.read_config` with a
   `msgspec` struct of the job's settings, `session.start_session`, and `job.run` around it all: it
   turns what goes wrong into one line on stderr. stdout carries the job's result alone.
3. Add a line to JOBS below, and a section to docs/PIPELINES.md.
"""

import json
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple


class Job(NamedTuple):
    """The module that has `main`, and what the job does, in one line."""

    module: str
    what: str


JOBS = {
    "audit": Job(
        "ottla.pipelines.audit", "what was sent against log and lake: loss, duplicates, delays"
    ),
    "drill": Job(
        "ottla.pipelines.drill",
        "after a failover drill, by partition: who led, what was acknowledged, kept, landed, lost",
    ),
    "init": Job(
        "ottla.pipelines.declarative.command",
        "copies a project for spark-pipelines: tables, dead letters, facts, completeness",
    ),
    "lag": Job("ottla.pipelines.lag", "how far groups were behind, and which do not get on"),
    "lake": Job("ottla.pipelines.lake", "topics to Parquet, each record exactly once"),
    "mirror": Job(
        "ottla.pipelines.mirror", "replay without an end: what comes to one topic to another"
    ),
    "rebalance": Job(
        "ottla.pipelines.rebalance",
        "which replicas to move so that brokers hold their share: stages for `ottla reassign`",
    ),
    "replay": Job(
        "ottla.pipelines.replay", "a range of a topic to another topic, each record exactly once"
    ),
    "replicas": Job(
        "ottla.pipelines.replicas", "segment files of all brokers compared: damage, loss"
    ),
    "timeline": Job(
        "ottla.pipelines.timeline.command",
        "state-change logs and journals: who led when, gaps, double leaders, stale epochs",
    ),
}

HELP = "Spark jobs around a cluster: `ottla pipeline` lists them."
EXIT_USAGE = 2


def usage() -> str:
    """Return the list of jobs."""
    width = max(map(len, JOBS))
    return "\n".join(
        [
            "Usage: ottla pipeline NAME [OPTIONS]",
            "",
            "Spark jobs around a Kafka cluster, on this machine (local[*]) or, by --master or",
            "spark-submit, on any Spark cluster. `ottla pipeline NAME --help` tells the rest.",
            "",
            *(
                line
                for name, job in JOBS.items()
                for line in textwrap.wrap(
                    f"  {name:{width}}  {job.what}", 80, subsequent_indent=" " * (width + 4)
                )
            ),
            "",
            "`ottla pipeline schema NAME` prints the JSON schema of a job's result.",
            "",
        ]
    )


def schema(names: Sequence[str]) -> int:
    """Print the JSON schema of a job's result; return the exit code."""
    from ottla.pipelines.result_schemas import RESULTS

    if len(names) != 1 or names[0] not in RESULTS:
        sys.stderr.write(f"ottla pipeline schema: name one of {', '.join(sorted(RESULTS))}\n")
        return EXIT_USAGE
    sys.stdout.write(json.dumps(RESULTS[names[0]], indent=2) + "\n")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the job that the first argument names; return its exit code."""
    if not arguments or arguments[0] in ("--help", "-h"):
        sys.stdout.write(usage())
        return 0 if arguments else EXIT_USAGE
    if arguments[0] == "schema":
        return schema(arguments[1:])
    job = JOBS.get(arguments[0])
    if job is None:
        sys.stderr.write(
            f"ottla pipeline: there is no job {arguments[0]}; there are: {', '.join(JOBS)}\n"
        )
        return EXIT_USAGE
    return int(import_module(job.module).main(arguments[1:]))
