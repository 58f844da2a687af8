"""A Java application, run by a test in Python: its group goes on where it was when a leader dies.

The application is `Orders.java`, one file that `java` compiles as it starts; yours is what your
build makes. KAFKA_LIBS names the folder with Kafka's clients and what they need: `libs` of an
unpacked Apache Kafka, or what `mvn dependency:copy-dependencies` makes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla import SyncCluster

APPLICATION = Path(__file__).with_name("Orders.java")
LIBS = Path(os.environ.get("KAFKA_LIBS", "/opt/kafka/libs"))
JDK = Path(os.environ["JAVA_HOME"], "bin") if "JAVA_HOME" in os.environ else None
JAVA, COMPILER = (shutil.which(name, path=JDK) for name in ("java", "javac"))

pytestmark = [
    pytest.mark.skipif(
        JAVA is None or COMPILER is None, reason="no JDK on the PATH: install one or set JAVA_HOME"
    ),
    pytest.mark.skipif(
        not any(LIBS.glob("kafka-clients-*.jar")),
        reason=f"no kafka-clients-*.jar in {LIBS}: set KAFKA_LIBS",
    ),
]


def application(*arguments: str) -> list[str]:
    """Run the application to its end and return the lines that it prints."""
    command = [str(JAVA), "-cp", f"{LIBS}/*", str(APPLICATION), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def orders(first: int, count: int) -> list[str]:
    return [f"order {number}" for number in range(first, first + count)]


@pytest.mark.ottla(brokers=3, in_process=True)
def test_a_group_goes_on_where_it_was(ottla_cluster: SyncCluster, kafka_bootstrap: str) -> None:
    ottla_cluster.create_topic("orders", partitions=3, min_insync_replicas=2)
    application("write", kafka_bootstrap, "0", "50")
    assert sorted(application("read", kafka_bootstrap, "50")) == sorted(orders(0, 50))

    ottla_cluster.kill(ottla_cluster.leader_of("orders-0"))

    application("write", kafka_bootstrap, "50", "50")
    assert sorted(application("read", kafka_bootstrap, "50")) == sorted(orders(50, 50))
