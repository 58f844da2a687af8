"""Spark's daemon of Python workers, with a job's modules imported before workers are forked.

Started by Spark (`spark.python.daemon.module`), as `session` asks for a local master. Spark's own
daemon imports nothing, so that each worker imports pyarrow and pandas anew: most of a second each.
Invariant: workers are forked from a process with one thread, but for jemalloc's, which jemalloc
itself starts anew in the child; where an import started others, Spark's own daemon takes the place
of this one. Spark: `pyspark/daemon.py`.
"""

import gc
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

MODULES = "OTTLA_WORKER_MODULES"
"""The environment variable that names the modules, separated by commas."""
WORKER = "pyspark.worker"
"""What Spark calls the workers that run tasks; others are for planning and import less."""
PLAIN = "pyspark.daemon"
HARMLESS = ("jemalloc_bg_thd",)


def import_all(modules: Iterable[str]) -> list[str]:
    """Import modules; return the names of the threads that they started and forks must not have."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's would start with the import
    for name in modules:
        importlib.import_module(name)
    return strange_threads()


def strange_threads() -> list[str]:
    """Return the names of this process's threads besides the main one and the harmless ones."""
    mine = str(os.getpid())
    names = []
    for path in Path("/proc/self/task").iterdir():
        name = (path / "comm").read_text().strip()
        if path.name != mine and name not in HARMLESS:
            names.append(name)
    return names


def main(arguments: list[str]) -> None:
    """Import what the environment names, then be Spark's daemon."""
    modules = [name for name in os.environ.get(MODULES, "").split(",") if name]
    if arguments[:1] == [WORKER] and modules and import_all([WORKER, *modules]):
        safe = ["-P"] if sys.flags.safe_path else []  # as Spark started this one
        os.execv(sys.executable, [sys.executable, *safe, "-m", PLAIN, *arguments])  # noqa: S606 - no shell # nosec B606
    gc.freeze()  # what all workers share is not copied by a collection in one of them
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main(sys.argv[1:])
