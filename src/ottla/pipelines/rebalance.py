"""The rebalance job: a plan in stages for `ottla reassign` that evens out bytes and leaders.

Invariants: nothing is changed on the cluster; stdout carries the result alone; exit code 0: there
is a plan, or nothing to do, 1: a hard goal cannot be met, or the job failed, and nothing is
written.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ottla.cli import Option
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.pipelines import job, paths
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.rebalancing import asking, outputs
from ottla.pipelines.rebalancing.deciding import decide
from ottla.pipelines.rebalancing.seen import Rebalance, Seen, parse_size, problem_of, rate_between
from ottla.pipelines.rebalancing.staging import Bounds
from ottla.pipelines.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "rebalance"
Rates = dict[TopicPartition, float]


class Stages(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[stages]`: bounds of one stage; `moves_per_broker`: replicas that come to one broker."""

    bytes: int | str = "100 GiB"
    partitions: int = 500
    moves_per_broker: int = 50

    def __post_init__(self) -> None:
        if self.partitions < 1 or self.moves_per_broker < 1 or parse_size(self.bytes) < 1:
            raise ValueError("bytes, partitions and moves_per_broker must be at least 1")

    def bounds(self) -> Bounds:
        return Bounds(
            max_bytes=parse_size(self.bytes),
            partitions=self.partitions,
            moves_per_broker=self.moves_per_broker,
        )


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file."""

    cluster: Cluster | None = None
    rebalance: Rebalance = Rebalance()
    stages: Stages = Stages()
    spark: Spark = Spark()


@dataclass(frozen=True, kw_only=True)
class Options(job.ClusterOptions):
    """What follows `ottla pipeline rebalance`."""

    drain: Annotated[
        Sequence[int],
        Option("--drain", metavar="BROKER", help="Move all replicas off this broker; repeatable"),
    ] = ()
    added: Annotated[
        Sequence[int],
        Option("--added", metavar="BROKER", help="Move replicas only to this broker; repeatable"),
    ] = ()
    plan: Annotated[
        str | None, Option(metavar="FOLDER", help="Write the stages to this folder (new or empty)")
    ] = None
    samples: Annotated[
        str | None, Option(metavar="FOLDER", help="Samples of sizes and offsets")
    ] = None
    sample: Annotated[bool, Option("--sample", help="Only add a sample to --samples")] = False
    output: job.Output = job.Shown.table


def rebalance(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def settings_of(options: Options) -> Settings:
    """Return the settings of file and command line; ConfigError if they do not fit together."""
    sets = job.cluster_sets(options)
    if options.samples:
        sets.append(f"rebalance.samples={json.dumps(options.samples)}")
    sets += [
        f"rebalance.{key}={json.dumps(list(given))}"
        for key, given in (("drain", options.drain), ("added", options.added))
        if given
    ]
    settings = read_config(options.config, sets, Settings)
    if settings.cluster is None and (options.sample or settings.rebalance.samples is None):
        raise ConfigError("no cluster to ask: give --bootstrap-server, or --samples to plan from")
    if options.sample and settings.rebalance.samples is None:
        raise ConfigError("--sample wants the folder: add --samples FOLDER")
    return settings


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job; Spark starts only if there are samples to read and no session is given."""
    settings = settings_of(options)
    if options.sample:
        return _sample(settings)
    paths.new_folder(options.plan, "--plan")
    seen, rates = _seen(options, settings, spark)
    problem = problem_of(seen, settings.rebalance, rates)
    made = decide(problem, settings.stages.bounds())
    throttle = settings.rebalance.throttle
    reported = outputs.Report(
        problem, made, None if throttle is None else parse_size(throttle), options.plan
    )
    if options.plan is not None:
        outputs.write(reported)
    if options.output == "json":
        sys.stdout.write(json.dumps(reported.as_json()) + "\n")
    else:
        outputs.print_table(reported)
    return job.EXIT_OK


def _sample(settings: Settings) -> int:
    from ottla.pipelines.rebalancing import samples  # imports pyarrow

    assert settings.cluster is not None
    assert settings.rebalance.samples is not None
    seen = asking.look(settings.cluster, offsets=True)
    samples.write(Path(settings.rebalance.samples), seen)
    sys.stdout.write(
        json.dumps(
            {
                "at_ms": seen.at_ms,
                "brokers": len(seen.brokers),
                "partitions": len(seen.partitions),
                "samples": len(samples.times(Path(settings.rebalance.samples))),
            }
        )
        + "\n"
    )
    return job.EXIT_OK


def _seen(options: Options, settings: Settings, spark: "SparkSession | None") -> tuple[Seen, Rates]:
    """Return the cluster as it is now, or as the newest sample has it, and rates."""
    rebalance = settings.rebalance
    if settings.cluster is None:
        return _history(options, settings, spark)
    cluster, wait_s = settings.cluster, rebalance.sample_seconds
    seen = asking.look(cluster, offsets=wait_s > 0)
    rates: Rates = {}
    if rebalance.samples is not None:
        newest, rates = _history(options, settings, spark)
        if newest.cluster_id != seen.cluster_id:
            raise ConfigError(
                f"{rebalance.samples} has samples of cluster {newest.cluster_id}, this is "
                f"{seen.cluster_id}: name another folder"
            )
    if wait_s:
        before = seen
        time.sleep(wait_s)
        seen = asking.look(cluster, offsets=True)
        rates |= rate_between(before, seen)
    return seen, rates


def _history(
    options: Options, settings: Settings, spark: "SparkSession | None"
) -> tuple[Seen, Rates]:
    from ottla.pipelines.rebalancing import samples  # imports pyarrow

    assert settings.rebalance.samples is not None
    folder = Path(settings.rebalance.samples)
    if not samples.times(folder):
        raise ConfigError(f"{folder} has no samples; add --sample to take one first")
    own = spark is None
    spark = spark or start_session(NAME, job.wanted_of(options), settings.spark)
    try:
        return samples.history(spark, folder, settings.rebalance.rate_quantile)
    finally:
        if own:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
