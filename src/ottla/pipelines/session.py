"""A Spark session for a job: what the user set stands, the rest gets defaults for this machine.

Invariants: a setting that came with spark-submit, --master, --conf, spark-defaults.conf or
PYSPARK_SUBMIT_ARGS is never overridden, in this order of precedence: the job's --master and --conf,
spark-submit's, the job's file ([spark]), Spark's defaults file, ours. Only a local master is tied
to 127.0.0.1 and to this interpreter.
"""

import argparse
import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import StartupError
from ottla.pipelines import interrupts
from ottla.pipelines.config import Spark
from ottla.pipelines.java_process import launch
from ottla.pipelines.worker_daemon import MODULES
from ottla.zookeeper.jars import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
DRIVER_MEMORY = "1g"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java compiles once, not twice, and collects in one thread: a start takes half the processor time.
Code that runs for minutes is slower, so it is for jobs whose rows do not pass through Java."""
ARROW_BYTES = "16m"
DAEMON = "ottla.pipelines.worker_daemon"
REDACTED = (
    r"(?i)secret|password|token|access[.]?key|sasl[.]jaas[.]config|ssl[.]keystore[.]key"
    r"|ssl[.]keystore[.]certificate[.]chain"
)
"""Of settings and options whose names match, Spark's logs, plans and web pages show no value: what
Spark has by default, and what else of Kafka's client settings is a secret."""
ALL_CORES = "*"
DEBUG = "OTTLA_PIPELINE_DEBUG"
"""Set in the environment, it lets tracebacks of a failure through."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line of a job asks for: --master and --conf."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """What a job is like, for our defaults with a local master.

    `quick_java`: QUICK_JAVA suits it. `modules`: what its Python workers import anyway, once for
    all of them (`worker_daemon`).
    """

    quick_java: bool = False
    modules: Sequence[str] = ()


def start_session(
    name: str,
    wanted: Wanted | None = None,
    file: Spark | None = None,
    *,
    work: Work | None = None,
) -> "SparkSession":
    """Return a session; StartupError if it cannot be. `file` is the job's table [spark]."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise StartupError(
            f"Spark is not installed ({error.name} is missing): pip install 'ottla[spark]'"
        ) from None
    settings = settings_of(
        name, wanted or Wanted(), file or Spark(), submitted(), defaults_file(), work or Work()
    )
    if is_local(settings["spark.master"]):
        _prepare_local(os.environ)
    if not _submitting():
        if not os.environ.get("JAVA_HOME"):
            os.environ["JAVA_HOME"] = str(_java_home())
        _refuse_bad_java(Path(os.environ["JAVA_HOME"]))
        launch(settings, show_all=bool(os.environ.get(DEBUG)))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    interrupts.note_before(signal.SIGINT)  # Spark's handler cancels what runs
    return spark


def settings_of(
    name: str,
    wanted: Wanted,
    file: Spark,
    submitted: Mapping[str, str],
    defaults: Mapping[str, str],
    work: Work = Work(),
) -> dict[str, str]:
    """Return all settings of a session: what was asked for, and our defaults for the rest."""
    asked = {**defaults, **file.conf}
    if file.master is not None:
        asked["spark.master"] = file.master
    asked |= {**submitted, **wanted.conf}
    if wanted.master is not None:
        asked["spark.master"] = wanted.master
    master = asked.setdefault("spark.master", LOCAL)
    ours = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What fails is said in one line; Spark's stack traces are for who asks for them.
        "spark.log.level": "ERROR" if os.environ.get(DEBUG) else "FATAL",
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": REDACTED,
        # Rows go to Python workers by number otherwise: 10,000 records of 1 MiB at once.
        "spark.sql.execution.arrow.maxBytesPerBatch": ARROW_BYTES,
    }
    if is_local(master):
        ours |= {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * local_cores(master)),
        }
        if work.quick_java:
            ours["spark.driver.extraJavaOptions"] = QUICK_JAVA
        if work.modules:
            ours["spark.python.daemon.module"] = DAEMON
            ours[f"spark.executorEnv.{MODULES}"] = ",".join(work.modules)
    return {**ours, **asked}


