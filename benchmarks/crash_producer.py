"""A producer with acks=all in a process of its own: one record to each partition every few ms.

Who may call: `crash.py`, which starts it and reads one line for each record that was delivered or
failed: partition, when it was handed to librdkafka, when that reported it (CLOCK_MONOTONIC, which
all processes share), error code (0: acknowledged). It ends when its standard input does.
    python benchmarks/crash_producer.py HOST:PORT,... TOPIC 0,3,6
"""

import functools
import sys
import threading
import time
from typing import Any

from confluent_kafka import Producer

PERIOD_S = 0.01
FLUSH_S = 30.0
VALUE = b"x" * 100
# The same for every system. What differs from librdkafka's defaults: it looks again soon for a
# leader that moved, so that the cluster is measured and not the client's own waits (with the
# defaults it asks for a new leader once a second, and tries a dead broker every 0.1 to 10 s).
SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "message.timeout.ms": 120_000,
    "log_level": 2,
}


def main() -> int:
    bootstrap, topic, listed = sys.argv[1:]
    partitions = [int(p) for p in listed.split(",")]
    lines: list[str] = []

    def reported(sent: float, error: Any, message: Any) -> None:
        code = 0 if error is None else error.code()
        lines.append(f"{message.partition()} {sent:.6f} {time.monotonic():.6f} {code}\n")

    def tell() -> None:
        if lines:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            lines.clear()

    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
    due = time.monotonic()
    while not ended.is_set():
        for partition in partitions:
            delivered = functools.partial(reported, time.monotonic())
            producer.produce(topic, VALUE, partition=partition, on_delivery=delivered)
        due = max(due + PERIOD_S, time.monotonic() - PERIOD_S)
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
            tell()
    left_over = producer.flush(FLUSH_S)
    tell()
    return 1 if left_over else 0


if __name__ == "__main__":
    sys.exit(main())
