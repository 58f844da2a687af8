"""State change logs merged by Kafka 3.9.1's own StateChangeLogMerger and by our command."""

import random
import subprocess
import sys

import pytest

from support import kafka_tools

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]


def lines(chance, broker, count=400):
    """Lines as Kafka before 1.1 wrote them, of different times; the last without a partition."""
    at = 0
    found = []
    for n in range(count):
        at += chance.randrange(1, 90) * 3 + broker  # no two brokers have one time
        second, ms = divmod(at * 3 + broker, 1000)
        topic = chance.choice(("orders", "a.b_c-d", "other"))
        what = chance.choice(
            (
                f"partition [{topic},{n % 4}] state",
                f"partition [{topic}, {n % 4}] x",
                "no partition",
            )
        )
        time = f"{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02},{ms:03}"
        found.append(f"[2026-11-23 {time}] TRACE Broker {broker} {what} (state.change.logger)\n")
        if n % 50 == 0:
            found.append("java.lang.Exception: [orders,0]\n\tat kafka.Kafka\n")
    return found


def kafkas(*arguments):
    done = subprocess.run(
        kafka_tools.command("kafka.tools.StateChangeLogMerger", *arguments),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if not line.startswith("WARNING: ")]


def ours(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "history", "merge", *arguments],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--topic", "orders"),
        ("--topic", "a.b_c-d", "--partitions", "0,3"),
        ("--start-time", "2026-11-23 12:00:20,000", "--end-time", "2026-11-23 12:01:00,500"),
    ],
)
def test_both_print_the_same_lines_in_the_same_order(tmp_path, options):
    chance = random.Random(7)
    paths = []
    for broker in range(3):
        paths.append(tmp_path / f"state-change-{broker}.log")
        paths[-1].write_text("".join(lines(chance, broker)))
    expected = kafkas("--logs", ",".join(map(str, paths)), *options)
    assert expected
    assert ours("--logs", ",".join(map(str, paths)), *options) == expected
    folder = f"{tmp_path}/state-change-.*"
    assert ours("--logs-regex", folder, *options) == expected