def is_local(master: str) -> bool:
    """Return whether a master is this machine alone: local, local[n], local-cluster[…]."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def local_cores(master: str) -> int:
    """Return how many tasks run at once with a local master."""
    numbers = re.findall(r"\d+|\*", master) or ["1"]
    if numbers[0] == ALL_CORES:
        return os.cpu_count() or 1
    cores = int(numbers[0])
    return cores * int(numbers[1]) if master.startswith("local-cluster[") else max(cores, 1)


def submitted() -> dict[str, str]:
    """Return what came with spark-submit, or in PYSPARK_SUBMIT_ARGS."""
    if _submitting():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM that is there
        return dict(SparkConf(loadDefaults=True).getAll())
    return parse_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))


def _submitting() -> bool:
    """Return whether spark-submit has started this process: then the JVM runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def parse_submit_arguments(text: str) -> dict[str, str]:
    """Return the settings that arguments of spark-submit stand for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names = {
        "--master": "spark.master",
        "--name": "spark.app.name",
        "--jars": "spark.jars",
        "--packages": "spark.jars.packages",
        "--driver-memory": "spark.driver.memory",
        "--executor-memory": "spark.executor.memory",
        "--executor-cores": "spark.executor.cores",
    }
    for option, key in names.items():
        parser.add_argument(option, dest=key)
    parser.add_argument("--conf", "-c", action="append", default=[])
    known, _ = parser.parse_known_args(shlex.split(text))
    found = {k: v for k, v in vars(known).items() if k != "conf" and v is not None}
    pairs = (pair.partition("=") for pair in known.conf)
    return {**{key: value for key, _, value in pairs}, **found}


def defaults_file() -> dict[str, str]:
    """Return what spark-defaults.conf says, in SPARK_CONF_DIR or SPARK_HOME/conf."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    path = Path(folder or "", "spark-defaults.conf")
    if not folder or not path.is_file():
        return {}
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            key, *rest = re.split(r"[\s=:]+", text, maxsplit=1)
            found[key] = rest[0] if rest else ""
    return found


def _prepare_local(environment: "os._Environ[str]") -> None:
    # Workers must be this interpreter: the system's python has no pyarrow.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if sys.flags.safe_path:
        environment.setdefault("PYTHONSAFEPATH", "1")
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


OLDEST_JAVA = 17


def _refuse_bad_java(home: Path) -> None:
    """Refuse a JAVA_HOME that Spark could not start with; it would say so in many lines."""
    if not os.access(home / "bin" / "java", os.X_OK):
        raise StartupError(f"JAVA_HOME={home} has no bin/java; correct it, or unset it")
    reported = ""
    with contextlib.suppress(OSError):  # a file that each Java brings since 9
        reported = (home / "release").read_text(encoding="utf-8", errors="replace")
    found = re.search(r'^JAVA_VERSION="(\d+)([^"]*)', reported, re.MULTILINE)
    if found and int(found[1]) < OLDEST_JAVA:
        raise StartupError(
            f"{home} is Java {found[1]}{found[2]}, Spark needs {OLDEST_JAVA} or newer: "
            "set JAVA_HOME to one"
        )


def _java_home() -> Path:
    """Return the folder that holds bin/java, through the links distributions put before it."""
    try:
        java = find_java()
    except StartupError:
        raise StartupError(
            f"no Java found, which Spark needs ({OLDEST_JAVA} or newer): install a Java runtime, "
            "set JAVA_HOME, or `pip install 'ottla[java]'`"
        ) from None
    home = java.resolve().parent.parent
    return home if (home / "bin" / "java").exists() else java.parent.parent
