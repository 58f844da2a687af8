"""Kafka's own performance tools: run one in a JVM of its own, read what it printed.

Who may call: the benchmarks that compare two systems. A tool that ends without its figures raises,
so a failed run never counts as a slow one.
"""

import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from support import kafka_tools

TOOL_TIMEOUT_S = 180
LATENCY_MESSAGES = 3000


@dataclass(frozen=True)
class Consumed:
    """What one ConsumerPerformance did: when its first fetch could go out, when it had all."""

    began_s: float
    ended_s: float
    records: int


def java(tool: str, *arguments: str) -> str:
    """Run one of Kafka's tools with the JVM as it comes, heap bounded; return what it printed."""
    done = subprocess.run(
        [kafka_tools.java() or "java", "-Xmx512m", "-cp", f"{kafka_tools.libs()}/*", tool,
         *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def producer_performance(
    bootstrap: str, topic: str, records: int, acks: str, codec: str = "none", per_s: int = -1
) -> float:
    """Produce records of 100 bytes, `per_s` (-1: as fast as it goes); return records per second."""
    out = java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records",
        str(records), "--record-size", "100", "--throughput", str(per_s), "--producer-props",
        f"bootstrap.servers={bootstrap}", f"acks={acks}", "batch.size=65536", "linger.ms=5",
        f"compression.type={codec}",
    )  # fmt: skip
    found = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", out, re.MULTILINE)
    if not found:
        raise RuntimeError(f"ProducerPerformance said:\n{out[-2000:]}")
    return float(found[-1])


def end_to_end(bootstrap: str, topic: str, folder: Path) -> dict[str, float]:
    """Send one record after the other and read each back; return milliseconds."""
    properties = folder / "client.properties"
    # At its end the tool commits offsets, which needs a group coordinator: not what is measured.
    properties.write_text("default.api.timeout.ms=5000\n")
    out = java(
        "org.apache.kafka.tools.EndToEndLatency", bootstrap, topic, str(LATENCY_MESSAGES), "all",
        "100", str(properties),
    )  # fmt: skip
    mean = re.search(r"Avg latency: ([\d.]+) ms", out)
    percentiles = re.search(r"50th = (\d+), 99th = (\d+)", out)
    if mean is None or percentiles is None:
        raise RuntimeError(f"EndToEndLatency said:\n{out[-2000:]}")
    return {
        "e2e_avg_ms": float(mean[1]),
        "e2e_p50_ms": float(percentiles[1]),
        "e2e_p99_ms": float(percentiles[2]),
    }


def consumer_performance(bootstrap: str, topic: str, group: str, records: int) -> Consumed:
    """Read a topic from its beginning in a group of its own, with the tool's own settings.

    Joining the group is not part of the time: that is another benchmark's.
    """
    out = java(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic",
        topic, "--group", group, "--messages", str(records), "--timeout", "60000", "--hide-header",
    )  # fmt: skip
    stamp = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3})"
    found = re.search(
        rf"^{stamp}, {stamp}, [\d.]+, [\d.]+, (\d+), [\d.]+, (\d+), ", out, re.MULTILINE
    )
    if found is None or int(found[3]) < records:
        raise RuntimeError(f"ConsumerPerformance said:\n{out[-2000:]}")
    began, ended = (_seconds(found[n]) for n in (1, 2))
    return Consumed(began + int(found[4]) / 1000, ended, int(found[3]))


def _seconds(stamp: str) -> float:
    # Both ends are of one machine's clock, so the zone does not matter.
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S:%f").replace(tzinfo=UTC).timestamp()
