"""A record that is to be produced, as far as its producer says what it is."""

from typing import NamedTuple


class NewRecord(NamedTuple):
    """What is to be written; None leaves time (now) and partition (by key) to the producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None
