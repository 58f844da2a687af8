"""Unreplicated transactions: those whose markers were above the high watermark at a clean stop.

Pure values, text in, text out. The last stable offset waits until their markers are replicated,
also after a restart. Kafka's producer snapshots hold only transactions without a marker, and Kafka
forgets these (`ProducerStateManager.unreplicatedTxns`). A JVM broker ignores the file: it looks
only at names that it knows. Invariants: the file counts only after a clean stop and for a log that
ends where the one ended that it was written of; a file that says too much holds the last stable
offset back until the high watermark passes the markers.
"""

import contextlib
from collections.abc import Mapping

NAME = ".ottla-decided"
"""In a partition's folder: `encode`'s text."""


def encode(log_end_offset: int, transactions: Mapping[int, int]) -> bytes:
    """Return the file's text; `transactions` maps first offset to marker offset."""
    lines = [f"log_end_offset={log_end_offset}"]
    lines += [f"decided={first}..{marker}" for first, marker in transactions.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def decode(data: bytes, log_end_offset: int) -> dict[int, int]:
    """Return what `encode` was given; empty if it is of a log with another end, or garbage."""
    found = {}
    head, *lines = data.decode("utf-8", "replace").split("\n")
    if head != f"log_end_offset={log_end_offset}":
        return {}
    for line in lines:
        key, _, value = line.partition("=")
        first, _, marker = value.partition("..")
        with contextlib.suppress(ValueError):
            if key == "decided" and 0 <= int(first) < int(marker) < log_end_offset:
                found[int(first)] = int(marker)
    return found
