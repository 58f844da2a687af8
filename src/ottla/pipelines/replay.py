"""The replay job, and mirror: a topic's records to another topic or cluster, each exactly once.

Invariants: stdout carries the result alone, as one line of JSON; exit code 1 if a record is missing
or doubled, or if the target belongs to something else (then nothing has changed).
"""

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ottla.cli import Option
from ottla.model.errors import ConfigError
from ottla.pipelines import interrupts, job
from ottla.pipelines.config import read_config
from ottla.pipelines.replaying import offset_map
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.replaying.rounds import Rounds

REPLAY, MIRROR = "replay", "mirror"


@dataclass(frozen=True, kw_only=True)
class Options(job.Options):
    """What follows `ottla pipeline replay`."""

    verify: Annotated[
        bool, Option("--verify", help="At the end compare everything that the job ever copied")
    ] = False
    accept: Annotated[
        bool, Option("--accept", help="Report what the check finds wrong once, and continue")
    ] = False
    translate_group: Annotated[
        str | None,
        Option(
            metavar="GROUP",
            help="Copy nothing; print where a group continues in the target, by the offset map",
        ),
    ] = None
    apply: Annotated[
        bool, Option("--apply", help="With --translate-group: commit that on the target")
    ] = False


@dataclass(frozen=True, kw_only=True)
class MirrorOptions(Options):
    """What follows `ottla pipeline mirror`."""

    once: Annotated[bool, Option("--once", help="Copy what is there now, then end")] = False


def replay(options: Options) -> int:
    return job.run(REPLAY, lambda: run(options))


def mirror(options: MirrorOptions) -> int:
    return job.run(MIRROR, lambda: run(options, name=MIRROR))


main = partial(job.main, REPLAY)


def run(options: Options, spark: "SparkSession | None" = None, name: str = REPLAY) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    from ottla.pipelines.replaying.rounds import Rounds

    settings = read_config(options.config, options.sets, Settings)
    if options.apply and not options.translate_group:
        raise ConfigError("--apply goes with --translate-group")
    if options.translate_group:
        return _translate(settings, options)
    own = spark is None
    with Rounds(settings) as rounds:
        rounds.reach()
        spark = spark or start_session(
            f"{name} {settings.replay.name}", job.wanted_of(options), settings.spark
        )
        rounds.spark = spark
        try:
            return _copied(rounds, options, name)
        finally:
            if own:
                with contextlib.suppress(Exception):  # it may be gone: its process dies with ours
                    spark.stop()


def _copied(rounds: "Rounds", options: Options, name: str) -> int:
    """Copy; print the result and return the exit code."""
    rounds.open()
    follows = isinstance(options, MirrorOptions) and not options.once
    wrong: list[str] = []
    stopped = False
    try:
        # What a run before has copied and not checked comes first.
        wrong = rounds.check(accept=options.accept)
        while options.accept or not wrong:
            interrupts.check()
            ends = rounds.refresh() if name == MIRROR else rounds.ends()
            copied = False
            while (options.accept or not wrong) and rounds.copy_next(ends):
                copied = True
                wrong += rounds.check(accept=options.accept)
            if not follows:
                break
            if not copied:
                time.sleep(rounds.poll_seconds)
    except BaseException as error:  # an interrupt comes out of Spark's calls as what it likes
        if not follows or not interrupts.caused(error):
            raise
        sys.stderr.write(f"pipeline {name}: interrupted; what is committed stays\n")
        stopped = True
    if options.verify and not wrong and not stopped:
        wrong = rounds.verify()
    for line in wrong:
        sys.stderr.write(f"pipeline {name}: {line}\n")
    sys.stdout.write(json.dumps({**rounds.result(), "exactly_once": not wrong}) + "\n")
    return job.EXIT_FAILED if wrong else job.EXIT_OK


def _translate(settings: Settings, options: Options) -> int:
    """Print where a group goes on in the target; with --apply commit it there."""
    from ottla.client import group_resets, groups
    from ottla.model.ids import TopicPartition
    from ottla.pipelines.replaying import state
    from ottla.pipelines.replaying.translating import Run, translated
    from ottla.pipelines.source.cluster import Cluster

    replay, group = settings.replay, options.translate_group
    assert group is not None
    if replay.offset_map is None:
        raise ConfigError("--translate-group needs replay.offset_map")
    with (
        Cluster(state.options_of(settings.source, replay.topic)) as source_cluster,
        Cluster(
            state.options_of(settings.target or settings.source, replay.target)
        ) as target_cluster,
    ):
        source = state.found_of(source_cluster, replay.topic)
        target = state.found_of(target_cluster, replay.target)
        folder = Path(replay.offset_map)
        offset_map.open_folder(folder, replay.name, source.name, target.id_text)
        partitions = list(source.topic.partitions)
        every = source_cluster.run(groups.committed_offsets(source_cluster.client, group))
        committed = {tp.partition: c.offset for tp, c in every.items() if tp.topic == replay.topic}
        if not committed:
            raise ConfigError(f"group {group} has committed nothing of topic {replay.topic}")
        table = offset_map.read(folder)
        columns = (table[name].to_pylist() for name in offset_map.COLUMNS)
        found = translated((Run(*row) for row in zip(*columns, strict=True)), committed)
        if options.apply:
            offsets = {TopicPartition(replay.target, p): at for p, at in sorted(found.items())}
            target_cluster.run(group_resets.commit(target_cluster.client, group, offsets))
    result: dict[str, Any] = {
        "group": group,
        "from": {str(p): offset for p, offset in sorted(committed.items())},
        "to": {str(p): offset for p, offset in sorted(found.items())},
        "without_commit": sorted(set(partitions) - set(committed)),
        "applied": bool(options.apply),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return job.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
