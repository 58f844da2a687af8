"""A Spark session that can read Kafka: finds the connector's jars, and sets what Spark needs here.

Who may call: the jobs of this room, tests. Invariants: local to this machine (127.0.0.1), workers
run this interpreter; jars are fetched once into ~/.cache/ottla and used as files; a missing tool is
one line with the way out. Versions are tried in turn, since registries lag behind: all of pyspark's
version, then the pinned token provider; without Maven, Spark's own resolution.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import StartupError
from ottla.zookeeper.embedded import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "spark-sql-kafka-0-10_2.13"
PINNED_TOKEN_PROVIDER = "4.0.0"  # noqa: S105 - a version
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
MAVEN_TIMEOUT_S = 300
POM = Path(__file__).parent / "connector-pom.xml"
DRIVER_MEMORY = "1g"


def cache_folder(version: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ottla" / "spark" / version


def connector_jars(version: str) -> list[Path] | None:
    """Return the connector's jars for a Spark version; None without Maven to fetch them."""
    cache = cache_folder(version)
    jars = sorted(cache.glob("*.jar"))
    if jars:
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        return None
    cache.parent.mkdir(parents=True, exist_ok=True)
    problem = ""
    for token_provider in (version, PINNED_TOKEN_PROVIDER):
        with tempfile.TemporaryDirectory(dir=cache.parent) as scratch:
            target = Path(scratch) / "jars"
            problem = _copy_dependencies(maven, version, token_provider, target)
            if not problem:
                shutil.rmtree(cache, ignore_errors=True)
                target.rename(cache)
                return sorted(cache.glob("*.jar"))
    raise StartupError(
        f"Maven could not fetch Spark's Kafka connector {version}: {problem}; put its jars into "
        f"{cache} by hand, or check the network"
    )


def _copy_dependencies(maven: str, version: str, token_provider: str, target: Path) -> str:
    """Fetch into `target`; return what went wrong, or nothing."""
    # Maven writes beside the pom, which may be installed where nobody may write.
    pom = target.parent / "pom.xml"
    pom.write_bytes(POM.read_bytes())
    command = [
        maven, "-q", "-B", "-f", str(pom), PLUGIN, "-DincludeScope=runtime",
        f"-DoutputDirectory={target}", f"-Dspark.version={version}",
        f"-Dtoken.version={token_provider}",
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {MAVEN_TIMEOUT_S} s"
    if done.returncode == 0 and any(target.glob(f"{CONNECTOR}-*.jar")):
        return ""
    told = (done.stdout + done.stderr).splitlines()
    errors = [line.partition("[ERROR]")[2].strip() for line in told]
    return next(filter(None, errors), f"exit code {done.returncode}")


def start_session(name: str, *, cores: int = 2) -> "SparkSession":
    """Return a local Spark session with the Kafka connector; StartupError if that cannot be."""
    try:
        import pyspark  # noqa: PLC0415 - an extra
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StartupError(
            f"Spark is not installed ({error.name} is missing): pip install 'ottla[spark]'"
        ) from None
    os.environ.setdefault("JAVA_HOME", str(_java_home()))
    # Workers must be this interpreter: the system's python has no pyarrow.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    version = pyspark.__version__
    jars = connector_jars(version)
    if jars is None:
        settings["spark.jars.packages"] = f"org.apache.spark:{CONNECTOR}:{version}"
        settings["spark.jars.excludes"] = (
            "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
        )
    else:
        settings["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _java_home() -> Path:
    """Return the folder that holds bin/java, through the links distributions put before it."""
    java = find_java()
    home = java.resolve().parent.parent
    return home if (home / "bin" / "java").exists() else java.parent.parent
