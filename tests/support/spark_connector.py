"""The jars of Spark's own Kafka connector, with which ours is compared: from the cache, or Maven.

Invariants: jars are fetched once into ~/.cache/ottla and used as files; a missing tool is one line
with the way out. Versions are tried in turn, since registries lag behind: all of pyspark's version,
then the pinned token provider; without Maven, Spark's own resolution.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from ottla.model.errors import StartupError
from ottla.pipelines.session import Wanted

CONNECTOR = "spark-sql-kafka-0-10_2.13"
PINNED_TOKEN_PROVIDER = "4.0.0"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
MAVEN_TIMEOUT_S = 300
POM = Path(__file__).parent / "connector-pom.xml"


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
                # Never in place of those that are there: another process may be using them already.
                with contextlib.suppress(OSError):
                    target.rename(cache)
                return sorted(cache.glob("*.jar"))
    raise StartupError(
        f"Maven could not fetch Spark's Kafka connector {version}: {problem}; put its jars into "
        f"{cache} by hand, or check the network"
    )


def _copy_dependencies(maven: str, version: str, token_provider: str, target: Path) -> str:
    """Fetch into `target`; return what went wrong, or nothing."""
    # Maven writes beside the pom, which may be installed where no one may write.
    pom = target.parent / "pom.xml"
    pom.write_bytes(POM.read_bytes())
    command = [
        maven, "-q", "-B", "-f", str(pom), PLUGIN, "-DincludeScope=runtime",
        f"-DoutputDirectory={target}", f"-Dspark.version={version}",
        f"-Dtoken.version={token_provider}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no response within {MAVEN_TIMEOUT_S} s"
    if done.returncode == 0 and any(target.glob(f"{CONNECTOR}-*.jar")):
        return ""
    reported = (done.stdout + done.stderr).splitlines()
    errors = [line.partition("[ERROR]")[2].strip() for line in reported]
    return next(filter(None, errors), f"exit code {done.returncode}")


def coordinates(version: str) -> str:
    """Return what --packages takes for the connector of a Spark version."""
    return f"org.apache.spark:{CONNECTOR}:{version}"


def connector_settings(version: str) -> dict[str, str]:
    """Return Spark settings that bring the connector: its jars, or their coordinates for Ivy."""
    jars = connector_jars(version)
    if jars is not None:
        return {"spark.jars": ",".join(map(str, jars))}
    return {
        "spark.jars.packages": coordinates(version),
        "spark.jars.excludes": (
            "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
        ),
    }


def with_connector(master: str) -> Wanted:
    """Return what asks for a session in which format("kafka") works, too."""
    return Wanted(master, connector_settings(pyspark.__version__))
