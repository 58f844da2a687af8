"""A lake run that kills itself with kill -9 at a named stage of a commit; for tests of Delta.

    python delta_stages.py STAGE BATCH -- ARGUMENTS     as ottla pipeline lake ARGUMENTS
    python delta_stages.py STAGE BATCH land ARGUMENTS   lands a batch without Spark

STAGE is one of STAGES or "none"; the run dies at the first batch from number BATCH on.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.pipelines import lake
from ottla.pipelines.landing import table as tables
from ottla.pipelines.landing.delta_log import DeltaLog
from support.landed import land_without_spark

STAGES = (
    "before the manifest's rename",
    "before the rows' version",
    "files linked, before the rows' version",
    "before the dead letters' version",
    "after both versions",
)


def kill_at(stage, batch):
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner, name, fits):
        real = getattr(owner, name)

        def call(*arguments, **more):
            if fits(*arguments):
                die()
            return real(*arguments, **more)

        setattr(owner, name, call)

    def is_rows(log):
        return log.folder.name == "data"

    if stage == STAGES[0]:
        before(tables.Table, "_publish", lambda t, s, to: to.parent.name == "data" and late(t))
        before(tables, "exchange", lambda *_: True)
    elif stage == STAGES[1]:
        before(DeltaLog, "write", lambda log, m, _: is_rows(log) and m.batch >= batch)
    elif stage == STAGES[2]:
        before(DeltaLog, "_publish", lambda log, n, *_: is_rows(log) and n >= batch)
    elif stage == STAGES[3]:
        before(DeltaLog, "write", lambda log, m, _: not is_rows(log) and m.batch >= batch)
    elif stage == STAGES[4]:
        follow = tables.Delta.follow

        def followed(delta, batches):
            follow(delta, batches)
            if batches and batches[-1].batch >= batch:
                die()

        tables.Delta.follow = followed
    else:
        assert stage == "none"

    def late(table):
        return table.next_batch >= batch


def main():
    stage, batch, what, *arguments = sys.argv[1:]
    kill_at(stage, int(batch))
    if what == "land":
        land_without_spark(arguments)
        return 0
    return lake.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
