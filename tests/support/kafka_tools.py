"""Kafka's own command line tools, run from the jars that `scripts/kafka-jars` brings."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

VERSION = "3.9.1"
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For what runs for seconds: compiled once, not twice, a start takes two thirds of the time."""
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKER_API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
DUMP_LOG = "kafka.tools.DumpLogSegments"


def libs(version: str = VERSION) -> Path:
    """Return the folder of a version's jars; OTTLA_KAFKA_LIBS names that of 3.9."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    named = os.environ.get("OTTLA_KAFKA_LIBS") if version == VERSION else None
    return Path(named or cache / "ottla" / "kafka" / version)


def java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (found := shutil.which("java", path=str(Path(home) / "bin"))):
        return found
    return shutil.which("java")


def archive() -> Path:
    """Return where `class_archive.py` puts the loaded classes of these jars and this Java.

    Java maps them from there instead of reading and checking each class anew (JEP 350).
    """
    names = sorted((file.name, file.stat().st_size) for file in libs().glob("*.jar"))
    of = f"{Path(java() or 'java').resolve()} {libs()} {names}"
    name = f"classes-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla" / "kafka" / name


def quick_jvm() -> tuple[str, ...]:
    """Return the options for what runs for seconds."""
    shared = archive()
    if not shared.exists():
        return QUICK_JVM
    # Where it does not fit, Java goes on without, and would say so in its output.
    return (*QUICK_JVM, f"-XX:SharedArchiveFile={shared}", "-Xlog:disable")


def why_not(version: str = VERSION) -> str | None:
    """Return why a version's brokers and tools cannot run here, or None."""
    if java() is None:
        return "no java: install one or set JAVA_HOME"
    if not any(libs(version).glob("kafka_2.13-*.jar")):
        way_out = (
            "run scripts/kafka-jars or set OTTLA_KAFKA_LIBS"
            if version == VERSION
            else f"run scripts/kafka-jars {version}"
        )
        return f"no Kafka jars in {libs(version)}: {way_out}"
    return None


def command(*arguments: str) -> list[str]:
    """Return what starts a class of Kafka's, or a Java program beside Kafka's jars, for seconds."""
    return [java() or "java", "-Xmx256m", *quick_jvm(), "-cp", f"{libs()}/*", *arguments]


def run(
    tool: str,
    *arguments: str,
    stdin: str = "",
    timeout_s: float = 120,
    check: bool = True,
    jvm: tuple[str, ...] = (),
) -> str:
    """Run a tool; return what it printed. AssertionError with all of it unless it exits with 0."""
    done = subprocess.run(
        command(*jvm, tool, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )  # fmt: skip
    if check:
        assert done.returncode == 0, f"{tool} exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if not check else "")


def dump_log(folder: Path, *suffixes: str) -> str:
    """Return what Kafka's dump tool makes of a log's files; AssertionError if it complains."""
    files = sorted(str(p) for p in folder.iterdir() if p.suffix in suffixes)
    assert files
    out = run(DUMP_LOG, "--deep-iteration", "--files", ",".join(files))
    for complaint in ("ismatch", "isvalid: false", "Found timestamp", "out of order", "xception"):
        assert complaint not in out, out
    return out


class OneJvm:
    """Tools run one after the other in one JVM: `call` gives (exit code, all that was printed).

    Without a Java compiler (a JRE only) each one gets a JVM of its own.
    """

    def __enter__(self) -> Self:
        java_ = java() or "java"
        modules = subprocess.run(
            [java_, "--list-modules"], capture_output=True, text=True, timeout=30, check=True
        )
        self._process: subprocess.Popen[bytes] | None = None
        if "jdk.compiler" in modules.stdout:
            driver = Path(__file__).parent / "RunTools.java"
            self._process = subprocess.Popen(
                command(str(driver)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def call(self, tool: str, *arguments: str) -> tuple[int, str]:
        """Run a tool. The test's own timeout bounds it."""
        if self._process is None:
            done = subprocess.run(
                command(tool, *arguments),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            return done.returncode, done.stdout
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(("\t".join((tool, *arguments)) + "\n").encode())
        stdin.flush()
        head = stdout.readline()
        assert head, "the JVM that runs the tools is gone"
        code, length = map(int, head.split())
        return code, stdout.read(length).decode()
